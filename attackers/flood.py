"""Many links, with calls in all lanes of each for as long as it goes on.

Words: the server's name, how many links by how many processes, how many lanes of each, and `awake` or `asleep`: whether the callers
say that they sleep. Or `working`: as `awake`, and each call takes the server a while. Or `dying`: each process is killed
as soon as its lanes are full, and another comes.
"""

import os
import resource
import signal
import sys
import time

import wire

ASLEEP = 1


class Crowd:
    """The lanes of some links, full of calls. Each slot is written once; after that only its number changes."""

    def __init__(self, name, most, lanes, asleep, text):
        self.asleep, self.lanes, self.text = asleep, range(lanes), text
        self.links = wire.links(name, most)
        for link in self.links:
            for lane in self.lanes:
                link.use(lane)
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
            link.region[4 * at + 24 : 4 * at + 29] = self.text

    def fill(self):
        """Posts as many calls as there is room for, and rings where a lane is armed."""
        for link in self.links:
            words, posted = link.words, link.posted
            for lane in self.lanes:
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
                posted[lane] = first
                if words[base + 16] == 0:
                    link.ring(lane)


def one_after_the_other(make):
    """Processes that are killed with their lanes full."""
    heard, told = os.pipe()

    def live():
        crowd = make()
        crowd.fill()
        os.write(told, b"%d " % len(crowd.links))
        signal.pause()

    while True:
        child = wire.fork(live)
        yield os.read(heard, 64)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main():
    name, asleep = sys.argv[1], sys.argv[5] == "asleep"
    dying = sys.argv[5] == "dying"
    working = sys.argv[5] == "working"
    text = b"works" if working else bytes(5)
    most, processes, lanes = map(int, sys.argv[2:5])
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    ready, told = os.pipe()

    def make():
        return Crowd(name, most // processes, lanes, asleep, text)

    def strike():
        if dying:
            for links in one_after_the_other(make):
                os.write(told, links)
        crowd = make()
        crowd.fill()
        os.write(told, b"%d " % len(crowd.links))
        while True:
            crowd.fill()
            # What there is takes longer.
            if working:
                time.sleep(0.0002)

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
