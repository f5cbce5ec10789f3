"""Many users, each for a moment: one after the other connects, calls and ends. Runs as root, its children do not.

Words: the server's name, the first user and how many.
"""

import os
import sys

import wire


def main():
    name, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    def visit():
        link = wire.Link(name, patience=1.0)
        link.call(b"hello", patience=1.0)

    served = 0
    for uid in range(first, first + count):
        _, status = os.waitpid(wire.fork(visit, uid), 0)
        served += status == 0
    wire.say(f"note {served} of {count} users served")
    if served < count:
        wire.breach(f"user number {served + 1} of those that came one after the other was refused")
    wire.here()
    wire.until_told()


main()
