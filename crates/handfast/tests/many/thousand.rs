//! A thousand futures at once, on tokio, any of which may be dropped midway: all others go on, and nothing is left of them.
//!
//! `HANDFAST_ROUNDS` says how often; `HANDFAST_SEED` what.

use crate::common::{self, PATIENCE, Random, content};
use crate::rounds_asked;
use handfast::error::SendError;
use handfast::{ReceiveRight, SendRight};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const FUTURES: u64 = 1000;

/// Answers every call with what it was sent, some at once and some later and in another order; drops none.
pub(crate) fn lazy(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut random = Random::of(7);
    let mut held: Vec<handfast::Request> = Vec::new();
    loop {
        // Calls that are held are answered when nothing comes.
        match port.receive_timeout(Duration::from_millis(1)) {
            Ok(request) if request.is_call() => held.push(request),
            Ok(_) => {}
            Err(_) if held.is_empty() => held.extend(port.receive().ok()),
            Err(_) => {}
        }
        while held.len() > 12 || (!held.is_empty() && random.below(3) == 0) {
            let request = held.swap_remove(random.below(held.len() as u64) as usize);
            let bytes = request.bytes().to_vec();
            // The caller may have given up.
            let _ = request.reply(&bytes);
        }
    }
}

/// Counts what comes, by the word it begins with, modulo two; `count` tells both, `pause` stops for a moment.
pub(crate) fn gate(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut seen = std::collections::BTreeMap::<u64, u32>::new();
    loop {
        let mut request = port.receive().unwrap();
        if request.is_call() {
            let sum: u64 = seen.keys().copied().fold(0, u64::wrapping_add);
            let twice = seen.values().filter(|times| **times > 1).count();
            let text = format!("{} {sum} {twice}", seen.len());
            seen.clear();
            request.reply(text.as_bytes()).unwrap();
            continue;
        }
        drop(request.take_rights());
        let word = request.bytes().first_chunk::<8>().unwrap();
        let number = u64::from_le_bytes(*word);
        *seen.entry(number).or_default() += 1;
        if number % 61 == 0 {
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Sends so many messages and makes so many calls as it is told, from three threads, to a port.
pub(crate) fn source(name: &str) {
    let right = Arc::new(handfast::connect(name).unwrap());
    common::say("ready");
    while let Some(text) = common::told() {
        let count: u64 = text.parse().unwrap();
        let threads = (0..3).map(|thread| {
            let right = right.clone();
            std::thread::spawn(move || {
                for number in 0..count {
                    let bytes = (number * 3 + thread).to_le_bytes();
                    if number % 4 == 0 {
                        let reply = right.call_timeout(&bytes, PATIENCE).unwrap();
                        assert_eq!(*reply, bytes);
                    } else {
                        right.send_timeout(&bytes, PATIENCE).unwrap();
                    }
                    if number % 97 == 0 {
                        // Sleep: stands for work.
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
            })
        });
        threads
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        common::say("sent");
    }
}

/// Own memory in KiB, descriptors, and mappings of memory files of a process.
fn has(pid: u32) -> (usize, (usize, usize)) {
    (common::own_kib(pid), common::holdings(pid))
}

/// Nor have they more descriptors and mappings than before, once what is at its end has gone.
fn has_no_more(before: [(usize, (usize, usize)); 2], pids: [u32; 2]) {
    let now = || pids.map(common::holdings);
    let is_so = || {
        let both = now().into_iter().zip(before);
        both.into_iter()
            .all(|(now, (_, before))| now.0 <= before.0 && now.1 <= before.1)
    };
    assert!(common::within_patience(is_so), "{before:?} -> {:?}", now());
}

/// How long one may take: no time at all, a moment, or as long as it likes.
fn time_of(random: &mut Random) -> Option<Duration> {
    match random.below(4) {
        0 => Some(Duration::from_nanos(random.below(1000))),
        1 => Some(Duration::from_nanos(random.below(20_000_000))),
        _ => None,
    }
}

async fn within<T>(time: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match tokio::time::timeout(time.unwrap_or(PATIENCE), future).await {
        Ok(done) => Some(done),
        Err(_) => {
            assert!(time.is_some(), "it hangs");
            None
        }
    }
}

/// Each thread of a process has all slots of its lane again.
fn all_slots_are_free(right: &SendRight) -> bool {
    let calls: Vec<_> = (0..16).map(|_| right.try_call(b"slot")).collect();
    let all = calls.iter().all(Result::is_ok);
    calls
        .into_iter()
        .flatten()
        .for_each(|call| drop(call.wait_timeout(PATIENCE)));
    all
}

#[test]
fn a_thousand_calls_at_once_any_of_which_is_dropped() {
    let _alone = common::alone();
    if common::ran_in_own_process(a_thousand_calls_at_once_any_of_which_is_dropped) {
        return;
    }
    let (server, right) = common::serving("lazy", "calls");
    let mut random = Random::seeded("calls");
    let runtime = common::runtime(3);
    let (mut answered, mut dropped, mut before) = (0, 0, None);
    let rounds = rounds_asked(4);
    let began = Instant::now();
    for round in 0..rounds {
        let calls = (0..FUTURES).map(|number| {
            let (right, time) = (right.clone(), time_of(&mut random));
            let bytes = content(8 + random.below(300) as usize, round * FUTURES + number);
            runtime.spawn(async move {
                let reply = within(time, right.call_async(&bytes)).await;
                reply
                    .map(|reply| assert_eq!(*reply.unwrap(), *bytes))
                    .is_some()
            })
        });
        let calls: Vec<_> = calls.collect();
        // Some tasks are ended from outside, wherever they are.
        let aborted: Vec<_> = (0..50).map(|_| random.below(FUTURES) as usize).collect();
        aborted.iter().for_each(|of| calls[*of].abort());
        runtime.block_on(async {
            for call in calls {
                match call.await {
                    Ok(true) => answered += 1,
                    Ok(false) => dropped += 1,
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
            }
        });
        if round == rounds / 4 {
            before = Some([has(std::process::id()), has(server.pid())]);
        }
    }
    // Calls that were given up are answered still.
    assert!(common::within_patience(|| all_slots_are_free(&right)));
    let after = [has(std::process::id()), has(server.pid())];
    let took = began.elapsed();
    println!("{answered} answered, {dropped} dropped in {took:?}; {before:?} -> {after:?}");
    assert!(answered > 0 && dropped > 0);
    has_no_more(before.unwrap(), [std::process::id(), server.pid()]);
}

#[test]
fn a_thousand_sends_at_once_any_of_which_is_dropped() {
    let _alone = common::alone();
    if common::ran_in_own_process(a_thousand_sends_at_once_any_of_which_is_dropped) {
        return;
    }
    let (server, right) = common::serving("gate", "sends");
    let own = handfast::anonymous().unwrap();
    let mut random = Random::seeded("sends");
    let runtime = common::runtime(3);
    let rounds = rounds_asked(4);
    let (mut all, mut before) = (0, None);
    for round in 0..rounds {
        let sends = (0..FUTURES).map(|number| {
            let (right, time) = (right.clone(), time_of(&mut random));
            let number = 1 + round * FUTURES + number;
            let rights = number
                .is_multiple_of(10)
                .then(|| handfast::Right::from(own.mint(1)));
            runtime.spawn(async move {
                let bytes = number.to_le_bytes();
                let sent = match rights {
                    Some(own) => within(time, right.with([own]).send_async(&bytes)).await,
                    None => within(time, right.send_async(&bytes)).await,
                };
                sent.map(|sent| {
                    sent.unwrap();
                    number
                })
            })
        });
        let sends: Vec<_> = sends.collect();
        let (mut count, mut sum) = (0, 0u64);
        runtime.block_on(async {
            for send in sends {
                if let Some(number) = send.await.unwrap() {
                    count += 1;
                    sum = sum.wrapping_add(number);
                }
            }
        });
        // Other threads' messages may come behind this thread's call.
        let mut seen = (0, 0u64, 0);
        assert!(
            common::within_patience(|| {
                let reply = right.call_timeout(b"count", PATIENCE).unwrap();
                let text = String::from_utf8_lossy(&reply).into_owned();
                let words: Vec<u64> = text.split(' ').map(|word| word.parse().unwrap()).collect();
                seen = (
                    seen.0 + words[0],
                    seen.1.wrapping_add(words[1]),
                    seen.2 + words[2],
                );
                seen.0 >= count
            }),
            "{seen:?} of {count}"
        );
        assert_eq!(seen, (count, sum, 0), "what has come, and what was sent");
        all += count;
        if round == rounds / 4 {
            before = Some([has(std::process::id()), has(server.pid())]);
        }
    }
    own.notify_no_senders();
    assert!(own.receive_timeout(PATIENCE).unwrap().notice().is_some());
    let after = [has(std::process::id()), has(server.pid())];
    println!("{all} sent; {before:?} -> {after:?}");
    has_no_more(before.unwrap(), [std::process::id(), server.pid()]);
}

#[test]
fn a_thousand_receivers_at_once_any_of_which_is_dropped() {
    if common::ran_in_own_process(a_thousand_receivers_at_once_any_of_which_is_dropped) {
        return;
    }
    const EACH: u64 = 1000;
    let _alone = common::alone();
    let name = common::name("receives");
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::bind(&name).unwrap()));
    let mut source = common::start("source", &[&name]);
    source.expect("ready");
    let mut random = Random::seeded("receives");
    let runtime = common::runtime(3);
    let rounds = rounds_asked(4);
    let mut before = None;
    static RECEIVED: AtomicU64 = AtomicU64::new(0);
    let take = |request: handfast::Request| {
        if request.is_call() {
            let bytes = request.bytes().to_vec();
            request.reply(&bytes).unwrap();
        }
        RECEIVED.fetch_add(1, Ordering::Relaxed);
    };
    let mut dropped = 0;
    for round in 0..rounds {
        RECEIVED.store(0, Ordering::Relaxed);
        source.tell(&EACH.to_string());
        let end = Instant::now() + PATIENCE;
        while RECEIVED.load(Ordering::Relaxed) < 3 * EACH {
            assert!(
                Instant::now() < end,
                "{} of {} came",
                RECEIVED.load(Ordering::Relaxed),
                3 * EACH
            );
            let receives = (0..FUTURES).map(|_| {
                let time = match random.below(4) {
                    0 => Duration::from_nanos(random.below(1000)),
                    1 => Duration::from_nanos(random.below(2_000_000)),
                    _ => Duration::from_nanos(random.below(30_000_000)),
                };
                runtime.spawn(async move {
                    let received = within(Some(time), port.receive_async()).await;
                    received.map(|request| take(request.unwrap())).is_some()
                })
            });
            let receives: Vec<_> = receives.collect();
            runtime.block_on(async {
                for receive in receives {
                    dropped += u64::from(!receive.await.unwrap());
                }
            });
        }
        source.expect("sent");
        assert!(port.try_receive().is_err());
        if round == rounds / 4 {
            before = Some([has(std::process::id()), has(source.pid())]);
        }
    }
    let after = [has(std::process::id()), has(source.pid())];
    println!("{dropped} dropped; {before:?} -> {after:?}");
    has_no_more(before.unwrap(), [std::process::id(), source.pid()]);
}

/// No clock wakes these: a receiver that is called when nobody else looks must come.
#[test]
fn a_thousand_receivers_wait_and_the_last_message_is_taken_whoever_is_dropped() {
    let _alone = common::alone();
    let name = common::name("last");
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::bind(&name).unwrap()));
    let mut source = common::start("source", &[&name]);
    source.expect("ready");
    let mut random = Random::seeded("last");
    let runtime = common::runtime(3);
    for _ in 0..rounds_asked(4) {
        let receives = (0..FUTURES).map(|_| {
            runtime.spawn(async move {
                let request = port.receive_async().await.unwrap();
                if request.is_call() {
                    let bytes = request.bytes().to_vec();
                    request.reply(&bytes).unwrap();
                }
            })
        });
        let receives: Vec<_> = receives.collect();
        source.tell("100");
        let mut left = 300;
        runtime.block_on(async {
            let (mut ended, mut taken) = (0, 0);
            // Most are dropped while messages come; they take no message with them, so that what is left gets all.
            let mut kept = Vec::new();
            for receive in receives {
                if random.below(10) < 5 && ended < 600 {
                    receive.abort();
                    ended += 1;
                    match receive.await {
                        Ok(()) => taken += 1,
                        Err(error) => assert!(error.is_cancelled(), "{error}"),
                    }
                } else {
                    kept.push(receive);
                }
            }
            left -= taken;
            let end = Instant::now() + PATIENCE;
            while kept.iter().filter(|receive| receive.is_finished()).count() < left {
                assert!(
                    Instant::now() < end,
                    "some of {left} messages are not taken"
                );
                // Sleep: the interval of a poll with an end.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for receive in kept {
                receive.abort();
                let _ = receive.await;
            }
        });
        source.expect("sent");
        assert!(port.try_receive().is_err());
    }
}

/// All kinds in one task each, at one port of this process and one of another.
#[test]
fn a_killed_server_ends_a_thousand_futures() {
    let _alone = common::alone();
    for _ in 0..rounds_asked(2).min(50) {
        let (mut server, right) = common::serving("lazy", "ends");
        let runtime = common::runtime(2);
        let futures = (0..FUTURES).map(|number| {
            let right = right.clone();
            runtime.spawn(async move {
                loop {
                    let ended = match number % 2 {
                        0 => within(None, right.call_async(b"call")).await.unwrap().err(),
                        _ => within(None, right.send_async(b"send")).await.unwrap().err(),
                    };
                    if let Some(error) = ended {
                        break error;
                    }
                }
            })
        });
        let futures: Vec<_> = futures.collect();
        // Sleep: the calls are under way by then; the test holds either way.
        std::thread::sleep(Duration::from_millis(5));
        server.kill();
        runtime.block_on(async {
            for future in futures {
                let gone = SendError::Gone(handfast::error::Gone::Process);
                assert_eq!(future.await.unwrap(), gone);
            }
        });
    }
}
