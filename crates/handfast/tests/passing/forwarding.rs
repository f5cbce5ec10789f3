//! Tail calls between real processes: reply rights that are passed on, and who answers then.

pub(crate) mod ends;

use crate::common;
use handfast::error::{Gone, Misuse, ReplyError, SendError};
use handfast::{Counters, Right, SendRight};
use std::time::Duration;

/// Answers calls with what they say and who it is; `drop` drops, `hold` holds for ever, `late` answers
/// once the caller has given up, `asleep` once all the threads that the message names sleep.
pub(crate) fn last(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut held = Vec::new();
    loop {
        let request = port.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        match text.as_str() {
            "drop" => drop(request),
            "hold" => {
                held.push(request);
                common::say("held");
            }
            "late" => {
                common::say("late");
                while !request.is_cancelled() {
                    std::hint::spin_loop();
                }
                request.reply(b"too late").unwrap();
                common::say("replied");
            }
            _ if text.starts_with("asleep") => {
                let mut names = text.split(' ').skip(1);
                assert!(names.all(|thread| common::within_patience(|| is_asleep(thread))));
                request.reply(b"").unwrap();
            }
            _ => {
                let answer = format!("{text} from {}", std::process::id());
                request.reply(answer.as_bytes()).unwrap();
            }
        }
    }
}

/// Passes every call on, with its bytes; `mine` it answers itself.
pub(crate) fn middle(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        if request.bytes() == b"mine" {
            request.reply(b"mine").unwrap();
            continue;
        }
        let message = request.take_message();
        if let Err(failed) = request.forward(&to, &message) {
            let answer = format!("{:?}", failed.error);
            failed.request.reply(answer.as_bytes()).unwrap();
        }
    }
}

/// Passes a call on and drops its port.
pub(crate) fn middle_that_leaves(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    common::say("ready");
    let mut request = port.receive().unwrap();
    let message = request.take_message();
    request.forward(&to, &message).unwrap();
    let _ = common::told();
    drop(port);
    common::say("dropped");
    while common::told().is_some() {}
}

/// A chain of servers, the first of which passes calls on to the second, and so on.
struct Chain {
    children: Vec<common::Child>,
    names: Vec<String>,
}

impl Chain {
    fn of(what: &str, length: usize) -> Self {
        Self::with(what, length, |_| {})
    }

    /// No process of which makes links with strangers.
    fn on_vines(what: &str, length: usize) -> Self {
        Self::with(what, length, |command| {
            command.env("HANDFAST_INTRODUCTIONS", "vine");
        })
    }

    fn with(what: &str, length: usize, change: fn(&mut std::process::Command)) -> Self {
        let names: Vec<_> = (0..length)
            .map(|place| common::name(&format!("{what}{place}")))
            .collect();
        let mut children = Vec::new();
        for place in (0..length).rev() {
            let child = match names.get(place + 1) {
                Some(next) => {
                    common::start_with("middle of a chain", &[&names[place], next], change)
                }
                None => common::start_with("last of a chain", &[&names[place]], change),
            };
            child.expect("ready");
            children.insert(0, child);
        }
        Self { children, names }
    }

    fn connect(&self, place: usize) -> SendRight {
        handfast::connect(&self.names[place]).unwrap()
    }

    fn last_pid(&self) -> u32 {
        self.children.last().unwrap().pid()
    }
}

/// Sums of a column over the links of a process.
fn count(right: &SendRight, column: &str) -> u64 {
    let counters = right.counters().unwrap();
    let values = counters.links.iter();
    values.map(|row| Counters::value(row, column)).sum()
}

fn call(right: &SendRight, text: &str) -> String {
    String::from_utf8(right.call(text.as_bytes()).unwrap().to_vec()).unwrap()
}

/// Calls until replies come by a path.
fn warm(first: &SendRight, middles: &[SendRight]) {
    assert!(common::within_patience(|| {
        let before: u64 = middles.iter().map(|right| count(right, "vines")).sum();
        for _ in 0..20 {
            let _ = call(first, "warm");
        }
        before == middles.iter().map(|right| count(right, "vines")).sum()
    }));
}

#[test]
fn the_last_one_replies_straight_to_the_first() {
    for length in [2, 3, 4] {
        let chain = Chain::of("straight", length);
        // Links with all of them.
        let rights: Vec<_> = (0..length).map(|place| chain.connect(place)).collect();
        let first = &rights[0];
        let middles = &rights[..length - 1];
        warm(first, middles);
        let vines: Vec<_> = middles.iter().map(|right| count(right, "vines")).collect();
        let passed: Vec<_> = middles
            .iter()
            .map(|right| count(right, "forwards"))
            .collect();
        let from = format!(" from {}", chain.last_pid());
        let calls = 1000;
        for number in 0..calls {
            // Short, and long in both directions.
            let text = match number % 3 {
                0 => number.to_string(),
                1 => "x".repeat(number),
                _ => "y".repeat(50_000 + number),
            };
            assert_eq!(call(first, &text), format!("{text}{from}"));
        }
        for ((middle, vines), passed) in middles.iter().zip(vines).zip(passed) {
            assert_eq!(
                count(middle, "vines"),
                vines,
                "a middle process saw a reply"
            );
            // The one that counts may be a step behind the answer, at either end.
            let passed = count(middle, "forwards") - passed;
            assert!(passed.abs_diff(calls as u64) <= 1, "{passed}");
        }
    }
}

