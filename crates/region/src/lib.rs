//! Memory another process may write at any time, behind one small type.
//!
//! Two rules hold for everything in this crate and above it (`spec/memory-model.md`):
//!
//! 1. **No reference or slice covers peer-writable bytes.** Control words are 32-bit atomics
//!    accessed by offset; message bytes are copied out before anyone looks at them.
//! 2. **One size per location, for ever.** A word is a 32-bit atomic or a byte of a message,
//!    never both.
//!
//! [`Memory`] is what the protocols above are written against; [`Region`] is the memory they run
//! on (a sealed memory file, or the heap for tests and miri); `ModelMemory` (feature `model`) is the
//! one they are checked on. [`Tally`] holds counters only their owner can write. [`Sealed`] is memory
//! that nobody can write any more, which the rules are not for, nor for [`Block`]s at their owner: memory that only
//! this process writes, and others look at.

mod bytes;
mod copy;
mod copying;
mod lent;
#[cfg(feature = "model")]
pub mod model;
mod pages;
mod sealed;
mod tally;
mod view;

pub use bytes::{Bytes, Pieces};
pub use copying::copy_to_reader;
pub use handfast_sys::futex::Wait;
pub use lent::{Block, Lent, create_blocks};
pub use sealed::{Draft, Sealed};
pub use tally::Tally;
pub use view::View;

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use handfast_sys::OwnedFd;
use handfast_sys::memory::Mapping;
use pages::Pages;

/// The shared memory operations a protocol needs: words, a store-load fence, and copies.
///
/// Offsets are in bytes; words are aligned to four. Implementations check bounds: an offset
/// outside the memory is a programmer error (offsets come from `handfast-layout`, never from a
/// peer, or have been checked) and panics.
pub trait Memory: Send + Sync {
    /// Loads a word.
    fn load(&self, at: usize, order: Ordering) -> u32;
    /// Stores a word.
    fn store(&self, at: usize, value: u32, order: Ordering);
    /// Loads `N` consecutive words, Relaxed: what another word published.
    #[inline(always)]
    fn load_words<const N: usize>(&self, at: usize) -> [u32; N] {
        // Relaxed: the caller has acquired the publishing word.
        core::array::from_fn(|word| self.load(at + word * 4, Ordering::Relaxed))
    }
    /// Stores `N` consecutive words, Relaxed: what another word will publish.
    #[inline(always)]
    fn store_words<const N: usize>(&self, at: usize, values: [u32; N]) {
        for (word, value) in values.into_iter().enumerate() {
            // Relaxed: the caller releases the publishing word.
            self.store(at + word * 4, value, Ordering::Relaxed);
        }
    }
    /// Whether a word that another one publishes with holds `value` (Acquire). A computation on `value`
    /// afterwards does not wait for the word: a processor that expects it to be there goes on meanwhile.
    #[inline(always)]
    fn shows(&self, at: usize, value: u32) -> bool {
        // Acquire: what the word publishes may be read if so. The caller names the edge.
        self.load(at, Ordering::Acquire) == value
    }
    /// Exchanges a word.
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32;
    /// Sets bits and returns the word as it was.
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32;
    /// Replaces `current` by `new` (`AcqRel`), or says what the word holds (`Acquire`).
    ///
    /// # Errors
    /// The value found when it was not `current`.
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32>;
    /// Orders every earlier store before every later load (store-load, sequentially consistent).
    fn fence(&self);
    /// Makes every running thread of every process that agreed to it pass such a fence. One system
    /// call, 1 to 4 us; `false` where it is refused, as it is by default.
    fn fence_others(&self) -> bool {
        false
    }
    /// Starts fetching the cache line at `at`, which is about to be looked at. A hint.
    fn prefetch(&self, _at: usize) {}
    /// As [`Self::prefetch`], for a line that is about to be written.
    fn prefetch_write(&self, _at: usize) {}
    /// Copies message bytes in.
    fn copy_in(&self, at: usize, bytes: &[u8]);
    /// The same, for bytes that may be many, by a call of a function.
    #[inline(always)]
    fn copy_many_in(&self, at: usize, bytes: &[u8]) {
        self.copy_in(at, bytes);
    }
    /// Copies message bytes out. The result is private; the source may have changed midway, so
    /// it is only meaningful once the protocol says the writer was done.
    fn copy_out(&self, at: usize, bytes: &mut [u8]);
    /// Replaces the content of `bytes` with `len_bytes` bytes copied out.
    fn copy_out_vec(&self, at: usize, len_bytes: usize, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(len_bytes, 0);
        self.copy_out(at, bytes);
    }
    /// Sleeps while the word holds `expected`. Blocks; may return for no reason.
    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait;
    /// Wakes at most `count` sleepers of the word. One system call.
    fn wake(&self, at: usize, count: u32) -> u32;
}

/// A range of memory with its owner: a mapped sealed file, or the heap.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len_bytes: usize,
    /// Shared with a process of another user.
    pages: Option<Box<Pages>>,
    _owner: Owner,
}

