//! Many one-way messages in one operation: order, calls in between, every length, full queues,
//! deadlines, several senders, and the death of either side midway.

use crate::common;
use crate::common::{Random, content};
use handfast::error::{Gone, ReceiveError, SendError, Unsent};
use handfast::{
    BATCH_MESSAGES_MAX, Batch, LONG_BYTES_MAX, MESSAGE_BYTES_MAX, Options, SendRight, Strategy,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lengths of messages a sender with this seed sends, from nothing to the longest.
struct Lengths(Random);

impl Lengths {
    fn next(&mut self) -> usize {
        let bound = match self.0.below(40) {
            0 => MESSAGE_BYTES_MAX as u64 + 1,
            1..4 => 3000,
            _ => 60,
        };
        self.0.below(bound) as usize
    }
}

/// Receives from one sender at a time and checks every byte; a call asks how many there were.
pub(crate) fn collector(name: &str, strategy: Strategy) {
    let port = handfast::bind_with(name, Options::new().strategy(strategy)).unwrap();
    common::say("ready");
    let mut batch = Batch::new();
    let mut known: Vec<(handfast::Peer, u64, Lengths, u64)> = Vec::new();
    loop {
        let call = port.receive_many(&mut batch).unwrap();
        assert!(batch.messages().len() <= BATCH_MESSAGES_MAX);
        assert!(call.is_some() || !batch.messages().is_empty());
        if let Some(peer) = batch.peer() {
            let place = known.iter().position(|(of, ..)| *of == peer);
            let place = place.unwrap_or_else(|| {
                // The first message of each sender is its seed.
                known.push((peer, 0, Lengths(Random::of(0)), u64::MAX));
                known.len() - 1
            });
            let (_, seed, lengths, count) = &mut known[place];
            for message in batch.messages() {
                if *count == u64::MAX {
                    *seed = u64::from_le_bytes((&**message).try_into().unwrap());
                    *lengths = Lengths(Random::of(*seed));
                    *count = 0;
                    continue;
                }
                let expected = content(lengths.next(), *seed ^ *count);
                assert!(**message == *expected, "message {count} of {seed}");
                *count += 1;
            }
        }
        if let Some(request) = call {
            assert!(request.is_call());
            let peer = request.peer();
            let count = known.iter().find(|(of, ..)| *of == peer).unwrap().3;
            // Its caller may have been killed.
            let _ = request.reply(&count.to_le_bytes());
        }
    }
}

/// Sends `messages` messages in batches of all sizes, asking now and then how many have come.
fn feed(right: &SendRight, seed: u64, messages: u64) {
    let mut random = Random::of(!seed);
    let mut lengths = Lengths(Random::of(seed));
    right.send(&seed.to_le_bytes()).unwrap();
    let mut sent = 0;
    while sent < messages {
        let size = match random.below(4) {
            0 => random.below(200),
            _ => random.below(20),
        };
        let batch: Vec<_> = (sent..sent + size)
            .map(|count| content(lengths.next(), seed ^ count))
            .collect();
        right.send_many(&batch).unwrap();
        sent += size;
        if random.below(10) == 0 {
            let reply = right.call_timeout(b"how many?", common::PATIENCE).unwrap();
            assert_eq!(*reply, sent.to_le_bytes());
        }
    }
    let reply = right.call_timeout(b"how many?", common::PATIENCE).unwrap();
    assert_eq!(*reply, sent.to_le_bytes());
}

pub(crate) fn feeder(name: &str, seed: u64) {
    feed(&handfast::connect(name).unwrap(), seed, 20_000);
    common::say("fed");
}

#[test]
fn batches_of_several_senders_arrive_whole_and_in_order_whatever_the_strategy() {
    let _alone = common::alone();
    let mut random = Random::seeded("batches");
    for strategy in ["adaptive", "block", "spin"] {
        let name = common::name(strategy);
        let server = common::start("collector", &[&name, strategy]);
        server.expect("ready");
        let feeders: Vec<_> = (0..3)
            .map(|_| common::start("feeder", &[&name, &random.next().to_string()]))
            .collect();
        for mut feeder in feeders {
            feeder.expect("fed");
            feeder.finish();
        }
    }
}

/// A port whose messages this process receives itself, and a right to it.
fn pair(what: &str) -> (handfast::ReceiveRight, SendRight) {
    let name = common::name(what);
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    (port, right)
}

#[test]
fn what_does_not_fit_is_counted_and_what_was_sent_is_received() {
    let (port, right) = pair("counted");
    let messages: Vec<_> = (0..1000u32).map(u32::to_le_bytes).collect();
    let unsent = right.try_send_many(&messages).unwrap_err();
    let fits = unsent.sent;
    assert!((1..1000).contains(&fits), "{fits}");
    let none = |error| Err(Unsent { sent: 0, error });
    assert_eq!(unsent.error, SendError::Full);
    assert_eq!(right.try_send_many(&messages), none(SendError::Full));
    let short = Duration::from_millis(2);
    assert_eq!(
        right.send_many_timeout(&messages, short),
        none(SendError::TimedOut)
    );
    let mut batch = Batch::new();
    assert!(port.receive_many(&mut batch).unwrap().is_none());
    assert_eq!(batch.messages().len(), fits);
    assert_eq!(batch.peer().unwrap().pid, std::process::id());
    for (message, sent) in batch.messages().iter().zip(&messages) {
        assert_eq!(**message, *sent);
    }
    // Room for some: those are counted, not lost.
    let unsent = right.send_many_timeout(&messages, short).unwrap_err();
    assert_eq!(unsent.error, SendError::TimedOut);
    let some = unsent.sent;
    assert_eq!(some, fits);
    assert!(port.try_receive_many(&mut batch).unwrap().is_none());
    assert_eq!(batch.messages().len(), some);
    assert_eq!(
        port.try_receive_many(&mut batch).unwrap_err(),
        ReceiveError::Empty
    );
    assert!(batch.messages().is_empty() && batch.peer().is_none());
    assert_eq!(
        port.receive_many_timeout(&mut batch, short).unwrap_err(),
        ReceiveError::TimedOut
    );
    assert_eq!(right.send_many(&[] as &[&[u8]]), Ok(()));
}

/// A message that takes a while to come by.
struct Slow;

impl Slow {
    const TAKES: Duration = Duration::from_micros(100);
}

impl AsRef<[u8]> for Slow {
    fn as_ref(&self) -> &[u8] {
        let end = Instant::now() + Self::TAKES;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        b"slow"
    }
}

#[test]
fn a_deadline_passes_also_while_the_receiver_keeps_up() {
    let _alone = common::alone();
    let (port, right) = pair("keeps-up");
    let messages: Vec<_> = (0..3000).map(|_| Slow).collect();
    let in_all = Slow::TAKES * 3000;
    let stop = AtomicBool::new(false);
    let (unsent, took, received) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut batch, mut received) = (Batch::new(), 0);
            while !stop.load(Ordering::Acquire) {
                let _ = port.receive_many_timeout(&mut batch, Duration::from_millis(1));
                received += batch.messages().len();
            }
            while port.try_receive_many(&mut batch).is_ok() {
                received += batch.messages().len();
            }
            received
        });
        let start = Instant::now();
        let unsent = right.send_many_timeout(&messages, in_all / 30);
        let took = start.elapsed();
        stop.store(true, Ordering::Release);
        (unsent.unwrap_err(), took, receiver.join().unwrap())
    });
    assert_eq!(unsent.error, SendError::TimedOut);
    assert_eq!(unsent.sent, received);
    // By a batch, on a machine that does nothing else.
    println!("{took:?} of {:?}", in_all / 30);
}

