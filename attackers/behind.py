"""Memory whose pages take long to count: a server that looks at each of them lets others wait. Its owner pays for them once.

Words: the server's name, how many MiB, and where they are: `behind` the end of one page; `one`, all of them within but for one that is
behind; `holes`, all of them behind the end of as many that are missing.
"""

import ctypes
import fcntl
import sys

import wire

PAGE = 4096
KEEP_SIZE = 1
SEALS = wire.SEAL_SHRINK | wire.SEAL_GROW | wire.SEAL_SEAL | wire.SEAL_WRITE


def file_of(length, at, count):
    fd = wire.memory_file(length, seals=0)
    call = wire.libc.fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    if call(fd, KEEP_SIZE, at, count) != 0:
        wire.say("unable no pages behind the end of a memory file")
    fcntl.fcntl(fd, wire.F_ADD_SEALS, SEALS)
    return fd


def main():
    name, size, where = sys.argv[1], int(sys.argv[2]) << 20, sys.argv[3]
    length, at, count = {
        "behind": (PAGE, 0, PAGE + size),
        "one": (size, 0, size + PAGE),
        "holes": (size, size, size),
    }[where]
    fd = file_of(length, at, count)
    link, calls, ends = wire.Link(name), 0, 0
    wire.here()
    while not wire.is_told():
        try:
            parts = []
            for _ in range(4):
                parts += wire.part_memory(link.give([fd]), length)
            link.call(b"hello", parts, patience=0.3)
            calls += 1
        except (TimeoutError, ConnectionError, OSError):
            ends += 1
            link.close()
            try:
                link = wire.Link(name, patience=1.0)
            except (OSError, wire.Refused, ConnectionError):
                pass
    wire.say(f"note {calls} calls, {ends} links ended")


main()
