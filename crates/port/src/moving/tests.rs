use super::*;
use crate::anonymous;
use crate::configuration::Configuration;
use crate::descriptors::tests::{link, link_in};
use crate::introduce::provide;
use crate::lifecycle;
use crate::link_end;
use crate::links;
use crate::port::{NewHome, NoRight, exported};
use crate::seal::Seal;
use crate::send::SETTLE_NS;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::{Kind, LANE_HEAD_BYTES, LANES, Side};
use handfast_proto::introductions::Claim;
use handfast_proto::rights::{ALL_PERMISSIONS, Target};
use handfast_region::Memory;
use handfast_ring::lane::{Header, Place};
use std::time::Instant;

/// The link may end between the description of a right and its message, which is not sent then. A port that its owner still has
/// would refuse connections for ever.
#[test]
fn a_port_whose_link_ends_before_its_message_is_sent_takes_connections_again() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let port = anonymous().unwrap();
    let is_leaving = || port.port().is_leaving.load(Ordering::Acquire);
    let Ok((_, token)) = depart(&process, &link, &port) else {
        panic!("it cannot be sent");
    };
    assert!(is_leaving());
    stays(&process, token);
    assert!(!is_leaving(), "its message was not sent");
    let Ok((_, token)) = depart(&process, &link, &port) else {
        panic!("it cannot be sent");
    };
    link_end::end_link(&process, &link);
    stays(&process, token);
    assert!(!is_leaving(), "its link has ended");
}

/// Each trail needs a lane of the link, and a block for long messages.
#[test]
fn few_ports_with_senders_at_home_have_moved_by_one_link() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let ports: Vec<_> = (0..=TRAILS_LINK_MAX)
        .map(|_| anonymous().unwrap())
        .collect();
    let departs = |port: &ReceiveRight| depart(&process, &link, port).map(|(_, token)| token);
    let (last, first) = ports.split_last().unwrap();
    let tokens: Vec<_> = first.iter().map(|port| departs(port).ok()).collect();
    let limit = TRAILS_LINK_MAX as u32;
    assert_eq!(departs(last), Err(RightError::Trails { limit }));
    stays(&process, tokens[0].unwrap());
    assert!(departs(last).is_ok());
    link_end::end_link(&process, &link);
}

/// A user that sends ports for a process to keep leaves receivers to others, and to the process itself.
#[test]
fn ports_of_one_user_leave_receivers_to_others() {
    let node = lifecycle::start(Configuration::new()).ok().unwrap();
    let link_with = |user| {
        let (link, peer) = link_in(&node, user, Side::Connector);
        links::list(&node).push(Some(link.clone()));
        (link, peer)
    };
    let (hostile, _peer) = link_with(3_000_000_127);
    let (other, _other_peer) = link_with(3_000_000_128);
    let (own, _own_peer) = link_with(handfast_sys::process::uid());
    let arrives = |link: &Arc<Link>| settle_in(&node, link, (1, false), None);
    let mut kept: Vec<_> = (0..100).map(|_| arrives(&hostile)).collect();
    kept.retain(|right| matches!(right, Right::Receive(_)));
    assert_eq!(kept.len(), 36);
    assert!(matches!(arrives(&hostile), Right::Lost(_)));
    assert!(matches!(arrives(&other), Right::Receive(_)));
    let owns: Vec<_> = (0..20).map(|_| arrives(&own)).collect();
    assert!(owns.iter().all(|right| matches!(right, Right::Receive(_))));
    // One for each that is dropped.
    drop(kept.pop());
    kept.push(arrives(&hostile));
    assert!(matches!(kept.last(), Some(Right::Receive(_))));
    assert!(matches!(arrives(&hostile), Right::Lost(_)));
    drop((kept, owns));
    for link in [hostile, other, own] {
        link_end::end_link(&node, &link);
    }
    lifecycle::shutdown(&node);
}

/// The old home of a port that shares a receiver asks for rights in the name of its senders. A send-once right would be one to the
/// receiver's own port, with a badge that the peer has chosen.
#[test]
fn the_old_home_of_a_port_that_shares_a_receiver_gets_no_send_once_right_there() {
    let node = lifecycle::start(Configuration::new()).ok().unwrap();
    let (link, _peer) = link_in(&node, handfast_sys::process::uid(), Side::Connector);
    links::list(&node).push(Some(link.clone()));
    let desk = crate::binding::nameless(&node, crate::Options::new())
        .ok()
        .unwrap();
    MemberPort::accept_at(&desk);
    let Right::Member(member) = settle_beside(&node, &link, (1, false), desk.port().receiver)
    else {
        panic!("it has not arrived");
    };
    let trail = exported::export_trail(&link, member.port()).unwrap();
    let says = |said: LaneControl| {
        let header = Header {
            kind: Kind::CONTROL,
            port: trail,
            reply: 0,
            generation: 0,
            units: 0,
            cpu: 0,
        };
        provide::hear_said(&link, &node, (header, &said.encode()), Some(0)).unwrap();
    };
    let mints = |word, is_once| {
        says(LaneControl::Mint {
            word,
            badge: 5,
            permissions: ALL_PERMISSIONS,
            is_once,
        });
        link.introductions().claims.get(word)
    };
    assert!(matches!(mints(3, false), Some(Claim::Granted(_))));
    assert!(matches!(mints(4, true), Some(Claim::Dead)));
    assert!(ports::unused_once(desk.port()).is_empty());
    // An old home that has not heard of the end yet goes on.
    drop(member);
    assert!(matches!(mints(5, false), Some(Claim::Dead)));
    says(LaneControl::Told { number: 1 });
    assert_eq!(link.exports().resolve(trail), Some(Meaning::Revoked));
    drop(desk);
    link_end::end_link(&node, &link);
    lifecycle::shutdown(&node);
}

