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

PROVIDE, MOVED = 1, 42
OF_MOVED = 1 << 63
# A port of this process, at its first receiver.
PORT = 0x100
# As many calls as one link's return slots take for one user.
CALLS = 192
# Reply slots of calls that nobody waits for.
UNAWAITED = 5
# How long statements in lanes take to be heard, on a busy machine.
PAUSE_S = 0.01


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
        link.taken()
        link.control(MOVED, struct.pack("<IIQ", handle, port, OF_MOVED | handle) + server)
    for link, handle, by in ends:
        link.settles()
        through(link, by, struct.pack("<IIQ", PROVIDE, 0, OF_MOVED | handle) + server, wire.SAID)
    time.sleep(PAUSE_S)
    for link, _, by in ends:
        link.taken()
        through(link, by, b"round")
        link.use(UNAWAITED)
        link.post(b"pass", (), wire.CALL, 0, UNAWAITED, 1)
    time.sleep(PAUSE_S)
    for link in (one, other):
        link.heard()
        link.close()


def circles(name):
    wire.here()
    count = 0
    while not wire.is_told():
        try:
            circle(name)
            count += 1
        except (OSError, ConnectionError, wire.Refused):
            # The server has cut a link.
            time.sleep(PAUSE_S)
    wire.say(f"note {count} circles")


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
        introducer.post_all(b"keep", wire.words16(1, handle, PORT))
        there = home.incarnation + struct.pack("<I", os.getpid())
        introducer.control(MOVED, struct.pack("<IIQ", handle, PORT, number | OF_MOVED) + there)
        introducer.settles()
        home.post(b"pass", (), wire.CALL, 0, 0, 1)
        introducer.taken()
        home.taken()
        if introducer.heard() is None:
            wire.say("note the server has ended the link")
            break
        home.heard()
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
                link.taken()
                caller.heard()
                time.sleep(0.0002)
        link.taken()
    wire.say(f"note {sent} calls to {len(links)} links")
    wire.here()
    while not wire.is_told():
        for link in [caller, *links]:
            link.taken()
            link.heard()
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
