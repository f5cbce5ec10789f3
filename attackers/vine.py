"""Rights that a server keeps for one client and passes on to another, by the port at which it passes on messages for both.

`circle`: two such rights are said to have moved to that port itself, each to where the other is. `homes`: rights are said to have moved to
ever new incarnations of this process, which have them given back and never say what they are. `relays`: calls through it to many
links, which do not answer.

Words: the server's name, one of these, and for `relays` how many links.
"""

import os
import socket
import struct
import sys
import time

import wire

SAID, PROVIDE, MOVED = 3, 1, 42
OF_MOVED = 1 << 63
# A port of this process, at its first receiver.
PORT = 0x100
# As many calls as one link's return slots take for one user.
CALLS = 192
# Reply slots of calls that nobody waits for.
UNAWAITED = 5
# How often all is tried again.
PAUSE_S = 0.2


def unread(link):
    """Takes what the server says. Whether the link is there still."""
    link.socket.setblocking(False)
    try:
        while link.socket.recv(512):
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def drain(link):
    """Takes all messages that the server has sent here."""
    words = link.words
    for lane in range(wire.LANES):
        base = wire.SIDE_BYTES + wire.LANES_AT + lane * wire.LANE_BYTES
        if words[(base + 192) // 4] == 0:
            continue
        head = words[(base + 128) // 4]
        while words[(base + wire.SLOTS_AT + 64 * (head % wire.LANE_SLOTS)) // 4] == head + 1:
            head += 1
        words[(base + 128) // 4] = head
        words[(base + 64) // 4] = 0


def parts(link, index=0):
    """The parts of an answer, in words."""
    slot = wire.REPLIES_AT + 128 * index
    meta = link.words[slot // 4 + 1]
    at = wire.BUFFERS_AT + wire.BUFFER_BYTES * index if meta >> 17 & 1 else slot + 24
    at, count = at + (meta & 0x1FFFF), meta >> 20 & 15
    return struct.unpack(f"<{4 * count}I", bytes(link.region[at : at + 16 * count]))


def given(owner, to, handle):
    """A right of one link's to a port of this process, which the server passes on to the other: its name and port there."""
    owner.call(b"keep", wire.words16(1, handle, PORT))
    if to.call(b"pass") is None:
        raise ConnectionError("the server passes no right on")
    part = parts(to)
    return part[1], part[2]


def through(link, by, data, kind=wire.MESSAGE, units=(), **reply):
    """Posts to the port behind a right, in a lane that leads there."""
    handle, port = by
    lane, name = 1, link.welcome.port
    base = wire.LANES_AT + lane * wire.LANE_BYTES
    wire.touch(link.words, base, wire.ARENA_AT)
    link.welcome.port = port
    link.words[(base + 192) // 4] = link.receiver + 1
    posted = link.post(data, units, kind, lane, handle=handle, **reply)
    link.welcome.port = name
    return posted


def circle(name):
    one, other = wire.Link(name), wire.Link(name)
    names = 1 << 31 | 5, 1 << 31 | 7
    # Each has the other's right.
    theirs = given(one, other, names[0])
    ours = given(other, one, names[1])
    server = one.welcome.incarnation + one.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4]
    ends = (one, names[0], ours), (other, names[1], theirs)
    for link, handle, (_, port) in ends:
        drain(link)
        link.control(MOVED, struct.pack("<IIQ", handle, port, OF_MOVED | handle) + server)
    time.sleep(PAUSE_S)
    for link, handle, by in ends:
        through(link, by, struct.pack("<IIQ", PROVIDE, 0, OF_MOVED | handle) + server, SAID)
    time.sleep(PAUSE_S)
    for link, _, by in ends:
        drain(link)
        through(link, by, b"round")
        link.use(UNAWAITED)
        link.post(b"pass", (), wire.CALL, 0, UNAWAITED, 1)
        unread(link)
    time.sleep(PAUSE_S)
    one.close()
    other.close()


def circles(name):
    wire.here()
    while not wire.is_told():
        try:
            circle(name)
        except (OSError, ConnectionError, wire.Refused):
            # The server has cut a link.
            time.sleep(PAUSE_S)


def homes(name):
    introducer, kept, number = wire.Link(name), [], 0
    wire.here()
    while not wire.is_told():
        number += 1
        try:
            home = wire.Link(name, patience=3.0)
        except (OSError, ConnectionError, wire.Refused):
            time.sleep(PAUSE_S)
            continue
        kept.append(home)
        if len(kept) > 20:
            kept.pop(0).close()
        home.use(0)
        handle = 1 << 31 | number % 4096
        introducer.post(b"keep", wire.words16(1, handle, PORT))
        time.sleep(0.002)
        there = home.incarnation + struct.pack("<I", os.getpid())
        introducer.control(MOVED, struct.pack("<IIQ", handle, PORT, number | OF_MOVED) + there)
        time.sleep(0.002)
        home.post(b"pass", (), wire.CALL, 0, 0, 1)
        time.sleep(0.002)
        if not unread(introducer):
            wire.say("note the server has ended the link")
            break
        unread(home)
    wire.say(f"note {number} homes")


def relays(name, most):
    caller, links, sent = wire.Link(name), [], 0
    caller.use(UNAWAITED)
    for link in wire.links(name, most):
        by = given(link, caller, 1 << 31 | 5)
        links.append(link)
        for number in range(CALLS):
            sent += 1
            while not through(caller, by, b"hold", wire.CALL, reply=UNAWAITED, generation=sent):
                drain(link)
                unread(caller)
                time.sleep(0.0005)
        drain(link)
    wire.say(f"note {sent} calls to {len(links)} links")
    wire.here()
    while not wire.is_told():
        for link in [caller, *links]:
            drain(link)
            unread(link)
        time.sleep(0.02)


def main():
    name, how = sys.argv[1:3]
    if how == "circle":
        circles(name)
    elif how == "homes":
        homes(name)
    else:
        relays(name, int(sys.argv[3]))
    wire.until_told()


main()
