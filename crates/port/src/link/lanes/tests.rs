use super::leaving::PAUSE_AFTER_NS;
use super::*;
use crate::again::{self, key_of};
use crate::descriptors::tests::link;
use crate::error::SendError;
use crate::link::hearing::Hearing;
use crate::poller::{clearing, rung};
use crate::process::Process;
use crate::send::{self, SendRight};
use crate::{link, link_end, polling};
use core::cell::RefCell;
use handfast_channel::bell;
use handfast_layout::link::lane;
use handfast_proto::introductions::How;
use handfast_sys::{OwnedFd, socket};
use std::sync::Arc;

type Step = Box<dyn FnOnce()>;

thread_local! {
    pub(crate) static BETWEEN: RefCell<Option<Step>> = const { RefCell::new(None) };
}

/// The step of this thread's test between the look for a lane and its lock.
pub(crate) fn between() {
    if let Some(step) = BETWEEN.take() {
        step();
    }
}

/// Ports at the first receivers.
const PORTS: [u32; 3] = [0x100, 0x101, 0x102];

/// A link whose lanes belong to others, which are at work, except one that leads to the first port; and rights to
/// all.
fn one_lane() -> (Arc<Process>, Arc<Link>, u32, [SendRight; 3], OwnedFd) {
    let (process, link, peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    let rights = PORTS.map(|port| {
        let name = 1 << 31 | port;
        link.imports().arrive(name, port).unwrap();
        send::of_handle(&process, link.clone(), port, name, process.defaults.waiting)
    });
    let lane = to(&link, 0).unwrap();
    link.map.use_up();
    (process, link, lane, rights, peer)
}

#[test]
fn lanes_go_to_receivers_in_the_order_in_which_they_were_asked_for() {
    let (process, link, lane, rights, _peer) = one_lane();
    assert_eq!((to(&link, 1), to(&link, 2)), (None, None));
    hear_back(&link, lane as u8).unwrap();
    assert_eq!((to(&link, 2), to(&link, 1)), (None, Some(lane)));
    assert!(!link.is_leaving(lane), "it has not been used yet");
    rights[1].try_send(b"").unwrap();
    take_all(&link, lane);
    // A thread that has waited longer may not have run since.
    link.map.waits(1);
    assert_eq!(to(&link, 2), None);
    assert!(!link.is_leaving(lane));
    link.map.waits_no_more(1);
    assert_eq!((to(&link, 2), to(&link, 0)), (None, None));
    assert!(link.is_leaving(lane));
    hear_back(&link, lane as u8).unwrap();
    assert_eq!((to(&link, 0), to(&link, 2)), (None, Some(lane)));
    link_end::end_link(&process, &link);
}

#[test]
fn threads_that_are_apart_share_lanes_with_no_others() {
    let (process, link, lane, _rights, _peer) = one_lane();
    let apart = |does: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                handfast_sys::lock::number_apart();
                does();
            });
            thread.join().unwrap();
        });
    };
    // There is one to that receiver; it is the others'.
    apart(&|| assert_eq!(to(&link, 0), None));
    hear_back(&link, lane as u8).unwrap();
    assert_eq!(to(&link, 0), None);
    apart(&|| assert_eq!(to(&link, 0), Some(lane)));
    apart(&|| assert_eq!(to(&link, 0), Some(lane), "of the same kind"));
    link_end::end_link(&process, &link);
}

#[test]
fn who_posts_to_a_lane_that_others_wait_for_gives_it_away_when_nothing_is_under_way_in_it() {
    let (process, link, lane, rights, _peer) = one_lane();
    rights[0].try_send(b"").unwrap();
    assert!(rights[1].try_send(b"").is_err());
    assert!(!link.is_leaving(lane));
    // It is at work still.
    rights[0].try_send(b"").unwrap();
    link.map.free().marked_ns = 0;
    assert!(rights[1].try_send(b"").is_err());
    take_all(&link, lane);
    assert_eq!(rights[0].try_send(b""), Err(SendError::Full));
    assert_eq!((link.position(lane), link.is_leaving(lane)), (2, true));
    hear_back(&link, lane as u8).unwrap();
    rights[1].try_send(b"").unwrap();
    assert_eq!(link.position(lane), 3);
    link_end::end_link(&process, &link);
}

#[test]
fn who_posts_to_a_lane_that_others_have_waited_for_long_waits_for_what_is_under_way() {
    let (process, link, lane, rights, _peer) = one_lane();
    rights[0].try_send(b"").unwrap();
    assert!(rights[1].try_send(b"").is_err());
    {
        let mut free = link.map.free();
        let now_ns = clock::ticks_ns();
        (free.marked_ns, free.without_ns.0) = (0, now_ns - PAUSE_AFTER_NS);
    }
    assert!(rights[1].try_send(b"").is_err());
    assert_eq!(rights[0].try_send(b""), Err(SendError::Full));
    // Not for ever.
    rights[0].send(b"").unwrap();
    assert_eq!((link.position(lane), link.is_leaving(lane)), (2, false));
    link_end::end_link(&process, &link);
}

