"""Those who are not who they seem. Words: the server's name, and

* `squat B`: connects to the server under the incarnation of B's process, before that does;
* `dead`: connections made by processes that have ended, by which the kernel can say nothing of them any more.
"""

import os
import select
import socket
import sys
import time

import wire


def squat(name, other):
    identity = wire.Link(other).welcome.incarnation
    kept = []
    try:
        kept.append(wire.Link(name, identity=identity))
        wire.say("note linked under another's incarnation")
    except (OSError, wire.Refused) as error:
        wire.say(f"note refused: {error}")
    wire.here()
    wire.until_told()


def by_the_dead(name, says_hello):
    """Whether there was a link after its connector had ended: `none`, one that was `cut` within a second, or one that lives `on`."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(2.0)
    bells = wire.own_bells()

    def greet(identity):
        wire.send(connection, wire.hello(name, identity), [bells])

    def connect():
        connection.connect(wire.path(name))
        wire.until_ready(connection)
        if says_hello:
            greet(wire.incarnation())

    pid = wire.fork(connect)
    identity = wire.incarnation(pid)
    os.waitpid(pid, 0)
    try:
        if not says_hello:
            greet(identity)
        text, fds = wire.receive(connection, 256)
        if not text or wire.Welcome(text).status != wire.LINKED:
            return "none"
        wire.take(connection, fds[0])
    except OSError:
        return "none"
    end = time.monotonic() + 1
    while time.monotonic() < end:
        ready, _, _ = select.select([connection], [], [], 0.1)
        try:
            if ready and not wire.receive(connection)[0]:
                return "cut"
        except OSError:
            return "cut"
    return "on"


def main():
    name, what = sys.argv[1:3]
    if what == "squat":
        squat(name, sys.argv[3])
        return
    for says_hello, when in ((False, "after"), (True, "before")):
        found = [by_the_dead(name, says_hello) for _ in range(3)]
        wire.say(f"note hello {when} the connector's end: {', '.join(found)}")
        if "on" in found:
            wire.breach(f"links of ended processes live on (hello {when} the end)")
    wire.here()
    wire.until_told()


main()
