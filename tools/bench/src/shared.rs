//! Memory that several processes of a benchmark map.
//!
//! For the hand-written limits and the control page only: both sides are ours and follow the
//! protocol, so payload bytes are copied plainly, ordered by the sequence words around them.

use handfast_sys::OwnedFd;
use handfast_sys::memory::{Access, Mapping, create_sealed};
use rustix::io::Errno;
use std::ptr::NonNull;

/// Types that may be overlaid on shared bytes.
///
/// # Safety
/// `repr(C)`, made of atomic integers and padding only, so that every bit pattern is valid and
/// other processes may write at any time.
pub(crate) unsafe trait Words {}

/// One shared mapping.
pub(crate) struct Shared(Mapping);

impl Shared {
    /// Makes `len_bytes` zero bytes and maps them.
    pub(crate) fn create(name: &str, len_bytes: usize) -> Result<(OwnedFd, Self), Errno> {
        let fd = create_sealed(name, len_bytes)?;
        let shared = Self::open(&fd, len_bytes)?;
        Ok((fd, shared))
    }

    /// Maps what another process made.
    pub(crate) fn open(fd: &OwnedFd, len_bytes: usize) -> Result<Self, Errno> {
        Mapping::new(fd, len_bytes, Access::ReadWrite).map(Self)
    }

    /// The words at `offset`.
    #[inline]
    pub(crate) fn at<T: Words>(&self, offset: usize) -> &T {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.0.len_bytes()));
        assert!(offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping by the first assertion.
        let place = unsafe { self.0.base().add(offset) };
        // SAFETY: aligned (page base plus a multiple), inside the mapping, and `T: Words` is
        // valid for any bytes and for writes by others; the borrow keeps the mapping alive.
        unsafe { place.cast::<T>().as_ref() }
    }

    /// The `len_bytes` payload bytes at `offset`.
    pub(crate) fn payload(&self, offset: usize, len_bytes: usize) -> Payload<'_> {
        let end = offset.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.0.len_bytes()));
        // SAFETY: inside the mapping by the assertion.
        let base = unsafe { self.0.base().add(offset) };
        Payload {
            base,
            len_bytes,
            _shared: self,
        }
    }
}

/// Payload bytes whose turn to be read or written is told by a sequence word elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct Payload<'a> {
    base: NonNull<u8>,
    len_bytes: usize,
    _shared: &'a Shared,
}

impl Payload<'_> {
    /// Copies the front out.
    #[inline]
    pub(crate) fn copy_out(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len_bytes);
        // SAFETY: in bounds by the assertion; a private buffer does not overlap the mapping; the
        // sequence word said that the other side has finished writing and now waits for us.
        unsafe { core::ptr::copy_nonoverlapping(self.base.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    /// Copies into the front.
    #[inline]
    pub(crate) fn copy_in(&self, from: &[u8]) {
        assert!(from.len() <= self.len_bytes);
        // SAFETY: as in `copy_out`, with the roles exchanged: the other side does not look before
        // the sequence word says so.
        unsafe {
            core::ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr(), from.len());
        };
    }

    /// Copies the front to the front of another, which does not overlap it.
    #[inline]
    pub(crate) fn copy_to(&self, to: &Payload<'_>, len_bytes: usize) {
        assert!(len_bytes <= self.len_bytes && len_bytes <= to.len_bytes);
        let gap = self.base.as_ptr().addr().abs_diff(to.base.as_ptr().addr());
        assert!(gap >= len_bytes);
        // SAFETY: both in bounds and apart by the assertions; whose turn it is as in `copy_out`
        // and `copy_in`.
        unsafe { core::ptr::copy_nonoverlapping(self.base.as_ptr(), to.base.as_ptr(), len_bytes) };
    }

    /// Writes the 64-byte piece number `index`.
    #[inline]
    pub(crate) fn put(&self, index: usize, piece: Piece) {
        assert!((index + 1) * size_of::<Piece>() <= self.len_bytes);
        // SAFETY: in bounds by the assertion.
        let place = unsafe { self.base.cast::<Piece>().add(index) };
        // SAFETY: in bounds, ours to write as in `copy_in`; alignment is not assumed.
        unsafe { place.write_unaligned(piece) };
    }

    /// Reads the 64-byte piece number `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Piece {
        assert!((index + 1) * size_of::<Piece>() <= self.len_bytes);
        // SAFETY: in bounds by the assertion.
        let place = unsafe { self.base.cast::<Piece>().add(index) };
        // SAFETY: in bounds, ours to read as in `copy_out`; any bytes are a valid piece.
        unsafe { place.read_unaligned() }
    }

    /// The sum of the words of the first `pieces` pieces.
    #[inline]
    pub(crate) fn sum(&self, pieces: usize) -> u64 {
        let mut sums = Piece::default();
        for index in 0..pieces {
            for (sum, word) in sums.iter_mut().zip(self.get(index)) {
                *sum = sum.wrapping_add(word);
            }
        }
        sums.into_iter().fold(0, u64::wrapping_add)
    }
}

/// 64 bytes of payload as they are made and consumed.
pub(crate) type Piece = [u64; 8];

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[repr(C)]
    struct Pair(AtomicU64, AtomicU64);
    // SAFETY: two atomic integers.
    unsafe impl Words for Pair {}

    #[test]
    fn two_mappings_of_one_file_see_the_same_bytes() {
        let (fd, one) = Shared::create("test", 4096).unwrap();
        let two = Shared::open(&fd, 4096).unwrap();
        one.at::<Pair>(64).1.store(7, Ordering::SeqCst);
        assert_eq!(two.at::<Pair>(64).1.load(Ordering::SeqCst), 7);
        one.payload(128, 128).put(1, [9; 8]);
        assert_eq!(two.payload(128, 128).get(1), [9; 8]);
        let mut bytes = [0; 128];
        two.payload(128, 128).copy_out(&mut bytes);
        assert_eq!((bytes[0], bytes[64]), (0, 9));
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn words_past_the_end_are_refused() {
        let (_fd, shared) = Shared::create("test", 4096).unwrap();
        shared.at::<Pair>(4096 - 8);
    }
}
