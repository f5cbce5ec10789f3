//! Send-once rights: each brings one message, or one notice that there will be none.

use crate::common::{self, Child};
use handfast::error::{Gone, ReplyError, RightError, SendError};
use handfast::{Notice, OwnRight, ReceiveRight, Right, SendOnceRight, SendRight};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Keeps send-once rights, and does with the last one what it is told. `take` takes a port, and says what is received there.
pub(crate) fn keeper(name: &str) {
    common::say_cuts();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let (mut kept, mut kept_ports) = (Vec::new(), Vec::new());
    loop {
        let mut request = port.receive().unwrap();
        let order = String::from_utf8(request.bytes().to_vec()).unwrap();
        let rights = request.take_rights();
        let (order, about) = order.split_once(' ').unwrap_or((&order, ""));
        let mut back = None;
        match order {
            "keep" => kept.extend(rights.into_iter().map(once)),
            "take" => {
                let Some(Right::Receive(port)) = rights.into_iter().next() else {
                    panic!("no port came");
                };
                std::thread::spawn(move || say_all(&port));
            }
            "hand" => {
                // To another, before anything is received from it.
                let to = handfast::connect(about).unwrap();
                let _ = to.with(rights).call(b"take").unwrap();
            }
            "idle" => kept_ports.extend(rights),
            "look" => {
                let Some(Right::Receive(port)) = kept_ports.pop() else {
                    panic!("no port is kept");
                };
                std::thread::spawn(move || say_all(&port));
            }
            "make" => {
                let made = handfast::anonymous().unwrap();
                let right = made.mint_once(0).unwrap();
                let rights = (1..4).map(|badge| made.mint_once(badge).unwrap().into());
                request.reply_with(b"", rights).unwrap();
                let to = handfast::connect(about).unwrap();
                let _ = to.with([made.into()]).call(b"take").unwrap();
                right.send(b"").unwrap();
                continue;
            }
            "send" => {
                // Its introducer may have died before the port's process knew of the right, which brings its notice.
                if let Some(right) = kept.pop()
                    && let Err(failed) = right.send(about.as_bytes())
                {
                    let is_gone =
                        matches!(failed.error, SendError::Gone(Gone::Right | Gone::Process));
                    assert!(is_gone, "{failed:?}");
                }
            }
            "drop" => drop(kept.pop()),
            "end" => kept.clear(),
            "back" => back = kept.pop().map(Right::from),
            "pass" => {
                if let Some(right) = kept.pop()
                    && let Ok(to) = handfast::connect(about)
                {
                    let _ = to.with([right.into()]).call(b"keep");
                }
            }
            other => panic!("{other}"),
        }
        if let Err(failed) = request.reply_with(b"", back) {
            // The right's process has not said yet what it is: it stays, and the caller has no answer.
            let is_early = matches!(failed.error, ReplyError::Right(RightError::Unsettled));
            assert!(is_early, "{failed:?}");
            kept.extend(failed.rights.into_iter().map(once));
        }
    }
}

fn once(right: Right) -> SendOnceRight {
    match right {
        Right::SendOnce(right) => right,
        other => panic!("{other:?}"),
    }
}

/// Says what comes: `message BADGE` or `unused BADGE`.
fn say_all(port: &ReceiveRight) {
    while let Ok(request) = port.receive() {
        let (outcome, badge) = outcome(&request);
        common::say(&format!("{outcome} {badge}"));
    }
}

fn outcome(request: &handfast::Request) -> (&'static str, u64) {
    match request.notice() {
        Some(Notice::SendOnceUnused(badge)) => ("unused", badge),
        None if request.is_send_once() => ("message", request.badge()),
        other => panic!("{other:?} at {}", request.badge()),
    }
}

struct Keeper {
    child: Child,
    name: String,
    port: SendRight,
}

fn keepers(count: usize) -> Vec<Keeper> {
    static KEEPERS: AtomicUsize = AtomicUsize::new(0);
    let keepers = (0..count).map(|_| {
        let name = common::name(&format!("once-{}", KEEPERS.fetch_add(1, SeqCst)));
        let child = common::start("keeper of send-once rights", &[&name]);
        child.expect("ready");
        let port = handfast::connect(&name).unwrap();
        Keeper { child, name, port }
    });
    keepers.collect()
}

