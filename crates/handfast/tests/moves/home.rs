//! Rights that third processes answer with, and that go home: answers that are relayed, to callers that do not
//! receive meanwhile.

use crate::common;
use handfast::{Notice, OwnRight, ReceiveRight, Right, SendRight};
use std::time::{Duration, Instant};

/// A forwarder that has a link with `arguments[2]` beside.
pub(crate) fn middle(arguments: &[&str]) {
    let _link = handfast::connect(arguments[2]).unwrap();
    common::middle(arguments[0], arguments[1]);
}

/// Answers `give` with a right to the port `of`, and every other call with what it says.
pub(crate) fn holder(name: &str, of: &str) {
    let port = handfast::bind(name).unwrap();
    let held = handfast::connect(of).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        let bytes = request.bytes().to_vec();
        let rights: &[SendRight] = match bytes.as_slice() {
            b"give" => core::slice::from_ref(&held),
            b"twice" => &[held.clone(), held.clone()],
            _ => &[],
        };
        let rights = rights.iter().cloned().map(Right::from);
        let _ = request.reply_with(&bytes, rights);
    }
}

/// Whose port the holder has a right to, and calls of whom it answers through so many in the middle.
struct Far {
    mine: ReceiveRight,
    far: SendRight,
    holder: common::Child,
    middles: Vec<common::Child>,
}

impl Far {
    fn new(what: &str, length: usize) -> Self {
        let own = common::name(&format!("{what}-own"));
        let mine = handfast::bind(&own).unwrap();
        let mut name = common::name(&format!("{what}-holder"));
        let holder = common::start("holder", &[&name, &own]);
        holder.expect("ready");
        let mut middles = Vec::new();
        for place in 0..length {
            let next = common::name(&format!("{what}-middle-{place}"));
            let middle = common::start("middle", &[&next, &name, &own]);
            middle.expect("ready");
            middles.push(middle);
            name = next;
        }
        let far = handfast::connect(&name).unwrap();
        Self {
            mine,
            far,
            holder,
            middles,
        }
    }

    fn give(&self, ask: &str) -> Vec<OwnRight> {
        let answer = self.far.call_timeout(ask.as_bytes(), common::PATIENCE);
        let rights = answer.unwrap().take_rights();
        let own = |right| match right {
            Right::Own(own) => own,
            other => panic!("{other:?}"),
        };
        rights.into_iter().map(own).collect()
    }
}

#[test]
fn a_right_in_a_relayed_answer_comes_home_to_a_caller_that_does_not_receive() {
    for length in 1..=3 {
        let far = Far::new(&format!("relayed-{length}"), length);
        // The first call that goes a new way is answered by the vine.
        let rights = far.give("give");
        assert_eq!(rights.len(), 1);
        assert!(rights[0].is_to(&far.mine) && rights[0].badge() == 0);
        for _ in 0..50 {
            assert!(far.give("twice").iter().all(|right| right.is_to(&far.mine)));
        }
    }
}

#[test]
fn a_relayed_answer_holds_nobody_else_up() {
    let far = Far::new("held-up", 1);
    let own = common::name("held-up-own");
    let other = common::name("held-up-other");
    let (mut took, mut pace) = (Vec::new(), common::Pace::new());
    // Answers of others go by the same control thread.
    for round in 0..20 {
        let again = format!("{other}-{round}");
        let holder = common::start("holder", &[&again, &own]);
        holder.expect("ready");
        let middle = common::start("middle", &[&format!("{again}-m"), &again, &own]);
        middle.expect("ready");
        let right = handfast::connect(&format!("{again}-m")).unwrap();
        let start = Instant::now();
        let mut answer = right.call_timeout(b"give", common::PATIENCE).unwrap();
        took.push(start.elapsed());
        assert!(matches!(answer.take_rights()[..], [Right::Own(_)]));
        pace.look();
    }
    let (middle, _, longest) = common::spread(&mut took);
    let limit = pace.allows(Duration::from_millis(90));
    println!("{middle:?}, {longest:?} at the longest");
    assert!(middle < limit, "{middle:?}, {limit:?}");
    drop(far);
}

#[test]
fn a_right_comes_home_while_another_thread_polls_its_port() {
    let far = Far::new("polled", 1);
    let (mine, far) = (&far.mine, &far);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            mine.set_options(handfast::Options::new().strategy(handfast::Strategy::Spin));
            let request = mine.receive().unwrap();
            assert_eq!(request.bytes(), b"enough");
        });
        for _ in 0..50 {
            assert!(far.give("give")[0].is_to(&far.mine));
        }
        let own = common::name("polled-own");
        let right = handfast::connect(&own).unwrap();
        right.send(b"enough").unwrap();
    });
}

#[test]
fn a_right_that_came_home_counts_until_it_is_dropped() {
    let mut far = Far::new("counts", 2);
    let rights = far.give("give");
    far.mine.notify_no_senders();
    far.holder.kill();
    far.middles.iter_mut().for_each(common::Child::kill);
    // A right that the holder provided and nobody asked for is told of when this receives, and ends.
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        assert!(far.mine.receive_timeout(Duration::from_millis(20)).is_err());
    }
    drop(rights);
    let request = far.mine.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(request.notice(), Some(Notice::NoSenders));
}
