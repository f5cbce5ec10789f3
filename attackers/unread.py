"""Links that ask for much and read nothing of what comes.

Words: the server's name, and what is asked for: `counters`, `door` (a descriptor each), `parts` (rights to ports of strangers, for
each of which the server asks where the stranger's door is), `kept` (the same, and the server keeps the last of them).
"""

import random
import struct
import sys
import time

import wire

LINKS = 5
EACH = 600


def asked(link, what, number):
    if what == "counters":
        return link.control(wire.STAT)
    return link.control(wire.SHOW_DOOR, struct.pack("<I", number & 0x7FFFFFFF | 1))


def flood(links, what):
    for link in links:
        for number in range(EACH):
            if not asked(link, what, number):
                break
    wire.here()
    number = EACH
    while not wire.is_told():
        # What has been freed is asked for again.
        for link in links:
            number += 1
            asked(link, what, number)
        time.sleep(0.001)


def parts(link, text):
    randomness, sent = random.Random(1), 0
    said = False
    while not wire.is_told():
        for _ in range(200):
            units = []
            for _ in range(4):
                exporter = randomness.getrandbits(128).to_bytes(16, "little")
                number = randomness.getrandbits(62)
                units += wire.part_third(1 << 31, 256, 256, exporter, number, 1)
            while not link.post(text, units):
                time.sleep(0.0001)
                if wire.is_told():
                    break
            sent += 4
        if not said and sent >= 20_000:
            said = True
            wire.here()
    wire.say(f"note {sent} parts")


def main():
    name, what = sys.argv[1:3]
    if what in ("parts", "kept"):
        parts(wire.Link(name), b"keep" if what == "kept" else b"")
        return
    links = []
    for _ in range(LINKS):
        try:
            links.append(wire.Link(name))
        except (OSError, wire.Refused):
            break
    flood(links, what)


main()
