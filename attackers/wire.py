"""A peer of handfast made from `spec/layout.md` alone: hello, link, lanes, bells, control messages and descriptors.

Nothing here is read from the Rust code, so that the specification is what two implementations meet in. Python 3.8 or later on
64-bit Linux, standard library only. Words are stored by one instruction each (a `memoryview` of 32-bit words); the interpreter
takes far longer between two of them than a store buffer needs on x86-64.
"""

import array
import ctypes
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time

# The layout version that this speaks.
VERSION = 18
PAGE = 4096

# Seals of memory files.
F_ADD_SEALS = 1033
F_GET_SEALS = 1034
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE, SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16

# Status of a welcome.
LINKED, KNOWN, BAD_VERSION, NO_SUCH_PORT, EXHAUSTED, MALFORMED, CROSSED = range(7)

# Control messages.
RING, STAT, COUNTERS, CLOSED, RELEASED = 1, 2, 3, 4, 5
DESCRIPTORS, WHERE_DOOR, SHOW_DOOR, HERE_DOOR = 16, 17, 18, 19
UNUSED, ARENA, SEALED = 26, 32, 43

# Kinds of messages in a slot.
MESSAGE, CALL, SAID = 0, 1, 3


def pages(length):
    return (length + PAGE - 1) & ~(PAGE - 1)


# A side of a link region.
LANES = 16
LANE_SLOTS = 64
LANES_AT = 20480
SLOTS_AT = 256
ARENA_AT = pages(SLOTS_AT + 64 * LANE_SLOTS)
ARENA_BYTES = 64 * 1024 + 16 * 8192 + 4 * 65728
LANE_BYTES = pages(ARENA_AT + ARENA_BYTES)
REPLIES = 1280
# The first of the return slots that a caller names itself.
OWN_SLOTS = 256
REPLIES_AT = LANES_AT + LANES * LANE_BYTES
BUFFERS_AT = REPLIES_AT + 128 * REPLIES
BUFFER_BYTES = 68 * 1024
SIDE_BYTES = BUFFERS_AT + REPLIES * BUFFER_BYTES
REGION_BYTES = 2 * SIDE_BYTES
BELLS_BYTES = 64 * 256

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The server answered a hello with another status than `linked`."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


def say(line):
    print(line, flush=True)


def here():
    """Tells the parent that the attack is under way."""
    say("here")


def breach(what):
    """Tells the parent of something that got through and shows in nobody's latency."""
    say(f"breach {what}")


def until_told():
    """Waits until the parent closes our input."""
    while sys.stdin.readline():
        pass


def is_told():
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready)


def fork(work, uid=None):
    """A child that does `work`, as another user if root; killed with its parent. Its process number."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        work()
        os._exit(0)
    except BaseException as error:  # noqa: B902: it must not go on as its parent.
        if not isinstance(error, (Refused, OSError)):
            print(repr(error), file=sys.stderr)
        os._exit(1)


def memory_file(length, seals=SEAL_SHRINK | SEAL_GROW | SEAL_SEAL, name="attacker"):
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, length)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def own_bells():
    """Bells that peers of all users take: only their maker writes them, and has touched all their pages."""
    fd = memory_file(BELLS_BYTES, 0)
    os.pwrite(fd, bytes(BELLS_BYTES), 0)
    fcntl.fcntl(fd, F_ADD_SEALS, SEAL_SHRINK | SEAL_GROW | SEAL_SEAL | SEAL_FUTURE_WRITE)
    return fd


def incarnation(pid=None):
    """An incarnation that the process may have: the number of its inode in pidfs, and random bytes."""
    fd = os.pidfd_open(pid or os.getpid())
    number = os.fstat(fd).st_ino
    os.close(fd)
    return struct.pack("<Q", number) + os.urandom(8)


def hello(name, identity, link=0, known=None):
    name = name.encode()
    text = b"handfast" + struct.pack("<IIQ", VERSION, 0, 0) + identity
    text += struct.pack("<IBBH", link, len(name), int(known is not None), 0) + name
    return text.ljust(112, b"\0") + struct.pack("<I", known or 0).ljust(16, b"\0")


class Welcome:
    def __init__(self, text):
        if len(text) != 80 or text[:8] != b"handfast":
            raise ConnectionError(f"no welcome: {text!r}")
        self.version, _, self.features = struct.unpack_from("<IIQ", text, 8)
        self.incarnation = text[24:40]
        self.status, self.port, self.handle, self.link, self.limit = struct.unpack_from("<IIIII", text, 40)


def path(name):
    return os.path.join(os.environ["HANDFAST_DIR"], name)


def connect(name, patience=5.0):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(patience)
    connection.connect(path(name))
    until_ready(connection)
    return connection


def until_ready(connection):
    """The server speaks first: it is ready for a hello, or refuses."""
    text, _ = receive(connection, 256)
    if len(text) == 80:
        raise Refused(Welcome(text).status)
    if len(text) != 40 or text[:8] != b"handfast":
        raise ConnectionError(f"not ready: {text!r}")
    version = struct.unpack_from("<I", text, 8)[0]
    if version != VERSION:
        raise ConnectionError(f"layout version {version}, and this speaks {VERSION}")


def send(connection, data, fds=()):
    """One message, with descriptors."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    return connection.sendmsg([data], ancillary)


