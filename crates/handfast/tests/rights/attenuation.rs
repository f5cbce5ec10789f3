//! Rights with fewer permissions than those they are made of, between real processes; and peers that
//! want more.

use crate::common::PATIENCE;
use crate::forger::Hand;
use crate::{common, forger};
use handfast::error::{Gone, Rule, SendError};
use handfast::{Identity, Notice, ReceiveRight, Right, SendRight};
use handfast_layout::control::{ControlMessage, Released};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::{Kind, passed_word};
use handfast_layout::part::Part;
use handfast_testing::forge;
use std::time::Duration;

/// Says what it is told of the right that each call comes through: badge and permissions. Gives rights, takes those
/// of its own back, and revokes.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        match request.bytes() {
            b"mint" => {
                let rights = [
                    port.mint(7).into(),
                    port.mint_with(8, 0b0110).into(),
                    port.mint(9).attenuate(0b11).attenuate(0b10).into(),
                ];
                request.reply_with(b"", rights).unwrap();
            }
            b"own" => {
                let own = request.take_rights().into_iter().map(|right| match right {
                    Right::Own(own) => format!("{} {:04x}", own.badge(), own.permissions()),
                    other => format!("{other:?}"),
                });
                let own = own.collect::<Vec<_>>().join(", ");
                request.reply(own.as_bytes()).unwrap();
            }
            b"revoke" => {
                port.revoke(7);
                request.reply(b"").unwrap();
            }
            _ => answer(request),
        }
    }
}

fn answer(request: handfast::Request) {
    let text = format!("{} {:04x}", request.badge(), request.permissions());
    if request.is_call() {
        request.reply(text.as_bytes()).unwrap();
    }
}

/// Says what a call through the right that came last brings.
pub(crate) fn user(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = None;
    loop {
        let mut request = port.receive().unwrap();
        if let Some(Right::Send(right)) = request.take_rights().pop() {
            kept = Some(right);
        }
        let text = kept.as_ref().map(seen).unwrap_or_default();
        if request.bytes() == b"once" {
            kept = None;
        }
        request.reply(text.as_bytes()).unwrap();
    }
}

/// Takes over a port, and says what it is told of the rights to it.
pub(crate) fn home(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut request = port.receive().unwrap();
    let Some(Right::Receive(moved)) = request.take_rights().pop() else {
        panic!("no port");
    };
    request.reply(b"").unwrap();
    loop {
        answer(moved.receive().unwrap());
    }
}

/// The receiver's view of a right.
fn seen(right: &SendRight) -> String {
    match right.call_timeout(b"seen", PATIENCE) {
        Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
        Err(error) => format!("{error:?}"),
    }
}

fn minted(root: &SendRight) -> [SendRight; 3] {
    let rights = root.call_timeout(b"mint", PATIENCE).unwrap().take_rights();
    let rights: Vec<_> = rights
        .into_iter()
        .map(|right| match right {
            Right::Send(right) => right,
            other => panic!("{other:?}"),
        })
        .collect();
    rights.try_into().unwrap()
}

