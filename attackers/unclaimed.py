"""Descriptors that no message names, by as many links as there are: 64 each, and counters that nobody asked for.

Words: the server's name.
"""

import resource
import sys
import time

import wire

LINKS = 64


def main():
    name = sys.argv[1]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    links, descriptors = [], 0
    counters = wire.memory_file((64 + 1024) * 128 + 64 * 64)
    for _ in range(LINKS):
        try:
            link = wire.Link(name, patience=1.0)
        except (OSError, wire.Refused, ConnectionError):
            break
        links.append(link)
        try:
            for _ in range(16):
                link.give([link.own_bells] * 4)
                descriptors += 4
            descriptors += link.control(wire.COUNTERS, fds=[counters])
        except ConnectionError:
            pass
        if len(links) == 16:
            time.sleep(0.2)
    wire.say(f"note {len(links)} links, {descriptors} descriptors sent")
    wire.here()
    wire.until_told()


main()
