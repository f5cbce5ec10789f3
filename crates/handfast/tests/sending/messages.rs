//! Messages between processes: every size, order, full queues, deadlines, strategies and
//! signals.

pub(crate) mod waiting;

use crate::common::{self, Random, call, content};
use handfast::error::{ReceiveError, SendError};
use handfast::{Batch, LONG_BYTES_MAX, MESSAGE_BYTES_MAX, NotReceived, Options, Strategy};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The role of a server that waits as `strategy` says.
pub(crate) fn server(name: &str, threads: &str, strategy: &str) {
    let strategy: Strategy = strategy.parse().unwrap();
    if strategy.notifies() {
        handfast::notify::notify(|| {}).unwrap();
    }
    let options = Options::new().strategy(strategy);
    common::echo(name, threads.parse().unwrap(), options);
}

#[test]
fn messages_of_every_size_come_back_intact() {
    let _alone = common::alone();
    let name = common::name("sizes");
    let server = common::start("echo by strategy", &[&name, "2", "adaptive"]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // A window into one long content: what comes back depends on size and place.
                let source = content(2 * MESSAGE_BYTES_MAX, 7);
                loop {
                    let len_bytes = next.fetch_add(1, Ordering::Relaxed);
                    if len_bytes > MESSAGE_BYTES_MAX {
                        return;
                    }
                    call(
                        &right,
                        &source[MESSAGE_BYTES_MAX - len_bytes..][..len_bytes],
                    );
                }
            });
        }
    });
    println!("{} sizes in {:?}", MESSAGE_BYTES_MAX + 1, start.elapsed());
    let long = vec![0; LONG_BYTES_MAX + 1];
    let refused = right.call(&long).unwrap_err();
    assert_eq!(
        refused,
        SendError::TooLong {
            len_bytes: long.len()
        }
    );
    assert!(refused.to_string().contains("67108864"), "{refused}");
    assert_eq!(right.send(&long).unwrap_err(), refused);
    call(&right, b"and on it goes");
}

/// Receivers and callers copy such messages while their senders still write them; some of these are given up midway, or have no room.
#[test]
fn long_messages_come_back_intact_beside_those_that_are_given_up() {
    /// All of one length of block: there are fewer of each where lengths are mixed.
    const LENGTHS: u64 = 512 * 1024;
    let name = common::name("long-intact");
    let server = common::start("echo by strategy", &[&name, "2", "adaptive"]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let seed = Random::seeded("long messages").next();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let right = &right;
            scope.spawn(move || {
                let mut random = Random::of(seed ^ thread);
                let source = content(3 * LENGTHS as usize, thread);
                for _ in 0..150 {
                    let len_bytes = (LENGTHS + 1 + random.below(LENGTHS)) as usize;
                    let from = random.below(LENGTHS) as usize;
                    let bytes = &source[from..][..len_bytes];
                    match random.below(40) {
                        // Seldom: such an answer keeps its memory until its slot is used again, and other answers may find none.
                        0 if thread == 0 => {
                            let timeout = Duration::from_micros(random.below(100));
                            match right.call_timeout(bytes, timeout) {
                                Ok(reply) => assert_eq!(reply.bytes(), bytes),
                                Err(error) => assert_eq!(error, SendError::TimedOut),
                            }
                        }
                        1..10 => match right.try_call(bytes) {
                            Ok(call) => assert_eq!(call.wait().unwrap().bytes(), bytes),
                            Err(error) => assert_eq!(error, SendError::Full),
                        },
                        _ => call(right, bytes),
                    }
                }
            });
        }
    });
}