#[test]
fn permissions_are_taken_away_and_never_come_back() {
    let name = common::name("permissions");
    let mut server = common::start("server", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    assert_eq!(seen(&root), "0 ffff");
    let [all, some, one] = minted(&root);
    assert_eq!(
        [seen(&all), seen(&some), seen(&one)],
        ["7 ffff", "8 0006", "9 0002"]
    );
    // Used at once, also in turn with others, and again attenuated before anybody has looked.
    let less = all.attenuate(0b0111).unwrap();
    let least = less.attenuate(0b1110).unwrap();
    assert_eq!(seen(&least), "7 0006");
    assert_eq!([seen(&all), seen(&less)], ["7 ffff", "7 0007"]);
    let no_more = least.attenuate(u16::MAX).unwrap();
    assert_eq!(
        [seen(&no_more), seen(&some.attenuate(0b1010).unwrap())],
        ["7 0006", "8 0002"]
    );
    assert_eq!(no_more.identity(&least), Identity::Same);
    assert_eq!(less.identity(&least), Identity::Different);
    // By another thread, whose lane is another.
    let fresh = all.attenuate(0b1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(seen(&fresh), "7 0001"));
    });
    // Home, and to a third process.
    let rights = [&all, &less, &least, &fresh].map(|right| Right::from(right.clone()));
    let own = root.with(rights).call_timeout(b"own", PATIENCE).unwrap();
    assert_eq!(&*own, b"7 ffff, 7 0007, 7 0006, 7 0001");
    let other = common::name("permissions-user");
    let mut user = common::start("user", &[&other]);
    user.expect("ready");
    let to = handfast::connect(&other).unwrap();
    for _ in 0..3 {
        let passed = to.with([less.clone().into()]).call_timeout(b"", PATIENCE);
        assert_eq!(&*passed.unwrap(), b"7 0007");
    }
    // Revoked by badge, whatever the permissions.
    root.call_timeout(b"revoke", PATIENCE).unwrap();
    for right in [&all, &less, &least, &fresh, &no_more] {
        assert_eq!(seen(right), "Gone(Right)");
    }
    assert_eq!(seen(&one), "9 0002");
    let refused = less.attenuate(1).unwrap_err();
    assert_eq!(refused, SendError::Gone(Gone::Right));
    user.kill();
    server.kill();
    assert!(common::within_patience(|| one
        .attenuate(1)
        .is_err_and(|error| error == SendError::Gone(Gone::Process))));
}

#[test]
fn thousands_of_them_are_had_at_once_and_each_ends() {
    let name = common::name("many-permissions");
    let mut server = common::start("server", &[&name]);
    server.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let [all, ..] = minted(&root);
    let mut kept = Vec::new();
    for mask in 0..2000 {
        let less = loop {
            match all.attenuate(mask) {
                Ok(less) => break less,
                Err(error) => assert_eq!(error, SendError::Full),
            }
        };
        kept.push(less);
    }
    for (less, mask) in kept.iter().zip(0..).step_by(97) {
        assert_eq!(seen(less), format!("7 {mask:04x}"));
    }
    drop(kept);
    assert_eq!(seen(&all), "7 ffff");
    server.kill();
}

#[test]
fn attenuated_rights_count_as_senders_until_the_last_has_gone() {
    let name = common::name("counted");
    let port = handfast::anonymous().unwrap();
    let mut user = common::start("user", &[&name]);
    user.expect("ready");
    let to = handfast::connect(&name).unwrap();
    let right = port.mint_with(7, 0b11);
    port.notify_no_senders_of(7);
    let less = right.attenuate(0b01);
    drop(right);
    let call = to.with([less.into()]).try_call(b"once").unwrap();
    let request = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!((request.badge(), request.permissions()), (7, 1));
    assert!(port.try_receive().is_err());
    answer(request);
    assert_eq!(&*call.wait().unwrap(), b"7 0001");
    no_senders_of(&port, 7);
    user.kill();
}

#[test]
fn a_port_that_moves_gives_nobody_more() {
    let [name, new] = ["mover", "new-home"].map(common::name);
    let port = handfast::anonymous().unwrap();
    let mut user = common::start("user", &[&name]);
    user.expect("ready");
    let mut home = common::start("home", &[&new]);
    home.expect("ready");
    let to = handfast::connect(&name).unwrap();
    let to_home = handfast::connect(&new).unwrap();
    let call = to.with([port.mint(7).attenuate(1).into()]).try_call(b"");
    let call = call.unwrap();
    answer(port.receive_timeout(PATIENCE).unwrap());
    assert_eq!(&*call.wait().unwrap(), b"7 0001");
    // One stays here.
    let own = port.mint_with(8, 0b10);
    let moved = to_home.with([port.into()]).call_timeout(b"", PATIENCE);
    moved.unwrap();
    for _ in 0..5 {
        assert_eq!(&*to.call_timeout(b"", PATIENCE).unwrap(), b"7 0001");
    }
    let last = to.with([own.into()]).call_timeout(b"", PATIENCE);
    assert_eq!(&*last.unwrap(), b"8 0002");
    user.kill();
    home.kill();
}

