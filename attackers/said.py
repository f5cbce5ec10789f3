"""What a peer says in its lanes about rights, by the hundred thousand.

`thinned`: a right to a port that the server has opened is attenuated in every way, under several words each; then the server ends the
port. `ends`: a right to a port that stays is attenuated so, and other ports are opened and ended all the time. `claimed`: claims of what nobody provides, for which the server waits a minute, and further ones. `provided`: rights that are
provided to recipients that nobody has heard of, by processes that end. `told`: ends of ports, at a port whose receive right the server
has been given.

Words: the server's name, and one of these.
"""

import itertools
import os
import signal
import struct
import sys
import time

import wire

PROVIDE, CLAIM, TOLD, ATTENUATE = 1, 2, 5, 6
# A part, and a control message.
RECEIVE, SETTLED = 5, 40
# A return slot of a party that is none of this link's.
NOWHERE = 0xFFFFFF00
MASKS = 65536
THINNED, ENDS, CLAIMED = 5 * MASKS, 400000, 200000
# As many as one process may, and as further ones of the same user.
PROVIDED = (24576, 12288, 6144)
# Of a port that has moved: what waits for that waits a minute.
MOVED = 1 << 63


# So many statements at a time.
EACH = 4096


def say_all(link, texts, handle, reply=0):
    """Says these in lane 0, until they have been heard. The seconds it took."""
    begun, texts = time.monotonic(), iter(texts)
    while True:
        some = list(itertools.islice(texts, EACH))
        if not some:
            break
        if not link.say_all(some, handle, reply):
            wire.say("note the server has ended the link")
            wire.until_told()
            sys.exit()
    while link.room(0) < wire.LANE_SLOTS:
        if link.heard() is None:
            break
        time.sleep(0.0005)
    return time.monotonic() - begun


def thinned(name):
    link = wire.Link(name)
    key = link.call(b"open")
    _, handle = struct.unpack_from("<II", link.region, wire.REPLIES_AT + 24 + len(key))
    texts = (struct.pack("<IIQ20x", ATTENUATE, word, word % MASKS) for word in range(1, THINNED + 1))
    took = say_all(link, texts, handle, NOWHERE)
    wire.say(f"note {THINNED} attenuations in {took:.1f} s")
    wire.here()
    begun = time.monotonic()
    link.call(b"!" + key, patience=30)
    wire.say(f"note the port ended within {time.monotonic() - begun:.2f} s")


def ends(name):
    link = wire.Link(name)
    texts = (struct.pack("<IIQ20x", ATTENUATE, word, word % MASKS) for word in range(1, ENDS + 1))
    took = say_all(link, texts, link.welcome.handle, NOWHERE)
    wire.say(f"note {ENDS} attenuations in {took:.1f} s")
    wire.here()
    count = 0
    while not wire.is_told() and link.heard() is not None:
        keys = [link.call(b"open", patience=30) for _ in range(8)]
        for key in keys:
            while not link.post(b"!" + key):
                time.sleep(0.0005)
        count += len(keys)
    wire.say(f"note {count} ports ended")


def claimed(name):
    link = wire.Link(name)
    introducer = os.urandom(16) + struct.pack("<I", os.getpid())

    def claims(first, count):
        return (struct.pack("<IIQ", CLAIM, word, MOVED | word) + introducer for word in range(first, first + count))

    took = say_all(link, claims(1, CLAIMED), 0, NOWHERE)
    wire.say(f"note {CLAIMED} claims in {took:.1f} s")
    wire.here()
    word = CLAIMED
    while not wire.is_told():
        word += 1
        say_all(link, claims(word, 1), 0, NOWHERE)
        time.sleep(0.01)
    wire.say(f"note {word - CLAIMED} claims since")


def provided(name):
    pid = os.getpid()
    ready, done = os.pipe()

    def provide(count):
        link = wire.Link(name)
        texts = (struct.pack("<IIQQQI", PROVIDE, 0, number, number, pid, pid) for number in range(1, count + 1))
        say_all(link, texts, link.welcome.handle)
        os.write(done, b"+")
        signal.pause()

    children = []
    for count in PROVIDED:
        children.append(wire.fork(lambda: provide(count)))
        os.read(ready, 1)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    wire.say(f"note {sum(PROVIDED)} rights provided")
    wire.here()


def told(name):
    link = wire.Link(name)
    link.call(b"receive", wire.words16(RECEIVE, 1, 0, 0))
    said = b""
    while not said or said[0] != SETTLED:
        said = wire.receive(link.socket)[0]
    _, port, handle = struct.unpack_from("<III", said, 2)
    # The lane leads there.
    link.welcome.port = port
    text, lane = struct.pack("<IIQ20x", TOLD, 0, 7), 1
    base = wire.LANES_AT + lane * wire.LANE_BYTES
    link.words[(base + 192) // 4] = link.receiver + 1
    for _ in range(wire.LANE_SLOTS):
        link.post(text, (), wire.SAID, lane=lane, handle=handle)
    wire.here()
    words, number = link.words, wire.LANE_SLOTS
    while not wire.is_told():
        # Each slot has been written; from now on its number changes.
        for _ in range(1000):
            for _ in range(link.room(lane)):
                words[(base + wire.SLOTS_AT + 64 * (number % wire.LANE_SLOTS)) // 4] = number + 1 & 0xFFFFFFFF
                number += 1
            link.posted[lane] = number & 0xFFFFFFFF
            if words[(base + 64) // 4] == 0:
                link.ring(lane)
        if link.heard() is None:
            wire.say("note the server has ended the link")
            break
    wire.say(f"note {number} ends of ports told")


def main():
    {"thinned": thinned, "ends": ends, "claimed": claimed, "provided": provided, "told": told}[sys.argv[2]](sys.argv[1])
    wire.until_told()


main()
