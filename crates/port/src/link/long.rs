//! Messages that are too long for a lane: their bytes go in blocks that are lent to the peer, and are copied out there at once.
//!
//! The arenas of a link are of its own: a borrower can read an arena at any time. They are kept for the next long messages to the same
//! peer, so memory is made for the first ones alone, and given up when none has gone for a while.

use super::Link;
use crate::arena::{Block, SharedArena};
use crate::error::SendError;
use handfast_layout::{LONG_BYTES_MAX, MESSAGE_BYTES_MAX};
use handfast_proto::timers::Timer;
use handfast_sys::clock;
use handfast_sys::lock::{is_apart, thread_number};

/// Arenas of one link, for messages and for replies each; the peer may know as many again of the application's.
const ARENAS_MAX: usize = 4;
/// Their memory: the longest message, and its successor.
const BYTES_MAX: usize = 2 * LONG_BYTES_MAX;
/// The shortest block, and most blocks of an arena.
const BLOCK_BYTES_MIN: usize = 128 * 1024;
const BLOCKS_MAX: usize = 16;
/// A block serves for messages that are not shorter by more than this.
const WASTE_MAX: usize = 16;
/// Threads that pass on messages of ports which have moved, and have an arena of one block each on a link: with the others and those of
/// the application, as many as a peer may know.
const APART_MAX: usize = 8;
/// How long an arena is kept that no message has gone in.
pub(crate) const KEPT_NS: u64 = 10_000_000_000;

/// The memory of one link for long messages, and for long replies: neither waits for the other.
#[derive(Default)]
pub(crate) struct Long {
    pools: [Vec<Kept>; 2],
    /// By the numbers of threads that are [apart](is_apart).
    apart: Vec<(u32, Kept)>,
}

#[derive(Clone, Copy)]
pub(crate) enum Use {
    Message,
    Reply,
}

/// An arena, all of whose blocks are as long.
struct Kept {
    arena: SharedArena,
    used_ns: u64,
}

/// Why there is no block.
pub(crate) enum NoBlock {
    /// The peer has all of so many still.
    Lent {
        limit: u32,
    },
    Memory,
}

/// The longest message that goes by this link. Both sides take the same for it: the users are those of the handshake.
#[inline]
pub(crate) fn longest(link: &Link) -> usize {
    link.parts.longest
}

/// The longest message to a process of this user. A system call.
pub(super) fn longest_to(uid: u32) -> usize {
    match uid == handfast_sys::process::uid() {
        true => LONG_BYTES_MAX,
        false => MESSAGE_BYTES_MAX,
    }
}

/// Whether a message of so many bytes goes by this link.
///
/// # Errors
/// It is too long.
pub(crate) fn check(link: &Link, len_bytes: usize) -> Result<(), SendError> {
    match len_bytes <= longest(link) {
        true => Ok(()),
        false => Err(SendError::TooLong { len_bytes }),
    }
}

/// A block for so many bytes to the peer.
#[cold]
pub(crate) fn take(link: &Link, len_bytes: usize, use_of: Use) -> Result<Block, NoBlock> {
    let now_ns = clock::ticks_ns();
    let mut long = link.parts.long.lock();
    let block = match take_of(&mut long.pools[use_of as usize], len_bytes, now_ns) {
        Err(NoBlock::Lent { limit }) if is_apart() => {
            take_apart(&mut long.apart, len_bytes, now_ns)?.ok_or(NoBlock::Lent { limit })?
        }
        block => block?,
    };
    drop(long);
    if link.is_down() {
        // Perhaps since before that.
        end(link);
    }
    link.process.schedule(Timer::LongMessages);
    Ok(block)
}

fn take_of(pool: &mut Vec<Kept>, len_bytes: usize, now_ns: u64) -> Result<Block, NoBlock> {
    let mut serving = pool.iter_mut().filter(|kept| kept.serves(len_bytes));
    if let Some(block) = serving.find_map(|kept| kept.take(len_bytes, now_ns)) {
        return Ok(block);
    }
    match make(pool, len_bytes) {
        Ok(arena) => {
            let (kept, block) = Kept::new(arena, len_bytes, now_ns)?;
            pool.push(kept);
            Ok(block)
        }
        // One that is much too long is better than none.
        Err(NoBlock::Lent { limit }) => {
            let mut blocks = pool
                .iter_mut()
                .filter_map(|kept| kept.take(len_bytes, now_ns));
            blocks.next().ok_or(NoBlock::Lent { limit })
        }
        Err(NoBlock::Memory) => Err(NoBlock::Memory),
    }
}

/// The block of this thread, which passes on messages to one port. The others may lie where the port was before, in messages that wait until
/// this thread has sent its own. `None`: the peer has it still.
fn take_apart(
    apart: &mut Vec<(u32, Kept)>,
    len_bytes: usize,
    now_ns: u64,
) -> Result<Option<Block>, NoBlock> {
    let thread = thread_number();
    let own = apart.iter().position(|(of, _)| *of == thread);
    if let Some((_, kept)) = own.map(|own| &mut apart[own])
        && kept.serves(len_bytes)
    {
        return Ok(kept.take(len_bytes, now_ns));
    }
    // Its own is too short, or there are as many as may be: threads that have ended, or may have another.
    if own.is_some() || apart.len() >= APART_MAX {
        let is_one =
            |(of, kept): &(u32, Kept)| kept.arena.is_whole() && (own.is_none() || *of == thread);
        let Some(one) = apart.iter().position(is_one) else {
            return Ok(None);
        };
        drop(apart.swap_remove(one));
    }
    let arena = SharedArena::create(block_bytes_for(len_bytes), 1).map_err(|_| NoBlock::Memory)?;
    let (kept, block) = Kept::new(arena, len_bytes, now_ns)?;
    apart.push((thread, kept));
    Ok(Some(block))
}

