//! What a peer may cost: rights, and wake-ups for nothing.

mod common;
mod forger;

use common::PATIENCE;
use forger::Hand;
use handfast::error::{Gone, RightError, SendError};
use handfast::{Counters, Options, Quotas, Right, SendRight, Strategy};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const RIGHTS: u32 = 50;
const MESSAGES_PER_S: u32 = 2000;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "server" => server(arguments[0]),
        _ => unreachable!(),
    });
}

/// A server with quotas: answers calls with what it was sent, and gives new rights.
fn server(name: &str) {
    let quotas = Quotas::new()
        .rights(RIGHTS)
        .control_messages_per_s(MESSAGES_PER_S);
    handfast::set_quotas(quotas).unwrap();
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

fn start(what: &str) -> (common::Child, String) {
    let name = common::name(what);
    let child = common::start("server", &[&name]);
    child.expect("ready");
    (child, name)
}

fn mint(root: &SendRight) -> Result<SendRight, SendError> {
    let mut reply = root.call_until(b"mint", PATIENCE)?;
    match reply.take_rights().pop() {
        Some(Right::Send(right)) => Ok(right),
        other => panic!("{other:?}"),
    }
}

/// How often somebody was not listened to: by the keeper, and by ports.
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
    // What it asks for itself is dead, and it is told so; what it has is good.
    let less = kept[0].attenuate(1).unwrap();
    assert_eq!(
        less.call_until(b"x", PATIENCE).unwrap_err(),
        SendError::Gone(Gone::Right)
    );
    assert_eq!(&*kept[0].call_until(b"x", PATIENCE).unwrap(), b"x");
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
fn who_rings_at_the_keeper_all_the_time_is_heard_so_often_and_others_at_once() {
    let (mut child, name) = start("ring-quota");
    let other = handfast::connect(&name).unwrap();
    assert_eq!(muted(&other), (0, 0));
    let hand = Hand::new(&name, 1);
    rustix::io::ioctl_fionbio(&hand.socket, true).unwrap();
    let begin = Instant::now();
    let (mut said, mut longest) = (0u32, Duration::ZERO);
    while begin.elapsed() < Duration::from_secs(1) {
        for _ in 0..1000 {
            said += u32::from(hand.say(&[1, 0]));
        }
        let call = Instant::now();
        assert_eq!(&*other.call_until(b"there", PATIENCE).unwrap(), b"there");
        longest = longest.max(call.elapsed());
    }
    // What is heard of it in that time, and what its socket holds.
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
        while begin.elapsed() < Duration::from_secs(1) {
            let call = Instant::now();
            let answer = other.call_until(b"there", PATIENCE);
            longest = longest.max(call.elapsed());
            assert_eq!(&*answer.unwrap(), b"there");
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, SeqCst);
    });
    let used = forger::used(child.pid()) - before;
    println!(
        "{used:?} of {:?} used; a call took {longest:?} at the longest",
        begin.elapsed()
    );
    assert!(used < Duration::from_millis(200), "{used:?}");
    assert!(muted(&other).1 > 0, "{:?}", muted(&other));
    drop(hand);
    common::answers(&name);
    child.kill();
}