/// Shortest region; a run of words that is checked at once is no longer.
const LEN_BYTES_MIN: usize = 64;

#[derive(Debug)]
enum Owner {
    Mapping { _mapping: Mapping },
    Heap(NonNull<[u64]>),
}

// SAFETY: all access goes through atomics or the copies of `copy`, which are sound from any
// thread; the owner is only touched on drop.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps a mapping.
    ///
    /// # Panics
    /// If it is shorter than a cache line.
    #[must_use]
    pub fn mapped(mapping: Mapping) -> Self {
        let (base, len_bytes) = (mapping.base(), mapping.len_bytes());
        assert!(len_bytes >= LEN_BYTES_MIN);
        Self {
            base,
            len_bytes,
            pages: None,
            _owner: Owner::Mapping { _mapping: mapping },
        }
    }

    /// Zeroed heap memory of the same shape: words of this process alone, tests, miri.
    ///
    /// # Panics
    /// As [`Self::mapped`].
    #[must_use]
    pub fn heap(len_bytes: usize) -> Self {
        assert!(len_bytes >= LEN_BYTES_MIN);
        let words: Box<[u64]> = vec![0u64; len_bytes.div_ceil(8)].into_boxed_slice();
        let words = NonNull::from(Box::leak(words));
        Self {
            base: words.cast(),
            len_bytes,
            pages: None,
            _owner: Owner::Heap(words),
        }
    }

    /// The same, shared with a process of another user that is to touch first the memory it has this one use: [`Self::is_there`]
    /// looks for pages in the memory file `fd`, which is sealed against holes.
    #[must_use]
    pub fn looking_for_pages(mut self, fd: OwnedFd) -> Self {
        self.pages = Some(Box::new(Pages::new(Some(fd), self.len_bytes)));
        self
    }

    /// The same, shared with a process of another user that looks for pages: [`Self::make`] makes them.
    #[must_use]
    pub fn making_pages(mut self) -> Self {
        self.pages = Some(Box::new(Pages::new(None, self.len_bytes)));
        self
    }

    /// Whether pages are looked for; otherwise all count as there.
    #[inline(always)]
    #[must_use]
    pub fn looks_for_pages(&self) -> bool {
        self.pages
            .as_ref()
            .is_some_and(|pages| pages.are_looked_for())
    }

    /// Whether the other process looks for pages that this one makes.
    #[must_use]
    pub fn makes_pages(&self) -> bool {
        self.pages
            .as_ref()
            .is_some_and(|pages| !pages.are_looked_for())
    }

    /// Whether the pages of a range are there, so that touching them costs none. A system call for a range that has not been looked
    /// for yet.
    ///
    /// # Panics
    /// If it is outside the region.
    #[cold]
    #[must_use]
    pub fn is_there(&self, at: usize, len_bytes: usize) -> bool {
        let pages = self.pages.as_ref();
        pages.is_none_or(|pages| pages.is_there(at, len_bytes))
    }

    /// Gives up the file in which [`Self::is_there`] looks: a range that it has not seen yet counts as not there. Closes a descriptor.
    pub fn stop_looking(&self) {
        if let Some(pages) = &self.pages {
            pages.stop_looking();
        }
    }

    /// Has the pages of a range of words be there, where the other process looks for them. A page fault for each that is not there
    /// yet.
    ///
    /// # Panics
    /// If it is outside the region.
    #[cold]
    pub fn make(&self, at: usize, len_bytes: usize) {
        if let Some(pages) = &self.pages {
            pages.make(at, len_bytes, |page| {
                // Relaxed: the value does not matter. Not left out: a page comes with a look, too.
                core::hint::black_box(self.load(page, Ordering::Relaxed));
            });
        }
    }

    /// As [`Self::make`], of a range of message bytes that nobody has written yet.
    ///
    /// # Panics
    /// As there.
    #[cold]
    pub fn make_bytes(&self, at: usize, len_bytes: usize) {
        if let Some(pages) = &self.pages {
            pages.make(at, len_bytes, |page| self.copy_in(page, &[0]));
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The region as a value that fits in registers: what is done through one view need not look
    /// up where the region is again after each word that orders memory.
    #[inline(always)]
    #[must_use]
    pub const fn view(&self) -> View<'_> {
        View {
            base: self.base,
            len_bytes: self.len_bytes,
            _region: PhantomData,
        }
    }
}

