use super::*;
use crate::configuration::Configuration;
use crate::descriptors::tests::{expect_let_go, link, link_in, link_of};
use crate::introduce::{Provided, provide};
use crate::link::lanes;
use crate::send::{self, SendRight, route};
use crate::{give_back, lifecycle, link_end, links};
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlKind};
use handfast_layout::link::passed_word;
use handfast_layout::link::{LANES, Side};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::{OwnedFd, socket};

const NAME: Handle = 1 << 31 | 7;
/// At its first receiver.
const PORT: u32 = 0x100;

fn right(process: &Arc<Process>, link: &Arc<Link>, name: Handle) -> SendRight {
    link.imports().arrive(name, PORT).unwrap();
    let waiting = process.defaults.waiting;
    send::of_handle(process, link.clone(), PORT, name, waiting)
}

impl Link {
    pub(crate) fn is_to_stay(&self, name: Handle) -> bool {
        matches!(
            self.rights.redirects.lock().of.get(&name),
            Some(Redirect::Stays)
        )
    }
}

#[test]
fn nothing_is_provided_behind_a_mark() {
    let (process, link, _peer) = link();
    let [moving, direct] = [NAME, NAME + 1].map(|name| right(&process, &link, name));
    let may_provide = || Provided::say_as(1, &moving, &link).is_some();
    assert!(may_provide());
    let moved = Moved::new(([1; 20], PORT), 1);
    let _ = moved.direct.set(Box::new(direct));
    link.rights.redirects.lock().insert((NAME, PORT), moved);
    link.rights.redirects.has_any.store(true, Ordering::Relaxed);
    link.rights
        .redirects
        .has_moved
        .store(true, Ordering::Release);
    assert!(!may_provide());
}

/// Whether the peer is told that rights were given back.
fn hears_of_release(peer: &OwnedFd) -> bool {
    let mut bytes = [0; CONTROL_BYTES_MAX];
    while let Ok((len_bytes, _)) = socket::receive(peer, &mut bytes, 1) {
        if ControlKind::of(&bytes[..len_bytes]) == Some(ControlKind::Release) {
            return true;
        }
    }
    false
}

