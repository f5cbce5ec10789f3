use super::*;
use crate::descriptors::tests::{link, link_of};
use crate::error::{Gone, SendError};
use crate::introduce::provide;
use crate::port::exported;
use crate::seal::Seal;
use crate::send::{self, SendRight, claimed};
use crate::{link_end, links, redirect};
use core::cell::RefCell;
use handfast_channel::reply::Slot;
use handfast_layout::control::ControlMessage;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::part::{IS_HANDLE, Part};
use handfast_proto::rights::Handle;
use handfast_ring::lane::Header;

type Step = Box<dyn FnOnce()>;

thread_local! {
    static BETWEEN: RefCell<Option<Step>> = const { RefCell::new(None) };
}

/// The step of this thread's test when a right has been found that is to be provided.
pub(super) fn between() {
    if let Some(step) = BETWEEN.take() {
        step();
    }
}

/// The header of a statement by a right.
const fn said_by(port: Handle) -> Header {
    Header {
        kind: Kind::CONTROL,
        port,
        reply: 0,
        generation: 0,
        units: 0,
        cpu: 0,
    }
}

#[test]
fn a_right_ends_on_a_peers_word_in_a_thread_that_holds_a_receiver() {
    let node = crate::Node::builder().start().unwrap();
    let (receive, other) = (node.anonymous().unwrap(), node.anonymous().unwrap());
    let port = receive.port().clone();
    let next = || {
        let received = receive.receive_timeout(core::time::Duration::from_secs(60));
        received.unwrap().notice()
    };
    for badge in 0..3 {
        let target = Target::full(port.id, badge);
        assert!(added(&port.process, target));
        receive.notify_no_senders();
        let held = crate::polling::lock(&other.port().at);
        ended(&port.process, (target, false));
        drop(held);
        assert_eq!(next(), Some(crate::Notice::NoSenders));
        let held = crate::polling::lock(&other.port().at);
        notice::tell_unused(&port, badge);
        drop(held);
        assert_eq!(next(), Some(crate::Notice::SendOnceUnused(badge)));
    }
    node.shutdown();
}

/// A receiver's clock goes more slowly while that is busy, and nothing sets it: after a while it is behind by more than any claim waits.
#[test]
fn a_claim_that_a_receiver_with_a_late_clock_has_heard_waits_as_long_as_others() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let (word, number) = (1, 5);
    let introducer = [7; 20];
    let said = LaneControl::Claim {
        word,
        number,
        introducer,
    };
    provide::hear_said(&link, &process, (said_by(0), &said.encode()), Some(1)).unwrap();
    let claim = || link.introductions().claims.get(word);
    assert!(matches!(claim(), Some(Claim::Waiting(_))));
    assert!(ends::expire_provisions(&process), "it waits");
    assert!(matches!(claim(), Some(Claim::Waiting(_))));
    link_end::end_link(&process, &link);
}

#[test]
fn what_is_provided_while_its_right_is_revoked_comes_to_nothing() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let receive = crate::anonymous().unwrap();
    let port = receive.port().clone();
    let handle = exported::export(&link, &port, Target::full(port.id, 5)).unwrap();
    let (number, recipient) = (u64::from(port.id), [9; 20]);
    BETWEEN.set(Some(Box::new(move || receive.revoke(5))));
    let header = said_by(handle);
    let said = LaneControl::Provide { number, recipient }.encode();
    provide::hear_said(&link, &process, (header, &said), Some(0)).unwrap();
    let redeemed = provisions(&process).redeem((link.identity(), number), recipient);
    assert!(matches!(redeemed, Redeemed::Dead | Redeemed::Revoked));
    link_end::end_link(&process, &link);
}

#[test]
fn what_an_old_home_has_minted_stays_however_soon_its_port_moves_on() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let waiting = process.defaults.waiting;
    let port = 0x100;
    link.imports().arrive(1 << 31 | 7, port).unwrap();
    let to = send::of_handle(&process, link.clone(), port, 1 << 31 | 7, waiting);
    let word = 1;
    let moves_on = {
        let (process, link) = (process.clone(), link.clone());
        move || {
            redirect::hear_moved(&process, &link, word, (port, OF_MOVED | 1, [1; 20])).unwrap();
            assert!(link.is_to_stay(word));
        }
    };
    BETWEEN.set(Some(Box::new(moves_on)));
    let minted = mint(&process, &to, Seal::of(Target::full(port, 5))).unwrap();
    assert_eq!(minted.handle(), word);
    link_end::end_link(&process, &link);
}

