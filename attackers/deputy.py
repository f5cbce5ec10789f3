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
# Rights that are given at a time, and whose ports then have moved.
MANY = 64
# Rights that a server is to keep, which takes them all.
KEPT = 32768


def peer_pid(link):
    return struct.unpack("3i", link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def third(other, number):
    """Units of four rights to the other server's port, by numbers that nobody has provided."""
    identity, pid, port = other.welcome.incarnation, peer_pid(other), other.welcome.port
    units = []
    for step in range(4):
        units += wire.part_third(1 << 31, 256, port, identity, (number + step) | OF_MOVED, pid)
    return units


def moved(link, other, numbers):
    """Gives the server rights to ports of this process, which then are said to be the other server's. Waits until it has heard that."""
    handles = [1 << 31 | number % 60000 for number in numbers]
    text = b"keep" if len(handles) == 1 else b"keep all"
    for first in range(0, len(handles), 4):
        units = []
        for handle in handles[first : first + 4]:
            units += wire.words16(1, handle, 0x100, 0)
        link.post_all(text, units)
    home = other.welcome.incarnation + struct.pack("<I", peer_pid(other))
    for number, handle in zip(numbers, handles):
        said = struct.pack("<IIQ", handle, other.welcome.port, number | OF_MOVED) + home
        while not link.control(MOVED, said):
            time.sleep(0.0002)
            if link.heard() is None:
                raise ConnectionError("the server has ended the link")
    link.settles()


def strike(link, other, how, number, sent):
    """One more act. How many messages it was."""
    if how in ("kept", "used"):
        if how == "kept" and sent >= MESSAGES:
            time.sleep(0.01)
            return 0
        link.post_all(b"keep" if how == "kept" else b"use", third(other, number))
        link.settles()
        return 1
    if how == "calls":
        # In lanes of this process, for as long as there are slots.
        if sent >= 256:
            time.sleep(0.01)
            return 0
        link.use(sent)
        return int(link.post(b"hold", [], wire.CALL, sent // 16, sent, 1))
    if how == "many":
        if sent >= KEPT:
            time.sleep(0.01)
            return 0
        moved(link, other, range(number, number + MANY))
        return MANY
    moved(link, other, [number])
    if how == "pass":
        link.use(sent % 16)
        return int(link.post(b"pass", [], wire.CALL, 0, sent % 16, 1 + sent // 16))
    link.post_all(b"thin" if how == "thin" else b"use")
    return 1


def main():
    name, other_name, how = sys.argv[1], sys.argv[2], sys.argv[3]
    # One process for both, as which it is not taken for one that has ended.
    own = wire.incarnation()
    other = wire.Link(other_name, own)
    link = wire.Link(name, own)
    number, sent = 1000, 0
    wire.here()
    try:
        while not wire.is_told():
            sent += strike(link, other, how, number, sent)
            number += MANY
            link.taken()
            if link.heard() is None:
                raise ConnectionError("the server has ended the link")
    except ConnectionError as error:
        wire.say(f"note {error}")
    wire.say(f"note {sent} messages")
    wire.until_told()


main()
