//! The costs that a peer may cause: rights, and wake-ups for nothing.

use crate::common::{self, PATIENCE};
use crate::forger;
use crate::forger::Hand;
use crate::forger::introductions::{claim, provide};
use handfast::error::{Gone, RightError, SendError};
use handfast::{Counters, Options, Quotas, Right, SendRight, Strategy};
use handfast_layout::control::ControlMessage;
use handfast_layout::link::Kind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const RIGHTS: u32 = 50;
const FEW: u32 = 5;
const PROVISIONS: u32 = 10;
const MESSAGES_PER_S: u32 = 2000;

/// A server with quotas, or with less for all but one process: answers calls with what it was sent, and gives new rights.
pub(crate) fn server(name: &str, but: Option<&str>) {
    let quotas = Quotas::new()
        .rights(RIGHTS)
        .provisions(PROVISIONS)
        .control_messages_per_s(MESSAGES_PER_S);
    match but.map(|but| but.parse::<u32>().unwrap()) {
        None => handfast::set_quotas(quotas).unwrap(),
        Some(but) => {
            let of = move |peer: &handfast::Peer| match peer.pid == but {
                true => quotas,
                false => quotas.rights(FEW),
            };
            handfast::set_quotas_by(of).unwrap();
        }
    }
    let port = handfast::bind_with(name, Options::new().strategy(Strategy::Block)).unwrap();
    common::say("ready");
    let mut badge = 0;
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"mint" {
            badge += 1;
            let given = request.reply_with(b"", [port.mint(badge).into()]);
            if let Err(failed) = given {
                common::say(&format!("{:?}", failed.error));
            }
        } else if request.is_call() {
            let bytes = request.bytes().to_vec();
            let _ = request.reply(&bytes);
        }
    }
}

/// Takes as many rights as it can get, and says how many those are.
pub(crate) fn greedy(name: &str) {
    let root = handfast::connect(name).unwrap();
    let mut kept = Vec::new();
    while let Ok(right) = mint(&root) {
        kept.push(right);
    }
    common::say(&format!("got {}", kept.len()));
    common::told();
}

fn start(what: &str) -> (common::Child, String) {
    let name = common::name(what);
    let child = common::start("server with quotas", &[&name]);
    child.expect("ready");
    (child, name)
}

fn mint(root: &SendRight) -> Result<SendRight, SendError> {
    let mut reply = root.call_timeout(b"mint", PATIENCE)?;
    match reply.take_rights().pop() {
        Some(Right::Send(right)) => Ok(right),
        other => panic!("{other:?}"),
    }
}

/// How many rights each peer has, by its process.
fn rights(root: &SendRight) -> Vec<(u64, u64)> {
    let of = |row: &Vec<u64>| {
        let value = |column| Counters::value(row, column);
        (value("peer_pid"), value("rights"))
    };
    let mut rights: Vec<_> = root.counters().unwrap().links.iter().map(of).collect();
    rights.sort_unstable();
    rights
}

/// How often somebody was not listened to: by the control thread, and by ports.
fn muted(root: &SendRight) -> (u64, u64) {
    let counters = root.counters().unwrap();
    let of = |row: &Vec<u64>| Counters::value(row, "muted");
    let links = counters.links.iter().map(of).sum();
    (links, counters.ports.iter().map(|(_, row)| of(row)).sum())
}

#[test]
fn a_peer_gets_as_many_rights_as_it_may_and_others_theirs() {
    let (mut child, name) = start("rights-quota");
    let root = handfast::connect(&name).unwrap();
    // One is the one it has connected with.
    let mut kept: Vec<_> = (1..RIGHTS).map(|_| mint(&root).unwrap()).collect();
    assert_eq!(mint(&root).unwrap_err(), SendError::Gone(Gone::Reply));
    let error = RightError::Exhausted { limit: RIGHTS };
    child.expect(&format!("Right({error:?})"));
    // A right that it asks for itself is dead, and it is told so; a right that it has is good.
    let less = kept[0].attenuate(1).unwrap();
    assert_eq!(
        less.call_timeout(b"x", PATIENCE).unwrap_err(),
        SendError::Gone(Gone::Right)
    );
    assert_eq!(&*kept[0].call_timeout(b"x", PATIENCE).unwrap(), b"x");
    // Another process has its own.
    let mut other = Hand::new(&name, 1);
    let handle = other.welcome.handle;
    assert_eq!(other.call(handle, b"there").1, b"there");
    // Given back, and had again.
    drop((less, kept.pop()));
    let mut again = None;
    assert!(common::within_patience(|| {
        again = mint(&root).ok();
        again.is_some()
    }));
    child.kill();
}