#[test]
fn a_reply_that_is_longer_than_its_buffer_is_called_so() {
    let name = common::name("short-buffer");
    let mut server = common::start("echo by strategy", &[&name, "1", "block"]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let mut buffer = [9; 10];
    for len_bytes in [11, 100, 5000] {
        let error = right
            .call_into(&vec![7; len_bytes], &mut buffer)
            .unwrap_err();
        let room_bytes = buffer.len();
        let expected = SendError::ReplyTooLong {
            len_bytes,
            room_bytes,
        };
        assert_eq!(error, expected);
        let text = error.to_string();
        assert!(text.contains(&len_bytes.to_string()), "{text}");
        assert!(text.contains("the buffer has 10"), "{text}");
        assert_eq!(buffer, [9; 10]);
    }
    assert_eq!(right.call_into(&[7; 10], &mut buffer), Ok(10));
    assert_eq!(buffer, [7; 10]);
    server.finish();
}

/// One-way messages of the ordering tests: thread, number, then content by both.
fn numbered(thread: u32, number: u32) -> Vec<u8> {
    let len_bytes = (number as usize * 131) % 3000;
    let mut bytes = [thread.to_le_bytes(), number.to_le_bytes()].concat();
    bytes.extend(content(len_bytes, u64::from(thread)));
    bytes
}

const SENDERS: u32 = 6;
const RECEIVERS: usize = 3;
const NUMBERED: u32 = 3000;

/// Checks that of each sender every message comes exactly once. Three threads receive on one port;
/// a lock around "receive and note" keeps the order checkable.
pub(crate) fn collector(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let total = (SENDERS * NUMBERED) as usize;
    let came: Vec<_> = (0..total).map(|_| AtomicU32::new(0)).collect();
    let count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..RECEIVERS {
            scope.spawn(|| {
                let mut last = [None; SENDERS as usize];
                while count.load(Ordering::Relaxed) < total {
                    let request = match port.receive_timeout(Duration::from_millis(100)) {
                        Ok(request) => request,
                        Err(ReceiveError::TimedOut) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let word = |at: usize| {
                        u32::from_le_bytes(request.bytes()[at..at + 4].try_into().unwrap())
                    };
                    let (thread, number) = (word(0), word(4));
                    assert!(*request.bytes() == *numbered(thread, number));
                    // The messages that one receiver sees of one sender are in order.
                    assert!(
                        last[thread as usize] < Some(number),
                        "{thread}: {last:?} then {number}"
                    );
                    last[thread as usize] = Some(number);
                    let seen =
                        came[(thread * NUMBERED + number) as usize].fetch_add(1, Ordering::Relaxed);
                    assert_eq!(seen, 0, "message {number} of thread {thread} twice");
                    count.fetch_add(1, Ordering::Relaxed);
                    if request.is_call() {
                        request.reply(b"last").unwrap();
                    }
                }
            });
        }
    });
    assert!(came.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    common::say("all came once and in order");
    while common::told().is_some() {}
}

#[test]
fn several_senders_and_receivers_lose_and_double_nothing_and_keep_each_thread_in_order() {
    let _alone = common::alone();
    let name = common::name("collector");
    let server = common::start("collector of numbers", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..SENDERS {
            let right = &right;
            scope.spawn(move || {
                for number in 0..NUMBERED {
                    let bytes = numbered(thread, number);
                    if number % 50 == 0 {
                        right.call_timeout(&bytes, common::PATIENCE).unwrap();
                    } else {
                        right.send_timeout(&bytes, common::PATIENCE).unwrap();
                    }
                }
            });
        }
    });
    server.expect("all came once and in order");
}

/// Takes nothing until told how many, then checks that they are the next ones.
pub(crate) fn stalling_collector(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut next = 0;
    while let Some(line) = common::told() {
        for _ in 0..line.parse::<u32>().unwrap() {
            let request = port.receive_timeout(common::PATIENCE).unwrap();
            assert!(*request.bytes() == *numbered(0, next), "not message {next}");
            next += 1;
        }
        common::say(&next.to_string());
    }
}

#[test]
fn a_full_queue_is_said_by_try_send_and_waited_for_by_send() {
    let name = common::name("full");
    let mut server = common::start("stalling collector", &[&name]);
    server.expect("ready");
    for strategy in ["adaptive", "block", "sched", "spin"] {
        let options = Options::new().strategy(strategy.parse().unwrap());
        let right = handfast::connect_with(&name, options).unwrap();
        let mut sent = 0;
        // The collector counts on from strategy to strategy: so does its numbering.
        let number = |sent| numbered(0, sent);
        let first = server_count(&mut server);
        while right.try_send(&number(first + sent)).is_ok() {
            sent += 1;
            assert!(sent < 10_000, "the queue has no end");
        }
        let full = number(first + sent);
        assert_eq!(right.try_send(&full), Err(SendError::Full));
        let timed_out = right.send_timeout(&full, Duration::from_millis(10));
        assert_eq!(timed_out, Err(SendError::TimedOut));
        std::thread::scope(|scope| {
            // The thread that filled its lane is the one that waits for room in it.
            scope.spawn(|| server.tell(&(sent / 2).to_string()));
            right.send(&full).unwrap();
        });
        server.expect(&(first + sent / 2).to_string());
        server.tell(&(sent + 1 - sent / 2).to_string());
        server.expect(&(first + sent + 1).to_string());
        println!("{strategy}: full after {sent} messages");
    }
    server.finish();
}

