"""As many links as there are, with calls in all lanes of each for as long as it goes on.

Words: the server's name, how many links by how many processes, and `awake` or `asleep`: whether the callers say that they sleep.
"""

import os
import resource
import sys
import time

import wire

ASLEEP = 1


class Crowd:
    """The lanes of some links, full of calls. Each slot is written once; after that only its number changes."""

    def __init__(self, name, most, asleep):
        self.asleep, self.links, self.called = asleep, wire.links(name, most), 0
        for link in self.links:
            for lane in range(wire.LANES):
                self.write(link, lane)

    def write(self, link, lane):
        words = link.words
        for number in range(wire.LANE_SLOTS):
            at = (wire.LANES_AT + lane * wire.LANE_BYTES + wire.SLOTS_AT + 64 * number) // 4
            words[at + 1] = 5 | wire.CALL << 18
            words[at + 2] = link.welcome.handle
            # The reply slot is the lane's, and so is what is answered there.
            words[at + 3] = lane
            words[at + 4] = 1

    def fill(self):
        """Posts as many calls as there is room for, and rings where a lane is armed."""
        for link in self.links:
            words, posted = link.words, link.posted
            for lane in range(wire.LANES):
                base = (wire.LANES_AT + lane * wire.LANE_BYTES) // 4
                first, end = posted[lane], words[base + 32] + wire.LANE_SLOTS & 0xFFFFFFFF
                if first == end:
                    continue
                if self.asleep:
                    words[(wire.REPLIES_AT + 128 * lane + 64) // 4] = ASLEEP
                slots = base + wire.SLOTS_AT // 4
                while first != end:
                    words[slots + 16 * (first % wire.LANE_SLOTS)] = first + 1 & 0xFFFFFFFF
                    first = first + 1 & 0xFFFFFFFF
                    self.called += 1
                posted[lane] = first
                if words[base + 16] == 0:
                    link.ring(lane)


def main():
    name, most, processes, asleep = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "asleep"
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    ready, told = os.pipe()

    def strike():
        crowd = Crowd(name, most // processes, asleep)
        crowd.fill()
        os.write(told, b"%d " % len(crowd.links))
        while True:
            called = crowd.called
            crowd.fill()
            if crowd.called == called:
                # All lanes are full: the server is to be busy, not the machine.
                time.sleep(0.001)

    for _ in range(processes):
        wire.fork(strike)
    links = b""
    while links.count(b" ") < processes:
        links += os.read(ready, 64)
    links = sum(map(int, links.split()))
    wire.say(f"note {links} links")
    wire.here()
    wire.until_told()


main()
