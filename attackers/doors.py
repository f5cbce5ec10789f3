"""Doors of strangers that the server is to link with: sockets of ours, where whoever connects pays for what is kept.

Words: the server's name.
"""

import os
import select
import socket
import sys
import tempfile
import time

import wire

STRANGERS = 4
DOOR_WHERE, DOOR_OF = 17, 20


class Stranger:
    """A process that does nothing, and a socket that is said to be its door."""

    def __init__(self, place, number):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.path.join(place, str(number))
        self.listener.bind(path)
        os.chmod(path, 0o777)
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.door = os.open(path, os.O_PATH)
        self.pid = wire.fork(lambda: time.sleep(1000))
        self.incarnation = wire.incarnation(self.pid)


def main():
    link = wire.Link(sys.argv[1])
    link.socket.setblocking(False)
    place = tempfile.mkdtemp(prefix="handfast-doors-")
    os.chmod(place, 0o755)
    strangers = [Stranger(place, number) for number in range(STRANGERS)]
    kept, shown, number, said = [], 0, 100, False
    while not wire.is_told():
        units = []
        for stranger in strangers:
            number += 1
            units += wire.part_third(1 << 31, 256, 256, stranger.incarnation, number, stranger.pid)
        link.post(b"keep", units)
        time.sleep(0.005)
        listeners = [stranger.listener for stranger in strangers]
        ready, _, _ = select.select([link.socket, *listeners], [], [], 0.01)
        for one in ready:
            if one is not link.socket:
                kept.append(one.accept())
                continue
            data, _ = wire.receive(link.socket)
            if not data:
                wire.say("note cut")
                wire.until_told()
                break
            if data[0] == DOOR_WHERE:
                of = next(of for of in strangers if of.incarnation == data[2:18])
                shown += link.control(DOOR_OF, data[2:22], [of.door])
        if shown and not said:
            said = True
            wire.here()
    if kept:
        wire.breach(f"the server connected to {len(kept)} doors of another user's")
    wire.say(f"note {shown} doors shown, {number} rights")
    for stranger in strangers:
        os.close(stranger.door)
    for name in os.listdir(place):
        os.unlink(os.path.join(place, name))
    os.rmdir(place)


main()