fn server_count(server: &mut common::Child) -> u32 {
    server.tell("0");
    server.line().parse().unwrap()
}

#[test]
fn calls_started_without_waiting_are_answered_and_given_up_ones_stay_away() {
    let name = common::name("try");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    assert_eq!(port.try_receive().unwrap_err(), ReceiveError::Empty);
    let short = Duration::from_millis(5);
    assert_eq!(
        port.receive_timeout(short).unwrap_err(),
        ReceiveError::TimedOut
    );
    let mut calls = Vec::new();
    let full = loop {
        match right.try_call(&[calls.len() as u8]) {
            Ok(call) => calls.push(call),
            Err(error) => break error,
        }
    };
    assert_eq!(full, SendError::Full);
    assert!(calls.len() >= 16, "{}", calls.len());
    let given_up = calls.pop().unwrap().wait_timeout(short).unwrap_err();
    assert_eq!(given_up, SendError::TimedOut);
    drop(calls.pop());
    // Their slots are not used again before their replies have come.
    assert_eq!(right.try_call(b"x").err(), Some(SendError::Full));
    let first = calls.remove(0).try_wait().pending().unwrap();
    for _ in 0..calls.len() + 3 {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        let answer = [request.bytes()[0] + 1];
        request.reply(&answer).unwrap();
    }
    assert_eq!(*first.try_wait().ready().unwrap().unwrap(), [1]);
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(*call.wait().unwrap(), [number as u8 + 2]);
    }
    // The late replies to the two have not come to later calls.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                let request = port.receive_timeout(common::PATIENCE).unwrap();
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
        });
        (0..100u8).for_each(|number| call(&right, &[number]));
    });
}

/// Calls held and answered by a process that looks for others meanwhile.
const HELD: usize = 48;

/// Keeps calls from many lanes, then answers them all; what it has allocated more afterwards is said, in bytes.
pub(crate) fn holder(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let (mut held, mut before) = (Vec::new(), 0);
    for round in 0..3 {
        while held.len() < HELD {
            held.push(port.receive().unwrap());
        }
        for request in std::mem::take(&mut held) {
            // Finds nothing, with a buffer for what there might be; or the first of the next round.
            held.extend(port.reply_and_receive_timeout(request, b"", Duration::ZERO));
        }
        // SAFETY: takes nothing.
        let heap = unsafe { libc::mallinfo2() };
        let allocated = heap.uordblks + heap.hblkhd;
        if round == 0 {
            before = allocated;
        } else {
            common::say(&allocated.saturating_sub(before).to_string());
        }
    }
    common::told();
}

/// One lane each.
#[test]
fn a_server_keeps_few_buffers_of_long_messages_however_many_lanes_they_came_in() {
    let name = common::name("holder");
    let server = common::start("holder", &[&name]);
    server.expect("ready");
    let callers = HELD / 8;
    let right = handfast::connect(&name).unwrap();
    let mut clients: Vec<_> = (0..callers)
        .map(|_| common::start("long caller", &[&name]))
        .collect();
    for client in &clients {
        client.expect("ready");
    }
    // Short ones first, so that all lanes are known.
    for len_bytes in [100, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX] {
        for client in &mut clients {
            client.tell(&len_bytes.to_string());
        }
        for client in &clients {
            client.expect("called");
        }
    }
    drop(right);
    for _ in 0..2 {
        let more: usize = server.line().parse().unwrap();
        assert!(more < 16 * MESSAGE_BYTES_MAX, "{more} bytes more");
    }
}

