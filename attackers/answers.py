"""Answers that nobody gives: in slots that a server has named for answers to its claims.

`claims`: rights where a claimed right's handle is to be, by two links, each of which names the other: a server that takes such rights up
claims them in turn, and takes the answers to those claims. `replies`: answers with rights in all slots, which the server never takes, while
rights are given back: what the server keeps of the answers for each of them.

Words: the server's name, and one of these.
"""

import array
import fcntl
import os
import struct
import sys
import termios
import time

import wire

CLAIM, ATTENUATE = 2, 6
# A return slot of a party that is none of this link's.
NOWHERE = 0xFFFFFF00
# As many claims as a server has unanswered by one link, on the word of one other user; and messages of four rights for them.
CLAIMS = 16
MESSAGES = CLAIMS // 4
# How long the claims of rights that were told of are waited for.
CLAIMED_S = 0.5
MASKS = 65536
# How many rights are given back at least before it counts.
BACK = 2000


def identity(link):
    """A link's identity as this process tells it to the server."""
    return link.incarnation, os.getpid()


def third(end, number):
    """Units of four rights to a port of this process, behind one link's end."""
    incarnation, pid = identity(end)
    units = []
    for step in range(4):
        units += wire.part_third(1 << 31 | 9, 256, 256, incarnation, number + step, pid)
    return units


def claimed(end, count):
    """So many claims of the server's, as they come: slots and generations."""
    claims, until = [], time.monotonic() + CLAIMED_S
    while len(claims) < count and time.monotonic() < until:
        for kind, _, reply, generation, text in end.taken():
            if kind == wire.SAID and text[0] == CLAIM:
                claims.append((wire.OWN_SLOTS + (reply & 0xFF), generation))
        time.sleep(0.0005)
    return claims


def answered(introducer, name, number):
    """Has the server claim rights by two links, answers with rights of the other, and has all of them used. How many answers."""
    ends = wire.links(name, 2)
    count = 0
    for end in ends:
        for message in range(MESSAGES):
            introducer.post_all(b"keep", third(end, number + 4 * message))
        number += CLAIMS
    for end, other in zip(ends, reversed(ends)):
        for index, generation in claimed(end, CLAIMS):
            end.answer(index, generation, b"", third(other, number))
            number, count = number + 4, count + 1
    # The last of them are used.
    for _ in range(MESSAGES):
        introducer.post_all(b"use", ())
    time.sleep(0.01)
    is_cut = sum(end.heard() is None for end in ends)
    for end in ends:
        end.close()
    return number, count, is_cut


def claims(name):
    introducer = wire.Link(name)
    number, answers, cuts = 1000, 0, 0
    while not wire.is_told():
        try:
            number, count, is_cut = answered(introducer, name, number)
        except (OSError, wire.Refused):
            time.sleep(0.01)
            continue
        answers, cuts = answers + count, cuts + is_cut
        if answers and answers == count:
            wire.here()
        if introducer.heard() is None:
            wire.say("note the server has ended the link")
            break
    wire.say(f"note {answers} answers, {cuts} links cut")


def is_read(link):
    """Whether the server has read all that was said."""
    left = array.array("i", [0])
    fcntl.ioctl(link.socket, termios.TIOCOUTQ, left)
    return left[0] == 0


def replies(name):
    introducer, link = wire.links(name, 2)
    introducer.post_all(b"keep", third(link, 1000))
    # From now on the server looks at these slots.
    found = claimed(link, 1)
    if not found:
        wire.say("note nothing was claimed")
        return
    for index in range(wire.OWN_SLOTS, 2 * wire.OWN_SLOTS):
        link.answer(index, 1 << 30, b"", wire.words16(2, 1 << 31))
    word = 0
    while not wire.is_told():
        first = word + 1
        for _ in range(wire.LANE_SLOTS // 2):
            word += 1
            text = struct.pack("<IIQ20x", ATTENUATE, word, word % MASKS)
            link.post_all(text, (), wire.SAID, reply=NOWHERE, generation=1)
        while link.room(0) < wire.LANE_SLOTS:
            time.sleep(0.0001)
        for back in range(first, word + 1):
            while not link.control(wire.RELEASED, struct.pack("<II", back, 1)):
                if link.heard() is None:
                    wire.say(f"note the server has ended the link after {back} rights")
                    return
                time.sleep(0.0005)
            while not is_read(link):
                time.sleep(0)
            # One answer is another each time; the others stay.
            link.answer(wire.OWN_SLOTS, (1 << 30) + back, b"", wire.words16(2, 1 << 31))
        if first <= BACK <= word:
            wire.here()
        if link.heard() is None:
            wire.say(f"note the server has ended the link after {word} rights")
            return
    wire.say(f"note {word} rights given back")


def main():
    {"claims": claims, "replies": replies}[sys.argv[2]](sys.argv[1])
    wire.until_told()


main()
