//! Claims of rights that nobody has provided: they hold up their own lane alone, a receiver that waits for them sleeps,
//! and a flood of them ends.

use crate::common::within_at_best;
use crate::forger::introductions::{claim, introduces, provide, third};
use crate::forger::{Hand, OWN_SLOT, expect_cut, serves, start_honest};
use crate::{common, forger};
use handfast::Request;
use handfast::error::Rule;
use handfast_layout::link::Kind;
use handfast_layout::part::Part;
use handfast_sys::poll::{Poll, Trigger};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers calls with what they say, at a port in a wait set.
pub(crate) fn set(name: &str) {
    let mut set = handfast::WaitSet::new().unwrap();
    set.add(handfast::bind(name).unwrap());
    common::say("ready");
    loop {
        if let handfast::Event::Message(_, request) = set.receive().unwrap() {
            let bytes = request.bytes().to_vec();
            let _ = request.reply(&bytes);
        }
    }
}

fn answer(request: Request) {
    let bytes = request.bytes().to_vec();
    let _ = request.reply(&bytes);
}

/// Answers calls with what they say, in two tasks and no thread, or with one besides.
pub(crate) fn tasks(name: &str, has_thread: bool) {
    let port = Arc::new(handfast::bind(name).unwrap());
    let in_thread = port.clone();
    has_thread.then(|| {
        std::thread::spawn(move || {
            loop {
                answer(in_thread.receive().unwrap());
            }
        })
    });
    common::say("ready");
    let receiving = || async {
        while let Ok(request) = port.receive_async().await {
            answer(request);
        }
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let both = async { tokio::join!(receiving(), receiving()) };
    let _ = runtime.build().unwrap().block_on(both);
}

/// Answers calls with what they say, in an event loop.
pub(crate) fn event_loop(name: &str) {
    let port = handfast::bind(name).unwrap();
    let poll = Poll::new().unwrap();
    poll.add(port.readiness().unwrap(), 0, Trigger::Edge)
        .unwrap();
    common::say("ready");
    loop {
        poll.wait(None, &mut Vec::new());
        while let Ok(request) = port.try_receive() {
            answer(request);
        }
    }
}

/// Two threads receive, and do this with what comes.
pub(crate) fn by_two_threads(name: &str, handle: impl Fn(Request) + Sync) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    handle(port.receive().unwrap());
                }
            });
        }
    });
}

/// Answers calls with what they say, by two threads; each takes long over what is `slow`.
pub(crate) fn threads_that_receive(name: &str) {
    by_two_threads(name, |request| {
        let bytes = request.bytes().to_vec();
        if bytes == b"slow" {
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_secs(4));
        }
        let _ = request.reply(&bytes);
    });
}

/// Ports that `many` has.
const PORTS: usize = 10;

/// Answers calls at so many ports.
pub(crate) fn many(name: &str) {
    let ports = (0..PORTS).map(|number| handfast::bind(&format!("{name}-{number}")).unwrap());
    let ports: Vec<_> = ports.collect();
    common::say("ready");
    std::thread::scope(|scope| {
        for port in &ports {
            scope.spawn(move || {
                loop {
                    port.receive().unwrap().reply(b"here").unwrap();
                }
            });
        }
    });
}

/// Has a link with `many`; takes what it is sent, and when it is told to, calls each of those ports.
pub(crate) fn caller(name: &str, many: &str) {
    let port = handfast::bind(name).unwrap();
    let _link = handfast::connect(&format!("{many}-0")).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        if !request.is_call() {
            continue;
        }
        if request.bytes() == b"call all" {
            for number in 0..PORTS {
                let right = handfast::connect(&format!("{many}-{number}")).unwrap();
                let answer = right.call(b"");
                common::say(&format!("{:?}", answer.map(|answer| answer.to_vec())));
            }
        }
        let bytes = request.bytes().to_vec();
        request.reply(&bytes).unwrap();
    }
}

#[test]
fn a_flood_of_claims_ends_at_the_limit_with_the_link() {
    let _alone = common::alone();
    let (mut server, name) = start_honest("flood-claims");
    let before = common::own_kib(server.pid());
    let mut forger = Hand::new(&name, 10);
    for word in 1..=1 << 20 {
        forger.tell(claim(word, word.into(), &forger));
    }
    forger.settle();
    let grown = common::own_kib(server.pid()).saturating_sub(before);
    println!("a million claims of nothing: {grown} KiB");
    assert!(grown < 300_000, "{grown} KiB");
    assert_eq!(server.said(), None);
    introduces(&name, (1, 2), 1);
    forger.tell(claim(1 << 30, 1, &forger));
    expect_cut(&server, Rule::Introduction, "one more");
    introduces(&name, (1, 2), 1);
    serves(&name);
    server.finish();
}

