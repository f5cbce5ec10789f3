//! Memory as a part of a message: any amount, not copied, and not to be changed by anybody.

use crate::error::{MemoryError, Misuse, Resource};
use crate::users::{Foreign, ForeignMemory};
use core::fmt;
use handfast_region::{Draft, Sealed};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd};

/// Memory that can no longer be changed, neither by its maker nor by a receiver. Its bytes can be parsed in
/// place. One descriptor and one mapping in each process that has it.
///
/// Memory outlives its maker, and the link that it came through: its bytes stay when its sender dies. Sending it costs as much as a
/// [descriptor](crate::Right::Descriptor), and its receiver makes three more system calls, whatever its length; the bytes are not
/// copied. A `Memory` is sent once: `Memory::from_descriptor(memory.as_fd().try_clone_to_owned()?)` makes another one of the same file, for
/// the next receiver, or to keep.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let port = handfast_port::connect("a")?;
/// # let render = |_: &mut [u8]| ();
/// let mut picture = handfast_port::Memory::create(8 << 20)?;
/// render(&mut picture);
/// port.with([picture.seal()?.into()]).send(b"a picture")?;
/// # Ok(()) }
/// ```
pub struct Memory(ForeignMemory<Sealed>);

/// Memory that is being written, and that only its owner has: [`Memory::create`], [`Memory::into_mut`]. It goes to others **by move**
/// ([`MemoryMut::seal`]), or **by copy** ([`MemoryMut::snapshot`]): then its owner writes on, and the others have the bytes as they were.
///
/// ```
/// use handfast_port::Memory;
/// let mut sheet = Memory::create(16 * 4096)?;
/// sheet[..5].copy_from_slice(b"first");
/// let first = sheet.snapshot()?;
/// sheet[..5].copy_from_slice(b"later");
/// assert_eq!(&first[..5], b"first");
/// // A receiver writes to its own copy of the pages that it changes.
/// let mut own = first.into_mut()?;
/// own[..5].copy_from_slice(b"other");
/// assert_eq!(&sheet.seal()?[..5], b"later");
/// # Ok::<(), handfast_port::error::MemoryError>(())
/// ```
pub struct MemoryMut(ForeignMemory<Draft>);

impl Memory {
    const fn of(sealed: Sealed) -> Self {
        Self(ForeignMemory::own(sealed))
    }

    /// Memory that came by that socket.
    pub(crate) fn from_peer(socket: &Foreign, sealed: Sealed) -> Self {
        let len_bytes = sealed.bytes().len();
        Self(ForeignMemory::from(socket, sealed, len_bytes))
    }

    /// Makes memory of `len_bytes` zero bytes, to be written and then [sealed](MemoryMut::seal). All pages
    /// are allocated at once. Six system calls, two more for each further 2 MiB; three more where the thread is moved to another
    /// processor meanwhile.
    ///
    /// # Errors
    /// [`MemoryError`]; [`MemoryError::Exhausted`] when memory is short.
    pub fn create(len_bytes: usize) -> Result<MemoryMut, MemoryError> {
        if len_bytes == 0 {
            return Err(MemoryError::Empty);
        }
        let draft = Draft::create(len_bytes);
        let draft = draft.map_err(failed("memfd_create"))?;
        Ok(MemoryMut(ForeignMemory::own(draft)))
    }

