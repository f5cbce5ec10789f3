//! Tail calls between real processes: reply rights that are passed on, and who answers then.

mod common;

use handfast::error::{Gone, Misuse, ReplyError, SendError};
use handfast::{Counters, Right, SendRight};
use std::time::Duration;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "last" => last(arguments[0]),
        "middle" => middle(arguments[0], arguments[1]),
        "phoenix" => phoenix(arguments[0]),
        "patient middle" => patient_middle(arguments[0], arguments[1]),
        "generator" => generator(arguments[0]),
        "caller of turns" => caller_of_turns(arguments[0]),
        "caller" => caller(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}

/// Answers calls with what they say and who it is; `drop` drops, `hold` holds for ever, `late` answers
/// once the caller has given up.
fn last(name: &str) {
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
            _ => {
                let answer = format!("{text} from {}", std::process::id());
                request.reply(answer.as_bytes()).unwrap();
            }
        }
    }
}

/// Passes every call on, with its bytes; `mine` it answers itself.
fn middle(name: &str, to: &str) {
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
                Some(next) => common::start_with("middle", &[&names[place], next], change),
                None => common::start_with("last", &[&names[place]], change),
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
    let mut between = 0;
    for victim in [0, 1, 2] {
        for direct in [false, true] {
            let mut chain = Chain::of(&format!("death{victim}{direct}"), 3);
            let rights: Vec<_> = (0..3).map(|place| chain.connect(place)).collect();
            if direct {
                warm(&rights[0], &rights[..2]);
            }
            let call = rights[0].try_call(b"hold").unwrap();
            chain.children[2].expect("held");
            chain.children[victim].kill();
            let outcome = call.wait_until(Duration::from_millis(300));
            match (victim, direct) {
                // A middle process has nothing to do with it any more, unless it was killed between
                // the two words it writes.
                (0 | 1, true) => {
                    let error = outcome.unwrap_err();
                    let is_between = error == SendError::Gone(Gone::Process);
                    assert!(is_between || error == SendError::TimedOut, "{error}");
                    between += u32::from(is_between);
                }
                (2, true) | (0, false) => {
                    assert_eq!(outcome.unwrap_err(), SendError::Gone(Gone::Process));
                }
                _ => assert_eq!(outcome.unwrap_err(), SendError::Gone(Gone::Reply)),
            }
        }
    }
    assert!(between < 2);
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
            late.wait_until(Duration::from_millis(1)).unwrap_err(),
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
            let answer = right.with(rights()).call_until(b"", long).unwrap();
            assert_eq!(answer.len(), 0);
            let short = Duration::from_millis(50);
            let error = right.with(rights()).call_until(b"", short).unwrap_err();
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

#[test]
fn a_caller_that_sleeps_is_woken_once_however_often_its_call_is_passed_on() {
    let _alone = common::alone();
    for length in [2, 3, 4] {
        let chain = Chain::of("sleeper", length);
        let rights: Vec<_> = (0..length).map(|place| chain.connect(place)).collect();
        warm(&rights[0], &rights[..length - 1]);
        rights[0].set_options(handfast::Options::new().strategy(handfast::Strategy::Block));
        let (calls, before) = (300, sleeps());
        for _ in 0..calls {
            let _ = call(&rights[0], "asleep");
        }
        let each = (sleeps() - before) as f64 / f64::from(calls);
        println!("{length} servers: {each:.2} sleeps a call");
        assert!(each < 1.4, "{each}");
    }
}

/// A generator: `count N` yields N numbers, each of which the caller answers; at last their sum.
/// `keep`: keeps the reply right that comes with it; `use`: answers with it. `mute`: drops what it is
/// answered with.
fn generator(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let rights = request.take_rights();
        let (_, right) = request.split();
        let right = right.unwrap();
        match text.split_once(' ') {
            Some(("count", count)) => {
                let (mut right, mut sum) = (Some(right), 0u64);
                for number in 0..count.parse().unwrap() {
                    let turn = right.take().unwrap();
                    let Ok(mut answer) = turn.call(format!("{number}").as_bytes()) else {
                        break;
                    };
                    let text = String::from_utf8_lossy(&answer).into_owned();
                    sum += text.parse::<u64>().unwrap();
                    right = answer.take_reply_right();
                }
                if let Some(right) = right {
                    right.reply(format!("sum {sum}").as_bytes()).unwrap();
                }
            }
            _ if text == "keep" => {
                kept.extend(rights);
                right.reply(b"kept").unwrap();
            }
            _ if text == "use" => {
                let count = kept.len();
                for right in kept.drain(..) {
                    match right {
                        Right::Reply(right) => right.reply(b"used").unwrap(),
                        other => panic!("{other:?}"),
                    }
                }
                right.reply(count.to_string().as_bytes()).unwrap();
            }
            _ if text == "mute" => {
                let answer = right.call(b"say something");
                common::say(&format!("{:?}", answer.map(|_| ()).unwrap_err()));
            }
            _ => unreachable!(),
        }
    }
}

