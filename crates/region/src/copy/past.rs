//! A copy past the caches, which fetches no line of the destination first.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use handfast_layout::LINE;

/// As [`copy`](super::copy), past the caches. Returns when the bytes are ordered before every later store, as those of the other copies are.
/// Where the processor has no such stores this is the other copy.
///
/// # Safety
/// As there.
pub(crate) unsafe fn copy_past_caches(from: *const u8, to: *mut u8, len_bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // A store past the caches that does not fill its line is slow.
        let head = to.align_offset(LINE).min(len_bytes);
        let tail = head + (len_bytes - head) / LINE * LINE;
        // SAFETY: the first part of both ranges, for which the caller vouches.
        unsafe { super::copy(from, to, head) };
        if head < tail {
            // SAFETY: the lines between the others, which are in both ranges.
            unsafe { stream(from.wrapping_add(head), to.wrapping_add(head), tail - head) };
        }
        let (from, to) = (from.wrapping_add(tail), to.wrapping_add(tail));
        // SAFETY: the rest of both ranges.
        unsafe { super::copy(from, to, len_bytes - tail) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller vouches for both ranges.
    unsafe {
        super::copy(from, to, len_bytes);
    }
}

/// # Safety
/// As [`copy_past_caches`]; `to` is aligned to a line, and `len_bytes` is a multiple of a line's and not zero.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(from: *const u8, to: *mut u8, len_bytes: usize) {
    // The fence: nothing else orders stores past the caches. With it, whatever publishes the bytes need not know how they were copied.
    // SAFETY: reads and writes exactly `len_bytes` bytes of the two ranges the caller vouches for.
    unsafe { copy_blocks_by!("movntps", "sfence", from, to, len_bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn bytes_are_copied_whole_and_nothing_beside_them() {
        let source: Vec<u8> = (0..800).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        for (start, len_bytes) in
            (0..66).flat_map(|start| [0, 1, 63, 64, 65, 128, 129, 500].map(|len| (start, len)))
        {
            let mut target = vec![0xee; 800];
            // SAFETY: both ranges are as long, and ours.
            unsafe {
                copy_past_caches(
                    source[start / 2..].as_ptr(),
                    target[start..].as_mut_ptr(),
                    len_bytes,
                )
            };
            assert_eq!(
                target[start..][..len_bytes],
                source[start / 2..][..len_bytes]
            );
            assert!(target[..start].iter().all(|byte| *byte == 0xee));
            assert!(target[start + len_bytes..].iter().all(|byte| *byte == 0xee));
        }
    }

    /// Bytes that two threads have in turn.
    struct Turns {
        turn: AtomicU32,
        bytes: UnsafeCell<[u8; 4096]>,
    }

    // SAFETY: the bytes belong to the thread whose turn it is.
    unsafe impl Sync for Turns {}

    impl Turns {
        fn take<T>(&self, turn: u32, act: impl FnOnce(&mut [u8; 4096]) -> T) -> T {
            for look in 1u32.. {
                if self.turn.load(Ordering::Acquire) == turn {
                    break;
                }
                if look.is_multiple_of(1000) {
                    std::thread::yield_now();
                }
            }
            // SAFETY: the turn is this thread's until it says the next.
            let done = act(unsafe { &mut *self.bytes.get() });
            // A store alone: an exchange would order the others, too.
            self.turn.store(turn + 1, Ordering::Release);
            done
        }
    }

    /// The manuals ask for the fence. A processor may pass this without one, as an AMD EPYC does.
    #[test]
    fn bytes_are_there_before_the_word_of_them() {
        let rounds = if cfg!(miri) { 4 } else { 20_000 };
        let turns = Turns {
            turn: AtomicU32::new(0),
            bytes: UnsafeCell::new([0; 4096]),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    let bytes = [round as u8; 4096];
                    // SAFETY: both ranges are as long, and ours.
                    turns.take(2 * round, |to| unsafe {
                        copy_past_caches(bytes.as_ptr(), to.as_mut_ptr(), to.len())
                    });
                }
            });
            for round in 0..rounds {
                let missing =
                    |bytes: &mut [u8; 4096]| bytes.iter().rposition(|byte| *byte != round as u8);
                assert_eq!(turns.take(2 * round + 1, missing), None, "round {round}");
            }
        });
    }
}
