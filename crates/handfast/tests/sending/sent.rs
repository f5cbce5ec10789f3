//! One-way messages that tasks wait to send, on tokio, to receivers in other processes.

use crate::common;
use crate::common::Child;
use handfast::SendRight;
use handfast::error::{Gone, SendError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Takes that many messages each time it is told a number, and says how many of their rights were rights, and whether each
/// sender's came in order: they begin with the sender and a number.
pub(crate) fn gate(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut last = [0u64; 64];
    while let Some(text) = common::told() {
        let (mut in_order, mut rights) = (true, 0);
        for _ in 0..text.parse::<u64>().unwrap() {
            let mut request = port.receive().unwrap();
            let words = request.bytes().as_chunks::<8>().0;
            let [sender, number] = [words[0], words[1]].map(u64::from_le_bytes);
            in_order &= core::mem::replace(&mut last[sender as usize], number) < number;
            rights += request.take_rights().len();
        }
        common::say(&format!("{in_order} {rights}"));
    }
}

fn start(what: &str) -> (Child, Arc<SendRight>) {
    let name = common::name(what);
    let server = common::start("gate", &[&name]);
    server.expect("ready");
    (server, Arc::new(handfast::connect(&name).unwrap()))
}

fn message(sender: u64, number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&sender.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Fills the lane of the thread that runs this with messages after `number`; returns the number of the last one.
fn fill(right: &SendRight, sender: u64, mut number: u64) -> u64 {
    loop {
        match right.try_send(&message(sender, number + 1)) {
            Ok(()) => number += 1,
            Err(error) => {
                assert_eq!(error, SendError::Full);
                return number;
            }
        }
    }
}

/// Tasks on one thread, whose lane is the only one.
fn one_thread() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

const MOMENT: Duration = Duration::from_millis(2);

#[test]
fn a_task_that_waits_for_room_goes_on_when_there_is_some_and_not_by_a_clock() {
    let (mut server, right) = start("room");
    let (mut delays, mut pace) = (Vec::new(), common::Pace::new());
    one_thread().block_on(common::patiently(async {
        let mut last = 0;
        for _ in 0..20 {
            pace.look();
            let full = fill(&right, 0, last);
            let waiting = right.clone();
            let waits = tokio::spawn(async move {
                waiting.send_async(&message(0, full + 1)).await.unwrap();
                Instant::now()
            });
            // Sleep: the task waits by then; the test holds either way.
            tokio::time::sleep(MOMENT).await;
            assert!(!waits.is_finished());
            let asked = Instant::now();
            server.tell(&(full + 1 - last).to_string());
            delays.push(waits.await.unwrap() - asked);
            server.expect("true 0");
            last = full + 1;
        }
    }));
    let (middle, _, longest) = common::spread(&mut delays);
    println!("sent after {middle:?}, {longest:?} at the longest");
    // The control thread wakes them every 50 ms anyway.
    let limit = pace.allows(Duration::from_millis(20));
    assert!(middle < limit, "{middle:?}, {limit:?}");
    server.kill();
}

#[test]
fn long_messages_of_tasks_wait_for_the_memory_that_earlier_ones_are_in() {
    let (mut server, right) = start("long");
    let long = |sender, number| {
        let mut bytes = vec![7; 100_000];
        bytes[..16].copy_from_slice(&message(sender, number));
        bytes
    };
    one_thread().block_on(common::patiently(async {
        let mut full = 0;
        while right.try_send(&long(0, full + 1)).is_ok() {
            full += 1;
        }
        let wait = |sender| {
            let (right, bytes) = (right.clone(), long(sender, 1));
            tokio::spawn(async move { right.send_async(&bytes).await })
        };
        let waits: Vec<_> = (1..=10).map(wait).collect();
        tokio::task::yield_now().await;
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        server.tell(&(full + 10).to_string());
        for wait in waits {
            wait.await.unwrap().unwrap();
        }
        server.expect("true 0");
    }));
    server.kill();
}

#[test]
fn messages_of_tasks_and_threads_that_wait_for_room_all_arrive_and_each_ones_in_order() {
    const EACH: u64 = 3_000;
    let (mut server, right) = start("all");
    server.tell(&(6 * EACH).to_string());
    std::thread::scope(|scope| {
        // Two that may share a lane with one another or with the tasks.
        for sender in 0..2 {
            let right = &right;
            scope.spawn(move || {
                for number in 1..=EACH {
                    right.send(&message(sender, number)).unwrap();
                }
            });
        }
        one_thread().block_on(common::patiently(async {
            let send = |sender| {
                let right = right.clone();
                tokio::spawn(async move {
                    for number in 1..=EACH {
                        right.send_async(&message(sender, number)).await.unwrap();
                    }
                })
            };
            for task in (2..6).map(send).collect::<Vec<_>>() {
                task.await.unwrap();
            }
        }));
    });
    server.expect("true 0");
    server.kill();
}

#[test]
fn what_is_dropped_while_it_waits_is_not_sent() {
    let (mut server, right) = start("dropped");
    one_thread().block_on(common::patiently(async {
        let full = fill(&right, 0, 0);
        let waiting = right.clone();
        let waits = tokio::spawn(async move { waiting.send_async(&message(0, full + 1)).await });
        // Sleep: the task waits by then; the test holds either way.
        tokio::time::sleep(MOMENT).await;
        waits.abort();
        assert!(waits.await.is_err());
        server.tell(&full.to_string());
        server.expect("true 0");
        // Were it there, this would be its double.
        right.send_async(&message(0, full + 1)).await.unwrap();
        server.tell("1");
        server.expect("true 0");
    }));
    server.kill();
}

#[test]
fn rights_go_with_what_waits_for_room() {
    let (mut server, right) = start("rights");
    let own = handfast::anonymous().unwrap();
    one_thread().block_on(common::patiently(async {
        let full = fill(&right, 0, 0);
        let (waiting, rights) = (right.clone(), [own.mint(1).into(), own.mint(2).into()]);
        let waits = tokio::spawn(async move {
            let message = message(0, full + 1);
            waiting.with(rights).send_async(&message).await
        });
        // Sleep: the task waits by then; the test holds either way.
        tokio::time::sleep(MOMENT).await;
        server.tell(&(full + 1).to_string());
        waits.await.unwrap().unwrap();
        server.expect("true 2");
    }));
    server.kill();
}

#[test]
fn who_waits_for_room_hears_of_the_end_of_the_receiver() {
    let (mut server, right) = start("killed");
    one_thread().block_on(common::patiently(async {
        fill(&right, 0, 0);
        let send = |_| {
            let right = right.clone();
            tokio::spawn(async move { right.send_async(&message(0, u64::MAX)).await })
        };
        let waits: Vec<_> = (0..5).map(send).collect();
        // Sleep: the task waits by then; the test holds either way.
        tokio::time::sleep(MOMENT).await;
        server.kill();
        for sent in waits {
            let error = sent.await.unwrap().unwrap_err();
            assert_eq!(error, SendError::Gone(Gone::Process));
        }
    }));
}
