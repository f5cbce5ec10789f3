use super::*;
use crate::configuration::Configuration;
use crate::descriptors::tests::{link_in, link_of};
use crate::door::later;
use crate::lifecycle;
use crate::link_end;
use crate::links;
use core::sync::atomic::Ordering;
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlKind};
use handfast_layout::link::Side;

/// Whether one right more, introduced by the peer of `link`, waits for a link with its process.
fn waits(process: &Arc<Process>, link: &Arc<Link>, kept: &mut Vec<Arc<Upgrade>>) -> bool {
    let upgrade = Upgrade::new(process, link, ([7; 20], kept.len() as u64), leave);
    later::waits_for_lane(process, &upgrade, 1);
    // Not by the list: the control thread, which hears of other tests' links, has it for a moment now and then.
    let waits = upgrade.is_late.load(Ordering::Relaxed);
    kept.push(upgrade);
    waits
}

/// Security finding 7: tables of the whole process, too.
#[test]
fn strangers_of_one_user_leave_room_for_those_of_others() {
    let (process, greedy, _peer) = link_of(4711);
    let (_, modest, _peer) = link_of(4712);
    let mut kept = Vec::new();
    while waits(&process, &greedy, &mut kept) {
        assert!(kept.len() < 10_000);
    }
    assert!(kept.len() > 1000, "{}", kept.len());
    assert!(waits(&process, &modest, &mut kept));
    // Rights that are not wanted any more make room.
    kept.clear();
    let has_room = || waits(&process, &greedy, &mut kept);
    assert!(handfast_testing::within_patience(has_room));
}

/// A peer that asks on and on displaces its own questions.
#[test]
fn questions_of_one_peer_displace_none_of_others() {
    let (process, greedy, _peer) = link_of(4713);
    let (_, modest, _peer) = link_of(4714);
    let awaited = |link: &Arc<Link>, exporter| doors(&process).answered(exporter, link);
    doors(&process).awaits([0; 20], &modest);
    for number in 0..2 * AWAITED_MAX as u32 {
        let mut exporter = [1; 20];
        exporter[..4].copy_from_slice(&number.to_le_bytes());
        doors(&process).awaits(exporter, &greedy);
    }
    let of_greedy = |doors: &Doors| {
        doors
            .awaited
            .iter()
            .filter(|(_, serial)| *serial == greedy.serial)
            .count()
    };
    assert!(of_greedy(&doors(&process)) <= AWAITED_MAX + 1);
    assert!(awaited(&modest, [0; 20]));
}

/// The dead leave messages with rights in them, and ask no process for anything.
#[test]
fn nobody_is_asked_for_a_door_who_has_ended() {
    let (process, link, _peer) = link_of(4715);
    links::list(&process).push(Some(link.clone()));
    let is_awaited = || {
        let doors = doors(&process);
        doors
            .awaited
            .iter()
            .any(|(_, serial)| *serial == link.serial)
    };
    doors(&process).awaits([2; 20], &link);
    assert!(is_awaited());
    link_end::end_link(&process, &link);
    assert!(!is_awaited());
    doors(&process).awaits([3; 20], &link);
    assert!(!is_awaited());
}

/// A door is asked for once in a while, whatever the number of rights; those that are dropped leave nothing.
#[test]
fn rights_that_wait_for_one_door_ask_once_and_go_when_they_are_dropped() {
    let (process, link, _peer) = link_of(4716);
    let mut doors = Doors::default();
    let upgrades: Vec<_> = (0..3)
        .map(|number| Upgrade::new(&process, &link, ([9; 20], number), leave))
        .collect();
    let asks = upgrades.iter().map(|upgrade| {
        let charge = charge_stranger(&process, &link).expect("there is room");
        doors.waiting.for_link(upgrade, (1, charge), true)
    });
    assert_eq!(asks.collect::<Vec<_>>(), [true, false, false]);
    assert!(doors.waiting.remove(&upgrades[1]).is_some());
    assert!(doors.waiting.remove(&upgrades[1]).is_none());
    assert_eq!(doors.waiting.take([9; 20], None).len(), 2);
    assert!(doors.waiting.remove(&upgrades[0]).is_none());
}

/// A peer that asks on and on for one door has its process asked a few times, until there is an answer.
#[test]
fn an_exporter_is_asked_for_its_door_a_few_times_at_once() {
    // Of its own: links of tests are all with the same process.
    let process = lifecycle::start(Configuration::new()).ok().unwrap();
    let (recipient, _peer) = link_in(&process, 4719, Side::Connector);
    let (exporter, _peer) = link_in(&process, 4720, Side::Connector);
    links::list(&process).push(Some(exporter.clone()));
    let asked = || {
        let doors = doors(&process);
        let of_it = doors
            .asked
            .iter()
            .filter(|asked| asked.of == exporter.serial);
        of_it.map(|asked| asked.token).collect::<Vec<_>>()
    };
    for _ in 0..100 {
        ask_for_door(&process, &recipient, exporter.identity());
    }
    let first = asked();
    assert_eq!(first.len(), ASKED_OF_ONE_MAX);
    pass_door_on(&process, &exporter, first[0], None);
    ask_for_door(&process, &recipient, exporter.identity());
    assert_eq!(asked().len(), ASKED_OF_ONE_MAX);
    assert_ne!(asked(), first);
    lifecycle::shutdown(&process);
}