/// A thread that sent by such a right waited for ever, and with it the clients that it served.
#[test]
fn a_right_on_the_word_of_another_user_is_waited_for_until_its_home_ends_and_not_for_ever() {
    const UID: u32 = 3_000_000_129;
    let (process, link, _peer) = link();
    let (_, other, _others_peer) = link_of(UID);
    links::list(&process).push(Some(link.clone()));
    let claims = |number| claim_freely(&process, &link, 0x100, (&other, OF_MOVED | number));
    let sends = |right: &SendRight| right.send_timeout(b"", handfast_testing::PATIENCE);
    let [silent, dead] = [1, 2].map(|number| claims(number).unwrap());
    assert!(claimed::is_held(&silent));
    assert_eq!(silent.try_send(b""), Err(SendError::Full));
    assert_eq!(sends(&silent), Err(SendError::Gone(Gone::Port)));
    link_end::end_link(&process, &link);
    assert_eq!(sends(&dead), Err(SendError::Gone(Gone::Process)));
    link_end::end_link(&process, &other);
}

/// A new home connects and claims at once: its exporter's control thread may enter the link only after that has heard the old home, which
/// provides what is claimed.
#[test]
fn what_is_provided_to_a_new_home_waits_for_its_link() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let receive = crate::anonymous().unwrap();
    let port = receive.port().clone();
    let handle = exported::export(&link, &port, Target::full(port.id, 5)).unwrap();
    let (number, recipient) = (OF_MOVED | u64::from(port.id), [9; 20]);
    let header = said_by(handle);
    let said = LaneControl::Provide { number, recipient }.encode();
    provide::hear_said(&link, &process, (header, &said), Some(0)).unwrap();
    let redeemed = provisions(&process).redeem((link.identity(), number), recipient);
    let Redeemed::To(target) = redeemed else {
        panic!("claimed in vain: {redeemed:?}");
    };
    ended(&process, target);
    link_end::end_link(&process, &link);
}

#[test]
fn nobody_gives_back_a_claim_while_it_is_redeemed() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let (word, number, introducer) = (1, 1, [9; 20]);
    let header = said_by(0);
    let claim = LaneControl::Claim {
        word,
        number,
        introducer,
    };
    let heard = provide::hear_said(&link, &process, (header, &claim.encode()), Some(0));
    heard.unwrap();
    let is_alone = || {
        let link = link.clone();
        let look = move || assert!(link.rights.introductions.redeeming.try_lock().is_none());
        BETWEEN.set(Some(Box::new(look)));
    };
    is_alone();
    assert!(matches!(named(&link, &process, word, 0), Named::NotYet(_)));
    assert!(BETWEEN.take().is_none(), "not looked at");
    is_alone();
    assert!(unclaimed(&link, &process, word).unwrap().is_none());
    assert!(BETWEEN.take().is_none(), "not given back");
    link_end::end_link(&process, &link);
}

/// Rights would become others of this process's own: in circles, or so many one after the other that a thread's stack is too small.
#[test]
fn no_port_moves_to_where_another_has_been_made() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let port = 0x100;
    link.imports().arrive(1 << 31 | 7, port).unwrap();
    // Without the bit of numbers by which a moved port is claimed.
    assert!(redirect::hear_moved(&process, &link, 1 << 31 | 7, (port, 1, [1; 20])).is_err());
    let vine = crate::vine::of(&process).get_or_start(&process).unwrap();
    let own = crate::anonymous().unwrap();
    for port in [&vine.port, own.port()] {
        let handle = exported::export(&link, port, Target::full(port.id, 5)).unwrap();
        let header = said_by(handle);
        let provides = |number, recipient| {
            let number = number | 1 << 40 | u64::from(port.id);
            let said = LaneControl::Provide { number, recipient }.encode();
            provide::hear_said(&link, &process, (header, &said), Some(0))
        };
        let mut own = [9; 20];
        own[..16].copy_from_slice(&process.incarnation);
        assert!(provides(0, own).is_ok() && provides(OF_MOVED, own).is_err());
        let is_vine = port.id == vine.port.id;
        assert_eq!(provides(OF_MOVED, [9; 20]).is_err(), is_vine);
    }
    link_end::end_link(&process, &link);
}

/// A sender that does not wait may try again at once. Each time the rights' exporters would be told of a right, and that it does not
/// come: more than a slow one reads.
#[test]
fn rights_are_not_described_for_a_lane_that_is_full() {
    let (process, exporter, _peer) = link();
    let (_, to, _other_peer) = link();
    for link in [&exporter, &to] {
        links::list(&process).push(Some(link.clone()));
    }
    let waiting = process.defaults.waiting;
    let right = |link: &Arc<Link>, name| {
        link.imports().arrive(name, 0x100).unwrap();
        send::of_handle(&process, link.clone(), 0x100, name, waiting)
    };
    let (given, right) = (right(&exporter, 1 << 31 | 7), right(&to, 1 << 31 | 8));
    let told = || -> Vec<u32> {
        let lanes = exporter.lanes.iter();
        lanes.map(|lane| lane.lock().producer.position()).collect()
    };
    while right.try_send(b"").is_ok() {}
    let before = told();
    for _ in 0..10 {
        let refused = right.with([given.clone().into()]).try_send(b"");
        assert_eq!(refused.unwrap_err().error, SendError::Full);
    }
    assert_eq!(told(), before);
    drop((given, right));
    for link in [&exporter, &to] {
        link_end::end_link(&process, link);
    }
}