fn block_bytes_for(len_bytes: usize) -> usize {
    len_bytes.next_power_of_two().max(BLOCK_BYTES_MIN)
}

/// Another arena. It has one block more than all others together, and idle ones give way to it. Few arenas serve messages of many lengths:
/// its blocks are as long as the longest of the others, and those of the last arena not the shortest, if that costs no blocks.
fn make(pool: &mut Vec<Kept>, len_bytes: usize) -> Result<SharedArena, NoBlock> {
    let needed_bytes = block_bytes_for(len_bytes);
    // The length may be little more than half of what is needed for it.
    let most_bytes = needed_bytes * WASTE_MAX / 2;
    let least_bytes = match pool.len() + 1 < ARENAS_MAX {
        true => needed_bytes,
        false => BLOCK_BYTES_MIN * WASTE_MAX / 2,
    };
    let lengths = pool.iter().map(|kept| kept.arena.block_bytes());
    let longest = lengths.fold(least_bytes, usize::max);
    let mut block_bytes = longest.clamp(needed_bytes, most_bytes);
    let others: usize = pool.iter().map(|kept| kept.arena.blocks()).sum();
    let mut blocks = (others + 1).min(BLOCKS_MAX);
    let mut idle: Vec<_> = pool.iter().filter(|kept| kept.arena.is_whole()).collect();
    idle.sort_by_key(|kept| kept.used_ns);
    let (mut count, mut bytes) = (pool.len(), pool.iter().map(Kept::bytes).sum::<usize>());
    while block_bytes > needed_bytes && bytes + blocks * block_bytes > BYTES_MAX {
        block_bytes /= 2;
    }
    let mut gone = Vec::new();
    loop {
        while blocks > 1 && bytes + blocks * block_bytes > BYTES_MAX {
            blocks /= 2;
        }
        if count < ARENAS_MAX && bytes + blocks * block_bytes <= BYTES_MAX {
            break;
        }
        if idle.is_empty() {
            let limit = pool.iter().map(|kept| kept.arena.blocks() as u32).sum();
            return Err(NoBlock::Lent { limit });
        }
        let kept = idle.remove(0);
        (count, bytes) = (count - 1, bytes - kept.bytes());
        gone.push(kept.used_ns);
    }
    pool.retain(|kept| !(gone.contains(&kept.used_ns) && kept.arena.is_whole()));
    SharedArena::create(block_bytes, blocks).map_err(|_| NoBlock::Memory)
}

impl Kept {
    /// A new arena, and its first block.
    fn new(arena: SharedArena, len_bytes: usize, used_ns: u64) -> Result<(Self, Block), NoBlock> {
        let block = arena.try_take(len_bytes).map_err(|_| NoBlock::Memory)?;
        Ok((Self { arena, used_ns }, block))
    }

    fn take(&mut self, len_bytes: usize, now_ns: u64) -> Option<Block> {
        let block = self.arena.try_take(len_bytes).ok()?;
        self.used_ns = now_ns;
        Some(block)
    }

    fn serves(&self, len_bytes: usize) -> bool {
        let room_bytes = self.arena.block_bytes();
        room_bytes >= len_bytes && room_bytes / WASTE_MAX <= len_bytes.max(BLOCK_BYTES_MIN)
    }

    fn bytes(&self) -> usize {
        self.arena.block_bytes() * self.arena.blocks()
    }
}

/// Gives up the arenas in which no message has gone for a while. Whether some are left.
pub(crate) fn give_up(link: &Link) -> bool {
    let before_ns = clock::ticks_ns().saturating_sub(KEPT_NS);
    let mut long = link.parts.long.lock();
    let mut idle = Vec::new();
    let is_idle = |kept: &Kept| kept.used_ns <= before_ns && kept.arena.is_whole();
    for pool in &mut long.pools {
        idle.extend(pool.extract_if(.., |kept| is_idle(kept)));
    }
    let apart = long.apart.extract_if(.., |(_, kept)| is_idle(kept));
    idle.extend(apart.map(|(_, kept)| kept));
    let is_left = !long.apart.is_empty() || long.pools.iter().any(|pool| !pool.is_empty());
    drop(long);
    // Unmapped without the lock.
    drop(idle);
    is_left
}

/// The link has ended.
pub(crate) fn end(link: &Link) {
    let long = core::mem::take(&mut *link.parts.long.lock());
    drop(long);
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_testing::Random;

    /// Replies to a few calls that were given up, and those to a few callers: none finds the pool full of blocks of other lengths.
    #[test]
    fn few_arenas_serve_many_lengths() {
        let mut random = Random::seeded("few_arenas_serve_many_lengths");
        for _ in 0..100 {
            let (mut pool, mut out) = (Vec::new(), Vec::new());
            for _ in 0..2 * ARENAS_MAX {
                let len_bytes = (65 << 10) + random.below(535 << 10) as usize;
                let block = take_of(&mut pool, len_bytes, 0).ok();
                let lengths: Vec<_> = pool
                    .iter()
                    .map(|kept| (kept.arena.block_bytes(), kept.arena.blocks()))
                    .collect();
                assert!(
                    block.is_some(),
                    "{len_bytes} bytes, {} lent of {lengths:?}",
                    out.len()
                );
                assert!(pool.iter().any(|kept| kept.serves(len_bytes)));
                out.push(block);
            }
        }
    }
}