/// An exporter that answers no question keeps nothing for the peers that have asked it.
#[test]
fn what_a_recipient_has_asked_goes_with_it() {
    let process = lifecycle::start(Configuration::new()).ok().unwrap();
    let (recipient, _peer) = link_in(&process, 4717, Side::Connector);
    let (exporter, _peer) = link_in(&process, 4718, Side::Connector);
    let listed = |link: &Arc<Link>| links::list(&process).push(Some(link.clone()));
    listed(&exporter);
    let is_asked = || {
        let doors = doors(&process);
        doors.asked.iter().any(|asked| asked.of == exporter.serial)
    };
    ask_for_door(&process, &recipient, exporter.identity());
    assert!(is_asked());
    listed(&recipient);
    link_end::end_link(&process, &recipient);
    assert!(!is_asked());
    lifecycle::shutdown(&process);
}

/// Kinds of the control messages that the peer of a link has been sent so far.
fn told(peer: &OwnedFd) -> Vec<ControlKind> {
    let mut bytes = [0; CONTROL_BYTES_MAX];
    let next = || match handfast_sys::socket::receive(peer, &mut bytes, 0) {
        Ok((len_bytes, _)) if len_bytes > 0 => ControlKind::of(&bytes),
        _ => None,
    };
    core::iter::from_fn(next).collect()
}

/// The answer of an introducer to the question for a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Silence,
    NoDoor,
    Death,
}

/// An introducer that did not answer, or answered that there is no door, kept all others from showing it.
#[test]
fn each_introducer_is_asked_for_a_door_and_answers_for_itself() {
    for answer in [Answer::Silence, Answer::NoDoor, Answer::Death] {
        let process = lifecycle::start(Configuration::new()).ok().unwrap();
        let (hostile, hears_first) = link_in(&process, 4721, Side::Connector);
        let (honest, hears) = link_in(&process, 4722, Side::Connector);
        for (link, peer) in [(&hostile, &hears_first), (&honest, &hears)] {
            handfast_sys::socket::set_nonblocking(peer, true).unwrap();
            links::list(&process).push(Some(link.clone()));
        }
        let exporter = [5; 20];
        let waits = |link, number| {
            let upgrade = Upgrade::new(&process, link, (exporter, number), leave);
            ask_where(&process, &upgrade, 1);
            upgrade
        };
        let first = waits(&hostile, 1);
        assert_eq!(told(&hears_first), [ControlKind::DoorWhere]);
        if answer == Answer::Death {
            link_end::end_link(&process, &hostile);
        }
        let second = waits(&honest, 1);
        assert_eq!(told(&hears), [ControlKind::DoorWhere], "{answer:?}");
        if answer == Answer::NoDoor {
            crate::knock::knock(&process, &hostile, exporter, None);
            let is_declined = || told(&hears_first).contains(&ControlKind::Declined);
            assert!(handfast_testing::within_patience(is_declined));
        }
        assert_eq!(told(&hears), [], "declined for another's answer");
        let taken = doors(&process).waiting.take(exporter, None);
        let waiting: Vec<_> = taken.iter().filter_map(|of| of.upgrade.upgrade()).collect();
        let is_waiting = |of: &Arc<Upgrade>| waiting.iter().any(|waits| Arc::ptr_eq(waits, of));
        assert!(is_waiting(&second), "{answer:?}");
        // A door that another has shown is as good.
        assert_eq!(is_waiting(&first), answer != Answer::NoDoor, "{answer:?}");
        lifecycle::shutdown(&process);
    }
}

/// As that, of ports that have moved.
#[test]
fn each_old_home_is_asked_for_the_door_of_the_new_one() {
    let process = lifecycle::start(Configuration::new()).ok().unwrap();
    let homes = [4723, 4724].map(|user| link_in(&process, user, Side::Connector));
    let exporter = [6; 20];
    for (home, hears) in &homes {
        handfast_sys::socket::set_nonblocking(hears, true).unwrap();
        seek(&process, home, exporter, (1 << 31, |_, _, _| {}));
        assert_eq!(told(hears), [ControlKind::DoorWhere]);
        seek(&process, home, exporter, (1 << 31 | 1, |_, _, _| {}));
        assert_eq!(told(hears), [], "once for all its ports");
    }
    stay_without(&process, exporter, homes[0].0.serial);
    let doors = doors(&process);
    let left: Vec<_> = doors.moved.iter().map(|moved| moved.serial).collect();
    assert_eq!(left, [homes[1].0.serial; 2]);
    drop(doors);
    lifecycle::shutdown(&process);
}
