//! Reply rights and rights of third processes where several things meet: ports, links that end, forks,
//! peers that say what is not theirs to say.

use crate::common;
use handfast::{Right, SendRight};
use handfast_layout::control::ControlMessage;
use handfast_layout::hello::{Hello, WELCOME_BYTES, Welcome, process};
use std::time::{Duration, Instant};

/// Answers calls with what they say.
pub(crate) fn last(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut received = port.receive().unwrap();
    loop {
        let bytes = received.bytes().to_vec();
        received = port.reply_and_receive(received, &bytes).unwrap();
    }
}

/// Passes every call on, with its bytes and rights.
pub(crate) fn middle(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let rights = request.take_rights();
        let message = request.take_message();
        let _ = request.forward_with(&to, &message, rights);
    }
}

/// Serves two ports. A call `swap` at the first is answered while the second is received from.
pub(crate) fn two_ports(first: &str, second: &str) {
    let ports = [first, second].map(|name| handfast::bind(name).unwrap());
    common::say("ready");
    loop {
        for port in &ports {
            let Ok(request) = port.try_receive() else {
                continue;
            };
            if request.bytes() == b"swap" {
                let next = ports[1].reply_and_receive(request, b"swapped").unwrap();
                let bytes = next.bytes().to_vec();
                next.reply(&bytes).unwrap();
            } else {
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_reply_through_another_port_does_not_change_where_that_port_replies() {
    let names = ["swap-one", "swap-two", "swap-a", "swap-b"].map(common::name);
    let server = common::start("two ports", &[&names[0], &names[1]]);
    server.expect("ready");
    let _link = handfast::connect(&names[0]).unwrap();
    let middles: Vec<_> = (0..2)
        .map(|place| common::start("middle", &[&names[2 + place], &names[place]]))
        .collect();
    middles.iter().for_each(|middle| middle.expect("ready"));
    let [one, two] = [&names[2], &names[3]].map(|name| handfast::connect(name).unwrap());
    common::warm(&one);
    common::warm(&two);
    for round in 0..10 {
        assert_eq!(
            &*one.call_timeout(b"swap", common::PATIENCE).unwrap(),
            b"swapped"
        );
        let text = format!("round {round}");
        let answer = two.call_timeout(text.as_bytes(), common::PATIENCE).unwrap();
        assert_eq!(&*answer, text.as_bytes());
    }
}

/// Passes every call on through a right that it drops at once.
pub(crate) fn middle_that_lets_go(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let message = request.take_message();
        let to = handfast::connect(to).unwrap();
        request.forward(&to, &message).unwrap();
    }
}

#[test]
fn a_right_may_be_dropped_once_a_call_has_been_passed_on_through_it() {
    let names = ["let-go-last", "let-go-middle"].map(common::name);
    let last = common::start("last", &[&names[0]]);
    last.expect("ready");
    let middle = common::start("middle that lets go", &[&names[1], &names[0]]);
    middle.expect("ready");
    for is_linked in [false, true] {
        let _link = is_linked.then(|| handfast::connect(&names[0]).unwrap());
        let right = handfast::connect(&names[1]).unwrap();
        for round in 0..50 {
            let answer = right.call_timeout(b"x", common::PATIENCE);
            assert_eq!(answer.as_deref(), Ok(&b"x"[..]), "{is_linked}, {round}");
        }
    }
}

/// Takes long over what is `slow`.
pub(crate) fn slow_exporter(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.is_call() {
            let bytes = request.bytes().to_vec();
            request.reply(&bytes).unwrap();
        } else {
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_millis(40));
        }
    }
}

/// Has a right of its own to a port of the exporter, and keeps those it is sent: `own TEXT`, `call
/// TEXT`, and `pass` them on.
pub(crate) fn recipient(name: &str, exporter: &str, further: Option<&str>) {
    let port = handfast::bind(name).unwrap();
    let own = handfast::connect(exporter).unwrap();
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let through = |right: &SendRight, text: &str| match right
            .call_timeout(text.as_bytes(), common::PATIENCE)
        {
            Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
            Err(error) => format!("{error:?}"),
        };
        let answer = match text.split_once(' ') {
            Some(("own", text)) => through(&own, text),
            Some(("call", text)) => match kept.last().unwrap() {
                Right::Send(right) => through(right, text),
                other => format!("{other:?}"),
            },
            _ if text == "flood" => {
                for _ in 0..100 {
                    let Some(Right::Send(right)) = kept.first() else {
                        panic!("{kept:?}");
                    };
                    right.send_timeout(b"one", common::PATIENCE).unwrap();
                }
                String::new()
            }
            _ if text == "pass" => {
                let to = handfast::connect(further.unwrap()).unwrap();
                to.with([kept.pop().unwrap()]).send(b"on").unwrap();
                String::new()
            }
            _ => String::new(),
        };
        // Nobody waits for that where it was sent.
        let _ = request.reply(answer.as_bytes());
    }
}

