//! Counts the system calls of child processes by tracing them. A traced call takes some ten
//! microseconds more, so only counts are read meanwhile, never times.

use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// Threads of children of the calling thread, traced until dropped.
#[derive(Default)]
pub struct Tracer {
    threads: Vec<i32>,
    counts: Counts,
}

/// System calls that threads have begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many of each number.
    of: BTreeMap<u64, u64>,
    wakes: u64,
}

impl Counts {
    /// All of them.
    pub fn calls(&self) -> u64 {
        self.of.values().sum()
    }

    /// Calls among them that wake other threads by a futex.
    pub const fn wakes(&self) -> u64 {
        self.wakes
    }

    fn add(&mut self, (number, arguments): (u64, [u64; 6])) {
        *self.of.entry(number).or_default() += 1;
        let command = arguments[1] as i32 & libc::FUTEX_CMD_MASK;
        let is_futex = number == libc::SYS_futex as u64;
        let is_wake = matches!(command, libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET);
        self.wakes += u64::from(is_futex && is_wake);
    }
}

impl Tracer {
    /// Traces all threads that these processes have now.
    ///
    /// # Errors
    /// `PermissionDenied` where tracing is forbidden.
    pub fn processes(ids: &[u32]) -> io::Result<Self> {
        let mut tracer = Self::default();
        for id in ids {
            for task in std::fs::read_dir(format!("/proc/{id}/task"))? {
                let name = task?.file_name();
                if let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) {
                    tracer.attach(thread)?;
                }
            }
        }
        Ok(tracer)
    }

    /// Traces one thread.
    ///
    /// # Errors
    /// As of [`Tracer::processes`].
    pub fn thread(id: i32) -> io::Result<Self> {
        let mut tracer = Self::default();
        tracer.attach(id)?;
        Ok(tracer)
    }

    fn attach(&mut self, thread: i32) -> io::Result<()> {
        request(libc::PTRACE_SEIZE, thread, libc::PTRACE_O_TRACESYSGOOD)?;
        self.threads.push(thread);
        request(libc::PTRACE_INTERRUPT, thread, 0)?;
        wait(thread)?;
        request(libc::PTRACE_SYSCALL, thread, 0)
    }

    /// The counts since they were taken last.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Lets each thread that has stopped go on. `false` if none has. To be called without pause: each stop keeps a thread from going on.
    ///
    /// # Errors
    /// A thread has ended.
    pub fn step(&mut self) -> io::Result<bool> {
        let mut has_stopped = false;
        for thread in &self.threads {
            let Some(stop) = stopped(*thread)? else {
                continue;
            };
            has_stopped = true;
            if stop == Stop::Call
                && let Some(call) = begun(*thread)?
            {
                self.counts.add(call);
            }
            request(libc::PTRACE_SYSCALL, *thread, stop.signal())?;
        }
        Ok(has_stopped)
    }

    /// Counts for so long.
    ///
    /// # Errors
    /// As of [`Tracer::step`].
    pub fn count(&mut self, window: Duration) -> io::Result<()> {
        let end = Instant::now() + window;
        while Instant::now() < end {
            if !self.step()? {
                yield_now();
            }
        }
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        for thread in &self.threads {
            // One that has ended is traced no more.
            let stop = request(libc::PTRACE_INTERRUPT, *thread, 0).and_then(|()| wait(*thread));
            if let Ok(stop) = stop {
                let _ = request(libc::PTRACE_DETACH, *thread, stop.signal());
            }
        }
    }
}

/// Why a thread has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// On its way into a system call, or out of one.
    Call,
    /// A signal is about to be delivered.
    Signal(i32),
    /// It was asked to.
    Asked,
}

impl Stop {
    const fn of(status: i32) -> Self {
        // The signal of a stop at a system call, by `PTRACE_O_TRACESYSGOOD`.
        const CALL: i32 = libc::SIGTRAP | 0x80;
        match (status >> 16, libc::WSTOPSIG(status)) {
            (0, CALL) => Self::Call,
            (0, signal) => Self::Signal(signal),
            _ => Self::Asked,
        }
    }

    /// The signal to deliver when it goes on.
    const fn signal(self) -> i32 {
        match self {
            Self::Signal(signal) => signal,
            Self::Call | Self::Asked => 0,
        }
    }
}

/// Why a thread has stopped, if it has.
fn stopped(thread: i32) -> io::Result<Option<Stop>> {
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match found {
        0 => Ok(None),
        found if found == thread && libc::WIFSTOPPED(status) => Ok(Some(Stop::of(status))),
        -1 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::other("a traced thread has ended")),
    }
}

/// As [`stopped`], soon.
fn wait(thread: i32) -> io::Result<Stop> {
    /// How long a thread may take to stop.
    const PATIENCE: Duration = Duration::from_secs(2);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some(stop) = stopped(thread)? {
            return Ok(stop);
        }
        yield_now();
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// The number and arguments of the system call at whose beginning the thread has stopped; nothing at its end.
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

fn request(what: libc::c_uint, thread: i32, data: i32) -> io::Result<()> {
    let data = ptr::without_provenance_mut::<libc::c_void>(data as usize);
    // SAFETY: of these requests none reads or writes this process's memory; the data is a number.
    let result = unsafe { libc::ptrace(what, thread, ptr::null_mut::<libc::c_void>(), data) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// System calls of a program in a moment, or until there are so many; nothing where tracing is forbidden.
    fn calls(program: &str, arguments: &[&str], enough: u64) -> Option<u64> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut tracer = match Tracer::processes(&[child.id()]) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                child.kill().unwrap();
                child.wait().unwrap();
                crate::not_exercised("tracing is forbidden");
                return None;
            }
            traced => traced.unwrap(),
        };
        let mut calls = 0;
        assert!(crate::within_patience(|| {
            tracer.count(Duration::from_millis(200)).unwrap();
            calls += tracer.take_counts().calls();
            calls >= enough
        }));
        drop(tracer);
        // Traced no more: it ends by that, and its end is seen.
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        Some(calls)
    }

    #[test]
    fn calls_of_a_child_are_counted_and_it_goes_on_untraced() {
        let Some(busy) = calls("yes", &[], 21) else {
            return;
        };
        // Some to begin with, then one that lasts.
        let asleep = calls("sleep", &["60"], 0).unwrap();
        assert!(asleep < busy.max(500), "{asleep}");
    }
}