#[test]
fn strangers_get_a_link_for_the_reply() {
    let chain = Chain::of("strangers", 4);
    let first = chain.connect(0);
    let middles: Vec<_> = (0..3).map(|place| chain.connect(place)).collect();
    // Only the last one is a stranger; and then all but the first.
    warm(&first, &middles);
    let other = Chain::of("stranger", 3);
    let first = other.connect(0);
    let from = format!(" from {}", other.last_pid());
    assert!(common::within_patience(|| {
        let before = count(&first, "vines");
        for number in 0..50 {
            let text = "z".repeat(number * 37);
            assert_eq!(call(&first, &text), format!("{text}{from}"));
        }
        before == count(&first, "vines")
    }));
}

#[test]
fn without_a_path_the_reply_comes_by_the_vine() {
    let chain = Chain::on_vines("vine", 3);
    let first = chain.connect(0);
    let from = format!(" from {}", chain.last_pid());
    for number in 0..200 {
        let text = "z".repeat(number * 37);
        assert_eq!(call(&first, &text), format!("{text}{from}"));
    }
    assert!(count(&first, "vines") >= 200);
    assert_eq!(call(&first, "mine"), "mine");
}

/// The answer of such a call comes by the process that passed it on, which its caller knows by nothing but its port.
#[test]
fn a_call_that_was_passed_on_without_a_path_outlives_the_port_it_was_made_to() {
    let names = ["left-last", "left-middle"].map(common::name);
    let last = common::start("late last", &[&names[0]]);
    last.expect("ready");
    let mut middle = common::start_with("middle that leaves", &[&names[1], &names[0]], |command| {
        command.env("HANDFAST_INTRODUCTIONS", "vine");
    });
    middle.expect("ready");
    let right = handfast::connect(&names[1]).unwrap();
    let held = right.try_call(b"hold").unwrap();
    last.expect("held");
    middle.tell("leave");
    middle.expect("dropped");
    assert!(common::within_patience(
        || right.try_call(b"").map(drop) == Err(SendError::Gone(Gone::Port))
    ));
    let held = held.try_wait().pending().unwrap();
    let last = handfast::connect(&names[0]).unwrap();
    let _ = last.call(b"answer").unwrap();
    assert_eq!(&*held.wait().unwrap(), b"late");
    middle.finish();
}

#[test]
fn many_threads_call_at_once_and_each_gets_its_own_reply() {
    let chain = Chain::of("threads", 3);
    let rights: Vec<_> = (0..3).map(|place| chain.connect(place)).collect();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let first = &rights[0];
            scope.spawn(move || {
                for number in 0..500 {
                    let text = format!("{thread}.{number}.");
                    assert!(call(first, &text).starts_with(&text));
                    if number % 50 == 0 {
                        assert_eq!(call(first, "mine"), "mine");
                    }
                }
            });
        }
    });
}

#[test]
fn a_reply_right_that_is_dropped_at_the_end_of_the_chain_ends_the_call() {
    let chain = Chain::of("dropped", 3);
    let rights: Vec<_> = (0..3).map(|place| chain.connect(place)).collect();
    for direct in [false, true] {
        if direct {
            warm(&rights[0], &rights[..2]);
        }
        assert_eq!(
            rights[0].call(b"drop").unwrap_err(),
            SendError::Gone(Gone::Reply)
        );
    }
}

#[test]
fn the_death_of_any_process_of_the_chain_is_one_error_or_none() {
    for victim in [0, 1, 2] {
        for direct in [false, true] {
            let mut chain = Chain::of(&format!("death{victim}{direct}"), 3);
            let rights: Vec<_> = (0..3).map(|place| chain.connect(place)).collect();
            if direct {
                warm(&rights[0], &rights[..2]);
            }
            let held = rights[0].try_call(b"hold").unwrap();
            chain.children[2].expect("held");
            // The middles that passed it on are done: one killed between the two words that it writes would end the call.
            for middle in &rights[..2] {
                assert_eq!(call(middle, "mine"), "mine");
            }
            chain.children[victim].kill();
            // A middle process has nothing to do with it any more where there is a path.
            if direct && victim < 2 {
                let error = held.wait_timeout(Duration::from_millis(300)).unwrap_err();
                assert_eq!(error, SendError::TimedOut);
                continue;
            }
            let end = match (victim, direct) {
                (2, true) | (0, false) => Gone::Process,
                _ => Gone::Reply,
            };
            let error = held.wait_timeout(common::PATIENCE).unwrap_err();
            assert_eq!(error, SendError::Gone(end), "{victim}, {direct}");
        }
    }
}