#[test]
fn coroutines_take_turns_until_one_ends() {
    let name = common::name("generator");
    let mut child = common::start("generator", &[&name]);
    child.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for count in [1u64, 2, 17, 1000] {
        let mut answer = right.call(format!("count {count}").as_bytes()).unwrap();
        let mut numbers = 0;
        while let Some(turn) = answer.take_reply_right() {
            let number: u64 = String::from_utf8_lossy(&answer).parse().unwrap();
            assert_eq!(number, numbers);
            numbers += 1;
            let twice = (2 * number).to_string();
            answer = turn.call(twice.as_bytes()).unwrap();
        }
        assert_eq!(numbers, count);
        let sum: u64 = (0..count).map(|number| 2 * number).sum();
        assert_eq!(&*answer, format!("sum {sum}").as_bytes());
    }
    // Who drops its turn ends the other's wait; who dies, too.
    let mut answer = right.call(b"mute").unwrap();
    drop(answer.take_reply_right().unwrap());
    child.expect("Gone(Reply)");
    let mut answer = right.call(b"count 5").unwrap();
    let turn = answer.take_reply_right().unwrap();
    child.kill();
    assert_eq!(turn.call(b"0").unwrap_err(), SendError::Gone(Gone::Process));
}

#[test]
fn a_turn_keeps_the_link_when_the_last_right_is_dropped() {
    let name = common::name("turn-alone");
    let child = common::start("generator", &[&name]);
    child.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let mut answer = right.call(b"count 3").unwrap();
    drop(right);
    for number in ["0", "1", "2"] {
        assert_eq!(&*answer, number.as_bytes());
        let turn = answer.take_reply_right().unwrap();
        answer = turn.call(b"1").unwrap();
    }
    assert_eq!(&*answer, b"sum 3");
}

#[test]
fn a_turn_that_takes_too_long_is_given_up_and_its_place_is_used_again() {
    let name = common::name("slow");
    let port = handfast::bind(&name).unwrap();
    let mut child = common::start("caller of turns", &[&name]);
    for _ in 0..600 {
        let (_, right) = port.receive().unwrap().split();
        let waited = right.unwrap().call_until(b"", Duration::from_micros(50));
        assert_eq!(waited.map(|_| ()).unwrap_err(), SendError::TimedOut);
    }
    drop(port);
    child.expect("600 turns");
    child.finish();
}

/// Calls until the port is gone, and drops each turn it is given, late.
fn caller_of_turns(name: &str) {
    let right = handfast::connect(name).unwrap();
    let (mut turns, mut last) = (0, None);
    while let Ok(mut answer) = right.call(b"") {
        let turn = answer.take_reply_right();
        turns += u32::from(turn.is_some());
        // By now the other side has given up the last one.
        drop(core::mem::replace(&mut last, turn));
    }
    common::say(&format!("{turns} turns"));
    while common::told().is_some() {}
}

