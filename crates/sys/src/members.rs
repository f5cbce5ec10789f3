//! Which processes of a group live: record locks on a memory file.
//!
//! A process takes part by holding a record lock (`fcntl(F_SETLK)`, POSIX) on the byte of the
//! file that has its number. The kernel drops the lock when the process dies, however it dies;
//! `fork` does not pass it on; a process id that is used again does not matter. Others ask for it
//! with `F_GETLK`.
//!
//! Closing *any* descriptor of a file drops all record locks its process holds on it. So the file
//! is used for nothing else, and [`join`] takes its descriptor and keeps it: a process must have
//! no other one that it closes while it is a member.

use crate::{last_errno, process};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Most members of a file; they are numbered from 1.
pub const MEMBERS_MAX: u32 = 63;

/// Makes the file of a group: sealed, and empty of members. Calls of
/// [`create_sealed`](crate::memory::create_sealed).
///
/// # Errors
/// As [`create_sealed`](crate::memory::create_sealed).
pub fn create(name: &str) -> Result<OwnedFd, Errno> {
    crate::memory::create_sealed(name, FILE_BYTES)
}

/// Makes this process a member of the group of `file` and keeps the descriptor until the last
/// handle is dropped. A process that is one already shares its membership; the descriptor is kept
/// all the same (closing it would end the membership). A forked child is not a member; it may
/// join with a descriptor of its own. At most 63 `fcntl` calls, a `pread` and a `pwrite`.
///
/// The number may have belonged to a process that died. The group's shared state must be
/// rid of that process's traces before others wait for this one: do so at once.
///
/// # Errors
/// `EAGAIN` when all numbers are taken, `EBADF` when the descriptor cannot be written,
/// `EINVAL` when the file is not one of [`create`].
pub fn join(file: OwnedFd) -> Result<Arc<Membership>, Errno> {
    process::watch_forks();
    let file = Arc::new(file);
    if !crate::memory::is_sealed(&file, FILE_BYTES)? {
        return Err(Errno::INVAL);
    }
    let status = rustix::fs::fstat(&*file)?;
    let key = (status.st_dev, status.st_ino, process::fork_epoch());
    loop {
        let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        match joined.iter().find(|(known, _)| *known == key) {
            None => {
                let member = Arc::new(Membership::claim(file, key)?);
                joined.push((key, Arc::downgrade(&member)));
                return Ok(member);
            }
            Some((_, member)) => {
                if let Some(member) = member.upgrade() {
                    let mut more = member.more.lock().unwrap_or_else(PoisonError::into_inner);
                    more.push(file);
                    drop(more);
                    return Ok(member);
                }
            }
        }
        // The last handle is being dropped; its descriptor must be closed before we lock.
        drop(joined);
        crate::cpu::yield_now();
    }
}

/// This process's place in a group, given up on drop (or at death).
#[derive(Debug)]
pub struct Membership {
    file: Option<Arc<OwnedFd>>,
    /// Further descriptors of the same file: open only because closing them is an end.
    more: Mutex<Vec<Arc<OwnedFd>>>,
    key: Key,
    number: u32,
    incarnation: u32,
}

/// Device, inode, fork epoch.
type Key = (u64, u64, u32);

/// Files this process is a member of. An entry goes after its descriptors are closed.
static JOINED: Mutex<Vec<(Key, Weak<Membership>)>> = Mutex::new(Vec::new());

impl Membership {
    fn claim(file: Arc<OwnedFd>, key: Key) -> Result<Self, Errno> {
        for number in 1..=MEMBERS_MAX {
            match record_lock(&file, libc::F_SETLK, number) {
                Ok(_) => {
                    let incarnation = next_incarnation(&file, number)?;
                    return Ok(Self {
                        file: Some(file),
                        more: Mutex::new(Vec::new()),
                        key,
                        number,
                        incarnation,
                    });
                }
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::AGAIN)
    }

    /// This process's number, from 1; zero in a forked child, which is no member.
    #[must_use]
    pub fn number(&self) -> u32 {
        if self.is_own() { self.number } else { 0 }
    }

    /// Which holder of its number this process is; counted in the file, wraps around.
    #[must_use]
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The members' file, to pass on to other processes. Closing a duplicate of it in this process
    /// ends the membership.
    ///
    /// # Panics
    /// Never: only `drop` takes the descriptor out.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.file {
            Some(file) => file.as_fd(),
            None => unreachable!("only drop takes it out"),
        }
    }

    /// Whether no living process has this number. One `fcntl(F_GETLK)`. Where the kernel does not
    /// say, the answer is that it lives.
    #[must_use]
    pub fn is_dead(&self, number: u32) -> bool {
        // F_GETLK does not report the locks of the asking process.
        if number == self.number && self.is_own() {
            return false;
        }
        let Some(file) = &self.file else { return false };
        // Q4 death, load half. The kernel drops the record lock after the last instruction of its
        // owner and looks for it here under the same lock of its own: what the dead process wrote
        // is visible once this says so. Used by `TwoLock::take_over`.
        let found = record_lock(file, libc::F_GETLK, number);
        found.is_ok_and(|kind| kind == libc::F_UNLCK)
    }

    fn is_own(&self) -> bool {
        self.key.2 == process::fork_epoch()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // Closed with the list locked: a new membership taken meanwhile would end with the close.
        let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        self.file = None;
        let more = self.more.get_mut();
        more.unwrap_or_else(PoisonError::into_inner).clear();
        joined.retain(|(key, _)| *key != self.key);
    }
}

