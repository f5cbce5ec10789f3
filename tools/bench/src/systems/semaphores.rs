//! Counting semaphores between processes: the kernel's own (System V, as in paper 000), or a futex on a
//! shared word.

use handfast_cli::temporary::{Temporary, goes_on};
use handfast_sys::futex;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A set of System V semaphores, all zero at first; removed on drop.
pub(crate) struct SemaphoreSet {
    id: i32,
    _temporary: Temporary,
}

impl SemaphoreSet {
    pub(crate) fn create(count: usize) -> io::Result<Self> {
        let count = i32::try_from(count).map_err(io::Error::other)?;
        let _goes_on = goes_on();
        // SAFETY: the call takes integers only.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, count, libc::IPC_CREAT | 0o600) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            id,
            _temporary: Temporary::new(move || remove(id)),
        })
    }

    /// The name other processes use for it.
    pub(crate) const fn id(&self) -> i32 {
        self.id
    }
}

fn remove(id: i32) {
    // SAFETY: IPC_RMID ignores the number and takes no further argument.
    let _ = unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
}

/// Where the semaphores of a group of processes are.
#[derive(Clone, Copy)]
pub(crate) enum Semaphores {
    /// In the set with this number. Each operation is a system call.
    SystemV(i32),
    /// In the words that the operations are given. Only sleeping and waking are system calls.
    Futex,
}

impl Semaphores {
    /// P: takes one from semaphore `number`, whose word is `word`; sleeps while it has none. Says how many
    /// system calls that took.
    pub(crate) fn down(self, number: u16, word: &AtomicU32) -> io::Result<u64> {
        match self {
            Self::SystemV(id) => operate(id, number, -1),
            Self::Futex => Ok(down(word)),
        }
    }

    /// V: adds one, and wakes a sleeper. Says how many system calls that took.
    pub(crate) fn up(self, number: u16, word: &AtomicU32) -> io::Result<u64> {
        match self {
            Self::SystemV(id) => operate(id, number, 1),
            Self::Futex => {
                // Release: pairs with the exchange in `down`; what came before the V is seen after the P.
                word.fetch_add(1, Ordering::Release);
                // SAFETY: the word is borrowed for the call.
                unsafe { futex::wake(NonNull::from(word).cast(), 1) };
                Ok(1)
            }
        }
    }
}

fn operate(id: i32, number: u16, change: i16) -> io::Result<u64> {
    let mut operation = libc::sembuf {
        sem_num: number,
        sem_op: change,
        sem_flg: 0,
    };
    let mut calls = 1;
    // SAFETY: one operation, valid for a read.
    while unsafe { libc::semop(id, &raw mut operation, 1) } != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        calls += 1;
    }
    Ok(calls)
}

fn down(word: &AtomicU32) -> u64 {
    let mut calls = 0;
    loop {
        // Relaxed: the exchange decides.
        let count = word.load(Ordering::Relaxed);
        if count == 0 {
            // SAFETY: the word is borrowed for the call.
            let _ = unsafe { futex::wait(NonNull::from(word).cast(), 0, None) };
            calls += 1;
        // Acquire: pairs with the addition in `up`. Relaxed on failure: it is tried again.
        } else if word
            .compare_exchange_weak(count, count - 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return calls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semaphore_counts_what_comes_before_the_sleep() {
        let set = SemaphoreSet::create(2).unwrap();
        for semaphores in [Semaphores::SystemV(set.id()), Semaphores::Futex] {
            let word = AtomicU32::new(0);
            for _ in 0..2 {
                semaphores.up(1, &word).unwrap();
            }
            // Neither sleeps.
            for _ in 0..2 {
                semaphores.down(1, &word).unwrap();
            }
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| semaphores.down(1, &word).unwrap());
                semaphores.up(1, &word).unwrap();
                sleeper.join().unwrap();
            });
        }
    }
}
