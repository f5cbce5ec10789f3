"""A link that brings rights by the hundred thousand, each by another name, and reads nothing of what comes back.

Words: the server's name.
"""

import sys
import time

import wire

# Names that an exporter can have at once.
NAMES = 1 << 20
# So many have to be under way before it counts.
MANY = 50_000


def right(number):
    """A right to a port of this process, by a name that was not used for long. The generations follow each other."""
    index, generation = number % NAMES, number // NAMES % 2048
    return wire.words16(1, 1 << 31 | generation << 20 | index, 256)


def main():
    link, number = wire.Link(sys.argv[1]), 0
    while not wire.is_told():
        for _ in range(200):
            units = [unit for each in range(number, number + 4) for unit in right(each)]
            while not link.post(b"", units):
                time.sleep(0.0001)
                if wire.is_told():
                    break
            number += 4
        if number % MANY < 800 and number > MANY:
            wire.here()
    wire.say(f"note {number} rights")


main()