fn no_senders_of(port: &ReceiveRight, badge: u64) {
    let told = port.receive_timeout(PATIENCE).unwrap().notice();
    assert_eq!(told, Some(Notice::NoSendersOf(badge)));
    assert!(port.receive_timeout(Duration::from_millis(20)).is_err());
}

#[test]
fn forged_attenuations_are_refused_by_name_and_give_nothing() {
    let (mut honest, name) = forger::start_honest("attenuated");
    let words = |hand: &mut Hand, by: u32, word: u32, mask: u16| {
        let said = LaneControl::Attenuate { word, mask }.encode();
        hand.post(Kind::CONTROL, (by, passed_word(0, 0), 1), (&said, &[]));
    };
    // The peer's own handle: it is answered, and the word is good.
    let mut hand = Hand::new(&name, 1);
    let by = hand.welcome.handle;
    words(&mut hand, by, 5, 0);
    assert_eq!(hand.call(5, b"by a word").1, b"by a word");
    // The same word again.
    words(&mut hand, by, 5, u16::MAX);
    forger::expect_cut(&honest, Rule::Introduction, "a word that is in use");
    hand.expect_end();
    // A handle that it has not got; nothing; a word nobody has claimed, which is waited for.
    for (by, what) in [
        (by + 1, "another's handle"),
        (0, "nothing"),
        (77, "no claim"),
    ] {
        let mut hand = Hand::new(&name, 2);
        words(&mut hand, by, 6, 1);
        forger::expect_cut(&honest, Rule::Introduction, what);
        hand.expect_end();
    }
    // More bits than there are.
    let mut hand = Hand::new(&name, 3);
    let said = LaneControl::Attenuate { word: 6, mask: 1 }.encode();
    let said = forge::patched(&said, 10, &[1]);
    let by = hand.welcome.handle;
    hand.post(Kind::CONTROL, (by, passed_word(0, 0), 1), (&said, &[]));
    forger::expect_cut(&honest, Rule::Introduction, "a mask of 17 bits");
    hand.expect_end();
    // One that is given back is gone.
    let mut hand = Hand::new(&name, 4);
    let by = hand.welcome.handle;
    words(&mut hand, by, 5, 1);
    hand.settle();
    let rights = [Released { name: 5, count: 1 }];
    assert!(hand.say(ControlMessage::Release {
        rights: (&rights).into(),
    }));
    hand.settle();
    hand.send(b"", &[Part::OfReceiver { handle: 5 }]);
    forger::expect_cut(&honest, Rule::RightHandle, "a word that was given back");
    hand.expect_end();
    forger::serves(&name);
    honest.kill();
}

/// Each takes a return slot of the link until its answer is looked at.
#[test]
fn answered_attenuations_leave_room_for_calls_that_are_passed_on() {
    const RETURNS: usize = 256;
    let node = || handfast::Node::builder().start().unwrap();
    let (server, middle, caller) = (node(), node(), node());
    let (there, here) = (common::name("answered"), common::name("answered-middle"));
    let at_server = server.bind(&there).unwrap();
    std::thread::spawn(move || {
        let mut request = at_server.receive();
        while let Ok(asked) = request {
            request = at_server.reply_and_receive(asked, b"answered");
        }
    });
    let to_server = middle.connect(&there).unwrap();
    let attenuated = |_| {
        let right = to_server.attenuate(1).unwrap();
        // Behind it in the lane.
        let _ = to_server.call(b"").unwrap();
        right
    };
    let kept: Vec<_> = (0..RETURNS).map(attenuated).collect();
    let at_middle = middle.bind(&here).unwrap();
    let to_middle = caller.connect(&here).unwrap();
    let called = std::thread::spawn(move || to_middle.call(b"").map(|answer| answer.to_vec()));
    let passed = at_middle.receive().unwrap().forward(&to_server, b"");
    assert!(passed.is_ok(), "{passed:?}");
    assert_eq!(called.join().unwrap(), Ok(b"answered".to_vec()));
    drop(kept);
    [server, middle, caller]
        .iter()
        .for_each(handfast::Node::shutdown);
}
