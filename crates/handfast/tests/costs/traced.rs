//! Counts the system calls of one thread of a child process by tracing it.

use std::collections::BTreeMap;
use std::io;
use std::ptr;

/// A thread of a child of the calling thread, traced until dropped.
pub(crate) struct Traced {
    thread: i32,
    pub(crate) counts: Counts,
}

/// The system calls that a thread has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many of each number.
    pub(crate) calls: BTreeMap<u64, u32>,
    /// Calls among them that wake other threads.
    pub(crate) wakes: u32,
}

impl Counts {
    pub(crate) fn all(&self) -> u32 {
        self.calls.values().sum()
    }

    fn add(&mut self, (number, arguments): (u64, [u64; 6])) {
        *self.calls.entry(number).or_default() += 1;
        let command = arguments[1] as i32 & libc::FUTEX_CMD_MASK;
        let is_futex = number == libc::SYS_futex as u64;
        let is_wake = matches!(command, libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET);
        self.wakes += u32::from(is_futex && is_wake);
    }
}

impl Traced {
    /// # Errors
    /// `PermissionDenied` where tracing is forbidden.
    pub(crate) fn attach(thread: i32) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, thread, libc::PTRACE_O_TRACESYSGOOD)?;
        request(libc::PTRACE_INTERRUPT, thread, 0)?;
        let traced = Self {
            thread,
            counts: Counts::default(),
        };
        stop_of(thread, 0)?;
        request(libc::PTRACE_SYSCALL, thread, 0)?;
        Ok(traced)
    }

    /// Lets the thread go on if it has stopped. `false` if it has not.
    pub(crate) fn step(&mut self) -> io::Result<bool> {
        /// The signal of a stop at a system call.
        const CALL: i32 = libc::SIGTRAP | 0x80;
        let signal = match stop_of(self.thread, libc::WNOHANG)? {
            None => return Ok(false),
            Some(status) if status >> 16 != 0 => 0,
            Some(status) if libc::WSTOPSIG(status) == CALL => {
                if let Some(call) = begun(self.thread)? {
                    self.counts.add(call);
                }
                0
            }
            Some(status) => libc::WSTOPSIG(status),
        };
        request(libc::PTRACE_SYSCALL, self.thread, signal)?;
        Ok(true)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // A thread that has ended is traced no more.
        let _ = request(libc::PTRACE_INTERRUPT, self.thread, 0)
            .and_then(|()| stop_of(self.thread, 0))
            .and_then(|_| request(libc::PTRACE_DETACH, self.thread, 0));
    }
}

/// The number and arguments of the system call at whose beginning the thread has stopped.
fn begun(thread: i32) -> io::Result<Option<(u64, [u64; 6])>> {
    // SAFETY: integers, for which any bits are valid.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    let len_bytes = ptr::without_provenance_mut::<libc::c_void>(size_of_val(&info));
    let what = libc::PTRACE_GET_SYSCALL_INFO;
    // SAFETY: `info` is valid for a write of its own length.
    let got = unsafe { libc::ptrace(what, thread, len_bytes, &raw mut info) };
    if got == -1 {
        return Err(io::Error::last_os_error());
    }
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(None);
    }
    // SAFETY: the member for this `op`.
    let entry = unsafe { info.u.entry };
    Ok(Some((entry.nr, entry.args)))
}

/// The status of a thread that has stopped.
fn stop_of(thread: i32, how: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | how) };
    match found {
        0 => Ok(None),
        found if found == thread && libc::WIFSTOPPED(status) => Ok(Some(status)),
        -1 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::other("a traced thread has ended")),
    }
}

fn request(what: libc::c_uint, thread: i32, data: i32) -> io::Result<()> {
    let data = ptr::without_provenance_mut::<libc::c_void>(data as usize);
    // SAFETY: of these requests none reads or writes this process's memory; the data is a number.
    let result = unsafe { libc::ptrace(what, thread, ptr::null_mut::<libc::c_void>(), data) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
