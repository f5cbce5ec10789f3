//! The kernel's message queues. System V: one for all requests, one for each client's replies. POSIX: one
//! each way.
//!
//! Messages over 8 KiB need limits only the super-user of an IPC namespace may raise:
//! [`own_namespace`] tries, and larger payloads are left out where it failed.

mod oneway;

pub(crate) use self::oneway::SysVOneWay;
use super::{Bundle, Caller, Named, System, Waits};
use crate::control::Tally;
use crate::plan::Plan;
use crate::process::dup;
use crate::systems::child::Seat;
use handfast_cli::temporary::{Temporary, goes_on};
use handfast_sys::{AsRawFd, OwnedFd};
use std::io;

/// Moves this thread, and all processes it starts from now on, into an IPC namespace of its own
/// with limits for 64 KiB messages. Queues made there vanish with the last process.
pub(crate) fn own_namespace() -> io::Result<()> {
    // SAFETY: the call takes flags only and changes which IPC objects are visible; this process
    // has none.
    if unsafe { libc::unshare(libc::CLONE_NEWIPC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    std::fs::write("/proc/sys/kernel/msgmax", "65536")?;
    std::fs::write("/proc/sys/kernel/msgmnb", "1048576")?;
    std::fs::write("/proc/sys/fs/mqueue/msgsize_max", "65536")
}

/// The number in a one-number file of `/proc/sys`; without it, no limit we know of.
fn limit(path: &str) -> usize {
    std::fs::read_to_string(path)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(usize::MAX)
}

fn fits(plan: &Plan, limit_path: &str) -> Result<(), String> {
    let limit = limit(limit_path);
    if plan.payload_bytes > limit {
        return Err(format!("{limit_path} allows {limit} bytes"));
    }
    Ok(())
}

/// System V queues.
pub(crate) struct SysV;

impl Named for SysV {
    fn name(&self) -> &'static str {
        "sysv-queue"
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        fits(plan, "/proc/sys/kernel/msgmax")
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let queues: Vec<_> = (0..=plan.clients)
            .map(|_| SysVQueue::create())
            .collect::<io::Result<_>>()?;
        let ids: Vec<_> = queues.iter().map(|queue| queue.id.to_string()).collect();
        Ok(Bundle {
            address: ids.join(","),
            guard: Some(Box::new(queues)),
            ..Bundle::default()
        })
    }
}

/// A queue, removed on drop.
pub(crate) struct SysVQueue {
    id: i32,
    _temporary: Temporary,
}

impl SysVQueue {
    pub(crate) fn create() -> io::Result<Self> {
        let _goes_on = goes_on();
        // SAFETY: the call takes integers only.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            id,
            _temporary: Temporary::new(move || remove(id)),
        })
    }

    /// Lets at most so many bytes wait in it.
    pub(crate) fn limit(&self, len_bytes: usize) -> io::Result<()> {
        // SAFETY: all-zero bytes are a valid msqid_ds.
        let mut state: libc::msqid_ds = unsafe { core::mem::zeroed() };
        // SAFETY: `state` is valid for writes.
        done(unsafe { libc::msgctl(self.id, libc::IPC_STAT, &raw mut state) } as isize)?;
        state.msg_qbytes = len_bytes as libc::msglen_t;
        // SAFETY: `state` is initialised.
        done(unsafe { libc::msgctl(self.id, libc::IPC_SET, &raw mut state) } as isize)
    }

    /// Sends itself `count` messages of 24 bytes, one after the other.
    pub(crate) fn turn_over(&self, count: u32) -> io::Result<()> {
        // A type, then the bytes.
        let mut message = [1u64, 2, 3, 4];
        let len_bytes = size_of_val(&message) - size_of::<u64>();
        for _ in 0..count {
            // SAFETY: the buffer holds a type word and `len_bytes` bytes after it.
            done(unsafe { libc::msgsnd(self.id, message.as_ptr().cast(), len_bytes, 0) } as isize)?;
            let start = message.as_mut_ptr().cast();
            // SAFETY: as above; the kernel writes at most `len_bytes` bytes after the type.
            done(unsafe { libc::msgrcv(self.id, start, len_bytes, 0, 0) })?;
        }
        Ok(())
    }
}

fn remove(id: i32) {
    // SAFETY: IPC_RMID ignores the pointer.
    let _ = unsafe { libc::msgctl(id, libc::IPC_RMID, core::ptr::null_mut()) };
}

impl System for SysV {
    type Caller = SysVCaller;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let queues = queues(seat)?;
        let (requests, replies) = queues.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut private = vec![0; seat.plan.payload_bytes];
        let mut buffer = SysVMessage::new(seat, seat.server_tally());
        seat.ready();
        loop {
            let sender = buffer.receive(*requests, &mut private)?;
            let len = handler(&mut private);
            let reply = usize::try_from(sender - 1)
                .ok()
                .and_then(|client| replies.get(client))
                .ok_or(io::ErrorKind::InvalidData)?;
            buffer.send(*reply, sender, &private[..len])?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller> {
        let queues = queues(seat)?;
        Ok(SysVCaller {
            to: queues[0],
            from: *queues
                .get(seat.index + 1)
                .ok_or(io::ErrorKind::InvalidInput)?,
            sender: seat.index as i64 + 1,
            buffer: SysVMessage::new(seat, seat.client_tally()),
        })
    }
}

/// The numbers of all queues: the requests', then each client's replies'.
fn queues(seat: &Seat) -> io::Result<Vec<i32>> {
    let numbers = seat.address.split(',').map(str::parse);
    numbers.collect::<Result<_, _>>().map_err(io::Error::other)
}

/// One client's end of two queues.
pub(crate) struct SysVCaller {
    to: i32,
    from: i32,
    /// The key by which the server tells clients apart: the type of their messages.
    sender: i64,
    buffer: SysVMessage,
}

impl Caller for SysVCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        self.buffer.send(self.to, self.sender, request)?;
        self.buffer.receive(self.from, reply).map(|_| ())
    }
}