#[test]
fn a_right_waits_for_an_exporter_that_is_busy_with_what_came_before() {
    let names = ["busy-exporter", "busy-recipient"].map(common::name);
    let exporter = common::start("slow exporter", &[&names[0]]);
    exporter.expect("ready");
    let recipient = common::start("recipient", &[&names[1], &names[0]]);
    recipient.expect("ready");
    let [right, to] = [&names[0], &names[1]].map(|name| handfast::connect(name).unwrap());
    for _ in 0..40 {
        right.send(b"slow").unwrap();
    }
    let _ = to.with([right.clone().into()]).call(b"keep").unwrap();
    assert_eq!(&*to.call(b"call x").unwrap(), b"x");
    assert_eq!(&*to.call(b"own y").unwrap(), b"y");
}

/// Does not receive from the first of its ports, and drops it when the second is told.
pub(crate) fn silent_exporter(name: &str, other: &str) {
    let mut silent = Some(handfast::bind(name).unwrap());
    let port = handfast::bind(other).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"drop" {
            drop(silent.take());
        }
        request.reply(b"here").unwrap();
    }
}

#[test]
fn a_port_that_is_dropped_with_introductions_in_its_lanes_cuts_nobody() {
    let names = [
        "silent",
        "silent-other",
        "silent-recipient",
        "silent-further",
    ];
    let names = names.map(common::name);
    let exporter = common::start("silent exporter", &[&names[0], &names[1]]);
    exporter.expect("ready");
    let further = handfast::bind(&names[3]).unwrap();
    let recipient = common::start("recipient", &[&names[2], &names[1], &names[3]]);
    recipient.expect("ready");
    let to = handfast::connect(&names[2]).unwrap();
    assert_eq!(&*to.call(b"own x").unwrap(), b"here");
    let right = handfast::connect(&names[0]).unwrap();
    let other = handfast::connect(&names[1]).unwrap();
    let _ = to.with([right.into()]).call(b"keep").unwrap();
    let _ = to.call(b"pass").unwrap();
    let _passed = further.receive().unwrap();
    assert_eq!(&*other.call(b"drop").unwrap(), b"here");
    // Sleep: the control thread refuses what is left within milliseconds; a link that was cut stays so.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(&*to.call(b"own x").unwrap(), b"here");
}

#[test]
fn a_full_port_holds_up_nothing_else_that_goes_by_the_vine() {
    let names = ["full", "full-other", "full-recipient", "full-last"].map(common::name);
    let exporter = common::start("silent exporter", &[&names[0], &names[1]]);
    exporter.expect("ready");
    let last = common::start("last", &[&names[3]]);
    last.expect("ready");
    let recipient = common::start_with("recipient", &[&names[2], &names[3]], |command| {
        command.env("HANDFAST_INTRODUCTIONS", "vine");
    });
    recipient.expect("ready");
    let to = handfast::connect(&names[2]).unwrap();
    for name in [&names[0], &names[1]] {
        let right = handfast::connect(name).unwrap();
        let _ = to.with([right.into()]).call(b"keep").unwrap();
    }
    // More than a lane holds, for a port that nobody receives from.
    let _ = to.call(b"flood").unwrap();
    let (mut took, mut pace) = (Vec::new(), common::Pace::new());
    for _ in 0..10 {
        pace.look();
        let start = Instant::now();
        assert_eq!(&*to.call(b"call x").unwrap(), b"here");
        took.push(start.elapsed());
    }
    let (.., longest) = common::spread(&mut took);
    let limit = pace.allows_at_most(Duration::from_millis(600));
    assert!(longest < limit, "{took:?}, {limit:?}");
}

