//! The socket of a link by hand.

use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::{Errno, OwnedFd, socket};
use std::sync::atomic::AtomicU64;

/// The incarnation of a new process.
pub(super) fn incarnation() -> [u8; 16] {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number.
    let number = LAST.fetch_add(1, Relaxed) + 1;
    // Half of it is the kernel's word for this process.
    let mut incarnation = handfast_sys::process::new_incarnation().expect("random bytes");
    incarnation[8..].copy_from_slice(&number.to_le_bytes());
    incarnation
}

/// The next message, and its descriptors; fuzzers have timers.
pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    loop {
        match socket::receive(socket, bytes, 4) {
            Err(Errno::INTR) => {}
            received => return received,
        }
    }
}