/// Calls by eight threads at once, as long as it is told to, again and again.
pub(crate) fn long_caller(name: &str) {
    let rights: Vec<_> = (0..8).map(|_| handfast::connect(name).unwrap()).collect();
    common::say("ready");
    while let Some(told) = common::told() {
        let message = vec![7; told.parse().unwrap()];
        std::thread::scope(|scope| {
            for right in &rights {
                scope.spawn(|| right.call(&message).unwrap());
            }
        });
        common::say("called");
    }
}

/// Operations that share a deadline end at it, and those that begin after it end at once.
#[test]
fn a_deadline_bounds_all_operations_that_share_it() {
    let port = handfast::anonymous().unwrap();
    let right = port.mint(0).connect().unwrap();
    let limit = Duration::from_millis(50);
    let deadline = Instant::now() + limit;
    let timed_out = Err(SendError::TimedOut);
    // Nobody receives: the first waits until then, the others have nothing left.
    assert_eq!(right.call_deadline(b"first", deadline).map(drop), timed_out);
    assert!(deadline <= Instant::now());
    assert_eq!(
        right.call_deadline(b"second", deadline).map(drop),
        timed_out
    );
    let call = right.try_call(b"third").unwrap();
    assert_eq!(call.wait_deadline(deadline).map(drop), timed_out);
    let fourth = right.with([]).call_deadline(b"fourth", deadline);
    assert_eq!(fourth.unwrap_err().error, SendError::TimedOut);
    let later = Instant::now() + common::PATIENCE;
    while let Ok(request) = port.receive_deadline(Instant::now()) {
        assert_eq!(request.reply(b"late"), Ok(()));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = port.receive_deadline(later).unwrap();
            let empty = port.reply_and_receive_deadline(request, b"in time", deadline);
            assert_eq!(empty.unwrap_err(), ReceiveError::TimedOut);
        });
        assert_eq!(right.call_deadline(b"", later).unwrap().bytes(), b"in time");
    });
    while right.try_send(b"fill").is_ok() {}
    assert_eq!(
        right.send_deadline(b"more", deadline),
        Err(SendError::TimedOut)
    );
    assert!(
        Instant::now() < later,
        "nothing waited for the second deadline"
    );
}

/// As the test above, for operations of many messages, of rights, of calls that are passed on, and of names.
#[test]
fn a_deadline_bounds_the_other_operations_as_well() {
    let names = ["deadlines", "deadlines-full"].map(common::name);
    let [port, _full] = names.each_ref().map(|name| handfast::bind(name).unwrap());
    let later = Instant::now() + common::PATIENCE;
    let [right, to_full] = names.map(|name| handfast::connect_deadline(&name, later).unwrap());
    while to_full.try_send(b"fill").is_ok() {}
    // Each waits until then, or has nothing left.
    let deadline = Instant::now() + Duration::from_millis(20);
    let mut batch = Batch::new();
    let received = port.receive_many_deadline(&mut batch, deadline);
    assert_eq!(received.unwrap_err(), ReceiveError::TimedOut);
    assert!(deadline <= Instant::now());
    let unsent = to_full
        .send_many_deadline(&[b"more"], deadline)
        .unwrap_err();
    assert_eq!((unsent.sent, unsent.error), (0, SendError::TimedOut));

    let call = right.try_call(b"called").unwrap();
    let request = port.receive_deadline(later).unwrap();
    assert!(!request.wait_cancelled_deadline(deadline));
    let failed = request.forward_deadline(&to_full, b"passed", deadline);
    let failed = failed.unwrap_err();
    assert_eq!(failed.error, SendError::TimedOut);
    let given = [port.mint(1).into()];
    let received = port.reply_with_and_receive_deadline(failed.request, b"", given, deadline);
    let Err(NotReceived::Receive(ReceiveError::TimedOut)) = received else {
        panic!("{received:?}");
    };
    assert_eq!(call.wait_deadline(later).unwrap().take_rights().len(), 1);

    let call = right.try_call(b"called").unwrap();
    let (_, reply) = port.receive_deadline(later).unwrap().split();
    let reply = reply.unwrap();
    assert!(!reply.wait_cancelled_deadline(deadline));
    // The caller gets it, and does not answer in turn.
    let answered = reply.call_deadline(b"in turn", deadline).map(drop);
    assert_eq!(answered, Err(SendError::TimedOut));
    drop(call.wait_deadline(later).unwrap());
    assert!(
        Instant::now() < later,
        "nothing waited for the second deadline"
    );
}
