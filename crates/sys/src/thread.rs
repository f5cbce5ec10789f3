//! Threads of the library.

use core::cell::Cell;
use core::num::NonZeroI32;
use std::fs::File;
use std::io::{self, Read};
use std::thread::{Builder, JoinHandle};

/// A thread that was started by [`spawn`].
#[derive(Debug)]
pub struct Thread {
    handle: JoinHandle<()>,
    #[cfg(feature = "simulation")]
    number: Option<usize>,
}

/// The kernel's number for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(NonZeroI32);

/// This thread's. One system call, the first time.
#[must_use]
pub fn id() -> ThreadId {
    thread_local! {
        static OWN: Cell<Option<(ThreadId, u32)>> = const { Cell::new(None) };
    }
    // A forked child's thread has another.
    let epoch = crate::process::fork_epoch();
    if let Some((id, of)) = OWN.get()
        && of == epoch
    {
        return id;
    }
    let id = ThreadId(rustix::thread::gettid().as_raw_nonzero());
    OWN.set(Some((id, epoch)));
    id
}

/// Whether a thread of this process is asleep in the kernel, and neither runs nor waits for a processor; also where the kernel does not
/// say. Three system calls.
#[must_use]
pub fn is_asleep(thread: ThreadId) -> bool {
    let mut stat = [0; 256];
    let read = File::open(format!("/proc/self/task/{}/stat", thread.0))
        .and_then(|mut file| file.read(&mut stat));
    let stat = stat.get(..read.unwrap_or(0)).unwrap_or_default();
    // The name before the state is in brackets, and may have any characters.
    let state = stat.iter().rposition(|byte| *byte == b')');
    state.and_then(|at| stat.get(at + 2)) != Some(&b'R')
}

/// Has the kernel end this thread's waits at their deadlines, and not up to 50 us later (`PR_SET_TIMERSLACK`). One system call.
pub fn wakes_in_time() {
    // SAFETY: the call takes no pointers. Without effect where it is forbidden.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Starts a thread. `clone`, `mmap`.
///
/// # Errors
/// The kernel's, without memory or room for threads.
pub fn spawn(
    name: &str,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    let thread = Builder::new().name(name.into()).stack_size(stack_bytes);
    #[cfg(feature = "simulation")]
    if let Some(starting) = crate::simulation::starting(name) {
        let number = starting.number();
        let started = thread.spawn(move || starting.run(work));
        return match started {
            Ok(handle) => {
                crate::simulation::Starting::started(number, handle.thread());
                Ok(Thread {
                    handle,
                    number: Some(number),
                })
            }
            Err(error) => {
                crate::simulation::Starting::failed(number);
                Err(error)
            }
        };
    }
    Ok(Thread {
        handle: thread.spawn(work)?,
        #[cfg(feature = "simulation")]
        number: None,
    })
}

impl Thread {
    /// Waits until it has ended. `false`: it has panicked.
    #[must_use]
    pub fn join(self) -> bool {
        #[cfg(feature = "simulation")]
        if let Some(number) = self.number {
            crate::simulation::ended(number);
        }
        self.handle.join().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_that_waits_is_asleep_and_one_that_works_is_not() {
        assert!(!is_asleep(id()));
        let (ids, its) = channel();
        let (end, ended) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                ids.send(id()).unwrap();
                let _ = ended.recv();
            });
            let other = its.recv().unwrap();
            assert_ne!(other, id());
            while !is_asleep(other) {
                std::thread::yield_now();
            }
            drop(end);
        });
    }
}
