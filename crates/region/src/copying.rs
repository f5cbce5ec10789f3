//! Copies of many bytes to memory that another processor reads: through the caches, or past them.
//!
//! A store to a line that another processor has read fetches the line first. Where lines come slowly, that is most of the time of a copy,
//! and stores past the caches fetch none; where they come fast, the reader finds in a cache what such stores would have sent to memory. So
//! a writer times its copies, by the line.

use crate::copy;
use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::LINE;
use handfast_sys::clock;

/// Shorter copies go through the caches, and are not timed.
const LONG_BYTES_MIN: usize = 16 * 1024;

/// How the last copies to an address have gone, by pieces of the address space: a lane or an arena has one reader. Two that share an entry
/// disturb each other, and lose some time.
static COURSES: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];
/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;

/// Copies between slices of the same length, the second of which another process reads. Returns when the bytes are ordered before every later store.
///
/// # Panics
/// If the lengths differ.
pub fn copy_to_reader(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: two slices of this length.
    unsafe { copy_many(from, to.as_mut_ptr()) };
}

/// As [`copy_to_reader`].
///
/// # Safety
/// As [`copy::copy`]: `to` is the side that may be shared.
#[inline(never)]
pub(crate) unsafe fn copy_many(from: &[u8], to: *mut u8) {
    if from.len() < LONG_BYTES_MIN {
        // SAFETY: the caller vouches for both ranges.
        return unsafe { copy::copy(from.as_ptr(), to, from.len()) };
    }
    let word = &COURSES[to.addr() / PIECE_BYTES % COURSES.len()];
    // SAFETY: as above.
    unsafe { copy_long(from, to, word) };
}

/// # Safety
/// As [`copy_many`].
unsafe fn copy_long(from: &[u8], to: *mut u8, word: &AtomicU32) {
    // Relaxed, both: hints of threads that may copy at the same time, each of which is good.
    let mut course = Course::of(word.load(Ordering::Relaxed));
    match course.next() {
        // SAFETY: the caller vouches for both ranges.
        Way::Past => unsafe { copy::copy_past_caches(from.as_ptr(), to, from.len()) },
        Way::Cached => {
            let start_ns = clock::ticks_ns();
            // SAFETY: as above.
            unsafe { copy::copy(from.as_ptr(), to, from.len()) };
            let took_ns = clock::ticks_ns().saturating_sub(start_ns);
            course.copied(from.len() / LINE, took_ns);
        }
    }
    word.store(course.word(), Ordering::Relaxed);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the caches, to be timed.
    Cached,
    /// Past the caches.
    Past,
}

/// From here on a line is slow. One that is in a cache of the writer's or of a near processor's takes 1 to 5 ns, as lines are fetched
/// several at a time; one in a cache of a far processor's took 12 to 17 (`docs/decisions/0035-long-messages.md`).
const SLOW_NS: u64 = 8;
/// So many slow copies in a row are not chance: a copy is also slow when its thread did not run meanwhile, or its memory is new, as all
/// steps of a first long message may be.
const IN_A_ROW: u8 = 4;
/// Past the caches, one copy of so many goes through them.
const TRIES: u8 = 64;

/// The decisions of a writer.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    /// Slow copies in a row, up to as many as count.
    slow: u8,
    /// Copies past the caches since one was timed.
    past: u8,
}

impl Course {
    fn of(word: u32) -> Self {
        let [slow, past, _, _] = word.to_le_bytes();
        Self { slow, past }
    }

    fn word(self) -> u32 {
        u32::from_le_bytes([self.slow, self.past, 0, 0])
    }

    /// The way of the next copy.
    fn next(&mut self) -> Way {
        if self.slow < IN_A_ROW {
            return Way::Cached;
        }
        self.past = (self.past + 1) % TRIES;
        match self.past {
            0 => Way::Cached,
            _ => Way::Past,
        }
    }

    /// A copy of so many lines through the caches took so long.
    fn copied(&mut self, lines: usize, took_ns: u64) {
        self.slow = match took_ns / lines as u64 >= SLOW_NS {
            true => (self.slow + 1).min(IN_A_ROW),
            false => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: usize = 2048;

    /// The time of `count` copies, in lines' nanoseconds.
    fn copies(course: &mut Course, count: u64, cached_ns: u64, past_ns: u64) -> u64 {
        let copy = |_| match course.next() {
            Way::Cached => {
                course.copied(LINES, cached_ns * LINES as u64);
                cached_ns
            }
            Way::Past => past_ns,
        };
        (0..count).map(copy).sum()
    }

    #[test]
    fn copies_take_little_longer_than_by_the_better_way_and_follow_a_reader_that_moves() {
        let mut course = Course::default();
        for _ in 0..10 {
            // Near. Past the caches until one is timed, at most.
            let near_ns = copies(&mut course, 1000, 3, 6);
            assert!(near_ns <= 3 * (1000 + 64), "{near_ns}");
            let far_ns = copies(&mut course, 1000, 16, 4);
            assert!(far_ns <= 4 * 1000 * 21 / 20 + 16 * 5, "{far_ns}");
        }
    }

    #[test]
    fn one_copy_that_took_long_is_chance() {
        let mut course = Course::default();
        for _ in 0..100 {
            for took_ns in [1_000_000, 4_000] {
                assert_eq!(course.next(), Way::Cached);
                course.copied(LINES, took_ns);
            }
        }
    }

    #[test]
    fn copies_of_all_lengths_are_whole_by_either_way() {
        let from: Vec<u8> = (0..70_000u32)
            .map(|byte| (byte * 7 + byte / 256) as u8)
            .collect();
        let far = Course {
            slow: IN_A_ROW,
            past: 1,
        };
        for len in [16_384, 16_385, 20_000, 65_536] {
            for course in [Course::default(), far] {
                let from = &from[3..][..len];
                let mut to = vec![0; len];
                // SAFETY: both ranges are as long, and ours.
                unsafe { copy_long(from, to.as_mut_ptr(), &AtomicU32::new(course.word())) };
                assert_eq!(to, from);
            }
        }
        for len in [0, 1, 16_383, 16_384] {
            let mut to = vec![0; len];
            copy_to_reader(&from[..len], &mut to);
            assert_eq!(to, from[..len]);
        }
    }
}
