//! Threads of the library.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread that was started by [`spawn`].
#[derive(Debug)]
pub struct Thread {
    handle: JoinHandle<()>,
    #[cfg(feature = "simulation")]
    number: Option<usize>,
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