/// Calls through the middle, and so does a child of it.
pub(crate) fn caller_that_forks(middle: &str, last: &str) {
    let _link = handfast::connect(last).unwrap();
    let right = handfast::connect(middle).unwrap();
    common::warm(&right);
    // SAFETY: the child runs ordinary code after a fork of a process with threads.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes no pointers. A child that hangs is ended by it.
        unsafe { libc::alarm(common::PATIENCE.as_secs() as u32) };
        let work = || {
            let _link = handfast::connect(last).unwrap();
            let right = handfast::connect(middle).unwrap();
            common::warm(&right);
            for number in 0..200 {
                let text = format!("child {number}");
                let answer = right.call(text.as_bytes()).unwrap();
                assert_eq!(&*answer, text.as_bytes());
            }
        };
        let failed = std::panic::catch_unwind(work).is_err();
        // SAFETY: ends the process without its parent's exit handlers.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    common::say(&format!("status {status}"));
    let _ = right.call(b"parent").unwrap();
}

#[test]
fn a_forked_child_of_a_caller_knows_nothing_of_its_parents_paths() {
    let names = ["fork-last", "fork-middle"].map(common::name);
    let last = common::start("last", &[&names[0]]);
    last.expect("ready");
    let middle = common::start("middle", &[&names[1], &names[0]]);
    middle.expect("ready");
    let caller = common::start("caller that forks", &[&names[1], &names[0]]);
    caller.expect("status 0");
}

/// Calls once through the middle, with a link to the last.
pub(crate) fn one_caller(middle: &str, last: &str) {
    let _link = handfast::connect(last).unwrap();
    let right = handfast::connect(middle).unwrap();
    common::warm(&right);
    common::say("called");
    while common::told().is_some() {}
}

#[test]
fn callers_that_are_killed_leave_nothing_at_the_last_one() {
    let names = ["leave-last", "leave-middle"].map(common::name);
    let last = common::start("last", &[&names[0]]);
    last.expect("ready");
    let middle = common::start("middle", &[&names[1], &names[0]]);
    middle.expect("ready");
    let before = (common::at_rest(last.pid()), common::at_rest(middle.pid()));
    for _ in 0..3 {
        let mut caller = common::start("one caller", &[&names[1], &names[0]]);
        caller.expect("called");
        caller.kill();
        assert!(common::settles_at(last.pid(), before.0), "at the last one");
        assert!(common::settles_at(middle.pid(), before.1), "in the middle");
    }
}

/// Calls through the middle, without a right to the last one, and then nobody any more.
pub(crate) fn caller_that_rests(middle: &str, last: &str) {
    let right = handfast::connect(middle).unwrap();
    let _ = right.counters().unwrap();
    common::say("connected");
    common::told();
    let link = handfast::connect(last).unwrap();
    common::warm(&right);
    drop(link);
    let _ = right.call(b"by the path").unwrap();
    common::say("called");
    while common::told().is_some() {}
}

#[test]
fn a_replier_that_is_killed_leaves_nothing_at_a_caller_that_rests() {
    let names = ["rest-last", "rest-middle"].map(common::name);
    let mut last = common::start("last", &[&names[0]]);
    last.expect("ready");
    let middle = common::start("middle", &[&names[1], &names[0]]);
    middle.expect("ready");
    let mut caller = common::start("caller that rests", &[&names[1], &names[0]]);
    caller.expect("connected");
    let before = common::at_rest(caller.pid());
    caller.tell("call");
    caller.expect("called");
    assert!(common::at_rest(caller.pid()) > before, "no path, no link");
    last.kill();
    assert!(common::settles_at(caller.pid(), before));
}

/// A link made by hand as the process of an incarnation: its socket, and its welcome.
fn link_by_hand(name: &str, incarnation: [u8; 16]) -> (std::os::fd::OwnedFd, Welcome) {
    say_hello(name, incarnation, None)
}

/// As [`link_by_hand`], of a process that has that link already.
fn say_hello(
    name: &str,
    incarnation: [u8; 16],
    known: Option<u32>,
) -> (std::os::fd::OwnedFd, Welcome) {
    let socket = common::knock(name);
    let bells = handfast_layout::bell::REGION_BYTES;
    let bells = handfast_sys::memory::create_sealed("fake", bells).unwrap();
    let hello = Hello::new(incarnation, name, 3, known).to_bytes();
    let fds = [rustix::fd::AsFd::as_fd(&bells)];
    handfast_sys::socket::send(&socket, &hello, &fds).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, fds) = handfast_sys::socket::receive(&socket, &mut bytes, 2).unwrap();
    if let Some(region) = fds.first() {
        common::take_offer(&socket, region);
    }
    let welcome = Welcome::parse(&bytes[..len_bytes]).unwrap();
    (socket, welcome)
}

