//! Scenes of one process with one port, step by step.

use super::{bind, block_on};
use crate::common;
use handfast::error::ReceiveError;
use handfast::{Notice, ReceiveRight};
use handfast_sys::poll::{Poll as Epoll, Trigger};
use handfast_sys::{AsFd, clock};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Scenes in which a ring for another port would hide what is wrong with one.
pub(crate) fn scene(what: &str) {
    match what {
        "dropped_when_woken" => dropped_when_woken(),
        "thread_beside" => thread_beside(),
        "own_notice" => own_notice(),
        "out_of_a_set" => out_of_a_set(),
        "port_taken" => port_taken(),
        "level_and_edge" => level_and_edge(),
        _ => unreachable!(),
    }
    common::say("done");
}

fn in_a_process_of_its_own(what: &str) {
    common::start("scene", &[what]).expect("done");
}

#[test]
fn a_future_that_is_dropped_when_it_was_woken_has_another_woken() {
    in_a_process_of_its_own("dropped_when_woken");
}

fn dropped_when_woken() {
    let (port, name) = bind("in-its-place");
    let client = handfast::connect(&name).unwrap();
    for round in 0..50u32 {
        let counts: [Arc<Count>; 2] = Default::default();
        let wakers = counts.clone().map(Waker::from);
        let mut first = Box::pin(port.receive_async());
        let mut second = Box::pin(port.receive_async());
        let poll = |future: &mut std::pin::Pin<Box<handfast::Receive<'_>>>, waker| {
            future.as_mut().poll(&mut Context::from_waker(waker))
        };
        assert!(poll(&mut first, &wakers[0]).is_pending());
        assert!(poll(&mut second, &wakers[1]).is_pending());
        client.send(&round.to_le_bytes()).unwrap();
        let woken = |of: usize| counts[of].0.load(Ordering::Relaxed);
        assert!(common::within_patience(|| woken(0) > 0));
        // One is enough.
        assert_eq!(woken(1), 0);
        drop(first);
        assert!(common::within_patience(|| woken(1) > 0));
        match poll(&mut second, &wakers[1]) {
            Poll::Ready(request) => assert_eq!(request.unwrap().bytes(), round.to_le_bytes()),
            Poll::Pending => panic!("it was woken for nothing"),
        }
    }
}

#[test]
fn a_thread_that_sleeps_is_woken_though_a_task_or_a_loop_was_there_last() {
    in_a_process_of_its_own("thread_beside");
}

fn thread_beside() {
    for by_descriptor in [false, true] {
        let (port, name) = bind(&format!("beside-{by_descriptor}"));
        let client = handfast::connect(&name).unwrap();
        for _ in 0..20 {
            let theirs = port.clone();
            let thread = std::thread::spawn(move || receive(&theirs));
            // Sleep: the thread sleeps by then, or is about to.
            std::thread::sleep(Duration::from_millis(2));
            if by_descriptor {
                port.readiness().unwrap();
                assert_eq!(port.try_receive().err(), Some(ReceiveError::Empty));
            } else {
                let mut future = Box::pin(port.receive_async());
                let waker = Waker::from(Arc::new(Count::default()));
                let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }
            client.send(b"for the thread").unwrap();
            assert_eq!(thread.join().unwrap(), b"for the thread");
        }
    }
}

#[test]
fn a_notice_that_comes_from_this_process_wakes_a_task_and_raises_the_descriptor() {
    in_a_process_of_its_own("own_notice");
}

