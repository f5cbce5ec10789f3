//! The plain queues, whose members write all over them.

use crate::{Input, below, one_of, steps, word};
use arbitrary::Result;
use core::sync::atomic::Ordering::Relaxed;
use handfast_layout::queue::{MESSAGE_BYTES, mpmc as ring_layout, two_lock as layout};
use handfast_region::{Memory, Region};
use handfast_ring::queue::mpmc::{self, Ring};
use handfast_ring::queue::two_lock::TwoLock;
use handfast_ring::queue::{Members, Pop, Push, Queue};
use std::collections::VecDeque;
use std::sync::Arc;

/// All others are dead: a living one that is said to hold a lock would be waited for.
#[derive(Clone, Copy)]
struct Survivor;

const ME: u32 = 1;

impl Members for Survivor {
    fn me(&self) -> u32 {
        ME
    }

    fn is_dead(&self, member: u32) -> bool {
        member != ME
    }
}

const CAPACITY: u32 = 4;
/// Operations that a queue may refuse before it is left alone.
const FAULTS_MAX: u32 = 4;
/// A forgotten offset shows.
const AT: usize = 128;

/// One of the two, by the first byte.
pub fn queues(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    if first % 2 == 0 {
        let memory = Arc::new(Region::heap(AT + layout::queue_bytes(CAPACITY)));
        let queue = TwoLock::create(memory.clone(), AT, CAPACITY, Arc::new(Survivor));
        let queue = queue.unwrap_or_else(|_| unreachable!("it is a member"));
        play(rest, &memory, &queue, two_lock_word);
        return;
    }
    let memory = Region::heap(AT + ring_layout::len_bytes(CAPACITY));
    mpmc::create(&memory, AT, CAPACITY, 63);
    let queue = Ring::attach(&memory, AT, (CAPACITY, 63), Survivor).expect("it was made so");
    play(rest, &memory, &queue, |input, memory| {
        let words = [ring_layout::TAIL, ring_layout::HEAD];
        let states = [0, 1, 2, 3].map(|slot| ring_layout::slot(slot) + ring_layout::STATE);
        let words = [&words[..], &states].concat();
        let at = AT + one_of(input, &words)?.unwrap_or(0);
        forge(input, memory, at)
    });
    let again = Ring::attach(&memory, AT, (CAPACITY, 63), Survivor);
    drop(again);
}

/// As long as nobody has written nonsense, the queue works as one; after that it says anything, and comes to an end.
fn play(
    bytes: &[u8],
    memory: &Region,
    queue: &impl Queue,
    forge: impl Fn(&mut Input<'_>, &Region) -> Result<()>,
) {
    let mut model = VecDeque::new();
    let (mut honest, mut number) = (true, 0u8);
    let mut faults = 0;
    steps(bytes, |input| {
        if faults > FAULTS_MAX {
            // It is of no use any more, and takes its time to say so.
            return Err(arbitrary::Error::NotEnoughData);
        }
        match below(input, 3)? {
            0 => {
                number = number.wrapping_add(1);
                let message = [number; MESSAGE_BYTES];
                let pushed = queue.try_push(&message);
                faults += u32::from(matches!(pushed, Err(Push::Fault(_))));
                if honest {
                    let is_full = model.len() == CAPACITY as usize;
                    assert_eq!(pushed, if is_full { Err(Push::Full) } else { Ok(()) });
                    if !is_full {
                        model.push_back(message);
                    }
                }
            }
            1 => {
                let popped = queue.try_pop();
                faults += u32::from(matches!(popped, Err(Pop::Fault(_))));
                if honest {
                    assert_eq!(popped, model.pop_front().ok_or(Pop::Empty));
                }
            }
            _ => {
                honest = false;
                forge(input, memory)?;
            }
        }
        Ok(())
    });
}

fn forge(input: &mut Input<'_>, memory: &Region, at: usize) -> Result<()> {
    let value = match below(input, 2)? {
        0 => word(input)?,
        // Nearly as it was.
        _ => memory.load(at, Relaxed) ^ 1 << below(input, 32)?,
    };
    memory.store(at, value, Relaxed);
    Ok(())
}

fn two_lock_word(input: &mut Input<'_>, memory: &Region) -> Result<()> {
    let ends = [
        layout::HEAD,
        layout::POOL_TAIL,
        layout::TAIL,
        layout::POOL_HEAD,
    ];
    let nodes = CAPACITY + layout::EXTRA_NODES;
    let links =
        (0..nodes as usize).map(|node| layout::NODES + node * layout::NODE_BYTES + layout::NEXT);
    let words: Vec<_> = ends.into_iter().chain(links).collect();
    if below(input, 4)? > 0 {
        let at = AT + one_of(input, &words)?.unwrap_or(0);
        return forge(input, memory, at);
    }
    let lock = one_of(input, &[layout::HEAD_LOCK, layout::TAIL_LOCK])?.unwrap_or(0);
    let value = word(input)?;
    // This member would wait for itself.
    let named = value & layout::MEMBER;
    memory.store(AT + lock, if named == ME { 0 } else { value }, Relaxed);
    Ok(())
}
