"""A receive right whose listening socket has options that bring more with each message than was sent: the sockets that its receiver
accepts have them, too. For each hello the receiver may get a process descriptor that nobody counts.

Words: the server's name, and how many hellos.
"""

import os
import socket
import sys
import time

import wire

SO_PASSPIDFD = 76


def main():
    name, count = sys.argv[1], int(sys.argv[2])
    link = wire.Link(name)
    own = f"foul-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(wire.path(own))
    listener.listen(64)
    listener.setblocking(False)
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, 1)
    except OSError as error:
        wire.say(f"unable {error}")
    status = os.stat(wire.path(own))
    number = link.give([listener.fileno()])
    part = wire.part_receive(1, number, own, (status.st_dev, status.st_ino))
    link.call(b"take up", part, patience=2.0)
    wire.here()
    sent = refused = 0
    while not wire.is_told():
        if sent == count:
            time.sleep(0.01)
            continue
        try:
            connection = wire.connect(own, 1.0)
            # The bells do not come with it.
            wire.send(connection, wire.hello(own, wire.incarnation()))
            wire.receive(connection, 256)
            connection.close()
            sent += 1
        except (OSError, wire.Refused):
            refused += 1
            time.sleep(0.01)
    wire.say(f"note {sent} hellos, {refused} refused")
    wire.until_told()


main()
