"""Places in links that nobody has touched, named for the server to read or write: it would pay for the pages.

Words: the server's name, and what is named: `replies` (slots and buffers of calls that are answered at length) or `blocks` (of messages).
"""

import sys
import time

import wire

LINKS = 12
LONG = b"x" * 60_000


def is_cut(link):
    try:
        link.socket.setblocking(False)
        while link.socket.recv(256):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def post(link, *arguments, **words):
    """Whether it was posted before the link was cut."""
    while not link.post(*arguments, **words):
        if wire.is_told() or is_cut(link):
            return False
        time.sleep(0.0005)
    return True


def replies(name):
    link = wire.Link(name)
    link.call(b"hello", index=0)
    for index in range(1, 256):
        if not post(link, LONG, kind=wire.CALL, reply=index, generation=1):
            break
    end = time.monotonic() + 0.2
    while time.monotonic() < end and not is_cut(link) and not wire.is_told():
        if link.words[(wire.REPLIES_AT + 128) // 4] == 1:
            wire.breach("an answer was written where nobody had touched anything")
            break
        time.sleep(0.001)
    return link


def blocks(name):
    link = wire.Link(name)
    link.call(b"hello", index=0)
    for lane in range(wire.LANES):
        for block in range(4):
            # As long as a block is, at a place where nothing was ever written.
            if not post(link, b"", lane=lane, at=64 * 1024 + 16 * 8192 + block * 65728, length=65536):
                return link
    if not is_cut(link) and link.call(b"well", index=0) == b"well":
        wire.breach("messages were read where nobody had written any")
    return link


def main():
    name, what = sys.argv[1], sys.argv[2]
    attack = {"replies": replies, "blocks": blocks}[what]
    links, cut = [], 0
    while not wire.is_told():
        try:
            links.append(attack(name))
        except (wire.Refused, OSError, TimeoutError):
            cut += 1
        if len(links) == LINKS:
            for link in links:
                link.close()
            links = []
        if cut + len(links) == 1:
            wire.here()
    wire.say(f"note {cut} attempts ended early")


main()