fn own_notice() {
    for by_descriptor in [false, true] {
        let port = handfast::anonymous().unwrap();
        let own = port.mint(1);
        port.notify_no_senders();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut future = pin!(port.receive_async());
        let level = Epoll::new().unwrap();
        if by_descriptor {
            level
                .add(port.readiness().unwrap(), 0, Trigger::Level)
                .unwrap();
            assert_eq!(port.try_receive().err(), Some(ReceiveError::Empty));
        } else {
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        drop(own);
        let request = if by_descriptor {
            let mut events = Vec::new();
            level.wait(Some(clock::deadline_ns(common::PATIENCE)), &mut events);
            assert!(!events.is_empty());
            port.try_receive()
        } else {
            assert!(common::within_patience(
                || count.0.load(Ordering::Relaxed) > 0
            ));
            block_on(future)
        };
        assert_eq!(request.unwrap().notice(), Some(Notice::NoSenders));
    }
}

#[test]
fn a_port_that_comes_out_of_a_wait_set_tells_by_its_descriptor_what_is_there() {
    in_a_process_of_its_own("out_of_a_set");
}

fn out_of_a_set() {
    let (_, name) = bind("set");
    let port = handfast::bind(&format!("{name}-own")).unwrap();
    let client = handfast::connect(&format!("{name}-own")).unwrap();
    let poll = Epoll::new().unwrap();
    let readiness = port.readiness().unwrap().as_fd().try_clone_to_owned();
    poll.add(readiness.unwrap(), 0, Trigger::Level).unwrap();
    assert_eq!(port.try_receive().err(), Some(ReceiveError::Empty));
    let mut set = handfast::WaitSet::new().unwrap();
    let token = set.add(port);
    // The set sleeps in its own way, and nobody is to be rung for after that.
    let waited = set.receive_timeout(Duration::from_millis(1));
    assert_eq!(waited.err(), Some(ReceiveError::TimedOut));
    client.send(b"second").unwrap();
    let port = set.remove(token).unwrap();
    let mut events = Vec::new();
    poll.wait(Some(clock::deadline_ns(common::PATIENCE)), &mut events);
    assert!(!events.is_empty());
    assert_eq!(port.try_receive().unwrap().bytes(), b"second");
}

#[test]
fn a_loop_that_finds_the_port_taken_is_told_when_it_is_free() {
    in_a_process_of_its_own("port_taken");
}

fn port_taken() {
    let name = common::name("taken");
    let options = handfast::Options::new().strategy(handfast::Strategy::Spin);
    let port = Arc::new(handfast::bind_with(&name, options).unwrap());
    let client = handfast::connect(&name).unwrap();
    let (level, edge) = (Epoll::new().unwrap(), Epoll::new().unwrap());
    for poll in [&level, &edge] {
        let trigger = match std::ptr::eq(poll, &edge) {
            true => Trigger::Edge,
            false => Trigger::Level,
        };
        poll.add(port.readiness().unwrap(), 0, trigger).unwrap();
    }
    let is_ready = |poll: &Epoll, wait: Duration| {
        let mut events = Vec::new();
        poll.wait(Some(clock::deadline_ns(wait)), &mut events);
        !events.is_empty()
    };
    let theirs = port.clone();
    let (sender, looks) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).unwrap();
        receive(&theirs)
    });
    let looks = looks.recv().unwrap();
    // It looks all the time by then.
    assert!(common::within_patience(|| common::used_ticks(looks) > 2));
    assert!(is_ready(&edge, Duration::ZERO));
    assert_eq!(port.try_receive().err(), Some(ReceiveError::Empty));
    // As nobody has found it empty.
    assert!(is_ready(&level, common::PATIENCE));
    client.send(b"first").unwrap();
    assert_eq!(thread.join().unwrap(), b"first");
    client.send(b"second").unwrap();
    assert!(is_ready(&edge, common::PATIENCE));
    assert_eq!(port.try_receive().unwrap().bytes(), b"second");
}

#[test]
fn the_descriptor_is_readable_while_there_is_something_and_not_after() {
    in_a_process_of_its_own("level_and_edge");
}

fn level_and_edge() {
    let (port, name) = bind("level");
    let (level, edge) = (Epoll::new().unwrap(), Epoll::new().unwrap());
    level
        .add(port.readiness().unwrap(), 0, Trigger::Level)
        .unwrap();
    edge.add(port.readiness().unwrap(), 0, Trigger::Edge)
        .unwrap();
    let is_ready = |poll: &Epoll, wait: Duration| {
        let mut events = Vec::new();
        poll.wait(Some(clock::deadline_ns(wait)), &mut events);
        !events.is_empty()
    };
    let now = Duration::ZERO;
    // A ring for what was taken without it may be on its way, so it may be readable once more.
    let is_at_rest = || {
        while let Ok(request) = port.try_receive() {
            drop(request);
        }
        let _ = is_ready(&edge, now);
        !is_ready(&level, Duration::from_millis(1))
    };
    let client = handfast::connect(&name).unwrap();
    for round in 0..50u32 {
        assert!(common::within_patience(is_at_rest), "{round}");
        client.send(b"first").unwrap();
        assert!(is_ready(&edge, common::PATIENCE), "{round}");
        // The kernel tells one after the other.
        assert!(is_ready(&level, common::PATIENCE), "{round}");
        assert!(is_ready(&level, now), "{round}");
        client.send(b"second").unwrap();
        assert_eq!(port.try_receive().unwrap().bytes(), b"first");
        // The second makes no edge, but it is there, and the descriptor says so.
        assert!(is_ready(&level, now), "{round}");
        assert_eq!(port.try_receive().unwrap().bytes(), b"second");
        assert!(common::within_patience(is_at_rest), "{round}");
        // A message that is taken without a look at the descriptor.
        client.send(b"third").unwrap();
        assert_eq!(port.receive().unwrap().bytes(), b"third");
    }
}

/// How often it was woken.
#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn receive(port: &ReceiveRight) -> Vec<u8> {
    let request = port.receive_timeout(common::PATIENCE).unwrap();
    request.bytes().to_vec()
}
