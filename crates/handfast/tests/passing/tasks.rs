//! Calls that tasks wait for, on tokio, with servers in other processes.

use crate::common;
use handfast::SendRight;
use handfast::error::{Gone, SendError};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Answers `now` at once, and holds other calls until it is sent `go`; says how many of them had
/// been given up by then. `close` drops the port, and then the calls.
pub(crate) fn holder(name: &str) {
    let mut port = Some(handfast::bind(name).unwrap());
    common::say("ready");
    let mut held = Vec::new();
    while let Some(bound) = &port {
        let request = bound.receive().unwrap();
        match request.bytes() {
            b"now" => request.reply(b"now").unwrap(),
            b"count" => {
                let count = held.len().to_string();
                request.reply(count.as_bytes()).unwrap();
            }
            b"go" => {
                let given_up = held
                    .iter()
                    .filter(|held: &&handfast::Request| held.is_cancelled());
                common::say(&format!("{} given up", given_up.count()));
                for held in held.drain(..) {
                    let bytes = held.bytes().to_vec();
                    held.reply(&bytes).unwrap();
                }
            }
            b"close" => {
                port = None;
                held.clear();
            }
            _ => held.push(request),
        }
    }
    while common::told().is_some() {}
}

/// Passes every call on to another server.
pub(crate) fn passer(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let message = request.take_message();
        request.forward(&to, &message).unwrap();
    }
}

fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn many_tasks_each_get_their_own_replies() {
    is_send_and_sync::<SendRight>();
    let (mut server, right) = common::serving("echo", "many");
    common::runtime(2).block_on(common::patiently(async {
        let tasks: Vec<_> = (0..200u64)
            .map(|task| {
                let right = right.clone();
                tokio::spawn(async move {
                    for call in 0..100u64 {
                        let text = format!("{task} {call}");
                        let reply = right.call_async(text.as_bytes()).await.unwrap();
                        assert_eq!(&*reply, text.as_bytes());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }));
    server.kill();
}

#[test]
fn a_task_that_waits_is_woken_by_the_answer_and_not_by_a_clock() {
    let (mut server, right) = common::serving("holder", "woken");
    let (mut delays, mut pace) = (Vec::new(), common::Pace::new());
    common::runtime(1).block_on(common::patiently(async {
        for _ in 0..40 {
            pace.look();
            let call = right.clone();
            let call = tokio::spawn(async move {
                call.call_async(b"later")
                    .await
                    .map(|reply| (reply.to_vec(), Instant::now()))
            });
            until_held(&right, b"1").await;
            // Sleep: the task sleeps by then, or is about to.
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(!call.is_finished());
            let asked = Instant::now();
            right.send(b"go").unwrap();
            let (reply, came) = call.await.unwrap().unwrap();
            assert_eq!(reply, b"later");
            delays.push(came - asked);
        }
    }));
    let (middle, _, longest) = common::spread(&mut delays);
    println!("woken after {middle:?}, {longest:?} at the longest");
    // The control thread looks at sleeping callers every 50 ms anyway.
    let limit = pace.allows(Duration::from_millis(20));
    assert!(middle < limit, "{middle:?}, {limit:?}");
    server.kill();
}

async fn until_held(right: &SendRight, count: &[u8]) {
    while &*right.call_async(b"count").await.unwrap() != count {
        tokio::task::yield_now().await;
    }
}

#[test]
fn calls_that_wait_for_room_are_sent_when_others_have_ended_and_not_by_a_clock() {
    let (mut server, right) = common::serving("holder", "room");
    // By a link of its own, in whose lanes there is room.
    let node = handfast::Node::builder().directory(common::directory().clone());
    let node = node.start().unwrap();
    let control = node.connect(&common::name("room")).unwrap();
    let (mut delays, mut pace) = (Vec::new(), common::Pace::new());
    common::runtime(1).block_on(common::patiently(async {
        for _ in 0..20 {
            pace.look();
            // The lanes to a port have room for 192.
            let calls: Vec<_> = (0..194)
                .map(|_| {
                    let right = right.clone();
                    tokio::spawn(async move { right.call_async(b"later").await.unwrap() })
                })
                .collect();
            until_held(&control, b"192").await;
            // Sleep: the tasks sleep by then, or are about to.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let asked = Instant::now();
            control.send(b"go").unwrap();
            until_held(&control, b"2").await;
            delays.push(asked.elapsed());
            control.send(b"go").unwrap();
            for call in calls {
                assert_eq!(&*call.await.unwrap(), b"later");
            }
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
fn more_calls_than_a_lane_carries_wait_for_their_turn() {
    let (mut server, right) = common::serving("holder", "more");
    common::runtime(2).block_on(common::patiently(async {
        let calls: Vec<_> = (0..300u32)
            .map(|number| {
                let right = right.clone();
                tokio::spawn(async move { right.call_async(&number.to_le_bytes()).await })
            })
            .collect();
        let right = right.clone();
        let goes = tokio::task::spawn_blocking(move || {
            while Arc::strong_count(&right) > 2 {
                right.send(b"go").unwrap();
                // Sleep: the interval of a poll with an end.
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for (number, call) in calls.into_iter().enumerate() {
            let reply = call.await.unwrap().unwrap();
            assert_eq!(&*reply, (number as u32).to_le_bytes());
        }
        goes.await.unwrap();
    }));
    server.kill();
}

#[test]
fn a_future_that_is_dropped_gives_its_call_up_and_harms_no_other() {
    let (mut server, right) = common::serving("holder", "dropped");
    common::runtime(1).block_on(common::patiently(async {
        for round in 0..10 {
            let brief = Duration::from_millis(1);
            let dropped = tokio::time::timeout(brief, right.call_async(b"never")).await;
            assert!(dropped.is_err());
            assert_eq!(&*right.call_async(b"now").await.unwrap(), b"now", "{round}");
        }
        // More than a lane has slots: most wait for room, and some of those are dropped.
        let mut replies: Vec<_> = (0..20).map(|_| right.call_async(b"now")).collect();
        replies.truncate(2);
        right.send(b"go").unwrap();
        for reply in replies {
            assert_eq!(&*reply.await.unwrap(), b"now");
        }
    }));
    let said = server.line();
    // As many as the lane has slots, all of them given up, before it was full.
    assert!(
        said.ends_with("given up") && !said.starts_with("0 "),
        "{said}"
    );
    server.kill();
}

#[test]
fn tasks_hear_of_the_end_of_their_server_and_of_its_port() {
    let runtime = common::runtime(1);
    // Received calls end otherwise than those that were not.
    let both = [Gone::Port, Gone::Reply];
    for (order, ends) in [("", &[Gone::Process][..]), ("close", &both)] {
        let (mut server, right) = common::serving("holder", &format!("end-{order}"));
        let calls: Vec<_> = (0..30)
            .map(|_| {
                let right = right.clone();
                runtime.spawn(async move { right.call_async(b"held").await.err() })
            })
            .collect();
        runtime.block_on(common::patiently(async {
            while calls.iter().any(tokio::task::JoinHandle::is_finished) {
                tokio::task::yield_now().await;
            }
            // Sleep: the calls are under way by then; the test holds either way.
            tokio::time::sleep(Duration::from_millis(5)).await;
            if order.is_empty() {
                server.kill();
            } else {
                right.send(order.as_bytes()).unwrap();
            }
            for call in calls {
                let ended = call.await.unwrap();
                assert!(
                    matches!(ended, Some(SendError::Gone(end)) if ends.contains(&end)),
                    "{ended:?}"
                );
            }
        }));
        server.kill();
    }
}

#[test]
fn one_task_waits_for_a_reply_a_port_and_a_timer_at_once() {
    #[derive(Debug, PartialEq)]
    enum Came {
        Reply(Vec<u8>),
        Message(Vec<u8>),
        Time,
    }
    let (mut server, right) = common::serving("holder", "one-task");
    let port = handfast::anonymous().unwrap();
    let own = port.mint(1).connect().unwrap();
    common::runtime(1).block_on(common::patiently(async {
        for first in 0..3 {
            let mut reply = right.call_async(b"held");
            let mut message = port.receive_async();
            let long = if first == 0 {
                Duration::from_millis(2)
            } else {
                common::PATIENCE
            };
            // Sleep: the timer that is waited for beside the others.
            let time = tokio::time::sleep(long);
            tokio::pin!(time);
            until_held(&right, b"1").await;
            match first {
                0 => {}
                1 => own.send(b"sent").unwrap(),
                _ => right.send(b"go").unwrap(),
            }
            let came = tokio::select! {
                reply = &mut reply => Came::Reply(reply.unwrap().to_vec()),
                request = &mut message => Came::Message(request.unwrap().bytes().to_vec()),
                () = &mut time => Came::Time,
            };
            let expected = match first {
                0 => Came::Time,
                1 => Came::Message(b"sent".to_vec()),
                _ => Came::Reply(b"held".to_vec()),
            };
            assert_eq!(came, expected);
            // Another round begins with nothing held.
            if first < 2 {
                right.send(b"go").unwrap();
                assert_eq!(&*reply.await.unwrap(), b"held");
            }
        }
    }));
    server.kill();
}

#[test]
fn a_call_that_is_passed_on_is_waited_for_where_its_answer_comes() {
    let (mut server, held) = common::serving("holder", "behind");
    let name = common::name("passer");
    let mut passer = common::start("passer", &[&name, &common::name("behind")]);
    passer.expect("ready");
    let right = Arc::new(handfast::connect(&name).unwrap());
    common::runtime(1).block_on(common::patiently(async {
        assert_eq!(&*right.call_async(b"now").await.unwrap(), b"now");
        for _ in 0..20 {
            let call = right.clone();
            let call = tokio::spawn(async move { call.call_async(b"later").await });
            until_held(&held, b"1").await;
            held.send(b"go").unwrap();
            assert_eq!(&*call.await.unwrap().unwrap(), b"later");
        }
    }));
    passer.kill();
    server.kill();
}

#[test]
fn whatever_is_dropped_and_waited_for_at_random_all_others_are_answered() {
    let (mut server, right) = common::serving("echo", "random");
    let mut random = common::Random::seeded("tasks");
    let runtime = common::runtime(3);
    let end = Instant::now() + common::campaign(2);
    let (mut answered, mut dropped) = (0, 0);
    while Instant::now() < end {
        let calls: Vec<_> = (0..random.below(100))
            .map(|number| {
                let right = right.clone();
                let brief = random.below(2) == 0;
                let timeout = if brief {
                    Duration::from_nanos(random.below(2_000_000))
                } else {
                    common::PATIENCE
                };
                let bytes = common::content(random.below(2000) as usize, number);
                runtime.spawn(async move {
                    match tokio::time::timeout(timeout, right.call_async(&bytes)).await {
                        Ok(reply) => assert_eq!(*reply.unwrap(), *bytes),
                        Err(_) => assert!(brief, "it hangs"),
                    }
                    brief
                })
            })
            .collect();
        runtime.block_on(async {
            for call in calls {
                *(if call.await.unwrap() {
                    &mut dropped
                } else {
                    &mut answered
                }) += 1;
            }
        });
    }
    println!("{answered} answered, {dropped} brief");
    server.kill();
}

#[test]
#[should_panic(expected = "not polled after it was ready")]
fn a_reply_that_was_ready_is_not_polled_again() {
    let port = handfast::anonymous().unwrap();
    let right = port.mint(0).connect().unwrap();
    let server = std::thread::spawn(move || port.receive().unwrap().reply(b"").unwrap());
    let mut reply = std::pin::pin!(right.call_async(b""));
    let mut context = Context::from_waker(Waker::noop());
    while reply.as_mut().poll(&mut context).is_pending() {
        std::thread::yield_now();
    }
    server.join().unwrap();
    let _ = reply.as_mut().poll(&mut context);
}