#[test]
fn a_reply_right_is_kept_by_another_process_and_used_there_once() {
    let (name, own) = (common::name("holder"), common::name("held"));
    let mut holder = common::start("generator", &[&name]);
    holder.expect("ready");
    let port = handfast::bind(&own).unwrap();
    let mut caller = common::start("caller", &[&own, &name]);
    let to = handfast::connect(&name).unwrap();
    for round in 0..20 {
        // Three at once, by the vine first and by a path later.
        let rights = (0..3).map(|_| Right::from(port.receive().unwrap().split().1.unwrap()));
        assert_eq!(&*to.with(rights).call(b"keep").unwrap(), b"kept");
        assert_eq!(&*to.call(b"use").unwrap(), b"3", "round {round}");
        for _ in 0..3 {
            caller.expect("used");
        }
    }
    // Those that are dropped there, or die with it, end their calls.
    let right = Right::from(port.receive().unwrap().split().1.unwrap());
    assert_eq!(&*to.with([right]).call(b"keep").unwrap(), b"kept");
    holder.kill();
    let mut said = None;
    assert!(common::within_patience(|| {
        said = caller.said();
        said.is_some()
    }));
    let line = said.unwrap();
    assert!(line == "Gone(Process)" || line == "Gone(Reply)", "{line}");
    // What cannot be sent comes back and is good, once it is known here that it cannot.
    assert!(common::within_patience(|| to.try_send(b"").is_err()));
    let right = port.receive().unwrap().split().1.unwrap();
    let back = to.with([right.into()]).call(b"keep").unwrap_err();
    assert_eq!(back.error, SendError::Gone(Gone::Process));
    for right in back.rights {
        match right {
            Right::Reply(right) => right.reply(b"mine").unwrap(),
            other => panic!("{other:?}"),
        }
    }
    caller.expect("mine");
    caller.kill();
}

/// Three threads that call and say what they are answered.
fn caller(name: &str, other: &str) {
    let right = handfast::connect(name).unwrap();
    let _link = handfast::connect(other).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    match right.call(b"") {
                        Ok(answer) => common::say(&String::from_utf8_lossy(&answer)),
                        Err(SendError::Gone(gone)) => common::say(&format!("Gone({gone:?})")),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
}

/// Binds its name, serves a while, drops the port with whatever waits there, and begins anew.
fn phoenix(name: &str) {
    let _stays = handfast::bind(&format!("{name}-stays")).unwrap();
    for round in 0u32.. {
        let port = handfast::bind(name).unwrap();
        if round == 0 {
            common::say("ready");
        }
        for _ in 0..20 {
            port.receive().unwrap().reply(b"served").unwrap();
        }
    }
}

/// Passes calls on, and looks for the port anew when it is gone.
fn patient_middle(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let stays = handfast::connect(&format!("{to}-stays")).unwrap();
    let mut right = handfast::connect(to).ok();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        if right.is_none() {
            right = handfast::connect(to).ok();
        }
        let failed = match &right {
            Some(right) => request.forward(right, b"serve").err(),
            None => {
                request.reply(b"unbound").unwrap();
                continue;
            }
        };
        if let Some(failed) = failed {
            assert_eq!(failed.error, SendError::Gone(Gone::Port));
            request = failed.request;
            request.reply(b"gone").unwrap();
            right = None;
        }
        let _ = &stays;
    }
}

#[test]
fn a_tail_call_to_a_port_that_goes_is_answered_once_and_soon() {
    let (name, last) = (common::name("patient"), common::name("phoenix"));
    let phoenix = common::start("phoenix", &[&last]);
    phoenix.expect("ready");
    let middle = common::start("patient middle", &[&name, &last]);
    middle.expect("ready");
    for direct in [false, true] {
        let _link = direct.then(|| handfast::connect(&format!("{last}-stays")).unwrap());
        let outcomes = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    let right = handfast::connect(&name).unwrap();
                    scope.spawn(move || {
                        let mut outcomes = [0u32; 4];
                        for _ in 0..700 {
                            let answer = right.call_until(b"", Duration::from_secs(2));
                            let place = match answer.as_ref().map(|answer| &**answer) {
                                Ok(b"served") => 0,
                                Ok(b"gone") => 1,
                                Ok(b"unbound") => 2,
                                Err(SendError::Gone(Gone::Reply)) => 3,
                                other => panic!("{other:?}"),
                            };
                            outcomes[place] += 1;
                        }
                        outcomes
                    })
                })
                .collect();
            let callers = callers.into_iter().map(|caller| caller.join().unwrap());
            callers.collect::<Vec<_>>()
        });
        println!("served, gone, unbound, dropped: {outcomes:?}");
        assert!(outcomes.iter().all(|outcomes| outcomes[0] > 0));
    }
}
