//! Descriptors of every kind that a peer can pass on.

use super::{PATIENCE, directory};
use handfast_layout::{bell, counters, link};
use handfast_sys::{AsFd, OwnedFd, memory, socket};
use libc::{c_int, c_long};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::File;
use std::io::{Error, Result, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// How to make one. A kind that this machine does not have is an error.
pub(super) type Make = fn() -> Result<OwnedFd>;

/// The one whose close waits.
pub(super) const DEAF: usize = 0;

/// All of them, each made anew for each use.
pub(super) const KINDS: [(&str, Make); 52] = [
    ("socket whose close waits", deaf),
    ("TCP socket", || Ok(tcp()?.0.into())),
    ("TCP listener", || {
        Ok(TcpListener::bind("127.0.0.1:0")?.into())
    }),
    ("UDP socket", || Ok(UdpSocket::bind("127.0.0.1:0")?.into())),
    ("stream socket", || Ok(UnixStream::pair()?.0.into())),
    ("stream socket with data", stream_with_data),
    ("datagram socket", || Ok(UnixDatagram::unbound()?.into())),
    ("socket of messages", || Ok(socket::pair()?.0)),
    (
        "socket that has a descriptor of itself in its queue",
        socket_with_itself,
    ),
    ("listener", || listener(false)),
    ("listener that blocks", || listener(true)),
    ("netlink socket", || made(libc::SYS_socket, [16, 3, 0, 0])),
    ("directory", || open(c"/proc", libc::O_DIRECTORY)),
    ("path of a directory", || open(c"/", libc::O_PATH)),
    ("path of a device", || open(c"/dev/null", libc::O_PATH)),
    ("null device", || open(c"/dev/null", libc::O_RDWR)),
    ("zero device", || open(c"/dev/zero", libc::O_RDWR)),
    ("full device", || open(c"/dev/full", libc::O_RDWR)),
    ("device of random numbers", || {
        open(c"/dev/urandom", libc::O_RDONLY)
    }),
    ("terminal", || {
        open(c"/dev/tty", libc::O_RDWR | libc::O_NOCTTY)
    }),
    ("pseudo-terminal", || {
        open(c"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY)
    }),
    ("FUSE device", || open(c"/dev/fuse", libc::O_RDWR)),
    ("process", || {
        made(
            libc::SYS_pidfd_open,
            [c_long::from(std::process::id()), 0, 0, 0],
        )
    }),
    ("event counter", || made(libc::SYS_eventfd2, [0, 0, 0, 0])),
    ("event counter that blocks writers", || {
        made(libc::SYS_eventfd2, [c_long::MAX, 0, 0, 0])
    }),
    ("poll set", || made(libc::SYS_epoll_create1, [0, 0, 0, 0])),
    ("page faults", || made(libc::SYS_userfaultfd, [1, 0, 0, 0])),
    ("timer", || made(libc::SYS_timerfd_create, [1, 0, 0, 0])),
    ("signals", signals),
    ("file events", || {
        made(libc::SYS_inotify_init1, [0, 0, 0, 0])
    }),
    ("file-system events", || {
        made(libc::SYS_fanotify_init, [0, 0, 0, 0])
    }),
    ("pipe for reading, empty", || pipe(0, false)),
    ("pipe for writing", || pipe(1, false)),
    ("pipe for writing, full", || pipe(1, true)),
    ("pipe for reading, full", || pipe(0, true)),
    ("network namespace", || {
        open(c"/proc/self/ns/net", libc::O_RDONLY)
    }),
    ("mount namespace", || {
        open(c"/proc/self/ns/mnt", libc::O_RDONLY)
    }),
    ("user namespace", || {
        open(c"/proc/self/ns/user", libc::O_RDONLY)
    }),
    ("file of /proc", || open(c"/proc/self/maps", libc::O_RDONLY)),
    ("ordinary file", ordinary),
    ("io_uring", io_uring),
    ("secret memory", || {
        made(libc::SYS_memfd_secret, [0, 0, 0, 0])
    }),
    ("memory of large pages", || {
        memory_file(2 << 20, libc::MFD_HUGETLB, 0)
    }),
    ("memory without bytes", || {
        memory_file(0, 0, SEAL | SHRINK | GROW)
    }),
    ("memory without seals", || memory_file(4096, 0, 0)),
    ("memory that cannot be sealed", || {
        memory_file(4096, NO_SEALS, 0)
    }),
    ("memory sealed against writing, with holes", || {
        memory_file(8192, 0, SEAL | SHRINK | GROW | libc::F_SEAL_WRITE)
    }),
    ("memory with its blocks behind its end", behind_end),
    ("memory like counters", || {
        Ok(memory::create_sealed("f", counters::REGION_BYTES)?)
    }),
    ("memory like a link", || {
        Ok(memory::create_sealed("f", link::REGION_BYTES)?)
    }),
    ("memory like bells, and no longer writable", || {
        memory_file(
            bell::REGION_BYTES as i64,
            0,
            SEAL | SHRINK | GROW | libc::F_SEAL_FUTURE_WRITE,
        )
    }),
    ("memory with an odd length", || {
        memory_file(4097, 0, SEAL | SHRINK | GROW | libc::F_SEAL_WRITE)
    }),
];

const SEAL: c_int = libc::F_SEAL_SEAL;
const SHRINK: c_int = libc::F_SEAL_SHRINK;
const GROW: c_int = libc::F_SEAL_GROW;
/// Of [`memory_file`]: no seals are allowed.
const NO_SEALS: u32 = 1 << 31;

/// How long the close of a deaf socket waits: longer than anybody here.
const LINGER_S: u32 = PATIENCE.as_secs() as u32 * 3;

/// Peers that never read, and must stay; of more, the oldest is closed, and its waiter goes on.
static PEERS: Mutex<VecDeque<TcpStream>> = Mutex::new(VecDeque::new());
const PEERS_MAX: usize = 16;

fn tcp() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let caller = TcpStream::connect(listener.local_addr()?)?;
    Ok((caller, listener.accept()?.0))
}

/// Has data that its peer never reads, and lingers.
fn deaf() -> Result<OwnedFd> {
    let (mut caller, peer) = tcp()?;
    caller.set_nonblocking(true)?;
    while caller.write(&[0; 65_536]).is_ok() {}
    let linger = [1, LINGER_S];
    let fd = OwnedFd::from(caller);
    set_option(&fd, libc::SO_LINGER, &linger)?;
    let mut peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
    peers.push_back(peer);
    if peers.len() > PEERS_MAX {
        peers.pop_front();
    }
    Ok(fd)
}

/// Ends every wait for a close.
pub(super) fn hang_up() {
    PEERS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

fn stream_with_data() -> Result<OwnedFd> {
    let (one, mut other) = UnixStream::pair()?;
    other.write_all(b"data")?;
    Ok(one.into())
}

fn socket_with_itself() -> Result<OwnedFd> {
    let (one, other) = socket::pair()?;
    socket::send(&other, b"self", &[one.as_fd(), other.as_fd()])?;
    Ok(one)
}

fn listener(blocks: bool) -> Result<OwnedFd> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number.
    let path = directory().join(format!("l{}", COUNT.fetch_add(1, Relaxed)));
    let listener = socket::listen(&path, 4)?;
    socket::set_nonblocking(&listener, !blocks)?;
    let _ = std::fs::remove_file(path);
    Ok(listener)
}

fn ordinary() -> Result<OwnedFd> {
    let path = directory().join("file");
    let mut file = File::create(&path)?;
    file.write_all(&[1; 4096])?;
    std::fs::remove_file(path)?;
    Ok(file.into())
}

fn behind_end() -> Result<OwnedFd> {
    let fd = memory_file(4096, 0, 0)?;
    keep_blocks(&fd, 4096, 4096)?;
    seal(&fd, SEAL | SHRINK | GROW | libc::F_SEAL_WRITE)?;
    Ok(fd)
}

#[allow(unsafe_code, reason = "the libraries have no call for many of these")]
mod calls {
    use super::{CStr, Error, FromRawFd, NO_SEALS, OwnedFd, Result, c_int, c_long};
    use handfast_sys::AsRawFd;

    pub(super) fn checked(result: c_int) -> Result<c_int> {
        match result {
            -1 => Err(Error::last_os_error()),
            result => Ok(result),
        }
    }

    /// The descriptor made by a system call that takes numbers.
    pub(super) fn made(number: c_long, arguments: [c_long; 4]) -> Result<OwnedFd> {
        let [one, two, three, four] = arguments;
        // SAFETY: none of the calls that are made by this takes a pointer.
        let result = unsafe { libc::syscall(number, one, two, three, four) };
        own(result as c_int)
    }

    /// A descriptor that a call has returned.
    pub(super) fn own(result: c_int) -> Result<OwnedFd> {
        let fd = checked(result)?;
        // SAFETY: it is new, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(super) fn open(path: &CStr, flags: c_int) -> Result<OwnedFd> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: `path` ends with a zero.
        own(unsafe { libc::open(path.as_ptr(), flags) })
    }

    /// One end of a pipe, that for reading (0) or writing (1), which stays alone.
    pub(super) fn pipe(end: usize, full: bool) -> Result<OwnedFd> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
        let [reads, writes] = [own(ends[0])?, own(ends[1])?];
        if full {
            let piece = [0u8; 4096];
            // SAFETY: `piece` is valid for reads of its length.
            while unsafe { libc::write(writes.as_raw_fd(), piece.as_ptr().cast(), piece.len()) } > 0
            {
            }
        }
        Ok(if end == 0 { reads } else { writes })
    }

    pub(super) fn memory_file(len_bytes: i64, flags: u32, seals: c_int) -> Result<OwnedFd> {
        let sealing = if flags == NO_SEALS {
            0
        } else {
            libc::MFD_ALLOW_SEALING
        };
        let flags = flags & !NO_SEALS | sealing | libc::MFD_CLOEXEC;
        // SAFETY: the name ends with a zero.
        let fd = own(unsafe { libc::memfd_create(c"f".as_ptr(), flags) })?;
        // SAFETY: takes numbers.
        checked(unsafe { libc::ftruncate(fd.as_raw_fd(), len_bytes) })?;
        seal(&fd, seals)?;
        Ok(fd)
    }

    pub(super) fn seal(fd: &OwnedFd, seals: c_int) -> Result<()> {
        if seals != 0 {
            // SAFETY: takes numbers.
            checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        }
        Ok(())
    }

    pub(super) fn keep_blocks(fd: &OwnedFd, at: i64, len_bytes: i64) -> Result<()> {
        // SAFETY: takes numbers.
        let done =
            unsafe { libc::fallocate(fd.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, at, len_bytes) };
        checked(done).map(drop)
    }

    pub(super) fn set_option(fd: &OwnedFd, option: c_int, value: &[u32; 2]) -> Result<()> {
        let len_bytes = size_of_val(value) as u32;
        let value = value.as_ptr().cast();
        // SAFETY: `value` is valid for a read of that length.
        let done =
            unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, value, len_bytes) };
        checked(done).map(drop)
    }

    pub(super) fn signals() -> Result<OwnedFd> {
        // SAFETY: all-zero bytes are a valid set.
        let set: libc::sigset_t = unsafe { core::mem::zeroed() };
        // SAFETY: `set` is valid for a read.
        own(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) })
    }

    pub(super) fn io_uring() -> Result<OwnedFd> {
        // As long as the kernel's parameters are.
        let mut parameters = [0u32; 30];
        // SAFETY: `parameters` is valid for reads and writes of 120 bytes.
        let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
        own(result as c_int)
    }
}
use calls::{io_uring, keep_blocks, made, memory_file, open, pipe, seal, set_option, signals};