/// A `struct msgbuf`: the type, then the bytes.
struct SysVMessage {
    words: Vec<u64>,
    tally: &'static Tally,
}

impl SysVMessage {
    fn new(seat: &Seat, tally: &'static Tally) -> Self {
        Self {
            words: vec![0; seat.plan.payload_bytes.div_ceil(8) + 1],
            tally,
        }
    }

    #[inline]
    fn send(&mut self, queue: i32, kind: i64, bytes: &[u8]) -> io::Result<()> {
        self.tally.syscalls.add(1);
        self.words[0] = kind.cast_unsigned();
        for (word, bytes) in self.words[1..].iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let start = self.words.as_ptr().cast();
        // SAFETY: the buffer holds a type word and at least `bytes.len()` bytes after it.
        done(unsafe { libc::msgsnd(queue, start, bytes.len(), 0) } as isize)
    }

    /// Says of which type the message was.
    #[inline]
    fn receive(&mut self, queue: i32, bytes: &mut [u8]) -> io::Result<i64> {
        self.tally.syscalls.add(1);
        let start = self.words.as_mut_ptr().cast();
        // SAFETY: as in `send`; the kernel writes at most `bytes.len()` bytes after the type.
        let received = unsafe { libc::msgrcv(queue, start, bytes.len(), 0, 0) };
        for (word, bytes) in self.words[1..].iter().zip(bytes.as_chunks_mut::<8>().0) {
            *bytes = word.to_ne_bytes();
        }
        done(received)?;
        Ok(self.words[0].cast_signed())
    }
}

/// POSIX queues.
pub(crate) struct Posix;

impl Named for Posix {
    fn name(&self) -> &'static str {
        "posix-queue"
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        if plan.clients > 1 {
            return Err("POSIX queues are measured with one client".to_owned());
        }
        fits(plan, "/proc/sys/fs/mqueue/msgsize_max")
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let (request, reply) = (posix_queue(plan, "request")?, posix_queue(plan, "reply")?);
        Ok(Bundle {
            // Each side: the one it receives from, then the one it sends to.
            clients: vec![vec![dup(&reply)?, dup(&request)?]],
            server: vec![request, reply],
            ..Bundle::default()
        })
    }
}

/// A queue without a name, for the children to inherit.
fn posix_queue(plan: &Plan, what: &str) -> io::Result<OwnedFd> {
    let name = format!("/handfast-bench-{}-{what}\0", std::process::id());
    // SAFETY: all-zero bytes are a valid mq_attr.
    let mut attributes: libc::mq_attr = unsafe { core::mem::zeroed() };
    attributes.mq_maxmsg = 2;
    attributes.mq_msgsize = plan.payload_bytes.cast_signed() as libc::c_long;
    // SAFETY: `name` ends in a zero byte and `attributes` is initialised.
    let fd = unsafe {
        libc::mq_open(
            name.as_ptr().cast(),
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC,
            0o600,
            &raw const attributes,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `name` ends in a zero byte.
    unsafe { libc::mq_unlink(name.as_ptr().cast()) };
    // SAFETY: on Linux a queue descriptor is a file descriptor, and this one is ours alone.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

impl System for Posix {
    type Caller = PosixCaller;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let mut queue = self.connect(seat)?;
        let mut private = vec![0; seat.plan.payload_bytes];
        seat.ready();
        loop {
            queue.receive(&mut private)?;
            let len = handler(&mut private);
            queue.send(&private[..len])?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller> {
        let [from, to] = seat.fds.as_slice() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(PosixCaller {
            from: from.try_clone()?,
            to: to.try_clone()?,
            message: vec![0; seat.plan.payload_bytes],
        })
    }
}

/// One end of two queues.
pub(crate) struct PosixCaller {
    from: OwnedFd,
    to: OwnedFd,
    /// As large as the queue's largest message: the kernel insists on room for it.
    message: Vec<u8>,
}

impl PosixCaller {
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let start = bytes.as_ptr().cast();
        // SAFETY: `bytes` is valid for reads of its length.
        done(unsafe { libc::mq_send(self.to.as_raw_fd(), start, bytes.len(), 0) } as isize)
    }

    #[inline]
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let short = bytes.len() < self.message.len();
        let place = if short {
            &mut self.message[..]
        } else {
            &mut *bytes
        };
        let (fd, priority) = (self.from.as_raw_fd(), core::ptr::null_mut());
        // SAFETY: `place` is valid for writes of its length; a null priority is allowed.
        let received =
            unsafe { libc::mq_receive(fd, place.as_mut_ptr().cast(), place.len(), priority) };
        if short {
            bytes.copy_from_slice(&self.message[..bytes.len()]);
        }
        done(received)
    }
}

impl Caller for PosixCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        self.send(request)?;
        self.receive(reply)
    }
}

fn done(result: isize) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
