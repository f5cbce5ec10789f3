//! Arenas: blocks of memory that are filled in place and lent with messages.

use crate::error::{Exhausted, LoanError, MemoryError, Misuse};
use crate::rank;
use core::sync::atomic::{AtomicU64, Ordering};
use handfast_layout::LINE;
use handfast_layout::loan::{ARENA_BYTES_MAX, BLOCKS_MAX, Geometry};
use handfast_region::create_blocks;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{AsFd, BorrowedFd, OwnedFd, process};
use std::sync::{Arc, Weak};

/// Memory of this process in blocks of one length, to be filled in place and lent to other processes with
/// messages ([`Right::Block`](crate::Right::Block)). Only this process can write it. A peer maps the arena once, whichever of its
/// blocks are lent to it, and copies out the bytes that it needs.
///
/// The arena is shared by all its borrowers: a borrower of one block can read all blocks, at any time. Data for
/// borrowers that must not see each other's belongs in separate arenas, or in a [`Memory`](crate::Memory) each.
///
/// A lent block comes back when its borrower drops the [`Loan`](crate::Loan) or refuses the message that it came
/// with, and when the link with the borrower's process ends in any way. Its return makes no system call at
/// either side. To lend a whole arena, make it of one block.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let port = handfast_port::connect("a")?;
/// # let render = |_: &mut [u8]| ();
/// let arena = handfast_port::SharedArena::create(1 << 20, 4)?;
/// loop {
///     let mut picture = arena.try_take(1 << 20)?;
///     render(&mut picture);
///     port.with([picture.into()]).call(b"show this")?;
/// }
/// # }
/// ```
///
/// An arena may be dropped while blocks are lent; lent blocks stay in place until they are given back. A
/// process has one descriptor and one mapping for each arena, its peers one mapping.
pub struct SharedArena(Arc<Owned>);

/// A block of an arena that is not lent, to be filled: bytes of this process alone. Dropping it unsent frees
/// it.
///
/// One pointer, so that moving it moves nothing else.
pub struct Block {
    /// Always present, except in a block that has been lent or is being dropped.
    piece: Option<Box<Piece>>,
}

/// A block, wherever it is.
struct Piece {
    bytes: handfast_region::Block,
    /// The shelf it lies on when unused. The shelf refers to it, too: [`Owned`]'s end clears it.
    shelf: Arc<Shelf>,
    /// Set while the block is taken.
    arena: Option<Arc<Owned>>,
    len_bytes: usize,
}

/// The state that an arena and its unlent blocks share. The arena ends with it.
pub(crate) struct Owned {
    /// Identifies it among the arenas of this process.
    pub(crate) key: u64,
    fd: OwnedFd,
    pub(crate) geometry: Geometry,
    shelf: Arc<Shelf>,
    epoch: u32,
}

/// The unused blocks, the last one used on top, and the links that may hold others.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<Free, rank::Shelf>);

#[derive(Default)]
struct Free {
    blocks: Vec<Out>,
    /// The arena has ended.
    is_over: bool,
    /// Links whose peers have been told of the arena.
    links: Vec<Weak<dyn Lends>>,
    /// Which link is looked at next.
    next: usize,
}

/// A link by which blocks are lent.
pub(crate) trait Lends: Send + Sync {
    /// Takes back the blocks that the peer has given back.
    fn collect(&self);

    /// The arena with this key has been dropped.
    fn end_arena(&self, key: u64);
}

/// A block that no thread here fills: it lies on its shelf, or is lent and belongs to its link.
pub(crate) struct Out(Box<Piece>);

impl SharedArena {
    /// Makes an arena of `blocks` blocks (at most 65,536) of `block_bytes` zero bytes each, rounded up to whole
    /// cache lines. All memory is allocated at once. Six system calls, and one more for each further 2 MiB.
    ///
    /// # Errors
    /// [`MemoryError`]; [`MemoryError::Exhausted`] when memory is short, or the size is more than an arena can
    /// have.
    pub fn create(block_bytes: usize, blocks: usize) -> Result<Self, MemoryError> {
        if block_bytes == 0 || blocks == 0 {
            return Err(MemoryError::Empty);
        }
        let limit = BLOCKS_MAX.into();
        let too_many = MemoryError::Exhausted(Exhausted {
            what: "blocks of an arena",
            advice: Some("ask for fewer or shorter ones"),
            limit,
        });
        let blocks = u32::try_from(blocks).map_err(|_| too_many)?;
        if blocks > BLOCKS_MAX {
            return Err(too_many);
        }
        let no_memory = crate::memory::failed("memfd_create");
        let block_bytes = block_bytes.checked_next_multiple_of(LINE);
        let geometry = block_bytes.and_then(|len_bytes| Geometry::new(blocks, len_bytes as u64));
        let geometry = geometry.ok_or(MemoryError::Exhausted(Exhausted {
            what: "bytes of an arena",
            advice: Some("ask for fewer or shorter blocks"),
            limit: ARENA_BYTES_MAX,
        }))?;
        let each = (blocks, geometry.block_bytes());
        let made = create_blocks("handfast arena", each, geometry.file_bytes());
        let (fd, blocks) = made.map_err(no_memory)?;
        let shelf = Arc::new(Shelf::default());
        let pieces = blocks.into_iter().map(|bytes| {
            Out(Box::new(Piece {
                bytes,
                shelf: shelf.clone(),
                arena: None,
                len_bytes: 0,
            }))
        });
        // The first one is on top.
        let pieces = pieces.rev().collect();
        shelf.free().blocks = pieces;
        // Relaxed: a number.
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::new(Owned {
            key,
            fd,
            geometry,
            shelf,
            epoch: process::fork_epoch(),
        })))
    }

    /// Takes a block to fill `len_bytes` bytes of it; the block still holds its last bytes. When no other
    /// block is free, looks for blocks that were given back. No system call; never blocks.
    ///
    /// # Errors
    /// [`LoanError::TooLong`]; [`LoanError::Lent`] when all blocks are in use: the return of a block is not
    /// announced.
    pub fn try_take(&self, len_bytes: usize) -> Result<Block, LoanError> {
        let arena = &self.0;
        if arena.is_forked() {
            return Err(LoanError::Misuse(Misuse::Forked));
        }
        let room_bytes = self.block_bytes();
        if len_bytes > room_bytes {
            return Err(LoanError::TooLong {
                len_bytes,
                room_bytes,
            });
        }
        let free = arena.shelf.free().blocks.pop();
        let blocks = arena.geometry.blocks();
        let piece = free.or_else(|| arena.shelf.look());
        let Out(mut piece) = piece.ok_or(LoanError::Lent { blocks })?;
        piece.arena = Some(arena.clone());
        piece.len_bytes = len_bytes;
        Ok(Block { piece: Some(piece) })
    }

    /// Length of each block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.0.geometry.block_bytes()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.0.geometry.blocks() as usize
    }

    /// Whether all its blocks are here and unused.
    pub(crate) fn is_whole(&self) -> bool {
        let shelf = &self.0.shelf;
        let links: Vec<_> = shelf
            .free()
            .links
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        links.iter().for_each(|link| link.collect());
        shelf.free().blocks.len() == self.blocks()
    }
}

