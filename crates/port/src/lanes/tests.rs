use super::*;
use crate::descriptors::tests::link;
use crate::hearing::Hearing;
use crate::send::SendRight;
use core::cell::RefCell;
use handfast_channel::bell;
use handfast_sys::socket;

type Step = Box<dyn FnOnce()>;

thread_local! {
    static BETWEEN: RefCell<Option<Step>> = const { RefCell::new(None) };
}

/// What this thread's test does between the look for a lane and its lock.
pub(crate) fn between() {
    if let Some(step) = BETWEEN.take() {
        step();
    }
}

/// Ports at the first two receivers.
const PORTS: [u32; 2] = [0x100, 0x101];

#[test]
fn what_is_posted_goes_to_whom_the_lane_leads_to_when_it_is_locked() {
    let (process, link, peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    let rights = PORTS.map(|port| {
        let name = 1 << 31 | port;
        link.imports().arrive(name, port).unwrap();
        SendRight::of_handle(&process, link.clone(), port, name, process.waiting)
    });
    // All lanes but one are others', which are at work.
    let lane = link.lane(0).unwrap();
    link.map.free().used = LANES;
    rights[0].try_send(b"").unwrap();
    take_all(&link, lane);
    let becomes_another = {
        let link = link.clone();
        move || {
            assert!(link.lane(1).is_none());
            link.hear_lane_back(lane as u8).unwrap();
            assert_eq!(link.lane(1), Some(lane));
        }
    };
    BETWEEN.set(Some(Box::new(becomes_another)));
    // There is no other lane for it, and this one is asked for again.
    assert!(rights[0].try_send(b"").is_err());
    let position = link.lanes[lane as usize].lock().producer.position();
    assert_eq!(position, 1);
    link.hear_lane_back(lane as u8).unwrap();
    assert!(link.hear_lane_back(lane as u8).is_err(), "twice");
    assert!(link.hear_lane_back(LANES as u8).is_err());
    process.end_link(&link);
}

/// As the receiver: takes what is in a lane.
fn take_all(link: &Link, lane: u32) {
    let position = link.lanes[lane as usize].lock().producer.position();
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
        ports[of].port().lock().hear_link(&heard);
        link.owners[lane as usize].load(Ordering::Acquire)
    };
    says(receivers[1] + 1);
    assert_eq!(hears(0), 0);
    assert_eq!(u32::from(hears(1)), receivers[1] + 1);
    // Its sender has let go of it, and a ring comes late.
    says(lane::NO_RECEIVER);
    ports[1].port().lock().leave_lane(&link, lane).unwrap();
    assert_eq!((hears(0), hears(1)), (0, 0));
    says(receivers[0] + 1);
    assert_eq!(u32::from(hears(0)), receivers[0] + 1);
    process.end_link(&link);
}
