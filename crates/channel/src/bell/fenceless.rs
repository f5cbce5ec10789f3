//! loom: a server that does not fence its replies, and a caller that falls asleep (E11).
//!
//! The server is the light thread of the asymmetric fence: see `handfast_region::model`.

use super::{fence_for_sleep, set_fenceless};
use crate::reply::Slot;
use core::sync::atomic::Ordering::Relaxed;
use handfast_layout::bell as layout;
use handfast_layout::link::{Kind, Side};
use handfast_region::Memory;
use handfast_region::model::{Light, ModelMemory, Points, every_point, must_fail};
use handfast_wait::word::{ASLEEP, announce, fence_then_taken, withdraw};
use loom::sync::Arc;

const SIDE: Side = Side::Connector;
const FENCELESS: usize = layout::FENCELESS;

/// When the server changes its mind.
#[derive(Clone, Copy, PartialEq)]
enum Switch {
    /// It does not: its replies have been without a fence.
    Never,
    /// It stops fencing before the reply.
    On,
    /// It fences again after the reply.
    Off,
}

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// The caller's fence of the others.
    Membarrier,
    /// The server's order: it looks at the wait word before its reply is out.
    Order,
}

/// The server replies as `answered::answer` does while `answered::is_fenceless`; the caller
/// waits as `Answer::park` does.
fn reply_to_a_sleeper(switch: Switch, without: Without) {
    every_point(3, move |barrier, points| {
        let slot = Slot::of(SIDE, 0);
        let mut link = ModelMemory::new(&slot.words(), &[slot.inline_bytes()]);
        let mut bell = ModelMemory::new(&[FENCELESS], &[]);
        link.membarrier = Some(barrier.clone());
        bell.membarrier = (without != Without::Membarrier).then(|| barrier.clone());
        bell.store(FENCELESS, u32::from(switch != Switch::On), Relaxed);
        let (link, bell) = (Arc::new(link), Arc::new(bell));
        let (their_link, their_bell, their_barrier) = (link.clone(), bell.clone(), barrier.clone());
        let server = loom::thread::spawn(move || {
            let late = (without == Without::Order).then(|| slot.words()[0]);
            let points = Points::new(their_barrier, points);
            let link = Light::new(&their_link, &points, late);
            let bell = Light::new(&their_bell, &points, None);
            if switch == Switch::On {
                set_fenceless(&bell, 0, true);
            }
            slot.answer(&link, 7, Kind::Message, 0, b"reply");
            if slot.is_asleep(&link) && fence_then_taken(&link, slot.wait()).is_some() {
                link.wake(slot.wait(), u32::MAX);
            }
            if switch == Switch::Off {
                set_fenceless(&bell, 0, false);
            }
            points.finish()
        });
        while !slot.is_answered(&*link, 7) {
            announce(&*link, slot.wait(), ASLEEP);
            assert!(fence_for_sleep(&*bell, 0));
            if !slot.is_answered(&*link, 7) {
                link.park(slot.wait(), ASLEEP, None);
            }
            withdraw(&*link, slot.wait());
        }
        barrier.over();
        server.join().unwrap()
    });
}

#[test]
fn e11_an_unfenced_reply_reaches_a_caller_that_is_falling_asleep() {
    reply_to_a_sleeper(Switch::Never, Without::Nothing);
}

#[test]
fn e11_so_does_one_after_the_fences_are_switched_off() {
    reply_to_a_sleeper(Switch::On, Without::Nothing);
}

#[test]
fn e11_so_does_one_before_they_are_switched_on_again() {
    reply_to_a_sleeper(Switch::Off, Without::Nothing);
}

#[test]
fn e11_without_the_fence_of_others_the_caller_sleeps_beside_its_reply() {
    must_fail("deadlock", || {
        reply_to_a_sleeper(Switch::Never, Without::Membarrier)
    });
}

#[test]
fn e11_without_the_servers_order_the_caller_sleeps_beside_its_reply() {
    must_fail("deadlock", || {
        reply_to_a_sleeper(Switch::Never, Without::Order)
    });
}