impl Keeper {
    fn give(&self, right: SendOnceRight) {
        let _ = self.port.with([right.into()]).call(b"keep").unwrap();
    }

    fn told(&self, order: &str) -> Vec<Right> {
        self.port.call(order.as_bytes()).unwrap().take_rights()
    }
}

fn next(port: &ReceiveRight) -> (&'static str, u64) {
    outcome(&port.receive().unwrap())
}

fn nothing_comes(port: &ReceiveRight) {
    let none = port.receive_timeout(Duration::from_millis(100));
    assert!(none.is_err(), "{none:?}");
}

#[test]
fn each_brings_one_message_or_one_notice_and_is_no_sender() {
    let port = handfast::anonymous().unwrap();
    let sender = port.mint(1);
    port.notify_no_senders();
    let mut rights: Vec<_> = (2..6).map(|badge| port.mint_once(badge).unwrap()).collect();
    drop(sender);
    assert_eq!(
        port.receive().unwrap().notice(),
        Some(Notice::NoSenders),
        "they do not count"
    );
    let mut others = rights.split_off(2);
    for right in rights {
        right.send(b"one").unwrap();
    }
    assert_eq!((next(&port), next(&port)), (("message", 2), ("message", 3)));
    drop(others.pop());
    assert_eq!(next(&port), ("unused", 5));
    // To itself, in a message: also one that is not taken out.
    let other = handfast::anonymous().unwrap();
    let to = other.mint(0).connect().unwrap();
    to.with([others.remove(0).into()]).send(b"").unwrap();
    let mut request = other.receive().unwrap();
    let right = once(request.take_rights().remove(0));
    to.with([right.into()]).send(b"").unwrap();
    drop(other.receive().unwrap());
    assert_eq!(next(&port), ("unused", 4));
    nothing_comes(&port);
}

#[test]
fn a_right_that_could_not_be_used_comes_back() {
    let port = handfast::anonymous().unwrap();
    let right = port.mint_once(1).unwrap();
    let loan = port.mint_once(2).unwrap();
    let other = handfast::Node::builder().start().unwrap();
    let foreign = other.anonymous().unwrap();
    let failed = right
        .send_with(b"", [loan.into(), foreign.mint(0).into()])
        .unwrap_err();
    assert!(matches!(failed.error, SendError::Right(_)), "{failed:?}");
    let loan = once(failed.rights.into_iter().next().unwrap());
    failed.right.send_with(b"", [loan.into()]).unwrap();
    let mut request = port.receive().unwrap();
    assert_eq!(outcome(&request), ("message", 1));
    once(request.take_rights().remove(0)).send(b"").unwrap();
    assert_eq!(next(&port), ("message", 2));
    let late = port.mint_once(3).unwrap();
    drop(port);
    let failed = late.send(b"").unwrap_err();
    assert!(
        matches!(failed.error, SendError::Gone(Gone::Port | Gone::Right)),
        "{failed:?}"
    );
    other.shutdown();
}

#[test]
fn it_goes_through_three_processes_and_home_and_dies_with_its_holder() {
    let port = handfast::anonymous().unwrap();
    let mut keepers = keepers(3);
    let names: Vec<_> = keepers.iter().map(|keeper| keeper.name.clone()).collect();
    let pass = |from: &Keeper, to: &str| drop(from.told(&format!("pass {to}")));
    for round in 0..20 {
        keepers[0].give(port.mint_once(round).unwrap());
        pass(&keepers[0], &names[1]);
        pass(&keepers[1], &names[2]);
        keepers[2].told("send far");
        assert_eq!(next(&port), ("message", round));
    }
    // Home, from each.
    for (badge, keeper) in keepers.iter().enumerate() {
        keeper.give(port.mint_once(badge as u64).unwrap());
        once(keeper.told("back").remove(0)).send(b"").unwrap();
        assert_eq!(next(&port), ("message", badge as u64));
    }
    // In a message that its recipient never takes up.
    let other = handfast::anonymous().unwrap();
    keepers[0].give(port.mint_once(7).unwrap());
    pass(&keepers[0], &names[1]);
    drop(other);
    keepers[1].child.kill();
    assert_eq!(next(&port), ("unused", 7));
    // Its introducer may go.
    keepers[0].give(port.mint_once(8).unwrap());
    pass(&keepers[0], &names[2]);
    keepers[2].told("send direct");
    assert_eq!(next(&port), ("message", 8));
    nothing_comes(&port);
}