/// Bytes of the file: the locks lie on the first, and each number has a count of four.
const FILE_BYTES: usize = 4096;
const COUNTS: u64 = 1024;

/// Asks for, or asks about, the exclusive record lock on byte `number`; the kind of lock found.
fn record_lock(file: &OwnedFd, command: libc::c_int, number: u32) -> Result<libc::c_int, Errno> {
    let mut record = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: libc::off_t::from(number),
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: `record` is a valid `struct flock`, which both commands take, and outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut record) } < 0 {
        return Err(last_errno());
    }
    Ok(libc::c_int::from(record.l_type))
}

/// Counts one more holder of `number`, which the caller has locked.
fn next_incarnation(file: &OwnedFd, number: u32) -> Result<u32, Errno> {
    let at = COUNTS + 4 * u64::from(number);
    let mut count = [0; 4];
    rustix::io::pread(file, &mut count, at)?;
    let next = u32::from_le_bytes(count).wrapping_add(1);
    rustix::io::pwrite(file, &next.to_le_bytes(), at)?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::dup;

    /// A second descriptor that shares nothing but the file. The original stays open.
    fn reopened(file: &OwnedFd) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).open(path).unwrap();
        file.into()
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files and record locks")]
    fn a_process_shares_its_membership_and_a_second_descriptor_does_not_end_it() {
        let file = create("members test").unwrap();
        let first = join(reopened(&file)).unwrap();
        let second = join(dup(&file).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((first.number(), first.incarnation()), (1, 1));
        assert!(!first.is_dead(1) && first.is_dead(2) && first.is_dead(63));
        drop(second);
        // A child sees whether our lock is still there.
        assert!(!is_dead_to_a_child(&first, 1));
        drop(first);
        let again = join(reopened(&file)).unwrap();
        assert_eq!((again.number(), again.incarnation()), (1, 2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files and record locks")]
    fn a_forked_child_is_not_the_member_and_counts_as_dead_when_it_was_one() {
        let file = create("members test").unwrap();
        let own = join(reopened(&file)).unwrap();
        // The child's copy of our handle names nobody; joined anew it gets a number of its own.
        let code = in_child(|| {
            let is_nobody = own.number() == 0;
            let joined = join(reopened(&file)).unwrap();
            let is_second = joined.number() == 2 && !joined.is_dead(1) && !joined.is_dead(2);
            std::mem::forget(joined);
            i32::from(is_nobody && is_second)
        });
        assert_eq!(code, 1);
        assert!(own.is_dead(2) && !own.is_dead(1));
        // The descriptors that the child closed at its end did not end our membership.
        assert!(!is_dead_to_a_child(&own, 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files and record locks")]
    fn other_files_are_refused() {
        let small = crate::memory::create_sealed("small", 8192).unwrap();
        assert_eq!(join(small).unwrap_err(), Errno::INVAL);
    }

    fn is_dead_to_a_child(own: &Membership, number: u32) -> bool {
        in_child(|| i32::from(own.is_dead(number))) == 1
    }

    /// The exit status of a forked child that runs `role`.
    fn in_child(role: impl FnOnce() -> i32) -> i32 {
        // One fork at a time: a child must not find the list locked by another test.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the child runs `role`, which takes no lock another thread can hold, and ends.
        let child = unsafe { libc::fork() };
        drop(joined);
        if child == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(role));
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(code.unwrap_or(99)) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: `status` is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }
}
