//! The producer's side of a lane's arena: which blocks hold bytes of messages in flight.
//!
//! Private to the producer. A block is free again once the consumer has taken the message that
//! names it, which the producer learns from the lane's head or from a reply. Freed blocks are
//! reused last in, first out: the hot one first.

use handfast_layout::link::ARENA_CLASSES;
use std::collections::VecDeque;

/// A block of a lane's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Offset within the arena.
    pub offset: u32,
    class: u8,
}

/// The blocks of one lane's arena. Allocates only when made.
#[derive(Debug)]
pub struct Arena {
    free: [Vec<u32>; ARENA_CLASSES.len()],
    in_flight: VecDeque<(u32, Block)>,
}

impl Default for Arena {
    fn default() -> Self {
        let mut start = 0;
        let free = ARENA_CLASSES.map(|(len_bytes, count)| {
            let first = start;
            start += len_bytes as u32 * count;
            (0..count)
                .rev()
                .map(|index| first + index * len_bytes as u32)
                .collect()
        });
        let blocks = ARENA_CLASSES.iter().map(|(_, count)| *count as usize).sum();
        Self {
            free,
            in_flight: VecDeque::with_capacity(blocks),
        }
    }
}

impl Arena {
    /// A block for `len_bytes` bytes of the message at `position`: the smallest class that holds
    /// it and has one left. `None` when there is none.
    pub fn take(&mut self, len_bytes: usize, position: u32) -> Option<Block> {
        for (class, (block_bytes, _)) in ARENA_CLASSES.iter().enumerate() {
            if *block_bytes >= len_bytes
                && let Some(offset) = self.free[class].pop()
            {
                let block = Block {
                    offset,
                    class: class as u8,
                };
                self.in_flight.push_back((position, block));
                return Some(block);
            }
        }
        None
    }

    /// Offset of the block that [`Self::take`] would give.
    #[must_use]
    pub fn next(&self, len_bytes: usize) -> Option<u32> {
        let classes = ARENA_CLASSES.iter().zip(&self.free);
        let mut fit = classes.filter(|((block_bytes, _), _)| *block_bytes >= len_bytes);
        fit.find_map(|(_, free)| free.last().copied())
    }

    /// How many blocks are in flight, as far as is known.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether [`Self::take`] would succeed.
    #[must_use]
    pub fn has(&self, len_bytes: usize) -> bool {
        ARENA_CLASSES
            .iter()
            .zip(&self.free)
            .any(|((block_bytes, _), free)| *block_bytes >= len_bytes && !free.is_empty())
    }

    /// Frees the blocks of all messages before position `head`.
    #[inline]
    pub fn release_before(&mut self, head: u32) {
        while let Some((position, block)) = self.in_flight.front() {
            if position.wrapping_sub(head).cast_signed() >= 0 {
                break;
            }
            self.free[usize::from(block.class)].push(block.offset);
            self.in_flight.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_layout::link::ARENA_BYTES;

    #[test]
    fn blocks_do_not_overlap_and_come_back_in_order() {
        let mut arena = Arena::default();
        let mut taken = Vec::new();
        let start = u32::MAX - 3;
        for (position, len) in [1, 1024, 1025, 8192, 65_536].iter().cycle().enumerate() {
            let next = arena.next(*len);
            assert_eq!(arena.in_flight(), position);
            match arena.take(*len, start.wrapping_add(position as u32)) {
                Some(block) => {
                    assert_eq!(next, Some(block.offset));
                    taken.push((block.offset as usize, *len));
                }
                None => break,
            }
        }
        taken.sort_unstable();
        for pair in taken.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        assert!(
            taken
                .iter()
                .all(|(offset, len)| offset + len <= ARENA_BYTES)
        );
        arena.release_before(start.wrapping_add(taken.len() as u32));
        assert!(arena.in_flight.is_empty());
        assert!((0..4).all(|i| arena.take(65_536, i).is_some()));
        assert!(arena.take(65_536, 4).is_none());
    }
}