/// Ends the receiver of a test that has panicked: its scope waits for it.
struct Ends<'a>(&'a OwnRight);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(right) = self.0.connect()
        {
            let _ = right.call(b"");
        }
    }
}

/// Rights go round among processes that send, drop, pass on and die: each badge comes once.
#[test]
fn each_of_many_has_one_outcome_whoever_dies() {
    const RIGHTS: u64 = 600;
    let mut random = common::Random::seeded("send-once rights");
    let port = handfast::anonymous().unwrap();
    let mut keepers = keepers(4);
    let names: Vec<_> = keepers.iter().map(|keeper| keeper.name.clone()).collect();
    let seen = Mutex::new(BTreeMap::<u64, Vec<&str>>::new());
    let end = port.mint(0);
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        let receiver = scope.spawn(|| {
            loop {
                let request = port.receive().unwrap();
                if request.is_call() && !request.is_send_once() {
                    return request.reply(b"").unwrap();
                }
                let (outcome, badge) = outcome(&request);
                seen.lock().unwrap().entry(badge).or_default().push(outcome);
            }
        });
        for badge in 1..=RIGHTS {
            let live = keepers.len() as u64;
            let at = |random: &mut common::Random| random.below(live) as usize;
            keepers[at(&mut random)].give(port.mint_once(badge).unwrap());
            for _ in 0..random.below(4) {
                let keeper = &keepers[at(&mut random)];
                match random.below(5) {
                    0 => drop(keeper.told("drop")),
                    1 => drop(keeper.told("send one")),
                    2 => {
                        // None, where it did not know what the right is yet.
                        let back = keeper.port.call(b"back");
                        let mut back = match back {
                            Err(SendError::Gone(Gone::Reply)) => continue,
                            back => back.unwrap(),
                        };
                        if let Some(right) = back.take_rights().pop() {
                            once(right).send(b"").unwrap();
                        }
                    }
                    _ => {
                        let others = names.iter().filter(|name| **name != keeper.name);
                        let to = others.cycle().nth(at(&mut random)).unwrap();
                        keeper.told(&format!("pass {to}"));
                    }
                }
            }
            if badge % 200 == 0 {
                keepers.swap_remove(at(&mut random)).child.kill();
            }
        }
        keepers.iter().for_each(|keeper| drop(keeper.told("end")));
        let all = || seen.lock().unwrap().len() as u64 == RIGHTS;
        assert!(common::within_patience(all), "{:?}", missing(&seen, RIGHTS));
        end.connect().unwrap().call(b"").unwrap();
        receiver.join().unwrap();
    });
    nothing_comes(&port);
    let seen = seen.into_inner().unwrap();
    let twice: Vec<_> = seen
        .iter()
        .filter(|(_, outcomes)| outcomes.len() != 1)
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
    let messages = seen.values().filter(|outcomes| outcomes[0] == "message");
    let messages = messages.count() as u64;
    assert!(messages > 20 && messages < RIGHTS - 20, "{messages}");
}

fn missing(seen: &Mutex<BTreeMap<u64, Vec<&str>>>, count: u64) -> Vec<u64> {
    let seen = seen.lock().unwrap();
    (1..=count)
        .filter(|badge| !seen.contains_key(badge))
        .collect()
}