#[test]
fn claims_of_nothing_hold_up_their_own_lane_alone() {
    let (mut server, name) = start_honest("held-up");
    let honest = handfast::connect(&name).unwrap();
    let mut forger = Hand::new(&name, 1);
    let mut word = 0;
    assert!(within_at_best(Duration::from_millis(500), || {
        let start = (Instant::now(), forger::used(server.pid()));
        for _ in 0..2 {
            word += 1;
            forger.tell(claim(word, word.into(), &forger));
            forger.post(Kind::Message, (word, 0, 0), (b"", &[]));
        }
        let (mut calls, mut longest) = (0, Duration::ZERO);
        while start.0.elapsed() < Duration::from_millis(1500) {
            let start = Instant::now();
            assert_eq!(&*honest.call(b"others").unwrap(), b"others");
            longest = longest.max(start.elapsed());
            calls += 1;
        }
        println!("meanwhile {calls} calls, the longest {longest:?}");
        forger.settle();
        let used = forger::used(server.pid()) - start.1;
        println!("in {:?}: {used:?} of a processor", start.0.elapsed());
        longest
    }));
    // And then it is over.
    let idle = forger::used(server.pid());
    // Sleep: the time whose use of a processor is measured.
    std::thread::sleep(Duration::from_millis(300));
    assert!(forger::used(server.pid()) - idle < Duration::from_millis(100));
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn who_introduces_rights_to_any_port_leaves_lanes_to_others() {
    let names = ["lanes-many", "lanes-caller"].map(common::name);
    let exporter = common::start("many", &[&names[0]]);
    exporter.expect("ready");
    let caller = common::start("caller", &[&names[1], &names[0]]);
    caller.expect("ready");
    let of = Hand::new(&format!("{}-0", names[0]), 3).peer;
    for introducer in [1, 2] {
        let mut hand = Hand::new(&names[1], introducer);
        for receiver in 20..60 {
            let mut part = third(of);
            if let Part::Third { port, number, .. } = &mut part {
                (*port, *number) = (0x100 | receiver, receiver.into());
            }
            hand.send(b"", &[part]);
        }
        hand.settle();
    }
    let mut hand = Hand::new(&names[1], 4);
    hand.send(b"", &[]);
    let handle = hand.welcome.handle;
    hand.post(Kind::Call, (handle, 0, 1), (b"call all", &[]));
    for _ in 0..PORTS {
        caller.expect(&format!("Ok({:?})", b"here"));
    }
}

#[test]
fn a_receiver_sleeps_while_messages_wait_for_what_nobody_has_provided() {
    let _alone = common::alone();
    let (mut server, name) = start_honest("asleep");
    let mut introducer = Hand::new(&name, 1);
    let mut recipient = Hand::new(&name, 2);
    let (start, used) = (Instant::now(), forger::used(server.pid()));
    let mut word = 0;
    // As soon as one is over, the next; and from new ones who name what they never claim.
    for round in 10..14 {
        word += 1;
        recipient.tell(claim(word, word.into(), &introducer));
        let handle = recipient.welcome.handle;
        let mut hand = Hand::new(&name, round);
        hand.post(Kind::Message, (5, 0, 0), (b"", &[]));
        expect_cut(&server, Rule::RightHandle, "never claimed");
        // Another message to the lane that waits wakes nobody for long.
        recipient.post(Kind::Message, (word, 0, 0), (b"", &[]));
        recipient.post(Kind::Message, (handle, 0, 0), (b"", &[]));
        recipient.settle();
        assert_eq!(recipient.outcome(OWN_SLOT, 1).unwrap().0, Kind::Dropped);
    }
    let used = forger::used(server.pid()) - used;
    let took = start.elapsed();
    println!("{used:?} of a processor in {took:?}");
    let limits = Duration::from_secs(4)..Duration::from_secs(20);
    assert!(limits.contains(&took), "{took:?}");
    assert!(used < took / 8, "{used:?} of a processor in {took:?}");
    // A right that is provided after all wakes it.
    let mut word = 100;
    assert!(within_at_best(SOON, || {
        word += 1;
        provided_later((&mut introducer, &mut recipient), word, || {
            // Sleep: the receiver sleeps by then, or hears both at once.
            std::thread::sleep(Duration::from_millis(100));
        })
    }));
    assert_eq!(server.said(), None);
    server.finish();
}

/// Sooner than what nobody provides is given up.
const SOON: Duration = Duration::from_millis(800);

/// The right that a call waits for is provided after the call, and after something else: how long it takes; for ever where it was
/// provided too late, as may be on a busy machine.
fn provided_later(
    (introducer, recipient): (&mut Hand, &mut Hand),
    word: u32,
    meanwhile: impl FnOnce(),
) -> Duration {
    let start = Instant::now();
    recipient.tell(claim(word, word.into(), introducer));
    recipient.post(Kind::Call, (word, 0, word), (b"waits", &[]));
    meanwhile();
    introducer.tell(provide(word.into(), recipient));
    match recipient.outcome(0, word).unwrap() {
        (Kind::Message, bytes) => assert_eq!(bytes, b"waits"),
        (kind, _) => {
            assert_eq!(kind, Kind::DeadPort);
            return Duration::MAX;
        }
    }
    start.elapsed()
}

/// The right that a call waits for is never provided, and something else is done meanwhile.
fn never_provided(
    (introducer, recipient): (&mut Hand, &mut Hand),
    word: u32,
    meanwhile: impl FnOnce(),
) {
    let start = Instant::now();
    recipient.tell(claim(word, word.into(), introducer));
    recipient.post(Kind::Call, (word, 0, word), (b"waits", &[]));
    meanwhile();
    assert_eq!(recipient.outcome(0, word).unwrap().0, Kind::DeadPort);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn who_receives_in_a_set_or_by_several_threads_sleeps_and_is_woken_as_well() {
    let _alone = common::alone();
    for role in ["set", "threads"] {
        let name = common::name(&format!("asleep-{role}"));
        let server = common::start(role, &[&name]);
        server.expect("ready");
        let mut introducer = Hand::new(&name, 1);
        let mut recipient = Hand::new(&name, 2);
        let (start, used) = (Instant::now(), forger::used(server.pid()));
        // The thread that took up what waits is at work on something else then.
        let other = |what: &[u8]| {
            let other = handfast::connect(&name).unwrap();
            if role == "threads" {
                other.send(what).unwrap();
            }
        };
        never_provided((&mut introducer, &mut recipient), 1, || other(b"slow"));
        let mut word = 1;
        assert!(within_at_best(SOON, || {
            word += 1;
            let pair = (&mut introducer, &mut recipient);
            provided_later(pair, word, || other(b"fast"))
        }));
        let used = forger::used(server.pid()) - used;
        let most = Duration::from_millis(200) + start.elapsed() / 10;
        assert!(used < most, "{role}: {used:?}");
    }
}

#[test]
fn tasks_and_event_loops_give_up_in_time_what_is_never_claimed_or_provided() {
    let _alone = common::alone();
    for role in ["tasks", "tasks and a thread", "loop"] {
        let name = common::name(&format!("gives-up-{}", &role[..4]));
        let server = common::start(role, &[&name]);
        server.expect("ready");
        let mut introducer = Hand::new(&name, 1);
        let mut recipient = Hand::new(&name, 2);
        let (begin, used) = (Instant::now(), forger::used(server.pid()));
        let mut word = 0;
        for _ in 0..2 {
            word += 1;
            never_provided((&mut introducer, &mut recipient), word, || {});
            assert!(within_at_best(SOON, || {
                word += 1;
                provided_later((&mut introducer, &mut recipient), word, || {
                    // Sleep: the receiver sleeps by then, or hears both at once.
                    std::thread::sleep(Duration::from_millis(100));
                })
            }));
        }
        let start = Instant::now();
        let mut hand = Hand::new(&name, 3);
        hand.post(Kind::Message, (5, 0, 0), (b"", &[]));
        hand.expect_end();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(2), "{role}: {took:?}");
        serves(&name);
        let used = forger::used(server.pid()) - used;
        let most = Duration::from_millis(200) + begin.elapsed() / 10;
        assert!(used < most, "{role}: {used:?}");
    }
}
