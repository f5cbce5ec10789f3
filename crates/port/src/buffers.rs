//! Buffers of threads for long messages.

use core::cell::Cell;

/// The longest buffer that a thread keeps for the next long message.
const KEPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A buffer serves for messages that are shorter by so many times at most.
const WASTE_MAX: usize = 8;

thread_local! {
    /// The buffer of this thread's last long message.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer of this length: this thread's last one, unless that is far too long. `None`: there is no memory.
pub(crate) fn take(len_bytes: usize) -> Option<Vec<u8>> {
    let mut kept = BUFFER.try_with(Cell::take).unwrap_or_default();
    if (len_bytes..=WASTE_MAX * len_bytes).contains(&kept.capacity()) {
        kept.resize(len_bytes, 0);
        return Some(kept);
    }
    let _ = BUFFER.try_with(|known| known.set(kept));
    // A vector of zeros is made of the kernel's, without writing any, and ends the process where there is no memory.
    Vec::<u8>::new().try_reserve_exact(len_bytes).ok()?;
    Some(vec![0; len_bytes])
}

/// Keeps a buffer for this thread's next long message.
pub(crate) fn keep(bytes: Vec<u8>) {
    if (1..=KEPT_BYTES_MAX).contains(&bytes.len()) {
        let _ = BUFFER.try_with(|kept| kept.set(bytes));
    }
}
