"""Memory that is whole only by blocks behind its end, and an arena like that: whoever reads it has the pages made at its expense.

Words: the server's name, `memory` or `arena`, and how many MiB.
"""

import ctypes
import fcntl
import os
import struct
import sys

import wire

KEEP_SIZE = 1


def file_of(length, seals):
    fd = wire.memory_file(length, seals=0)
    call = wire.libc.fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    if call(fd, KEEP_SIZE, length, length) != 0:
        wire.say("unable no blocks behind the end of a memory file")
    fcntl.fcntl(fd, wire.F_ADD_SEALS, seals | wire.SEAL_SHRINK | wire.SEAL_GROW | wire.SEAL_SEAL)
    return fd


def main():
    name, what, length = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
    link = wire.Link(name)
    link.call(b"hello")
    kept = None
    if what == "memory":
        fd = file_of(length, wire.SEAL_WRITE)
        part = wire.part_memory(link.give([fd]), length)
    else:
        fd = file_of(length, wire.SEAL_FUTURE_WRITE)
        number, block = 1 << 8, 1 << 20
        link.control(wire.ARENA, struct.pack("<HIIIQ", 0, number, length // block, 0, block), [fd])
        part = None
    try:
        if part is None:
            kept = link.call(b"keep", wire.part_loan(number, 0, 0, 1, block), patience=1.0)
        else:
            kept = link.call(b"keep", part, patience=1.0)
    except (TimeoutError, ConnectionError):
        pass
    if kept in (b"memory", b"loan"):
        wire.breach(f"{what} without its blocks was taken for whole")
        # Behind the end there is nothing any more, which the seals allow.
        os.ftruncate(fd, length)
        try:
            if part is None:
                for loan in range(1, min(length // block, 200)):
                    link.call(b"keep", wire.part_loan(number, loan, loan, 1, block), patience=1.0)
            link.call(b"read", patience=3.0)
        except (TimeoutError, ConnectionError):
            pass
    wire.say(f"note answered {kept!r}")
    wire.here()
    wire.until_told()


main()
