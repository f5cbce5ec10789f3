//! Counts the system calls of child processes by tracing them. A traced call takes some ten
//! microseconds more, so only counts are read meanwhile, never times.

use handfast_sys::{clock, cpu};
use std::io;
use std::ptr;
use std::time::Duration;

/// Threads of children, traced until dropped.
pub(crate) struct Tracer {
    threads: Vec<Thread>,
    /// System calls that they have begun.
    pub(crate) calls: u64,
}

struct Thread {
    id: i32,
    /// Stopped last on the way in, so the next stop is on the way out.
    is_inside: bool,
}

impl Tracer {
    /// All threads that these children of the calling thread have now.
    pub(crate) fn attach(children: &[u32]) -> io::Result<Self> {
        let mut tracer = Self {
            threads: Vec::new(),
            calls: 0,
        };
        for child in children {
            for task in std::fs::read_dir(format!("/proc/{child}/task"))? {
                let name = task?.file_name();
                let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                request(libc::PTRACE_SEIZE, id, libc::PTRACE_O_TRACESYSGOOD)?;
                let thread = Thread {
                    id,
                    is_inside: false,
                };
                tracer.threads.push(thread);
                request(libc::PTRACE_INTERRUPT, id, 0)?;
                wait(id)?;
                request(libc::PTRACE_SYSCALL, id, 0)?;
            }
        }
        Ok(tracer)
    }

    /// Counts for so long.
    pub(crate) fn count(&mut self, window: Duration) -> io::Result<()> {
        let end = clock::deadline_ns(window);
        while clock::now_ns() < end {
            let mut is_quiet = true;
            for thread in &mut self.threads {
                let Some(stop) = stopped(thread.id)? else {
                    continue;
                };
                is_quiet = false;
                if stop == Stop::Call {
                    thread.is_inside = !thread.is_inside;
                    self.calls += u64::from(thread.is_inside);
                }
                request(libc::PTRACE_SYSCALL, thread.id, stop.signal())?;
            }
            if is_quiet {
                // Not asleep: each stop keeps a process from going on.
                cpu::yield_now();
            }
        }
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        for thread in &self.threads {
            // One that has ended is traced no more.
            let stop = request(libc::PTRACE_INTERRUPT, thread.id, 0).and_then(|()| wait(thread.id));
            if let Ok(stop) = stop {
                let _ = request(libc::PTRACE_DETACH, thread.id, stop.signal());
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
    let end = clock::now_ns() + PATIENCE_NS;
    while clock::now_ns() < end {
        if let Some(stop) = stopped(thread)? {
            return Ok(stop);
        }
        cpu::yield_now();
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// How long a thread may take to stop.
const PATIENCE_NS: u64 = 2_000_000_000;

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
        let mut tracer = match Tracer::attach(&[child.id()]) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            traced => traced.unwrap(),
        };
        assert!(handfast_testing::within_patience(|| {
            tracer.count(Duration::from_millis(200)).unwrap();
            tracer.calls >= enough
        }));
        let calls = tracer.calls;
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
