//! Receive rights under unusual use: several threads, options changed midway, names bound again.

mod common;

use handfast::error::{Gone, SendError};
use handfast::{Options, Strategy};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn a_child_process_plays_its_role() {
    common::play(|_, _| unreachable!());
}

#[test]
fn a_thread_that_only_tries_leaves_the_next_message_to_one_that_sleeps() {
    let name = common::name("tries");
    let port = handfast::bind_with(&name, Options::new().strategy(Strategy::Block)).unwrap();
    let right = handfast::connect(&name).unwrap();
    let (sender, received) = channel();
    std::thread::scope(|scope| {
        let port = &port;
        scope.spawn(move || {
            loop {
                let bytes = port.receive().unwrap().bytes().to_vec();
                sender.send(bytes.clone()).unwrap();
                if bytes == b"end" {
                    return;
                }
            }
        });
        for round in 0..50u32 {
            // Until the other thread sleeps, and then one that this thread takes.
            std::thread::sleep(Duration::from_micros(300));
            right.send(b"either").unwrap();
            let end = Instant::now() + Duration::from_millis(1);
            let mut tried = false;
            while !tried && Instant::now() < end {
                tried = port.try_receive().is_ok();
            }
            if !tried {
                assert_eq!(received.recv_timeout(common::PATIENCE).unwrap(), b"either");
            }
            // This thread does not come back for it.
            right.send(&round.to_le_bytes()).unwrap();
            let got = received.recv_timeout(common::PATIENCE);
            assert_eq!(
                got.unwrap(),
                round.to_le_bytes(),
                "round {round}, tried {tried}"
            );
        }
        right.send(b"end").unwrap();
    });
}

#[test]
fn options_are_set_while_another_thread_spins_for_ever() {
    let name = common::name("options");
    for strategy in [
        Strategy::Spin,
        Strategy::Sched,
        Strategy::Block,
        Strategy::Adaptive,
    ] {
        let port = handfast::bind_with(&name, Options::new().strategy(strategy)).unwrap();
        let right = handfast::connect(&name).unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                for _ in 0..2 {
                    let request = port.receive().unwrap();
                    let bytes = request.bytes().to_vec();
                    request.reply(&bytes).unwrap();
                }
            });
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            port.set_options(Options::new().strategy(Strategy::Block));
            assert!(start.elapsed() < Duration::from_secs(1), "{strategy:?}");
            assert_eq!(&*right.call_until(b"1", common::PATIENCE).unwrap(), b"1");
            assert_eq!(&*right.call_until(b"2", common::PATIENCE).unwrap(), b"2");
            receiver.join().unwrap();
        });
    }
}

#[test]
fn a_name_bound_again_has_new_rights_that_work_and_old_ones_that_say_so() {
    let name = common::name("again");
    // Keeps the link alive, so that the next port's rights use it too.
    let first = handfast::bind(&name).unwrap();
    let mut old = handfast::connect(&name).unwrap();
    drop(first);
    for round in 0..300u32 {
        let port = handfast::bind(&name).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let request = port.receive_until(common::PATIENCE).unwrap();
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            });
            let new = handfast::connect(&name).unwrap();
            let bytes = round.to_le_bytes();
            let reply = new.call_until(&bytes, common::PATIENCE);
            assert_eq!(*reply.unwrap(), bytes, "round {round}");
            // Word of the old port's end may take a moment; then it stays.
            assert!(common::within_patience(
                || old.send(b"lost") == Err(SendError::Gone(Gone::Port))
            ));
            assert_eq!(old.call(b"?").unwrap_err(), SendError::Gone(Gone::Port));
            old = new;
        });
    }
}

#[test]
fn a_call_is_answered_through_another_port() {
    let names = ["one", "other"].map(common::name);
    let ports = names.each_ref().map(|name| handfast::bind(name).unwrap());
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || {
                let options = Options::new().strategy(Strategy::Block);
                let right = handfast::connect_with(name, options).unwrap();
                for number in 0..200u32 {
                    let start = Instant::now();
                    let reply = right.call_until(&number.to_le_bytes(), common::PATIENCE);
                    assert_eq!(*reply.unwrap(), number.to_le_bytes());
                    assert!(start.elapsed() < common::PATIENCE / 2);
                }
            });
        }
        // A request of each port, answered through the other one.
        let mut answered = 0;
        while answered < 400 {
            for (of, through) in [(0, 1), (1, 0)] {
                let Ok(request) = ports[of].try_receive() else {
                    continue;
                };
                let bytes = request.bytes().to_vec();
                let next = ports[through].reply_and_receive_until(request, &bytes, Duration::ZERO);
                answered += 1;
                if let Ok(next) = next {
                    let bytes = next.bytes().to_vec();
                    next.reply(&bytes).unwrap();
                    answered += 1;
                }
            }
        }
    });
}

#[test]
fn files_that_are_not_a_ports_own_are_left_alone() {
    let name = common::name("files");
    let path = common::directory().join(&name);
    std::fs::write(&path, b"mine").unwrap();
    assert!(handfast::bind(&name).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    std::fs::remove_file(&path).unwrap();
    // Removed behind its back, and bound again: the first one's end is not the second's.
    let first = handfast::bind(&name).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = handfast::bind(&name).unwrap();
    drop(first);
    let _right = handfast::connect(&name).unwrap();
    drop(second);
    assert!(!path.exists());
}
