"""Sockets whose close waits: connected over TCP, with data that nobody reads and SO_LINGER.

Words: the server's name, and the way: `hello` (instead of the bells, and behind them), `control` (with messages that have no
descriptor, and unclaimed when the link ends), `message` (named by a part of a message that nobody asked for).
"""

import os
import sys
import threading

import wire

LINGER_S = 600
EACH = 3

# Peers that never read, and links that stay.
kept = []


def deaf():
    caller, peer = wire.deaf_socket(LINGER_S)
    kept.append(peer)
    return caller.detach()


def hello(name):
    connection, fd = wire.connect(name, 1.0), deaf()
    kept.append(connection)
    wire.send(connection, wire.hello(name, wire.incarnation()), [fd])
    # At once: the last close is to be the server's.
    os.close(fd)


def behind_bells(name):
    connection, bells, fd = wire.connect(name, 1.0), wire.own_bells(), deaf()
    kept.append(connection)
    wire.send(connection, wire.hello(name, wire.incarnation()), [bells, fd])
    os.close(fd)


def surplus(name):
    link = wire.Link(name, patience=1.0)
    kept.append(link)
    for what in (wire.RING, wire.STAT, 200):
        fd = deaf()
        link.control(what, fds=[fd], argument=255)
        os.close(fd)


def unclaimed(name):
    link, fd = wire.Link(name, patience=1.0), deaf()
    link.give([fd])
    os.close(fd)
    link.close()


def message(name):
    link = wire.Link(name, patience=1.0)
    kept.append(link)
    for number in range(4):
        fd = deaf()
        part = wire.part_descriptor(link.give([fd]))
        os.close(fd)
        link.post(b"", part, lane=number % 2)


WAYS = {"hello": [hello, behind_bells], "control": [surplus, unclaimed], "message": [message]}


def attempt(way, name):
    try:
        way(name)
    except (OSError, ConnectionError, wire.Refused):
        pass


def main():
    name, ways = sys.argv[1], WAYS[sys.argv[2]]
    for way in ways:
        for _ in range(EACH):
            # Where the server was quicker, the close that waits is this process's.
            thread = threading.Thread(target=attempt, args=(way, name), daemon=True)
            thread.start()
            thread.join(1.5)
    wire.here()
    wire.until_told()
    # Threads that wait in a close do not keep this process.
    os._exit(0)


main()
