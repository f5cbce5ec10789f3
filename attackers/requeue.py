"""Sleepers of the server's bells are moved to another futex, where no wake-up of their peers finds them.

Words: the server's name.
"""

import sys
import time

import wire

REQUEUE = 3
# In the last bell's line that means nothing.
ELSEWHERE = 256 * 63 + 192


def main():
    link = wire.Link(sys.argv[1])
    link.call(b"hello")
    _ = link.bells
    bell = 256 * link.receiver
    moved = 0
    wire.here()
    while not wire.is_told():
        for _ in range(50):
            found = link.futex(bell, REQUEUE, 0, 2**31 - 1, ELSEWHERE)
            moved += max(found, 0)
            time.sleep(0.0002)
    wire.say(f"note {moved} sleepers moved")


main()