#[test]
fn a_message_that_is_too_long_ends_the_sending_before_it() {
    let (port, right) = pair("too-long");
    let long = vec![0; LONG_BYTES_MAX + 1];
    let messages: [&[u8]; 4] = [b"one", b"two", &long, b"four"];
    let len_bytes = LONG_BYTES_MAX + 1;
    let error = SendError::TooLong { len_bytes };
    let unsent = right.send_many(&messages).unwrap_err();
    assert_eq!(unsent, Unsent { sent: 2, error });
    assert!(unsent.to_string().contains("after 2 messages"), "{unsent}");
    let mut batch = Batch::new();
    assert!(port.receive_many(&mut batch).unwrap().is_none());
    let received: Vec<_> = batch.messages().iter().map(|message| &**message).collect();
    assert_eq!(received, [b"one", b"two"]);
}

#[test]
fn a_call_ends_a_batch_and_comes_after_what_was_sent_before_it() {
    let (port, right) = pair("call-between");
    assert_eq!(right.send_many(&[b"first", b"other"]), Ok(()));
    let call = right.try_call(b"asked").unwrap();
    assert_eq!(right.send_many(&[b"after"]), Ok(()));
    let mut batch = Batch::new();
    let request = port.receive_many(&mut batch).unwrap().unwrap();
    assert_eq!(batch.messages().len(), 2);
    assert_eq!(request.bytes(), b"asked");
    request.reply(b"answered").unwrap();
    assert_eq!(&*call.wait().unwrap(), b"answered");
    // Alone, as the first of a batch.
    assert!(port.receive_many(&mut batch).unwrap().is_none());
    assert_eq!(&*batch.messages()[0], b"after");
    let call = right.try_call(b"again").unwrap();
    let request = port.receive_many(&mut batch).unwrap().unwrap();
    assert!(batch.messages().is_empty());
    // Dropped unanswered: its caller is told.
    drop(request);
    assert_eq!(call.wait().unwrap_err(), SendError::Gone(Gone::Reply));
}

const SIGNED: u64 = 30_000;

/// Sends its number in every message.
pub(crate) fn signer(name: &str) {
    let right = handfast::connect(name).unwrap();
    let own = std::process::id().to_le_bytes();
    for _ in 0..SIGNED / 3 {
        assert_eq!(right.send_many(&[own; 3]), Ok(()));
    }
    common::say("signed");
    while common::told().is_some() {}
}