/// A home of a port that has moved by this link, as the link's peer says, and the right that it has given.
fn home_by(process: &Arc<Process>, link: &Arc<Link>) -> (Home, SendRight) {
    links::list(process).push(Some(link.clone()));
    let right = || crate::imported::import(process, link, (1 << 31 | 0x100, 0x100)).unwrap();
    (Home::new(process.clone(), right()), right())
}

/// A thread of the application waited for ever, and with it that of all rights which go through this process.
#[test]
fn a_new_home_that_takes_nothing_keeps_no_thread_for_long() {
    let (process, link, _peer) = link();
    let (home, to) = home_by(&process, &link);
    while to.try_send(b"").is_ok() {}
    let seal = |badge| Seal::of(Target::full(0x100, badge));
    let none = |may_wait| home.right(seal(1), may_wait).err();
    let is_patient = || process.users.is_patient(link.peer.uid, link.identity());
    assert_eq!(none(false), Some(NoRight::NotYet));
    assert!(is_patient());
    let start = Instant::now();
    assert_eq!(none(true), Some(NoRight::NotYet));
    assert!(start.elapsed() >= Duration::from_nanos(SETTLE_NS));
    assert!(!is_patient(), "the next one would wait as long");
    assert_eq!(none(true), Some(NoRight::NotYet));
    link_end::end_link(&process, &link);
    assert_eq!(none(true), Some(NoRight::Over));
}

/// Trails' words lay behind messages that waited for them: a minute long, until these were refused.
#[test]
fn the_trail_of_a_port_asks_for_its_rights_in_its_own_lanes() {
    let (process, link, _peer) = link();
    let (home, to) = home_by(&process, &link);
    let right = || {
        let right = home.right(Seal::of(Target::full(0x100, 1)), true);
        right.unwrap().downcast::<SendRight>().unwrap()
    };
    to.try_send(b"may wait").unwrap();
    let own = right();
    let others = std::thread::scope(|scope| {
        let trail = scope.spawn(|| {
            handfast_sys::lock::number_apart();
            let trails = right();
            trails.try_send(b"passed on").unwrap();
            assert_eq!(trails.handle(), right().handle());
            let lane = link.map.known(0).unwrap();
            (trails, link.lanes[lane as usize].lock().producer.position())
        });
        trail.join().unwrap()
    });
    assert_ne!(own.handle(), others.0.handle());
    assert_eq!(own.handle(), right().handle());
    assert_eq!(others.1, 2, "asked for there, and used");
    link_end::end_link(&process, &link);
}

/// Messages taken from a lane have arrived again once the port whose messages were passed on has no senders at its old home.
#[test]
fn lanes_pass_nothing_on_after_the_last_diversion() {
    let node = || crate::Node::builder().start().unwrap();
    let (old, new, sender) = (node(), node(), node());
    let own_name = |what: &str| format!("{what}-{}", std::process::id());
    let desk = old.bind(&own_name("diverts")).unwrap();
    let home = new.bind(&own_name("home")).unwrap();
    MemberPort::accept_at(&home);
    let to_desk = sender.connect(&own_name("diverts")).unwrap();
    let to_home = old.connect(&own_name("home")).unwrap();
    let member = desk.member().unwrap();
    let right = std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = desk.receive().unwrap();
            let right = member.mint(3);
            request.reply_with(b"", [right.into()]).unwrap();
        });
        to_desk.call(b"").unwrap().take_rights().pop()
    });
    let Some(Right::Send(right)) = right else {
        panic!("no right came");
    };
    let link = right.link().clone();
    let passes_on = || {
        (0..LANES).any(|lane| {
            let at = Place::of(link.calls, lane).passed_on();
            let is_there = link.region.is_there(link.calls.lane(lane), LANE_HEAD_BYTES);
            is_there && link.region.load(at, Ordering::Relaxed) != 0
        })
    };
    to_home.with([member.into()]).send(b"take it").unwrap();
    // Before the old home hears that it has arrived: the sender cannot follow yet.
    right.send(b"by the old home").unwrap();
    let receives = |does: bool| {
        let until = Instant::now() + handfast_testing::PATIENCE;
        while passes_on() != does {
            assert!(Instant::now() < until, "passes on: {}", !does);
            to_desk.send(b"").unwrap();
            let _ = desk.receive().unwrap();
        }
    };
    receives(true);
    let taken = home.receive().unwrap().take_rights();
    let request = home.receive().unwrap();
    assert_eq!(request.bytes(), b"by the old home");
    drop((right, request));
    receives(false);
    drop((taken, desk));
    [old, new, sender].iter().for_each(crate::Node::shutdown);
}
