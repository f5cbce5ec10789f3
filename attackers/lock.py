"""Somebody who may read the rendezvous directory holds a lock on it, and on every file in it. No words."""

import fcntl
import os

import wire


def main():
    directory = os.environ["HANDFAST_DIR"]
    held = []
    for found in [directory, *(os.path.join(directory, name) for name in os.listdir(directory))]:
        try:
            fd = os.open(found, os.O_RDONLY | os.O_NONBLOCK)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.append(fd)
        except OSError:
            pass
    wire.say(f"note {len(held)} locks held")
    wire.here()
    wire.until_told()


main()