#[test]
fn a_batch_is_of_one_sender_also_when_several_threads_receive() {
    let _alone = common::alone();
    let name = common::name("signed");
    let port = handfast::bind(&name).unwrap();
    let count = AtomicU64::new(0);
    let signers: Vec<_> = (0..3).map(|_| common::start("signer", &[&name])).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut batch = Batch::new();
                while count.load(Ordering::Relaxed) < 3 * SIGNED {
                    let short = Duration::from_millis(10);
                    match port.receive_many_timeout(&mut batch, short) {
                        Ok(call) => assert!(call.is_none()),
                        Err(error) => assert_eq!(error, ReceiveError::TimedOut),
                    }
                    for message in batch.messages() {
                        assert_eq!(**message, batch.peer().unwrap().pid.to_le_bytes());
                    }
                    count.fetch_add(batch.messages().len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 3 * SIGNED);
    for mut signer in signers {
        signer.expect("signed");
        signer.finish();
    }
}

#[test]
fn messages_of_a_sender_killed_midway_are_received_and_the_receivers_death_is_told() {
    let _alone = common::alone();
    let mut random = Random::seeded("killed feeders");
    let name = common::name("killed");
    let mut server = common::start("collector", &[&name, "adaptive"]);
    server.expect("ready");
    for _ in 0..20 {
        let mut feeder = common::start("feeder", &[&name, &random.next().to_string()]);
        // The first answer is somewhere in the middle of its sending.
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        feeder.kill();
    }
    // It has checked every byte that came, and serves on.
    let right = handfast::connect(&name).unwrap();
    feed(&right, random.next(), 500);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            loop {
                match right.send_many(&[[1; 24]; 64]) {
                    Ok(()) => {}
                    Err(unsent) => return unsent.error,
                }
            }
        });
        server.kill();
        let error = sending.join().unwrap();
        assert!(matches!(error, SendError::Gone(_)), "{error:?}");
    });
}

/// A message whose bytes may not be to be had.
enum Maybe {
    Bytes(&'static [u8]),
    Panics,
}

impl AsRef<[u8]> for Maybe {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Panics => panic!("as asked"),
        }
    }
}

#[test]
fn what_was_sent_before_a_panic_wakes_its_receiver_and_the_right_goes_on() {
    let (port, right) = pair("panics");
    port.set_options(Options::new().strategy(Strategy::Block));
    let messages = [Maybe::Bytes(b"first"), Maybe::Panics];
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok(request) = port.receive_timeout(common::PATIENCE) {
                let bytes = request.bytes().to_vec();
                if sender.send(bytes.clone()).is_err() || bytes == b"last" {
                    return;
                }
            }
        });
        for _ in 0..5 {
            // Sleep: the receiver sleeps by then, or is about to.
            std::thread::sleep(Duration::from_millis(1));
            let sending = std::panic::AssertUnwindSafe(|| right.send_many(&messages));
            assert!(std::panic::catch_unwind(sending).is_err());
            let first = received.recv_timeout(common::TOLD);
            assert_eq!(first.unwrap(), b"first");
        }
        right.send_many(&[b"last"]).unwrap();
        assert_eq!(received.recv_timeout(common::PATIENCE).unwrap(), b"last");
    });
}

/// Bytes to send; they are asked for in the middle of an operation, and use the right then.
struct Uses<'a>(&'a SendRight, u32, &'a AtomicU64);

impl AsRef<[u8]> for Uses<'_> {
    fn as_ref(&self) -> &[u8] {
        let Self(right, how, count) = self;
        let inner = match how % 6 {
            0 => right.try_send(b"inner").is_ok(),
            1 => {
                drop(right.try_call(b"inner"));
                false
            }
            2 => right.send_timeout(b"inner", common::PATIENCE).is_ok(),
            3 => right.send_many(&[b"inner"]).is_ok(),
            4 => SendRight::clone(right).with([]).send(b"inner").is_ok(),
            _ => right.call(b"inner").is_err(),
        };
        count.fetch_add(inner.into(), Ordering::Relaxed);
        b"outer"
    }
}

/// Soundness finding 6: an `as_ref` that used the right waited for ever for the lane that its own thread had locked.
#[test]
fn a_message_whose_bytes_are_made_by_use_of_the_same_right_is_sent() {
    let (port, right) = pair("uses");
    let inner = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut count = [0u64; 2];
            loop {
                let request = port.receive().unwrap();
                match request.bytes() {
                    b"end" => return count,
                    b"inner" if request.is_call() => request.reply(b"").unwrap(),
                    bytes => count[usize::from(bytes == b"outer")] += 1,
                }
            }
        });
        let messages: Vec<_> = (0..300).map(|how| Uses(&right, how, &inner)).collect();
        right.send_many(&messages).unwrap();
        for message in &messages[..12] {
            let _ = right.try_send(message.as_ref());
            right
                .send_timeout(message.as_ref(), common::PATIENCE)
                .unwrap();
        }
        right.send(b"end").unwrap();
        let [got_inner, got_outer] = receiver.join().unwrap();
        assert_eq!(got_inner, inner.load(Ordering::Relaxed));
        assert!((300 + 12..=300 + 24).contains(&got_outer), "{got_outer}");
    });
}
