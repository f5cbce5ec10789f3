"""A receive right with a listening socket, which blocks in `accept` from after its arrival on.

The file status flags belong to the open file, not to the descriptor: who sends a descriptor can change them later. Words: the
server's name.
"""

import fcntl
import os
import socket
import sys
import time

import wire

COUNT = 4


def main():
    name = sys.argv[1]
    kept = []
    for turn in range(COUNT):
        try:
            link = wire.Link(name, patience=1.0)
        except (OSError, wire.Refused):
            break
        own = f"foul-{os.getpid()}-{turn}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(wire.path(own))
        listener.listen(8)
        listener.setblocking(False)
        status = os.stat(wire.path(own))
        number = link.give([listener.fileno()])
        part = wire.part_receive(turn + 1, number, own, (status.st_dev, status.st_ino))
        try:
            link.call(b"take", part, patience=1.0)
        except (TimeoutError, ConnectionError):
            pass
        # It has armed what came by now, if it ever does.
        time.sleep(0.05)
        flags = fcntl.fcntl(listener, fcntl.F_GETFL)
        fcntl.fcntl(listener, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller.setblocking(False)
        try:
            caller.connect(wire.path(own))
        except OSError:
            pass
        kept.append((link, listener, caller))
    wire.here()
    wire.until_told()


main()
