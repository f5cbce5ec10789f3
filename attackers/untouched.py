"""Places in links that nobody has touched, named for the server to read or write: it would pay for the pages.

Words: the server's name, and what is named: `replies` (slots and buffers of calls that are answered at length), `blocks` (of messages), or
`looks` (lanes that ring, and slots of callers that might sleep).
"""

import os
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


def is_there(link, at):
    """Whether somebody has touched the page there."""
    try:
        return os.lseek(link.region_fd, at, os.SEEK_DATA) // wire.PAGE == at // wire.PAGE
    except OSError:
        return False


def looks(name):
    """What is looked at before anything is taken: is it a call whose caller sleeps?"""
    link = wire.Link(name)
    link.call(b"hello", index=0)
    # The server may have looked at the page before, for the call.
    slot, lane = 200, 1 + link.welcome.link % (wire.LANES - 1)
    if link.welcome.link % 2:
        # Nothing in the lane was ever touched.
        link.ring(lane)
        at = wire.LANES_AT + lane * wire.LANE_BYTES
    else:
        # In a lane that rings, and in one that is looked at already.
        at = wire.REPLIES_AT + 128 * slot
        if not post(link, b"", kind=wire.CALL, lane=link.welcome.link // 2 % 2, reply=slot, generation=1):
            return link
    end = time.monotonic() + 0.2
    while time.monotonic() < end and not is_cut(link) and not wire.is_told():
        time.sleep(0.001)
    if is_there(link, at):
        wire.breach("the server looked at what nobody had touched")
    return link


def main():
    name, what = sys.argv[1], sys.argv[2]
    attack = {"replies": replies, "blocks": blocks, "looks": looks}[what]
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