/// The exporter's answer to an attenuation: one of its rights, by which the answer is one word, or what it says there instead. Whether
/// the right is confirmed, and the rule for which the link was cut.
fn answered(kind: Kind, bytes: &[u8], parts: &[Part]) -> (bool, Option<Rule>) {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    link.imports().arrive(IS_HANDLE | 7, 0x100).unwrap();
    let waiting = process.defaults.waiting;
    let right = send::of_handle(&process, link.clone(), 0x100, IS_HANDLE | 7, waiting);
    let thin = right.attenuate(1).unwrap();
    let [(index, generation)] = link.returns().in_use()[..] else {
        panic!("one answer is awaited");
    };
    let units: Vec<_> = parts.iter().map(|part| part.to_units().0[0]).collect();
    let outcome = (generation, kind, 0);
    Slot::of(link.calls, index).answer_described(&link.region, outcome, (bytes, &units));
    let is_confirmed = claimed::is_confirmed(&thin);
    // Nothing of it has been taken up.
    assert_eq!(link.imports().port_of(IS_HANDLE | 9), None);
    assert!(link.returns().in_use().is_empty());
    let rule = link.fault().map(|fault| fault.rule);
    assert_eq!(link.is_down(), rule.is_some());
    drop((right, thin));
    link_end::end_link(&process, &link);
    (is_confirmed, rule)
}

/// Rights in such an answer were taken up under the lock of the claim, and claimed in turn, and answers to those claims were taken: a
/// thread ran out of its stack, or waited for a lock of its own.
#[test]
fn an_answer_to_a_claim_is_one_handle_or_none_and_nothing_else() {
    let answer = |handle| ClaimAnswer { handle }.encode();
    let handle = answer(IS_HANDLE | 5);
    assert_eq!(answered(Kind::Message, &handle, &[]), (true, None));
    assert_eq!(answered(Kind::Dropped, &[], &[]), (false, None));
    let part = Part::OfSender {
        handle: IS_HANDLE | 9,
        port: 0x100,
    };
    let long = [&handle[..], &[0; 60]].concat();
    let forged: [(Kind, &[u8], &[Part]); 9] = [
        (Kind::Message, &handle, &[part]),
        (Kind::Message, &[], &[part]),
        (Kind::Dropped, &[], &[part]),
        (Kind::Message, &handle[..3], &[]),
        (Kind::Message, &long, &[]),
        (Kind::Message, &answer(5), &[]),
        (Kind::Dropped, &handle, &[]),
        (Kind::DeadPort, &[], &[]),
        (Kind::MOVED, &handle, &[]),
    ];
    for (kind, bytes, parts) in forged {
        let cut = (false, Some(Rule::Introduction));
        assert_eq!(answered(kind, bytes, parts), cut, "{kind:?} {bytes:?}");
    }
}

/// The badge is revoked when the attenuated right has been exported, and the peer's word for it is not known yet.
#[test]
fn a_right_that_is_revoked_while_it_is_attenuated_is_told_of_by_its_word_too() {
    let (process, link, peer) = link();
    handfast_sys::socket::set_nonblocking(&peer, true).unwrap();
    let receive = crate::anonymous().unwrap();
    let port = receive.port().clone();
    let handle = exported::export(&link, &port, Target::full(port.id, 5)).unwrap();
    links::list(&process).push(Some(link.clone()));
    BETWEEN.set(Some(Box::new(move || receive.revoke(5))));
    let said = LaneControl::Attenuate { word: 77, mask: 1 }.encode();
    provide::hear_said(&link, &process, (said_by(handle), &said), Some(0)).unwrap();
    let Some(Claim::Granted(granted)) = link.introductions().claims.get(77) else {
        panic!("it was granted before");
    };
    let (mut told, mut bytes) = (Vec::new(), [0; 1024]);
    let is_told = handfast_testing::within_patience(|| {
        while let Ok((len_bytes, _)) = handfast_sys::socket::receive(&peer, &mut bytes, 0) {
            let said = ControlMessage::parse(&bytes[..len_bytes]);
            if let Ok(Some(ControlMessage::Revoked { names, .. })) = said {
                told.extend(names.iter());
            }
        }
        told.len() >= 3
    });
    link_end::end_link(&process, &link);
    told.sort_unstable();
    assert!(is_told, "{told:x?}");
    let mut expected = [77, handle, granted];
    expected.sort_unstable();
    assert_eq!(told, expected);
}