#[test]
fn it_follows_a_port_that_moves() {
    let port = handfast::anonymous().unwrap();
    let mut keepers = keepers(3);
    let own = port.mint_once(0).unwrap();
    for badge in (1..6).rev() {
        keepers[0].give(port.mint_once(badge).unwrap());
    }
    // Used before: does not go along.
    port.mint_once(9).unwrap().send(b"").unwrap();
    assert_eq!(next(&port), ("message", 9));
    // Waits there when the port goes.
    keepers[0].told("send early");
    let new = &keepers[2];
    let _ = new.port.with([port.into()]).call(b"take").unwrap();
    let hears = |line: &str| new.child.expect(line);
    hears("message 1");
    keepers[0].told("send late");
    hears("message 2");
    keepers[0].told("drop");
    hears("unused 3");
    keepers[0].told(&format!("pass {}", keepers[1].name));
    keepers[1].told("send on");
    hears("message 4");
    own.send(b"").unwrap();
    hears("message 0");
    keepers[0].child.kill();
    keepers[2].child.expect("unused 5");
    assert!(
        handfast::wait_moved_timeout(Duration::from_secs(30)),
        "its trail stays"
    );
}

/// Finding of a review: what is minted for a port that has moved on already was not known to its trail.
#[test]
fn it_follows_a_port_that_moves_on_at_once() {
    let port = handfast::anonymous().unwrap();
    let keepers = keepers(3);
    let own = port.mint_once(0).unwrap();
    for badge in (1..4).rev() {
        keepers[0].give(port.mint_once(badge).unwrap());
    }
    let order = format!("hand {}", keepers[2].name);
    let _ = (keepers[1].port.with([port.into()]))
        .call(order.as_bytes())
        .unwrap();
    keepers[0].told("drop");
    keepers[2].child.expect("unused 1");
    keepers[0].told("send");
    keepers[2].child.expect("message 2");
    drop(own);
    keepers[2].child.expect("unused 0");
    keepers[0].told("drop");
    keepers[2].child.expect("unused 3");
    assert!(
        handfast::wait_moved_timeout(Duration::from_secs(30)),
        "its trail stays"
    );
}

/// More than there is room to ask for at once, of a new home that looks late.
#[test]
fn many_follow_a_port_to_a_home_that_does_not_look() {
    const RIGHTS: u64 = 200;
    let port = handfast::anonymous().unwrap();
    let keepers = keepers(1);
    let mut rights: Vec<_> = (0..RIGHTS)
        .map(|badge| port.mint_once(badge).unwrap())
        .collect();
    let last = rights.split_off(RIGHTS as usize / 2);
    let _ = keepers[0].port.with([port.into()]).call(b"idle").unwrap();
    drop(rights);
    keepers[0].told("look");
    for right in last {
        right.send(b"").unwrap();
    }
    let mut lines: Vec<_> = (0..RIGHTS).map(|_| keepers[0].child.line()).collect();
    lines.sort();
    let expected = (0..RIGHTS).map(|badge| match badge < RIGHTS / 2 {
        true => format!("unused {badge}"),
        false => format!("message {badge}"),
    });
    let mut expected: Vec<_> = expected.collect();
    expected.sort();
    assert_eq!(lines, expected);
    assert!(
        handfast::wait_moved_timeout(Duration::from_secs(30)),
        "its trail stays"
    );
}

#[test]
fn the_end_of_an_old_home_ends_what_was_made_there() {
    let mut keepers = keepers(2);
    let name = keepers[1].name.clone();
    let rights = keepers[0].told(&format!("make {name}"));
    keepers[1].child.expect("message 0");
    let mut rights: Vec<_> = rights.into_iter().map(once).collect();
    rights.remove(0).send(b"").unwrap();
    keepers[1].child.expect("message 1");
    keepers[0].child.kill();
    let mut lines = [keepers[1].child.line(), keepers[1].child.line()];
    lines.sort();
    assert_eq!(lines, ["unused 2", "unused 3"]);
    // Once that is known here.
    let port = &keepers[0].port;
    assert!(common::within_patience(|| port.try_send(b"drop").is_err()));
    for right in rights {
        let failed = right.send(b"").unwrap_err();
        assert!(matches!(failed.error, SendError::Gone(_)), "{failed:?}");
    }
}