#[test]
fn who_rings_at_the_control_thread_all_the_time_is_heard_so_often_and_others_at_once() {
    let (mut child, name) = start("ring-quota");
    let other = handfast::connect(&name).unwrap();
    assert_eq!(muted(&other), (0, 0));
    let hand = Hand::new(&name, 1);
    rustix::io::ioctl_fionbio(&hand.socket, true).unwrap();
    let begin = Instant::now();
    let (mut said, mut longest) = (0u32, Duration::ZERO);
    let is_over = || begin.elapsed() > Duration::from_secs(1) && muted(&other).0 >= 5;
    while !is_over() && begin.elapsed() < PATIENCE {
        for _ in 0..1000 {
            said += u32::from(hand.say(ControlMessage::Ring { receiver: 0 }));
        }
        let call = Instant::now();
        assert_eq!(&*other.call_timeout(b"there", PATIENCE).unwrap(), b"there");
        longest = longest.max(call.elapsed());
    }
    // The messages that are heard of it in that time, and those that its socket holds.
    let per_s = f64::from(said) / begin.elapsed().as_secs_f64();
    println!("{said} said, {per_s:.0} in a second; a call took {longest:?} at the longest");
    assert!(per_s < f64::from(MESSAGES_PER_S) * 1.5 + 1000.0, "{per_s}");
    assert!(muted(&other).0 >= 5, "{:?}", muted(&other));
    // Its end is heard, nevertheless, and so is what comes through another link.
    drop(hand);
    common::answers(&name);
    child.kill();
}

#[test]
fn who_wakes_a_receiver_all_the_time_costs_it_little() {
    let (mut child, name) = start("bell-quota");
    let other = handfast::connect(&name).unwrap();
    let hand = Hand::new(&name, 1);
    let before = forger::used(child.pid());
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                hand.wake();
            }
        });
        let is_over = || begin.elapsed() > Duration::from_secs(1) && muted(&other).1 > 0;
        while !is_over() && begin.elapsed() < PATIENCE {
            let call = Instant::now();
            let answer = other.call_timeout(b"there", PATIENCE);
            longest = longest.max(call.elapsed());
            assert_eq!(&*answer.unwrap(), b"there");
            // Sleep: the time between two calls of a client.
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, SeqCst);
    });
    let used = forger::used(child.pid()) - before;
    println!(
        "{used:?} of {:?} used; a call took {longest:?} at the longest",
        begin.elapsed()
    );
    assert!(used < begin.elapsed() / 5, "{used:?}");
    assert!(muted(&other).1 > 0, "{:?}", muted(&other));
    drop(hand);
    common::answers(&name);
    child.kill();
}

#[test]
fn each_peer_has_its_own_quota_and_how_much_it_has_of_that_is_in_the_counters() {
    let name = common::name("peer-quota");
    let but = std::process::id();
    let mut child = common::start("server with quotas", &[&name, &but.to_string()]);
    child.expect("ready");
    let root = handfast::connect(&name).unwrap();
    let mut greedy = common::start("greedy", &[&name]);
    greedy.expect(&format!("got {}", FEW - 1));
    let has = |of: u32, count: u32| {
        common::within_patience(|| rights(&root).contains(&(of.into(), count.into())))
    };
    assert!(has(greedy.pid(), FEW), "{:?}", rights(&root));
    let mut kept: Vec<_> = (1..RIGHTS).map(|_| mint(&root).unwrap()).collect();
    assert!(has(but, RIGHTS), "{:?}", rights(&root));
    // Neither the rights that a process gives back nor those that it leaves behind become another's.
    kept.truncate(10);
    assert!(has(but, 11), "{:?}", rights(&root));
    greedy.kill();
    assert!(common::within_patience(
        || rights(&root) == [(but.into(), 11)]
    ));
    child.kill();
}

#[test]
fn a_peer_leaves_as_many_provisions_as_it_may_and_others_theirs() {
    let (mut child, name) = start("provision-quota");
    let [mut introducer, mut other, mut recipient] =
        [1, 2, 3].map(|number| Hand::new(&name, number));
    let one_more = u64::from(PROVISIONS) + 1;
    for number in 1..=one_more {
        introducer.tell(provide(number, &recipient));
    }
    introducer.settle_quietly();
    // The recipient finds that there is nothing.
    recipient.tell(claim(1, one_more, &introducer));
    assert_eq!(recipient.call(1, b"nothing").0, Kind::DeadPort);
    other.tell(provide(1, &recipient));
    other.settle_quietly();
    recipient.tell(claim(2, 1, &other));
    assert_eq!(recipient.call(2, b"of another").1, b"of another");
    // A right that is claimed, or taken back, makes room.
    recipient.tell(claim(3, 1, &introducer));
    assert_eq!(recipient.call(3, b"first").1, b"first");
    assert!(introducer.say(ControlMessage::ProvisionVoid { number: 2 }));
    introducer.settle();
    for number in [20, 21, 22] {
        introducer.tell(provide(number, &recipient));
    }
    introducer.settle_quietly();
    for (number, expected) in [
        (20, Kind::Message),
        (21, Kind::Message),
        (22, Kind::DeadPort),
    ] {
        let word = number as u32;
        recipient.tell(claim(word, number, &introducer));
        assert_eq!(recipient.call(word, b"").0, expected, "{number}");
    }
    child.kill();
}