#[test]
fn the_name_of_a_right_that_is_another_stays_while_a_message_in_another_lane_has_it() {
    let (process, old, peer) = link();
    let (_, new, _new_peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    let _right = right(&process, &old, NAME);
    // To another port there, with the right in it.
    let other = lanes::to(&old, 1).unwrap();
    let said = LaneControl::Told { number: 0 };
    let words = (NAME, passed_word(0, 0), 0);
    provide::say_in_lane(&old, (other, 1), words, said, || true).unwrap();
    let moved = Moved::new((new.identity(), PORT), 1);
    old.rights.redirects.lock().insert((NAME, PORT), moved);
    assert!(switch(&process, (&old, NAME), &new) == Switched::Done);
    let consume = |lane: u32| {
        let tail = old.lanes[lane as usize].lock().producer.position();
        let head = Place::of(old.calls, lane).head();
        old.region.store(head, tail, Ordering::Release);
    };
    consume(lanes::to(&old, receiver_of(PORT)).unwrap());
    assert!(give_back::give_back(&old, &process) && !hears_of_release(&peer));
    consume(other);
    assert!(give_back::give_back(&old, &process) && hears_of_release(&peer));
}

/// It comes once more, in a message that was under way: its name is given back by then, and nothing else has the control thread look.
#[test]
fn a_name_that_comes_after_it_was_given_back_is_given_back_again() {
    let (process, old, peer) = link();
    let (_, new, _new_peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    links::list(&process).push(Some(old.clone()));
    let _right = right(&process, &old, NAME);
    // So that there is a lane, in which the mark comes.
    lanes::to(&old, receiver_of(PORT)).unwrap();
    let moved = Moved::new((new.identity(), PORT), 1);
    old.rights.redirects.lock().insert((NAME, PORT), moved);
    assert!(switch(&process, (&old, NAME), &new) == Switched::Done);
    let consume = || {
        let lane = lanes::to(&old, receiver_of(PORT)).unwrap();
        let tail = old.lanes[lane as usize].lock().producer.position();
        let head = Place::of(old.calls, lane).head();
        old.region.store(head, tail, Ordering::Release);
    };
    consume();
    let is_told = || handfast_testing::within_patience(|| hears_of_release(&peer));
    assert!(is_told());
    old.imports().arrive(NAME, PORT).unwrap();
    arrived_moved(&old, &process, NAME);
    assert!(is_told());
    link_end::end_link(&process, &old);
}

#[test]
fn who_has_no_lane_to_the_old_home_of_a_port_follows_when_there_is_one() {
    let (process, old, peer) = link();
    let (_, new, _new_peer) = link();
    socket::set_nonblocking(&peer, true).unwrap();
    let _right = right(&process, &old, NAME);
    let lane = lanes::to(&old, 1).unwrap();
    old.map.use_up();
    let moved = Moved::new((new.identity(), PORT), 1);
    old.rights.redirects.lock().insert((NAME, PORT), moved);
    let receiver = receiver_of(PORT);
    let position = |link: &Link, lane: u32| link.lanes[lane as usize].lock().producer.position();
    let switches = || switch(&process, (&old, NAME), &new);
    assert!(switches() == Switched::Full);
    lanes::hear_back(&old, lane as u8).unwrap();
    old.map.keep_no_longer();
    // The lane is let go of at the last moment.
    let asks = {
        let old = old.clone();
        move || assert_eq!(lanes::to(&old, 1), None)
    };
    lanes::tests::BETWEEN.set(Some(Box::new(asks)));
    assert!(switches() == Switched::Full);
    assert_eq!(new.map.known(receiver), None, "nothing was claimed");
    lanes::hear_back(&old, lane as u8).unwrap();
    old.map.keep_no_longer();
    assert_eq!(lanes::to(&old, receiver), None);
    lanes::hear_back(&old, lane as u8).unwrap();
    assert!(switches() == Switched::Done);
    assert_eq!(position(&old, lane), 1, "the mark");
    let claimed = new.map.known(receiver).unwrap();
    assert_eq!(position(&new, claimed), 1, "the claim");
}

#[test]
fn the_name_of_a_right_that_is_dropped_while_it_becomes_another_stays_until_its_marks_have_come() {
    // Its switches are no other test's.
    let process = lifecycle::start(Configuration::new()).ok().unwrap();
    let linked = || link_in(&process, handfast_sys::process::uid(), Side::Connector);
    let ((old, peer), (new, _new_peer)) = (linked(), linked());
    socket::set_nonblocking(&peer, true).unwrap();
    let last = right(&process, &old, NAME);
    let moved = Moved::new((new.identity(), PORT), 1);
    old.rights.redirects.lock().insert((NAME, PORT), moved);
    let lane = lanes::to(&old, receiver_of(PORT)).unwrap();
    std::thread::scope(|scope| {
        // Where the mark is to go.
        let held = old.lanes[lane as usize].lock();
        let switching = scope.spawn(|| switch(&process, (&old, NAME), &new) == Switched::Done);
        while process.tables.get::<Switches>().one.try_lock().is_some() {
            std::thread::yield_now();
        }
        drop(last);
        let gives =
            scope.spawn(|| give_back::give_back(&old, &process) && !hears_of_release(&peer));
        assert!(gives.join().unwrap());
        drop(held);
        assert!(switching.join().unwrap());
    });
    assert!(give_back::give_back(&old, &process) && !hears_of_release(&peer));
    for lane in 0..LANES {
        let tail = old.lanes[lane as usize].lock().producer.position();
        let head = Place::of(old.calls, lane).head();
        old.region.store(head, tail, Ordering::Release);
    }
    assert!(give_back::give_back(&old, &process) && hears_of_release(&peer));
    lifecycle::shutdown(&process);
}

/// A right of `link`, whose port has moved and come back to the peer of `other` meanwhile, or so.
fn moved_to(process: &Arc<Process>, (link, name): (&Arc<Link>, Handle), direct: SendRight) {
    enter_moved((link, name), direct);
    links::list(process).push(Some(link.clone()));
}

fn enter_moved((link, name): (&Arc<Link>, Handle), direct: SendRight) {
    let moved = Moved::new((direct.link().identity(), PORT), 1);
    let _ = moved.direct.set(Box::new(direct));
    let redirects = &link.rights.redirects;
    redirects.lock().insert((name, PORT), moved);
    redirects.has_any.store(true, Ordering::Relaxed);
    redirects.has_moved.store(true, Ordering::Relaxed);
}

#[test]
fn links_of_a_port_that_has_moved_to_and_fro_are_let_go_of_when_both_have_ended() {
    for drops_first in [false, true] {
        let (process, one, _peer) = link();
        let (_, two, _two_peer) = link();
        let [last, back] = [NAME, NAME + 1].map(|name| right(&process, &one, name));
        let there = right(&process, &two, NAME);
        moved_to(&process, (&two, NAME), back);
        moved_to(&process, (&one, NAME), there);
        let mut last = Some(last);
        if drops_first {
            // It is not given back before the links end.
            last = None;
        }
        link_end::end_link(&process, &one);
        link_end::end_link(&process, &two);
        drop(last);
        expect_let_go(&one);
        expect_let_go(&two);
    }
}

/// Each use of a right walked over all that it has become: after 5,000 moves a call took 15 us longer.
#[test]
fn a_right_finds_its_new_home_in_few_steps_however_often_its_port_has_moved() {
    const MOVES: u32 = 5_000;
    let (process, one, _peer) = link();
    let (_, two, _two_peer) = link();
    let link_of = |place: u32| if place.is_multiple_of(2) { &one } else { &two };
    let names = |place: u32| (link_of(place), NAME + place);
    let first = right(&process, names(0).0, names(0).1);
    for place in 1..=MOVES {
        let next = right(&process, names(place).0, names(place).1);
        enter_moved(names(place - 1), next);
        let best = route::best(&first);
        assert_eq!(best.handle(), NAME + place);
        assert!(Arc::ptr_eq(best.link(), link_of(place)));
        assert!(route::steps(&first) <= 16, "after {place} moves");
    }
    let second = first.clone();
    assert_eq!(route::best(&second).handle(), NAME + MOVES);
    assert_eq!(route::steps(&second), 0, "one step for all");
    drop((first, second));
    for link in [&one, &two] {
        link_end::end_link(&process, link);
    }
}

/// Each message with a right walks over all that it has become (`life::used_at`): 40,000 moves had a call of another user take 108 ms.
#[test]
fn rights_that_move_too_often_on_another_users_word_stay_where_they_are() {
    /// A user that no other test has.
    const UID: u32 = 3_000_000_126;
    const MOVES: u32 = 1024;
    let (process, link, _peer) = link_of(UID);
    let moves = |place: u32| {
        let right = right(&process, &link, NAME + place);
        let to = (PORT, OF_MOVED | 1, [9; 20]);
        hear_moved(&process, &link, NAME + place, to).unwrap();
        right
    };
    let stay = || -> Vec<_> {
        let places = 0..MOVES + 8;
        places
            .filter(|place| link.is_to_stay(NAME + place))
            .collect()
    };
    let rights: Vec<_> = (0..MOVES + 4).map(moves).collect();
    let late: Vec<_> = (MOVES..MOVES + 4).collect();
    assert_eq!(stay(), late);
    drop(rights);
    give_back::give_back(&link, &process);
    let _right = moves(MOVES + 4);
    assert_eq!(stay(), [0; 0], "others may move when those are gone");
    link_end::end_link(&process, &link);
}

/// Moves on the word of this process's own user have no limit.
#[test]
fn rights_to_ports_of_the_same_user_follow_every_move() {
    let (process, link, _peer) = link();
    let rights: Vec<_> = (0..1100)
        .map(|place| {
            let right = right(&process, &link, NAME + place);
            let to = (PORT, OF_MOVED | 1, [9; 20]);
            hear_moved(&process, &link, NAME + place, to).unwrap();
            assert!(!link.is_to_stay(NAME + place));
            right
        })
        .collect();
    drop(rights);
    link_end::end_link(&process, &link);
}
