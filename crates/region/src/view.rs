//! A region as a value in registers, and all access to its memory.

use crate::{LEN_BYTES_MIN, Memory, Region, Wait, copy, copying};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

/// A borrowed [`Region`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) base: NonNull<u8>,
    pub(crate) len_bytes: usize,
    pub(crate) _region: PhantomData<&'a Region>,
}

// SAFETY: as for the region.
unsafe impl Send for View<'_> {}
// SAFETY: as for the region.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    #[inline(always)]
    fn pointer(&self, at: usize, len_bytes: usize) -> *mut u8 {
        if at > self.len_bytes || len_bytes > self.len_bytes - at {
            self.outside(at, len_bytes);
        }
        // SAFETY: the offset was just checked to lie inside the allocation.
        unsafe { self.base.as_ptr().add(at) }
    }

    #[cold]
    #[inline(never)]
    fn outside(&self, at: usize, len_bytes: usize) -> ! {
        panic!(
            "offset {at} + {len_bytes} is outside a region of {} bytes",
            self.len_bytes
        )
    }

    #[inline(always)]
    pub(crate) fn word(&self, at: usize) -> &'a AtomicU32 {
        let [word] = self.words::<1>(at);
        word
    }

    /// `N` consecutive words, checked once. The bounds checks of a message's words are a tenth of
    /// its instructions.
    #[inline(always)]
    fn words<const N: usize>(&self, at: usize) -> &'a [AtomicU32; N] {
        debug_assert!(at.is_multiple_of(4), "a word is aligned to four");
        // A misaligned offset, which layouts exclude, would name the word around it.
        let at = at & !3;
        // One comparison: no region is shorter than a line.
        const { assert!(N * 4 <= LEN_BYTES_MIN) };
        if at > self.len_bytes - N * 4 {
            self.outside(at, N * 4);
        }
        // SAFETY: the offset was just checked to lie inside the allocation.
        let words = unsafe { self.base.as_ptr().add(at) }.cast::<[AtomicU32; N]>();
        // SAFETY: in bounds (just checked), aligned (the base is aligned to eight or a page, the
        // offset to four), and by rule 2 of this crate each location is only ever accessed as a
        // 32-bit atomic. The peer's accesses are outside this program; see docs/limits.md for what
        // that means for the language's memory model.
        unsafe { &*words }
    }
}

impl Memory for View<'_> {
    #[inline(always)]
    fn load(&self, at: usize, order: Ordering) -> u32 {
        self.word(at).load(order)
    }

    #[inline(always)]
    fn store(&self, at: usize, value: u32, order: Ordering) {
        self.word(at).store(value, order);
    }

    #[inline(always)]
    fn load_words<const N: usize>(&self, at: usize) -> [u32; N] {
        let words = self.words::<N>(at);
        // Relaxed: see the trait.
        core::array::from_fn(|word| words[word].load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn store_words<const N: usize>(&self, at: usize, values: [u32; N]) {
        for (word, value) in self.words::<N>(at).iter().zip(values) {
            // Relaxed: see the trait.
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn shows(&self, at: usize, value: u32) -> bool {
        // Acquire: see the trait.
        self.word(at).load(Ordering::Acquire) == copy::unknown(value)
    }

    #[inline(always)]
    fn swap(&self, at: usize, value: u32, order: Ordering) -> u32 {
        self.word(at).swap(value, order)
    }

    #[inline(always)]
    fn fetch_or(&self, at: usize, bits: u32, order: Ordering) -> u32 {
        self.word(at).fetch_or(bits, order)
    }

    #[inline(always)]
    fn compare_exchange(&self, at: usize, current: u32, new: u32) -> Result<u32, u32> {
        self.word(at)
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    #[inline(always)]
    fn fence(&self) {
        copy::fence();
    }

    fn fence_others(&self) -> bool {
        handfast_sys::futex::fence_others()
    }

    #[inline(always)]
    fn prefetch(&self, at: usize) {
        let _line = self.pointer(at, 1);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing into the program; the address is in bounds anyway.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(_line.cast());
        }
    }

    #[inline(always)]
    fn prefetch_write(&self, at: usize) {
        let _line = self.pointer(at, 1);
        // Assembly: for a processor that may not have it the compiler would take the one for reading, after which
        // the line has to be asked for again.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as above; a processor without this hint ignores it.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) _line, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let to = self.pointer(at, bytes.len());
        // SAFETY: the destination is in bounds of this region; the source is a private slice.
        unsafe { copy::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    #[inline(always)]
    fn copy_many_in(&self, at: usize, bytes: &[u8]) {
        let to = self.pointer(at, bytes.len());
        // SAFETY: the destination is in bounds of this region; the source is a private slice.
        unsafe { copying::copy_many(bytes, to) };
    }

    #[inline(always)]
    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        let from = self.pointer(at, bytes.len());
        // SAFETY: the source is in bounds of this region; the destination is a private slice.
        unsafe { copy::copy(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    #[inline(always)]
    fn copy_out_vec(&self, at: usize, len_bytes: usize, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.reserve(len_bytes);
        let from = self.pointer(at, len_bytes);
        // WHY UNSAFE: zeroing 64 KiB before overwriting it costs 1 to 2 us per message.
        // SAFETY: the source is in bounds; `reserve` made room for `len_bytes` in `bytes`.
        unsafe { copy::copy(from, bytes.as_mut_ptr(), len_bytes) };
        // SAFETY: the first `len_bytes` bytes were just written.
        unsafe { bytes.set_len(len_bytes) };
    }

    fn park(&self, at: usize, expected: u32, deadline_ns: Option<u64>) -> Wait {
        let word = NonNull::from(self.word(at)).cast();
        // SAFETY: `word` lies in this region, which `self` keeps mapped during the call.
        unsafe { handfast_sys::futex::wait(word, expected, deadline_ns) }
    }

    fn wake(&self, at: usize, count: u32) -> u32 {
        let word = NonNull::from(self.word(at)).cast();
        // SAFETY: `word` lies in this region, which `self` keeps mapped during the call.
        unsafe { handfast_sys::futex::wake(word, count) }
    }
}