impl Block {
    /// Shortens the part that is lent to the first `len_bytes` bytes, if it is longer.
    pub fn truncate(&mut self, len_bytes: usize) {
        if let Some(piece) = &mut self.piece {
            piece.len_bytes = piece.len_bytes.min(len_bytes);
        }
    }

    /// Its arena, its number there and how many bytes are lent. Present, unless the block is being dropped.
    #[inline]
    pub(crate) fn named(&self) -> Option<(&Owned, u32, u64)> {
        let piece = self.piece.as_deref()?;
        let arena = piece.arena.as_deref()?;
        Some((arena, piece.bytes.number(), piece.len_bytes as u64))
    }

    /// Marks the block lent. Also returns its arena, which must not end before the link knows of the loan.
    pub(crate) fn into_out(mut self) -> Option<(Out, Option<Arc<Owned>>)> {
        let mut piece = self.piece.take()?;
        let arena = piece.arena.take();
        Some((Out(piece), arena))
    }
}

impl Out {
    /// Takes back a block that has come back, or was not sent.
    pub(crate) fn back(self) {
        let shelf = self.0.shelf.clone();
        let mut free = shelf.free();
        if !free.is_over {
            free.blocks.push(self);
        }
    }
}

impl Owned {
    /// Whether this process is a forked child of the one that made it.
    pub(crate) fn is_forked(&self) -> bool {
        self.epoch != process::fork_epoch()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Notes that the peer of a link has been told of the arena.
    pub(crate) fn told(&self, link: Weak<dyn Lends>) {
        let links = &mut self.shelf.free().links;
        links.retain(|link| link.strong_count() > 0);
        links.push(link);
    }
}

impl Shelf {
    fn free(&self) -> MutexGuard<'_, Free, rank::Shelf> {
        self.0.lock()
    }

    /// Takes a block that a borrower has given back. Looks at each link once, the last one looked at last.
    #[cold]
    fn look(&self) -> Option<Out> {
        let mut links = self.free().links.len();
        loop {
            let link = {
                let mut free = self.free();
                if let Some(block) = free.blocks.pop() {
                    return Some(block);
                }
                links = links.checked_sub(1)?;
                free.next = (free.next + 1) % free.links.len().max(1);
                free.links.get(free.next).and_then(Weak::upgrade)
            };
            if let Some(link) = link {
                link.collect();
            }
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A forked child has its parent's arenas by accident, and perhaps a lock that nobody will free.
        if self.is_forked() {
            return;
        }
        let mut free = self.shelf.free();
        free.is_over = true;
        let (links, blocks) = (
            core::mem::take(&mut free.links),
            core::mem::take(&mut free.blocks),
        );
        drop(free);
        drop(blocks);
        for link in links.iter().filter_map(Weak::upgrade) {
            link.end_arena(self.key);
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(mut piece) = self.piece.take()
            && let Some(arena) = piece.arena.take()
            && !arena.is_forked()
        {
            Out(piece).back();
        }
    }
}

/// # Panics
/// In a child forked since its arena was made, which does not have it; as [`DerefMut`](core::ops::DerefMut).
impl core::ops::Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let piece = self.piece.as_deref();
        let bytes = piece.and_then(|piece| piece.bytes.bytes().get(..piece.len_bytes));
        bytes.unwrap_or_default()
    }
}

impl core::ops::DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let piece = self.piece.as_deref_mut();
        let bytes = piece.and_then(|piece| piece.bytes.bytes_mut().get_mut(..piece.len_bytes));
        bytes.unwrap_or_default()
    }
}

impl core::fmt::Debug for SharedArena {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedArena")
            .field("block_bytes", &self.block_bytes())
            .field("blocks", &self.0.geometry.blocks())
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Block {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Block")
            .field("len_bytes", &self.named().map(|(.., len_bytes)| len_bytes))
            .finish_non_exhaustive()
    }
}

static KEYS: AtomicU64 = AtomicU64::new(1);
