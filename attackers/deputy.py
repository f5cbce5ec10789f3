"""A server that is to hurt others on this user's word: it is given rights to ports of another server that do not exist, or that are
said to have moved there. It claims each at that server, by its own link, which it uses for all its clients.

Words: the server's name, the other server's name, and one of `kept`, `used`, `moved`, `thin`, `pass`, `many`, `calls`.
"""

import os
import socket
import struct
import sys
import time

import wire

MOVED = 42
# Numbers of ports that have moved are waited for a minute.
OF_MOVED = 1 << 63
# Messages with four rights each: as many as the server has return slots.
MESSAGES = 64


def peer_pid(link):
    return struct.unpack("3i", link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def unread(link):
    """Takes what the server says. Whether it says nothing more."""
    try:
        while link.socket.recv(512):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def third(other, number):
    """Units of four rights to the other server's port, by numbers that nobody has provided."""
    identity, pid, port = other.welcome.incarnation, peer_pid(other), other.welcome.port
    units = []
    for step in range(4):
        units += wire.part_third(1 << 31, 256, port, identity, (number + step) | OF_MOVED, pid)
    return units


def moved(link, other, number):
    """Gives the server a right to a port of this process, which then is said to be the other server's."""
    handle = 1 << 31 | number % 4096
    while not link.post(b"keep", wire.words16(1, handle, 0x100, 0)):
        time.sleep(0.0005)
    time.sleep(0.002)
    home = other.welcome.incarnation + struct.pack("<I", peer_pid(other))
    link.control(MOVED, struct.pack("<IIQ", handle, other.welcome.port, number | OF_MOVED) + home)


def many(link, other, number):
    """Gives the server 64 rights, and says of all that they have moved. How many."""
    handles = [1 << 31 | (number + step) % 60000 for step in range(64)]
    for first in range(0, 64, 4):
        units = []
        for handle in handles[first : first + 4]:
            units += wire.words16(1, handle, 0x100, 0)
        while not link.post(b"keep all", units):
            time.sleep(0.0005)
            if unread(link):
                return 0
    time.sleep(0.002)
    home = other.welcome.incarnation + struct.pack("<I", peer_pid(other))
    for handle in handles:
        while not link.control(MOVED, struct.pack("<IIQ", handle, other.welcome.port, handle | OF_MOVED) + home):
            time.sleep(0.0005)
            if unread(link):
                return 0
    return 64


def main():
    name, other_name, how = sys.argv[1], sys.argv[2], sys.argv[3]
    # One process for both, as which it is not taken for one that has ended.
    own = wire.incarnation()
    other = wire.Link(other_name, own)
    link = wire.Link(name, own)
    link.socket.setblocking(False)
    number, sent = 1000, 0
    wire.here()
    while not wire.is_told():
        if how == "kept":
            if sent < MESSAGES:
                sent += link.post(b"keep", third(other, number))
            else:
                time.sleep(0.01)
        elif how == "used":
            sent += link.post(b"use", third(other, number))
            time.sleep(0.005)
        elif how == "thin":
            moved(link, other, number)
            sent += link.post(b"thin", [])
            time.sleep(0.005)
        elif how == "pass":
            moved(link, other, number)
            link.use(sent % 16)
            sent += link.post(b"pass", [], wire.CALL, 0, sent % 16, 1 + sent // 16)
            time.sleep(0.005)
        elif how == "many":
            sent += many(link, other, number)
            number += 60
        elif how == "calls":
            # In lanes of this process, for as long as there are slots.
            if sent < 256:
                link.use(sent)
                sent += link.post(b"hold", [], wire.CALL, sent // 16, sent, 1)
            else:
                time.sleep(0.01)
        else:
            moved(link, other, number)
            sent += link.post(b"use", [])
            time.sleep(0.005)
        number += 4
        if unread(link):
            wire.say("note the server has ended the link")
            break
    wire.say(f"note {sent} messages")
    wire.until_told()


main()