#[test]
fn a_right_comes_by_the_link_that_the_hello_names_and_by_no_other() {
    use handfast_layout::hello::Status;
    let name = common::name("named-link");
    let server = common::start("last", &[&name]);
    server.expect("ready");
    let (links, by) = (common::incarnation(7), |known| {
        say_hello(&name, common::incarnation(7), known)
    });
    let (_one, first) = link_by_hand(&name, links);
    assert_eq!(first.status, Status::Linked);
    let known = by(Some(first.link)).1;
    assert_eq!(
        (known.status, known.handle),
        (Status::Known, first.handle),
        "the same right, again"
    );
    // One that there is not, beside one that there is: the connector looks again, once.
    let other = first.link + 9;
    assert_eq!(by(Some(other)).1.status, Status::Crossed);
    let (_two, second) = by(Some(other));
    assert_eq!(second.status, Status::Linked);
    for link in [first, second] {
        assert_eq!(by(Some(link.link)).1.status, Status::Known);
    }
}

#[test]
fn who_was_not_provided_with_a_right_cannot_decline_it() {
    let names = ["decline-exporter", "decline-recipient", "decline-own"].map(common::name);
    let exporter = common::start("last", &[&names[0]]);
    exporter.expect("ready");
    let recipient = common::start("recipient", &[&names[1], &names[0]]);
    recipient.expect("ready");
    let _own = handfast::bind(&names[2]).unwrap();
    let [right, to] = [&names[0], &names[1]].map(|name| handfast::connect(name).unwrap());
    let (_at_exporter, welcome) = link_by_hand(&names[0], common::incarnation(7));
    let (socket, _) = link_by_hand(&names[2], common::incarnation(7));
    recipient.stop();
    to.with([right.into()]).send(b"keep").unwrap();
    for number in 0..64u64 {
        let exporter = process(welcome.incarnation, exporter.pid());
        let declined = ControlMessage::Declined { number, exporter };
        handfast_sys::socket::send(&socket, &declined.encode(), &[]).unwrap();
    }
    // Sleep: the messages have been heard by then; the test holds either way.
    std::thread::sleep(Duration::from_millis(50));
    recipient.resume();
    assert_eq!(&*to.call(b"call x").unwrap(), b"x");
}

#[test]
fn who_asks_and_does_not_read_is_cut() {
    const SENT_MAX: u32 = 100_000;
    let name = common::name("unread");
    let _port = handfast::bind(&name).unwrap();
    let (socket, _) = link_by_hand(&name, [9; 16]);
    let any = u32::from_le_bytes([5; 4]);
    let message = ControlMessage::PathWant {
        token: any,
        forwarder: [5; 20],
        index: any,
        set: any,
    };
    let message = message.encode();
    let mut sent = 0;
    assert!(common::within_patience(|| {
        loop {
            match handfast_sys::socket::send(&socket, &message, &[]) {
                Ok(()) if sent < SENT_MAX => sent += 1,
                Err(handfast_sys::Errno::AGAIN) => return false,
                _ => return true,
            }
        }
    }));
    assert!(sent < SENT_MAX, "{sent} answers are kept");
}

/// Connects under the incarnation of whoever has bound `whose`, which anybody is told who connects there.
pub(crate) fn borrower(name: &str, whose: &str) {
    let (_socket, welcome) = link_by_hand(whose, [8; 16]);
    let (_socket, welcome) = link_by_hand(name, welcome.incarnation);
    common::say(&format!("{:?}", welcome.status));
    while common::told().is_some() {}
}

#[test]
fn nobody_gets_a_link_as_another_process_that_has_one() {
    let names = ["borrow-server", "borrow-whose"].map(common::name);
    let _port = handfast::bind(&names[0]).unwrap();
    let recipient = common::start("recipient", &[&names[1], &names[0]]);
    recipient.expect("ready");
    for name in [&names[0], &names[1]] {
        // Of a third process, and of the server itself.
        let borrower = common::start("borrower", &[&names[0], name]);
        borrower.expect("Malformed");
    }
}
