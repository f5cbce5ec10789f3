"""Lanes whose messages wait. `stay`: each names a word that is claimed, of an introducer who never provides it. `dead`: each names a
word that is not claimed, and the link ends at once; then the next one.

Words: the server's name, how many links, and one of these.
"""

import os
import resource
import struct
import sys
import time

import wire

SAID, CLAIM = 3, 2
# Of a port that has moved: what waits for that waits a minute.
MOVED = 1 << 63


def claim(link, lane, word, introducer):
    number = MOVED | word << 8 | lane
    said = struct.pack("<IIQ16sI", CLAIM, word, number, introducer, os.getpid())
    # A reply right: the sender itself is party 0, and names one of its own return slots.
    link.use(wire.OWN_SLOTS + lane)
    return link.post(said, kind=SAID, lane=lane, reply=lane, generation=1, handle=0)


def leave(name):
    """A link that ends with its messages."""
    link = wire.Link(name)
    for lane in range(wire.LANES):
        link.post(b"waits", lane=lane, handle=lane + 1)


def main():
    name, most = sys.argv[1], int(sys.argv[2])
    if sys.argv[3] == "dead":
        wire.here()
        for _ in range(most):
            os.waitpid(wire.fork(lambda: leave(name)), 0)
            time.sleep(0.02)
            if wire.is_told():
                break
        return
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    links, lanes = wire.links(name, most), 0
    introducer = links[0].incarnation
    for link in links:
        for lane in range(wire.LANES):
            if claim(link, lane, lane + 1, introducer):
                lanes += link.post(b"waits", lane=lane, handle=lane + 1)
    wire.say(f"note {lanes} lanes of {len(links)} links wait")
    wire.here()
    wire.until_told()
    # Those who wait have not been taken.
    heads = [link.room(lane) for link in links for lane in range(wire.LANES)]
    wire.say(f"note {sum(room == wire.LANE_SLOTS for room in heads)} lanes are empty")


main()
