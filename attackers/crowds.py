"""A crowd asleep at a word by which the server wakes somebody: 25,600 sleepers by 200 threads, each of which sleeps there as often as
the kernel lets it. `room`: at the word of a sender that waits for room. `bells`: in the server's bells, while links come and go.

Words: the server's name, and where.
"""

import ctypes
import sys
import threading
import time

import wire

PROCESSES, THREADS, TIMES = 8, 25, 128
WAIT_ANY = 449
# A word of 32 bits, shared.
SHARED_WORD = 2
SPACE = wire.LANES_AT + 132


class Waiter(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64), ("address", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("zero", ctypes.c_uint32)]


def sleep_at(address):
    """Sleeps while the word is what it is, over and over."""
    word = ctypes.c_uint32.from_address(address)
    waiters = (Waiter * TIMES)()
    for waiter in waiters:
        waiter.address, waiter.flags = address, SHARED_WORD
    call = wire.libc.syscall
    while True:
        value = word.value
        for waiter in waiters:
            waiter.value = value
        failed = call(ctypes.c_long(WAIT_ANY), waiters, ctypes.c_uint(TIMES), ctypes.c_uint(0), None, ctypes.c_int(1)) < 0
        if failed and word.value == value:
            time.sleep(0.001)


def crowd(address):
    def work():
        threading.stack_size(128 * 1024)
        for _ in range(THREADS):
            threading.Thread(target=sleep_at, args=(address,), daemon=True).start()
        threading.Event().wait()

    for _ in range(PROCESSES):
        wire.fork(work)


def main():
    name, where = sys.argv[1], sys.argv[2]
    link = wire.Link(name)
    link.call(b"hello")
    if where == "room":
        crowd(ctypes.addressof(ctypes.c_char.from_buffer(link.region)) + SPACE)
    else:
        crowd(link.bells + 256 * link.receiver)
    time.sleep(0.5)
    wire.here()
    while not wire.is_told():
        if where == "room":
            for _ in range(min(link.room(0) - 1, 32)):
                link.words[SPACE // 4] = 1
                link.post(b"for room")
        else:
            try:
                wire.Link(name, patience=1.0).close()
            except (OSError, wire.Refused):
                pass
        time.sleep(0.02)


main()