def send_now(connection, data, fds=()):
    """As `send`, where there is room at once; raises `BlockingIOError` otherwise. At a socket with a timeout Python waits for room
    itself, whatever the flags say. The descriptor of such a socket does not block."""
    patience = connection.gettimeout()
    if patience is not None and not fds:
        return os.write(connection.fileno(), data)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    if patience:
        connection.setblocking(False)
    try:
        return connection.sendmsg([data], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    finally:
        if patience:
            connection.settimeout(patience)


def receive_now(connection, length=512):
    """One message that is there, without its descriptors; empty at the end. Raises `BlockingIOError` where there is none. As
    `send_now`."""
    if connection.gettimeout() is None:
        return connection.recv(length, socket.MSG_DONTWAIT)
    return os.read(connection.fileno(), length)


def receive(connection, length=512, count=8):
    """One message and its descriptors; empty at the end."""
    data, ancillary, _, _ = connection.recvmsg(length, socket.CMSG_SPACE(4 * count))
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % 4])
    return data, list(fds)


def touch(words, at, length):
    """Has the pages of a range be there, at this process's expense. Nobody else writes there yet."""
    for page in range(at // PAGE * PAGE, at + length, PAGE):
        words[page // 4] = words[page // 4]


def take(connection, region_fd):
    """What a connector does to have the link that it was offered. It has mapped the region."""
    fcntl.fcntl(region_fd, F_ADD_SEALS, SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE | SEAL_SEAL)
    send(connection, bytes([SEALED, 0]))


class Link:
    """One end of a link: the connector's."""

    def __init__(self, name, identity=None, patience=5.0, extra=(), seals=True):
        self.name, self.incarnation = name, identity or incarnation()
        self.socket = connect(name, patience)
        self.region_fd = self.bells_fd = None
        self.own_bells = own_bells()
        send(self.socket, hello(name, self.incarnation), [self.own_bells, *extra])
        text, fds = receive(self.socket, 256)
        self.welcome = Welcome(text)
        if self.welcome.status != LINKED:
            for fd in fds:
                os.close(fd)
            self.close()
            raise Refused(self.welcome.status)
        self.region_fd, self.bells_fd = fds[:2]
        length = os.fstat(self.region_fd).st_size
        if length != REGION_BYTES:
            raise ConnectionError(f"the region has {length} bytes, and the specification says {REGION_BYTES}")
        self.posted = [0] * LANES
        self.sent = 0
        self.generation = 0
        self.used = set()
        self._region = self._bells = None
        if seals:
            _ = self.region
            touch(self.words, 0, LANES_AT)
            take(self.socket, self.region_fd)

    @property
    def region(self):
        if self._region is None:
            self._region = memoryview(mmap.mmap(self.region_fd, REGION_BYTES))
            self.words = self._region.cast("I")
        return self._region

    @property
    def bells(self):
        """Where the server's bells are mapped: to be read only, where they are another user's."""
        if self._bells is None:
            seals = fcntl.fcntl(self.bells_fd, F_GET_SEALS)
            self.is_published = bool(seals & SEAL_FUTURE_WRITE)
            access = mmap.PROT_READ if self.is_published else mmap.PROT_READ | mmap.PROT_WRITE
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
            address = libc.mmap(None, BELLS_BYTES, access, mmap.MAP_SHARED, self.bells_fd, 0)
            if address in (None, 2**64 - 1):
                raise OSError(ctypes.get_errno(), "mmap")
            self._bells = address
            self.bell_words = (ctypes.c_uint32 * (BELLS_BYTES // 4)).from_address(address)
        return self._bells

    def close(self):
        self.socket.close()
        for fd in (self.own_bells, self.region_fd, self.bells_fd):
            if fd is not None:
                os.close(fd)
        self.own_bells = self.region_fd = self.bells_fd = None

    def control(self, what, rest=b"", fds=(), argument=0):
        """A control message. Does not wait for room: whether it was sent."""
        try:
            send_now(self.socket, bytes([what, argument]) + rest, fds)
            return True
        except OSError:
            return False

    def heard(self):
        """Takes what the server has said until now. None once it has ended the link."""
        texts = []
        try:
            while True:
                text = receive_now(self.socket)
                if not text:
                    return None
                texts.append(text)
        except BlockingIOError:
            return texts
        except OSError:
            return None

    def settles(self, patience=1.0):
        """Waits until the server has heard all that was said to it: it answers a question behind that. Whether it has."""
        end = time.monotonic() + patience
        if not self.control(STAT):
            return False
        while time.monotonic() < end:
            texts = self.heard()
            if texts is None:
                return False
            if any(text[0] == COUNTERS for text in texts):
                return True
            select.select([self.socket], [], [], 0.01)
        return False

    def taken(self):
        """Takes the messages that the server has sent here: of each its kind, handle, word of its reply slot, generation, and the
        bytes that lie in its slot."""
        words, messages = self.words, []
        for lane in range(LANES):
            base = SIDE_BYTES + LANES_AT + lane * LANE_BYTES
            if words[(base + 192) // 4] == 0:
                continue
            begun = head = words[(base + 128) // 4]
            while True:
                slot = base + SLOTS_AT + 64 * (head % LANE_SLOTS)
                at = slot // 4
                if words[at] != head + 1 & 0xFFFFFFFF:
                    break
                text = bytes(self.region[slot + 24 : slot + 64])
                messages.append((words[at + 1] >> 18 & 3, words[at + 2], words[at + 3], words[at + 4], text))
                head = head + 1 & 0xFFFFFFFF
            if head != begun:
                words[(base + 128) // 4] = head
            words[(base + 64) // 4] = 0
        return messages

    def answer(self, index, generation, data=b"", units=(), kind=MESSAGE):
        """Writes an outcome into one of the server's reply slots. Wakes nobody."""
        slot = SIDE_BYTES + REPLIES_AT + 128 * index
        units = b"".join(units)
        body = data + units
        outside = len(body) > 40
        at = SIDE_BYTES + BUFFERS_AT + BUFFER_BYTES * index if outside else slot + 24
        self.region[at : at + len(body)] = body
        words, slot = self.words, slot // 4
        words[slot + 1] = len(data) | int(outside) << 17 | kind << 18 | len(units) // 16 << 20
        words[slot] = generation & 0xFFFFFFFF

    def give(self, fds):
        """Sends descriptors ahead of messages that name them. The number of the first."""
        first = self.sent
        rest = struct.pack("<HI", 0, first)
        if not self.control(DESCRIPTORS, rest, fds, argument=len(fds)):
            raise ConnectionError("descriptors were not sent")
        self.sent += len(fds)
        return first

    def room(self, lane):
        _ = self.region
        head = self.words[(LANES_AT + lane * LANE_BYTES + 128) // 4]
        return LANE_SLOTS - (self.posted[lane] - head & 0xFFFFFFFF)

    def post(self, data=b"", units=(), kind=MESSAGE, lane=0, reply=0, generation=0, handle=None, at=None, length=0):
        """Puts a message into a lane and rings, if there is room. `units` are bytes, 16 each. Whether there was. With `at`, it
        names `length` bytes there in the arena, whatever they are."""
        region = self.region
        if self.room(lane) <= 0:
            return False
        base = LANES_AT + lane * LANE_BYTES
        number = self.posted[lane]
        if number == 0:
            touch(self.words, base, ARENA_AT)
        slot = base + SLOTS_AT + 64 * (number % LANE_SLOTS)
        units = b"".join(units)
        body = data + units
        outside, offset = len(body) > 40, 0
        if at is not None:
            outside, offset = True, at
        elif outside:
            # A block for each slot, or one for all: the largest. The server may not have read what was posted before.
            offset = 1024 * (number % LANE_SLOTS) if len(body) <= 1024 else 64 * 1024 + 16 * 8192
            region[base + ARENA_AT + offset : base + ARENA_AT + offset + len(body)] = body
        else:
            region[slot + 24 : slot + 24 + len(body)] = body
        meta = (length or len(data)) | int(outside) << 17 | kind << 18 | len(units) // 16 << 20
        words, slot = self.words, slot // 4
        words[slot + 1] = meta
        words[slot + 2] = self.welcome.handle if handle is None else handle
        words[slot + 3] = reply
        words[slot + 4] = generation
        words[slot + 5] = offset
        words[slot] = number + 1 & 0xFFFFFFFF
        self.posted[lane] = number + 1 & 0xFFFFFFFF
        if words[(base + 64) // 4] == 0:
            self.ring(lane)
        return True

    def say_many(self, texts, handle, reply=0, lane=0):
        """Puts statements into a lane, as many as there is room for, and rings once. How many."""
        if self.posted[lane] == 0:
            self.region
            touch(self.words, LANES_AT + lane * LANE_BYTES, ARENA_AT)
        base, first, count = LANES_AT + lane * LANE_BYTES + SLOTS_AT, self.posted[lane], 0
        for text in texts[: self.room(lane)]:
            slot = base + 64 * ((first + count) % LANE_SLOTS)
            meta = len(text) | SAID << 18
            struct.pack_into("<IIIII", self.region, slot + 4, meta, handle, reply, 1, 0)
            self.region[slot + 24 : slot + 24 + len(text)] = text
            count += 1
            self.words[slot // 4] = first + count & 0xFFFFFFFF
        self.posted[lane] = first + count & 0xFFFFFFFF
        if count and self.words[(LANES_AT + lane * LANE_BYTES + 64) // 4] == 0:
            self.ring(lane)
        return count

    def say_all(self, texts, handle, reply=0, lane=0):
        """As `say_many`: all, as there is room. Takes what the server says meanwhile. Whether the link is there still."""
        texts = list(texts)
        while texts:
            count = self.say_many(texts[:LANE_SLOTS], handle, reply, lane)
            del texts[:count]
            if not count:
                time.sleep(0.0001)
            if self.heard() is None:
                return False
        return True

    def post_all(self, data=b"", units=(), kind=MESSAGE, **more):
        """As `post`, and waits for room, as long as the link lasts and this program is not told to end."""
        while not self.post(data, units, kind, **more):
            time.sleep(0.0002)
            if self.heard() is None or is_told():
                raise ConnectionError("no room, and the link or the attack is over")

    @property
    def receiver(self):
        return self.welcome.port & 0xFF

    def ring(self, lane):
        """As who posts to an armed lane: three bits, and a wake-up."""
        receiver, link = self.receiver, self.welcome.link
        _ = self.bells
        self.words[(64 * (receiver % 62) + 4 * (receiver // 62)) // 4] |= 1 << lane
        bell = 256 * receiver // 4
        if self.is_published:
            # Those of another user are only looked at.
            if self.bell_words[bell] == 1:
                self.futex(256 * receiver, 1, 2**31 - 1)
            if self.bell_words[bell]:
                self.control(RING, argument=receiver)
            return
        self.bell_words[bell + 32 + link // 32] |= 1 << link % 32
        self.bell_words[bell + 1] |= 1 << link // 32
        state = self.bell_words[bell]
        if state == 1:
            self.bell_words[bell] = 0
            self.futex(256 * receiver, 1, 2**31 - 1)
        elif state == 2:
            self.bell_words[bell] = 0
            self.control(RING, argument=receiver)

    def futex(self, offset, operation, count, count2=None, offset2=None):
        """A futex call on a word of the bells (not private)."""
        address = self.bells + offset
        address2 = 0
        if offset2 is not None:
            address2 = self.bells + offset2
        number = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
        call = libc.syscall
        call.restype = ctypes.c_long
        return call(
            ctypes.c_long(number),
            ctypes.c_void_p(address),
            ctypes.c_int(operation),
            ctypes.c_uint(count),
            ctypes.c_void_p(count2),
            ctypes.c_void_p(address2),
            ctypes.c_uint(0),
        )

    def use(self, index):
        """Has a reply slot and its buffer be there."""
        if index not in self.used:
            touch(self.words, REPLIES_AT + 128 * index, 128)
            touch(self.words, BUFFERS_AT + BUFFER_BYTES * index, BUFFER_BYTES)
            self.used.add(index)

    def call(self, data=b"", units=(), patience=5.0, lane=0, index=0):
        """A call, and the bytes of its answer; None if it was dropped, or its port is dead."""
        self.generation += 1
        slot = REPLIES_AT + 128 * index
        self.use(index)
        if not self.post(data, units, CALL, lane, index, self.generation):
            raise ConnectionError("no room in the lane")
        end, words = time.monotonic() + patience, self.words
        naps = 0
        while words[slot // 4] != self.generation:
            if time.monotonic() > end:
                raise TimeoutError("no answer")
            naps += 1
            time.sleep(0 if naps < 50 else 0.0002)
        meta = words[slot // 4 + 1]
        length, outside, kind, count = meta & 0x1FFFF, meta >> 17 & 1, meta >> 18 & 3, meta >> 20 & 0xF
        if kind != 0:
            return None
        del count
        at = BUFFERS_AT + BUFFER_BYTES * index if outside else slot + 24
        return bytes(self.region[at : at + length])


# Times that the server may ask for another hello: it has this process's last one in hand still.
AGAIN = 50


def links(name, most):
    """So many links, or as many as there is room for."""
    found, tries = [], 0
    while len(found) < most and tries < AGAIN:
        tries += 1
        try:
            link = Link(name, patience=2.0)
            # What it sends is read, so that nothing counts as under way to this user.
            receive(link.socket)
            found.append(link)
            tries = 0
        except Refused as refused:
            if refused.status != CROSSED:
                break
            time.sleep(0.001)
        except OSError:
            break
    return found


def words16(*values):
    """Units of parts, of 32-bit words, filled up with zeros."""
    data = struct.pack(f"<{len(values)}I", *values)
    return [data.ljust((len(data) + 15) & ~15, b"\0")]


def part_descriptor(number):
    return words16(8, number)


def part_memory(number, length):
    return words16(9, number, length & 0xFFFFFFFF, length >> 32)


def part_loan(arena, block, loan, generation, length):
    return words16(10, arena, block, loan, generation, 0, length & 0xFFFFFFFF, length >> 32)


def part_third(vine, vine_port, port, exporter, number, pid, keep=0):
    low, high = number & 0xFFFFFFFF, number >> 32
    return words16(4, vine, vine_port, port, *struct.unpack("<4I", exporter), low, high, pid, keep)


def part_receive(token, number, name, file):
    name = name.encode()
    head = struct.pack("<4I2Q", 5, token, number, len(name), *file)
    return [head + name.ljust((len(name) + 15) & ~15, b"\0")]


def deaf_socket(linger_s):
    """A connected TCP socket with data that its peer never reads, whose close waits `linger_s` seconds. It and its peer, which
    must stay open."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    caller = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    listener.close()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger_s))
    caller.setblocking(False)
    try:
        while True:
            caller.send(b"\0" * 65536)
    except BlockingIOError:
        pass
    return caller, peer
