//! loom: two senders sleep for room in one word, and a receiver that makes room wakes one of them (in place of `WOKEN_FOR_ROOM`).
//! Whatever the interleaving, nobody sleeps beside room that is free.
//!
//! `wake_producer` and `leave_space` are the real ones. Around them stand `Room::park` and `room::wait_for_room`
//! (`crates/port/src/send/room.rs`), step by step; the lane is two counts, and its lock loom's.

use super::{leave_space, wake_producer};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use handfast_layout::link::Side;
use handfast_region::model::{ModelMemory, must_fail};
use handfast_region::{Memory, Wait};
use handfast_ring::lane::Place;
use handfast_wait::word;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Mutex};

const PLACE: Place = Place::small(Side::Connector.lane(0), 1);

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// A sender that has announced itself and leaves wakes others.
    Leaving,
    /// It takes the announcement away before.
    Withdrawing,
    /// A sender is counted before it looks for the last time.
    Order,
}

/// A sender's next step once it has been woken.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Sends,
    /// Its time is over, or its right: the room is another's.
    GivesUp,
}

/// The lane is full; two of its messages are received while two senders wait. The first does as told.
fn full_lane(first: Then, without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let mut memory = ModelMemory::new(&[PLACE.head(), PLACE.space()], &[]);
        memory.wakes_one = true;
        let memory = Arc::new(memory);
        // Messages sent beyond the ones that filled it; threads that sleep, or are about to.
        let sent = Arc::new((Mutex::new(0), AtomicU32::new(0)));
        let senders = [first, Then::Sends].map(|then| {
            let (memory, sent) = (memory.clone(), sent.clone());
            loom::thread::spawn(move || send(&memory, (&sent.0, &sent.1), then, without))
        });
        for head in 1..=2 {
            memory.store(PLACE.head(), head, Release);
            let _ = wake_producer(&*memory, PLACE);
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

fn send(
    memory: &ModelMemory,
    (sent, parked): (&Mutex<u32>, &AtomicU32),
    then: Then,
    without: Without,
) {
    let has_room = || memory.load(PLACE.head(), Acquire) > *sent.lock().unwrap();
    loop {
        let mut count = sent.lock().unwrap();
        if memory.load(PLACE.head(), Acquire) > *count {
            *count += u32::from(then == Then::Sends);
            return;
        }
        drop(count);
        let (mut was_woken, mut has_announced) = (false, false);
        let gives_up = |was_woken| was_woken && then == Then::GivesUp;
        while !gives_up(was_woken) && !has_room() {
            has_announced = true;
            let late = without == Without::Order;
            let count = || parked.fetch_add(1, AcqRel);
            (!late).then(count);
            announce(memory);
            let waits = !has_room();
            late.then(count);
            if waits {
                was_woken = memory.park(PLACE.space(), word::ASLEEP, None) == Wait::Woken;
            }
            parked.fetch_sub(1, AcqRel);
        }
        if has_announced {
            leave(memory, parked, without);
        }
        if gives_up(was_woken) {
            return;
        }
    }
}

/// `word::announce`. An exchange: loom has a store come before another thread's exchange that has read an earlier one.
fn announce(memory: &ModelMemory) {
    memory.swap(PLACE.space(), word::ASLEEP, Relaxed);
    memory.fence();
}

fn leave(memory: &ModelMemory, parked: &AtomicU32, without: Without) {
    let others = || parked.load(Relaxed) > 0;
    match without {
        Without::Leaving => {}
        Without::Withdrawing => {
            if others() {
                memory.wake(PLACE.space(), 1);
            }
        }
        Without::Order | Without::Nothing => leave_space(memory, PLACE, others),
    }
}

#[test]
fn e19_senders_that_sleep_for_room_find_it_though_few_are_woken() {
    full_lane(Then::Sends, Without::Nothing);
}

#[test]
fn e19_a_sender_that_gives_up_leaves_the_room_to_another() {
    full_lane(Then::GivesUp, Without::Nothing);
}

#[test]
fn e19_where_senders_leave_without_a_word_one_sleeps_beside_free_room() {
    must_fail("deadlock", || full_lane(Then::Sends, Without::Leaving));
}

#[test]
fn e19_where_one_that_gives_up_leaves_without_a_word_another_sleeps_beside_free_room() {
    must_fail("deadlock", || full_lane(Then::GivesUp, Without::Leaving));
}

#[test]
fn e19_where_the_announcement_is_left_behind_another_falls_asleep_by_it() {
    must_fail("deadlock", || {
        full_lane(Then::Sends, Without::Withdrawing);
    });
}

#[test]
fn e19_where_a_sender_is_counted_after_its_last_look_it_is_not_seen() {
    must_fail("deadlock", || full_lane(Then::Sends, Without::Order));
}
