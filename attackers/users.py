"""Many users at once, each with a link and for good. Some of those that came last wake and move whoever sleeps in the server's bells,
over and over: who comes after them may share those bells. Runs as root, its children do not.

Words: the server's name, the first user and how many.
"""

import os
import select
import sys
import time

import wire

WAKE, REQUEUE = 1, 3
# In the last bell's line that means nothing.
ELSEWHERE = 256 * 63 + 192
MEDDLERS = 2


def main():
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ready, served = os.pipe()

    def stay(number):
        link = wire.Link(name, patience=5.0)
        link.call(b"hello", patience=5.0)
        os.write(served, b"+")
        bell = 256 * link.receiver
        _ = link.bells
        while number >= count - MEDDLERS:
            link.futex(bell, REQUEUE, 0, 2**31 - 1, ELSEWHERE)
            link.futex(bell, WAKE, 2**31 - 1)
            time.sleep(0.002)
        # Whatever the server says, to the end of the link, or of this one's parent.
        link.socket.settimeout(None)
        while wire.receive(link.socket)[0]:
            pass

    for number in range(count):
        wire.fork(lambda number=number: stay(number), first + number)
    came, end = 0, time.monotonic() + 8
    while came < count and select.select([ready], [], [], max(0, end - time.monotonic()))[0]:
        came += len(os.read(ready, 4096))
    wire.say(f"note {came} of {count} users served, all of whom stay")
    if came < count:
        wire.breach(f"{count - came} of {count} users that stay were kept out by the others")
    wire.here()
    wire.until_told()


main()
