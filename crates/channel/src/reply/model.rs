//! loom: a caller whose call is passed on sleeps in two words, where its outcome is to come and where it
//! expects it to be moved to. One process moves the outcome and leaves a caller asleep that sleeps there as
//! well; another writes it there. Whatever the interleaving, the caller gets its reply.
//!
//! Slots and wait words are the real ones. Around them stand `Looking::park`, `Elsewhere`
//! (`crates/port/src/awaited.rs`, `elsewhere.rs`) and `ReplySlot::wake` (`reply_slot.rs`), step by step, with
//! one step elsewhere.

use super::Slot;
use crate::tests::Buffer;
use core::cell::Cell;
use handfast_layout::link::{Kind, Side};
use handfast_region::Memory;
use handfast_region::model::{ModelMemory, must_fail};
use handfast_wait::word::{ASLEEP, announce, fence_then_taken, withdraw};
use loom::sync::Arc;

const GENERATION: u32 = 7;
const PATH: u32 = 5;
/// Where the call was made, and where the path leads.
const HERE: Slot = Slot::of(Side::Connector, 0);
const THERE: Slot = Slot::of(Side::Connector, 1);

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// Every fence.
    Fences,
    /// The caller looks there, too, after it has announced its sleep there.
    LookThere,
    /// It sleeps there, too.
    SleepThere,
    /// It is left asleep by the thread that moves the outcome to where it sleeps, and by nobody else.
    Expected,
}

fn two_words(without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mut words = [HERE.words(), THERE.words()].concat();
        // The number of the path.
        words.push(HERE.inline_bytes());
        let areas = [HERE.inline_bytes(), THERE.inline_bytes()];
        let mut memory = ModelMemory::new(&words, &areas);
        memory.without_fence = without == Without::Fences;
        let memory = Arc::new(memory);
        let (at_forwarder, at_replier) = (memory.clone(), memory.clone());
        let forwarder = loom::thread::spawn(move || {
            let memory = &*at_forwarder;
            HERE.move_on(memory, GENERATION, PATH);
            memory.fence();
            if HERE.must_wake(memory, PATH) {
                wake(memory, HERE);
            }
        });
        let replier = loom::thread::spawn(move || {
            THERE.answer(&*at_replier, GENERATION, Kind::Message, 0, b"reply");
            wake(&at_replier, THERE);
        });
        wait(&memory, without);
        let mut buffer = Buffer::default();
        let meta = THERE.take(&*memory, &mut buffer).unwrap();
        assert_eq!(buffer.bytes(meta.len_bytes as usize), b"reply");
        forwarder.join().unwrap();
        replier.join().unwrap();
    });
}

/// `wake_caller`.
fn wake(memory: &ModelMemory, slot: Slot) {
    if fence_then_taken(memory, slot.wait()).is_some() {
        memory.wake(slot.wait(), 1);
    }
}

/// `Awaited::wait`: until the outcome is at the end of the path.
fn wait(memory: &ModelMemory, without: Without) {
    // In place of `HOPES`.
    let hopes = Cell::new(1);
    while !HERE.is_answered(memory, GENERATION) {
        park_twice(memory, &hopes, without);
    }
    assert!(HERE.moved(memory).is_some());
    while !THERE.is_answered(memory, GENERATION) {
        announce(memory, THERE.wait(), ASLEEP);
        if !THERE.is_answered(memory, GENERATION) {
            memory.park(THERE.wait(), ASLEEP, None);
        }
        withdraw(memory, THERE.wait());
    }
}

/// `Looking::park`, with `Elsewhere`.
fn park_twice(memory: &ModelMemory, hopes: &Cell<u8>, without: Without) {
    let is_elsewhere = hopes.get() > 0;
    if is_elsewhere {
        HERE.expect(memory, PATH);
        announce(memory, THERE.wait(), ASLEEP);
    } else if without != Without::Expected {
        HERE.expect(memory, 0);
    }
    announce(memory, HERE.wait(), ASLEEP);
    let look_there = || is_elsewhere && without != Without::LookThere;
    if HERE.is_answered(memory, GENERATION) {
    } else if look_there() && THERE.is_answered(memory, GENERATION) {
        hopes.set(hopes.get() - 1);
    } else if is_elsewhere && without != Without::SleepThere {
        memory.park_any(&[(HERE.wait(), ASLEEP), (THERE.wait(), ASLEEP)]);
    } else {
        memory.park(HERE.wait(), ASLEEP, None);
    }
    withdraw(memory, HERE.wait());
    if is_elsewhere {
        withdraw(memory, THERE.wait());
    }
}

#[test]
fn e4_twice_a_caller_asleep_in_two_words_gets_its_reply() {
    two_words(Without::Nothing);
}

#[test]
fn e4_twice_without_the_fences_the_wake_up_is_lost() {
    must_fail("deadlock", || two_words(Without::Fences));
}

#[test]
fn e4_twice_without_the_look_there_the_wake_up_is_lost() {
    must_fail("deadlock", || two_words(Without::LookThere));
}

#[test]
fn e4_twice_without_the_sleep_there_the_wake_up_is_lost() {
    must_fail("deadlock", || two_words(Without::SleepThere));
}

#[test]
fn e4_twice_a_caller_that_sleeps_here_alone_and_does_not_say_so_is_left_asleep() {
    must_fail("deadlock", || two_words(Without::Expected));
}