#[test]
fn who_gives_up_is_seen_by_the_last_one_and_a_late_reply_goes_nowhere() {
    let chain = Chain::of("late", 2);
    let rights: Vec<_> = (0..2).map(|place| chain.connect(place)).collect();
    warm(&rights[0], &rights[..1]);
    for _ in 0..40 {
        let late = rights[0].try_call(b"late").unwrap();
        chain.children[1].expect("late");
        assert_eq!(
            late.wait_timeout(Duration::from_millis(1)).unwrap_err(),
            SendError::TimedOut
        );
        chain.children[1].expect("replied");
        assert!(call(&rights[0], "next").starts_with("next"));
    }
}

#[test]
fn a_deadline_goes_on_with_the_calls_made_for_it() {
    let chain = Chain::of("deadline", 2);
    let (middle, last) = (chain.connect(0), chain.connect(1));
    let name = common::name("deadline-own");
    let port = handfast::bind(&name).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = port.receive().unwrap();
            assert_eq!(request.time_left(), None);
            request.reply(b"").unwrap();
            for rights in [false, true] {
                let request = port.receive().unwrap();
                let left = request.time_left().unwrap();
                assert!(
                    left > Duration::from_secs(5) && left <= Duration::from_secs(20),
                    "{left:?}"
                );
                assert!(request.call_through(&last, b"nested").is_ok());
                request.reply(b"").unwrap();
                let request = port.receive().unwrap();
                let start = std::time::Instant::now();
                // Nobody answers: it ends with its caller's time.
                let nested = request.call_through(&last, b"hold").unwrap_err();
                assert_eq!(nested, SendError::TimedOut, "{rights}");
                assert!(start.elapsed() < Duration::from_secs(5));
                assert_eq!(request.time_left(), Some(Duration::ZERO));
            }
        });
        // A link of its own, so that the server above is another process's as far as that goes.
        let right = handfast::connect(&name).unwrap();
        let _ = right.call(b"").unwrap();
        for with_rights in [false, true] {
            let rights = || with_rights.then(|| Right::from(port.mint(1)));
            let long = Duration::from_secs(20);
            let answer = right.with(rights()).call_timeout(b"", long).unwrap();
            assert_eq!(answer.len(), 0);
            let short = Duration::from_millis(50);
            let error = right.with(rights()).call_timeout(b"", short).unwrap_err();
            // Both ends hear of it at the same moment.
            let dropped = SendError::Gone(Gone::Reply);
            assert!(error.error == SendError::TimedOut || error.error == dropped);
        }
    });
    let _ = middle;
}

#[test]
fn what_is_no_call_or_is_answered_is_not_forwarded() {
    let name = common::name("no-call");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    right.send(b"one-way").unwrap();
    let request = port.receive().unwrap();
    let failed = request.forward(&right, b"on").unwrap_err();
    assert_eq!(failed.error, SendError::Misuse(Misuse::NotACall));
    assert_eq!(failed.request.bytes(), b"one-way");
    assert_eq!(failed.request.reply(b"").unwrap_err(), ReplyError::NotACall);
}

/// Times this thread has gone to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary"));
    let count = line.unwrap().rsplit('\t').next().unwrap();
    count.parse().unwrap()
}

/// Whether the thread of a directory of `/proc` sleeps.
fn is_asleep(thread: &str) -> bool {
    let stat = std::fs::read_to_string(format!("{thread}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.starts_with(" S")
}

#[test]
fn a_caller_that_sleeps_is_woken_once_however_often_its_call_is_passed_on() {
    let _alone = common::alone();
    for length in [2, 3, 4] {
        let chain = Chain::of("sleeper", length);
        let rights: Vec<_> = (0..length).map(|place| chain.connect(place)).collect();
        warm(&rights[0], &rights[..length - 1]);
        rights[0].set_options(handfast::Options::new().strategy(handfast::Strategy::Block));
        // The last server answers when the caller sleeps and every other server has passed the call on and sleeps again.
        let this = std::path::Path::new("/proc/thread-self").canonicalize();
        let mut text = format!("asleep {}", this.unwrap().display());
        for middle in &chain.children[..length - 1] {
            for thread in std::fs::read_dir(format!("/proc/{}/task", middle.pid())).unwrap() {
                text += &format!(" {}", thread.unwrap().path().display());
            }
        }
        let calls = 100;
        let before = sleeps();
        for _ in 0..calls {
            let _ = call(&rights[0], &text);
        }
        let each = (sleeps() - before) as f64 / f64::from(calls);
        println!("{length} servers: {each:.2} sleeps a call");
        assert!(each < 1.1, "{each}");
    }
}