impl Memory for Region {
    #[inline(always)]
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.view().load(at, order)
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.view().store(at, value, order);
    }

    #[inline(always)]
    fn load_words<const N: usize>(&self, at: usize) -> [u32; N] {
        self.view().load_words(at)
    }

    #[inline(always)]
    fn store_words<const N: usize>(&self, at: usize, values: [u32; N]) {
        self.view().store_words(at, values);
    }

    #[inline(always)]
    fn shows(&self, at: usize, value: u32) -> bool {
        self.view().shows(at, value)
    }

    #[inline(always)]
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.view().swap(at, value, order)
    }

    #[inline(always)]
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.view().fetch_or(at, bits, order)
    }

    #[inline(always)]
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.view().compare_exchange(at, current, new)
    }

    #[inline(always)]
    fn fence(&self) {
        copy::fence();
    }

    fn fence_others(&self) -> bool {
        self.view().fence_others()
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        self.view().prefetch(at);
    }

    #[inline(always)]
    fn prefetch_write(&self, at: usize) {
        self.view().prefetch_write(at);
    }

    #[inline(always)]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.view().copy_in(at, bytes);
    }

    #[inline(always)]
    fn copy_many_in(&self, at: usize, bytes: &[u8]) {
        self.view().copy_many_in(at, bytes);
    }

    #[inline(always)]
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        self.view().copy_out(at, bytes);
    }

    #[inline(always)]
    fn copy_out_vec(&self, at: usize, len_bytes: usize, bytes: &mut Vec<u8>) {
        self.view().copy_out_vec(at, len_bytes, bytes);
    }

    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        self.view().park(at, expected, deadline_ns)
    }

    fn wake(&self, at: usize, count: u32) -> u32 {
        self.view().wake(at, count)
    }
}

/// Sleeps while each of the words holds its expected value (at most
/// [`handfast_sys::futex::WORDS_MAX`] of them). One system call, blocks.
///
/// # Errors
/// `ENOSYS` before kernel 5.16.
pub fn park_any<'a>(
    mut words: impl Iterator<Item = (&'a Region, usize, u32)> + Clone,
    deadline_ns: Option<u64>,
) -> Result<Wait, handfast_sys::Errno> {
    let mut rest = words.clone().skip(1);
    if rest.next().is_none() {
        return Ok(words
            .next()
            .map_or(Wait::TimedOut, |(region, at, expected)| {
                region.park(at, expected, deadline_ns)
            }));
    }
    let words: Vec<_> = words
        .map(|(region, at, expected)| (NonNull::from(region.view().word(at)).cast(), expected))
        .collect();
    // SAFETY: every word lies in a region that its reference keeps mapped during the call.
    unsafe { handfast_sys::futex::wait_any(&words, deadline_ns) }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Owner::Heap(words) = self._owner {
            // SAFETY: made by `Box::leak` in `heap` and dropped once, here.
            drop(unsafe { Box::from_raw(words.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_sys::memory::{Access, create_sealed};

    fn regions() -> Vec<Region> {
        let mut regions = vec![Region::heap(16384)];
        if !cfg!(miri) {
            let fd = create_sealed("region test", 16384).unwrap();
            regions.push(Region::mapped(
                Mapping::new(&fd, 16384, Access::ReadWrite).unwrap(),
            ));
        }
        regions
    }

    #[test]
    fn bytes_of_every_length_and_alignment_survive_the_copy() {
        for region in regions() {
            let source: Vec<u8> = (0..9000u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let lengths = (0..300).chain([1023, 1024, 1025, 4096, 8191]);
            for len in lengths.step_by(if cfg!(miri) { 37 } else { 1 }) {
                for shift in [0, 1, 3, 8] {
                    region.copy_in(64 + shift, &source[shift..shift + len]);
                    let mut out = vec![0xee; len];
                    region.copy_out(64 + shift, &mut out);
                    assert_eq!(out, source[shift..shift + len]);
                    let mut vec = vec![1, 2, 3];
                    region.copy_out_vec(64 + shift, len, &mut vec);
                    assert_eq!(vec, out);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside a region")]
    fn an_offset_outside_the_region_panics() {
        Region::heap(64).copy_in(60, &[0; 8]);
    }

    #[test]
    #[should_panic(expected = "outside a region")]
    fn an_offset_that_would_wrap_panics() {
        let mut bytes = [0; 8];
        Region::heap(64).copy_out(usize::MAX - 3, &mut bytes);
    }

    #[test]
    fn words_are_atomics() {
        for region in regions() {
            assert_eq!(region.swap(8, 5, Ordering::AcqRel), 0);
            assert_eq!(region.fetch_or(8, 2, Ordering::AcqRel), 5);
            assert_eq!(region.compare_exchange(8, 7, 1), Ok(7));
            assert_eq!(region.compare_exchange(8, 7, 2), Err(1));
            assert_eq!(region.load(8, Ordering::Acquire), 1);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no shared futex on plain memory")]
    fn a_parked_thread_wakes_and_a_changed_word_does_not_park() {
        for region in regions() {
            assert_eq!(region.park(0, 1, None), Wait::Changed);
            let past = Some(1);
            assert_eq!(region.park(0, 0, past), Wait::TimedOut);
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| {
                    while region.load(0, Ordering::Acquire) == 0 {
                        let _ = region.park(0, 0, None);
                    }
                });
                region.store(0, 1, Ordering::Release);
                region.wake(0, 1);
                sleeper.join().unwrap();
            });
        }
    }
}