    /// Makes memory of a copy of `bytes`. One copy; system calls as of [`Self::create`] and [`MemoryMut::seal`].
    ///
    /// # Errors
    /// The errors of [`Self::create`] and [`MemoryMut::seal`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MemoryError> {
        let mut memory = Self::create(bytes.len())?;
        memory.copy_from_slice(bytes);
        memory.seal()
    }

    /// Takes a memory file from elsewhere, which must be sealed against writing, growing, shrinking and further
    /// seals, and without holes. Three system calls.
    ///
    /// # Errors
    /// [`MemoryError::NotSealed`] for any other descriptor.
    pub fn from_descriptor(fd: OwnedFd) -> Result<Self, MemoryError> {
        match Sealed::open(fd) {
            Ok(Some(sealed)) => Ok(Self::of(sealed)),
            Ok(None) | Err(Errno::INVAL) => Err(MemoryError::NotSealed),
            Err(errno) => Err(failed("mmap")(errno)),
        }
    }

    /// The bytes, in place. No copy, no system call; a read waits for a page in swap space.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        self.0.get().bytes()
    }

    /// The same memory, to be written, without a copy: the kernel copies each page that is written, once, which takes some 2 us for 4 KiB.
    /// Others that have this memory do not see that. Three system calls.
    ///
    /// # Errors
    /// [`MemoryError::Exhausted`] without room for the mapping.
    pub fn into_mut(self) -> Result<MemoryMut, MemoryError> {
        let draft = self.0.try_map(Sealed::into_draft);
        Ok(MemoryMut(draft.map_err(failed("mmap"))?))
    }
}

impl MemoryMut {
    /// Makes the memory constant, for good, to be sent **by move**. Five system calls; no copy, unless it has been made by [`Memory::into_mut`], or there was a
    /// [snapshot](Self::snapshot). Where the kernel is about to move a page, this waits for that, some
    /// 150 ms at most. Where another processor has yet to list a page (seldom, since [`Memory::create`] avoids that), this waits up to a second
    /// on a busy machine. Where the kernel uses a page for longer, and where another thread has forked while [`Memory::create`] was at work,
    /// the bytes are copied to other memory, which is made constant.
    ///
    /// # Errors
    /// [`MemoryError::InUse`] where such a copy was needed three times in a row; [`MemoryError::Exhausted`] without room for a copy. The
    /// bytes are lost then. [`MemoryError::Misuse`] in a child forked since it was created.
    pub fn seal(self) -> Result<Memory, MemoryError> {
        if self.0.get().is_forked() {
            return Err(MemoryError::Misuse(Misuse::Forked));
        }
        let sealed = self.0.try_map(Draft::seal);
        sealed.map(Memory).map_err(unsealed)
    }

    /// The bytes as they are now, as memory that does not change when this one is written, to be sent **by copy**. The bytes are not copied the first
    /// time: the kernel copies each page that is written afterwards, once, which takes some 2 us for 4 KiB. Each further snapshot copies
    /// all bytes into memory of its own, since the kernel has no file with both the old pages and those written since. Ten system calls;
    /// waits as [`Self::seal`].
    ///
    /// # Errors
    /// The errors of [`Self::seal`]. The bytes stay.
    ///
    /// # Panics
    /// As [`DerefMut`](core::ops::DerefMut).
    pub fn snapshot(&mut self) -> Result<Memory, MemoryError> {
        let sealed = self.0.get_mut().snapshot();
        sealed.map(Memory::of).map_err(unsealed)
    }
}

fn unsealed(errno: Errno) -> MemoryError {
    match errno {
        Errno::BUSY => MemoryError::InUse,
        errno => failed("fcntl(F_ADD_SEALS)")(errno),
    }
}

pub(crate) fn failed(call: &'static str) -> impl Fn(Errno) -> MemoryError {
    move |errno| match Resource::of(call, errno) {
        Resource::Exhausted(exhausted) => MemoryError::Exhausted(exhausted),
        Resource::NoMemoryFiles(os) => MemoryError::NoMemoryFiles(os),
        Resource::Os(os) => MemoryError::Os(os),
    }
}

impl core::ops::Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get().fd().as_fd()
    }
}

/// # Panics
/// In a child forked since it was created, which does not have it; as [`DerefMut`](core::ops::DerefMut).
impl core::ops::Deref for MemoryMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.get().bytes()
    }
}

impl core::ops::DerefMut for MemoryMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.get_mut().bytes_mut()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("len_bytes", &self.bytes().len())
            .finish()
    }
}

impl fmt::Debug for MemoryMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryMut").finish_non_exhaustive()
    }
}
