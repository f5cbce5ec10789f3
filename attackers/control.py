"""Many links, and control messages through all of them: each costs the server's control thread more than its sender.

Words: the server's name, and how many links.
"""

import os
import struct
import sys

import wire

PATH_WANT = 7
EACH = 64


def main():
    links = wire.links(sys.argv[1], int(sys.argv[2]))
    wire.say(f"note {len(links)} links")
    for link in links:
        link.socket.setblocking(False)
    # A path from a link that this process does not have: the server looks at all of its own.
    stranger = links[0].incarnation + struct.pack("<I", os.getpid())
    wanted = struct.pack("<I20sII", 1, stranger, 0, 0)
    wire.here()
    while not wire.is_told():
        for link in links:
            for _ in range(EACH):
                if not link.control(PATH_WANT, wanted):
                    break
            try:
                # What the server answers is read.
                while link.socket.recv(512):
                    pass
            except BlockingIOError:
                pass


main()