#[test]
fn what_is_posted_goes_to_whom_the_lane_leads_to_when_it_is_locked() {
    let (process, link, lane, rights, _peer) = one_lane();
    rights[0].try_send(b"").unwrap();
    take_all(&link, lane);
    let becomes_another = {
        let link = link.clone();
        move || {
            assert!(to(&link, 1).is_none());
            hear_back(&link, lane as u8).unwrap();
            assert_eq!(to(&link, 1), Some(lane));
        }
    };
    BETWEEN.set(Some(Box::new(becomes_another)));
    // There is no other lane for it, and this one is kept for the party that has waited for it.
    assert!(rights[0].try_send(b"").is_err());
    assert_eq!(link.position(lane), 1);
    assert!(hear_back(&link, lane as u8).is_err(), "twice");
    assert!(hear_back(&link, LANES as u8).is_err());
    link_end::end_link(&process, &link);
}

impl LaneMap {
    /// All lanes that lead nowhere yet belong to others, which are at work.
    pub(crate) fn use_up(&self) {
        self.free().used = LANES;
    }

    /// A party that has waited for a lane has had time to use it.
    pub(crate) fn keep_no_longer(&self) {
        self.free().given = Default::default();
    }
}

impl Link {
    fn position(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].lock().producer.position()
    }

    fn is_leaving(&self, lane: u32) -> bool {
        self.map.free().leaving & 1 << lane != 0
    }
}

#[test]
fn a_lane_by_which_a_message_is_passed_on_goes_and_that_it_is_on_its_way_is_remembered() {
    let (process, link, lane, rights, _peer) = one_lane();
    let gives = || again::how_to_give(&link, &rights[0]);
    let passes_on = |word: u32| {
        let at = Place::of(link.calls, lane).passed_on();
        link.region.store(at, word, Ordering::Relaxed);
    };
    let (once, again) = (How::Provide { keep: false }, How::Again(7));
    let goes_to = |receiver: u32| {
        assert_eq!(to(&link, receiver), None);
        hear_back(&link, lane as u8).unwrap();
        link.map.keep_no_longer();
    };
    let key = key_of(&rights[0]);
    assert_eq!(gives(), once);
    link::again::lock(&link).told.offered(key, 7);
    assert!(link::again::lock(&link).told.kept(7));
    assert_eq!(gives(), again);
    rights[0].try_send(b"").unwrap();
    passes_on(1);
    take_all(&link, lane);
    assert_eq!(gives(), once);
    goes_to(1);
    passes_on(0);
    assert_eq!(gives(), once, "without a lane");
    goes_to(0);
    assert_eq!(gives(), once, "in another");
    link.map.passes_no_more(0);
    assert_eq!(gives(), again);
    link_end::end_link(&process, &link);
}

/// As the receiver: takes what is in a lane.
fn take_all(link: &Link, lane: u32) {
    let position = link.position(lane);
    let head = Place::of(link.calls, lane).head();
    link.region.store(head, position, Ordering::Release);
}

#[test]
fn a_ring_for_a_lane_that_leads_elsewhere_is_not_heard() {
    let (process, link, _peer) = link();
    let ports = [0, 1].map(|_| crate::anonymous().unwrap());
    let receivers = [0, 1].map(|of: usize| ports[of].port().receiver);
    let (lane, side) = (3, link.calls.other());
    let says = |word| {
        let place = Place::of(side, lane);
        link.region.store(place.receiver(), word, Ordering::Relaxed);
    };
    let hears = |of: usize| {
        bell::note(&link.region, (side, lane), receivers[of]);
        let heard = Hearing::new(&link);
        rung::hear_link(&mut polling::lock(&ports[of].port().at), &heard);
        link.incoming.owner(lane)
    };
    says(receivers[1] + 1);
    assert_eq!(hears(0), None);
    assert_eq!(hears(1), Some(receivers[1]));
    // Its sender has let go of it, and a ring comes late.
    says(lane::NO_RECEIVER);
    clearing::leave_lane(&mut polling::lock(&ports[1].port().at), &link, lane).unwrap();
    assert_eq!((hears(0), hears(1)), (None, None));
    says(receivers[0] + 1);
    assert_eq!(hears(0), Some(receivers[0]));
    link_end::end_link(&process, &link);
}

/// Each such claim took a lane for a receiver that its port's process need not have: with sixteen of them no call went there any
/// more.
#[test]
fn a_claim_on_another_users_word_takes_no_lane_where_one_is_in_use() {
    let (process, link, _peer) = link();
    let first = to_claim_on_word(&link, 5, 4242);
    assert!(matches!(first, Some((_, 5))));
    for receiver in 6..40 {
        assert_eq!(to_claim_on_word(&link, receiver, 4242), first);
    }
    let used = (0..LANES).filter(|lane| link.map.receiver_of(*lane).is_some());
    assert_eq!(used.count(), 1);
    link_end::end_link(&process, &link);
}
