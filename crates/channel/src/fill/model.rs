//! loom: a block is filled in vain, and filled again for the message that is sent; its receiver copies along.

use super::{Filling, Place};
use core::sync::atomic::Ordering;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::{Side, lane};
use handfast_layout::loan::fill;
use handfast_region::Memory;
use handfast_region::model::{Hook, Hooked, ModelMemory, Operation, must_panic};
use loom::sync::Arc;

const SIDE: Side = Side::Connector;
/// The message: the number of the fill that its bytes are of, once it has been sent.
const SENT: usize = 0;
/// The bytes of the block as a word, since a sender that fills it in vain may write it under a copy, which is then not used.
const BLOCK: usize = 64;

/// Stores and loads of a word, turned into Relaxed.
struct Weak {
    word: usize,
    stores: bool,
    loads: bool,
}

impl Hook for Weak {
    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        let at = self.word + SIDE.lane(0) + lane::FILL;
        match operation {
            Operation::Store(of, _) if self.stores && of == at => Relaxed,
            Operation::Load(of) if self.loads && of == at => Relaxed,
            _ => order,
        }
    }
}

fn copied_along(word: usize, stores: bool, loads: bool) {
    loom::model(move || {
        let place = Place::of(SIDE, 0);
        let words = place.words();
        let words: Vec<usize> = words.into_iter().chain([SENT, BLOCK]).collect();
        let memory = Box::new(ModelMemory::new(&words, &[]));
        let weak = Weak {
            word,
            stores,
            loads,
        };
        let memory = Arc::new(Hooked::new(memory, weak));
        let theirs = memory.clone();
        let sender = loom::thread::spawn(move || {
            for serial in [1, 2] {
                let filling = Filling {
                    serial,
                    answers: 0,
                    arena: 0,
                    block: 0,
                    len_bytes: 4,
                };
                place.begin(&*theirs, filling);
                theirs.store(BLOCK, 10 + serial, Relaxed);
                place.reach(&*theirs, 4);
            }
            place.end(&*theirs);
            theirs.store(SENT, 2, Release);
        });
        let ahead = place.look(&*memory).and_then(|filling| {
            let is_there = place.reached(&*memory) == filling.len_bytes;
            is_there.then(|| (filling.serial, memory.load(BLOCK, Relaxed)))
        });
        if memory.load(SENT, Acquire) == 2
            && let Some((2, copied)) = ahead
        {
            assert_eq!(copied, 12, "bytes of another fill");
        }
        sender.join().unwrap();
    });
}

#[test]
fn e22_e23_what_was_copied_along_is_the_message() {
    copied_along(fill::SERIAL, false, false);
}

#[test]
fn e22_without_release_or_acquire_the_count_is_of_an_earlier_fill() {
    must_panic("bytes of another fill", || {
        copied_along(fill::SERIAL, true, false);
    });
    must_panic("bytes of another fill", || {
        copied_along(fill::SERIAL, false, true);
    });
}

#[test]
fn e23_without_release_or_acquire_bytes_are_copied_before_they_are_there() {
    must_panic("bytes of another fill", || {
        copied_along(fill::REACHED, true, false);
    });
    must_panic("bytes of another fill", || {
        copied_along(fill::REACHED, false, true);
    });
}
