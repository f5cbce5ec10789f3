//! Receive rights under unusual use: several threads, options changed midway, names bound again.

use crate::common;
use handfast::error::{Gone, SendError};
use handfast::{Options, Strategy};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

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
            // Sleep: the other thread sleeps by then, mostly.
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
            // Sleep: the other thread waits by then; the test holds either way.
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            port.set_options(Options::new().strategy(Strategy::Block));
            assert!(start.elapsed() < common::TOLD, "{strategy:?}");
            assert_eq!(&*right.call_timeout(b"1", common::PATIENCE).unwrap(), b"1");
            assert_eq!(&*right.call_timeout(b"2", common::PATIENCE).unwrap(), b"2");
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
                let request = port.receive_timeout(common::PATIENCE).unwrap();
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            });
            let new = handfast::connect(&name).unwrap();
            let bytes = round.to_le_bytes();
            let reply = new.call_timeout(&bytes, common::PATIENCE);
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
                    let reply = right.call_timeout(&number.to_le_bytes(), common::PATIENCE);
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
                let next =
                    ports[through].reply_and_receive_timeout(request, &bytes, Duration::ZERO);
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

/// How often this thread has given its processor up to wait for something.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_sleep_that_was_prepared_and_not_needed_is_not_counted() {
    const CALLS: u32 = 5000;
    let _alone = common::alone();
    let name = common::name("parks");
    let port = handfast::bind_with(&name, Options::new().strategy(Strategy::Block)).unwrap();
    let right = handfast::connect_with(&name, Options::new().strategy(Strategy::Spin)).unwrap();
    let parks = || {
        let ports = right.counters().unwrap().ports;
        let (_, row) = ports.iter().find(|(of, _)| *of == name).unwrap();
        handfast::Counters::value(row, "parks")
    };
    let short = Duration::from_millis(1);
    // Its time is up before it begins; and one that is slept through.
    assert!(port.receive_timeout(Duration::ZERO).is_err());
    assert_eq!(parks(), 0);
    assert!(common::within_patience(|| {
        assert!(port.receive_timeout(short).is_err());
        parks() > 0
    }));
    let before = parks();
    let waited = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let before = waits();
            let mut request = port.receive().unwrap();
            for _ in 1..CALLS {
                request = port.reply_and_receive(request, b"").unwrap();
            }
            request.reply(b"").unwrap();
            waits() - before
        });
        // The next call comes about when the server has looked for it and found nothing.
        for _ in 0..CALLS {
            right.call_timeout(b"", common::PATIENCE).unwrap();
        }
        server.join().unwrap()
    });
    let parks = parks() - before;
    println!("{parks} parks counted, {waited} times waited, {CALLS} calls");
    // Some are woken when they have begun to sleep and not yet given the processor up.
    assert!(parks <= waited + u64::from(CALLS / 10));
}

/// Connects and calls once for each line told, until the name is gone.
pub(crate) fn visitor(name: &str) {
    while common::told().is_some() {
        while let Ok(right) = handfast::connect_timeout(name, common::PATIENCE) {
            match right.call_timeout(b"there?", common::PATIENCE) {
                Ok(_) | Err(SendError::Gone(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        common::say("gone");
    }
}

#[test]
fn a_right_got_while_its_port_was_dropped_says_so_instead_of_waiting() {
    let _alone = common::alone();
    let name = common::name("dropped-meanwhile");
    let mut visitors = [(); 3].map(|()| common::start("visitor", &[&name]));
    for _ in 0..150 {
        let port = handfast::bind(&name).unwrap();
        for visitor in &mut visitors {
            visitor.tell("now");
        }
        let end = Instant::now() + Duration::from_millis(3);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if let Ok(request) = port.receive_timeout(left) {
                let _ = request.reply(b"here");
            }
        }
        drop(port);
        for visitor in &visitors {
            visitor.expect("gone");
        }
    }
}

#[test]
fn a_message_to_a_name_bound_again_arrives_whatever_was_under_way_to_the_old_port() {
    let _alone = common::alone();
    let name = common::name("under-way");
    // Keeps the link, and with it the lanes.
    let other = handfast::bind(&format!("{name}-other")).unwrap();
    let _right = handfast::connect(other.name()).unwrap();
    for round in 0..100 {
        let port = handfast::bind(&name).unwrap();
        std::thread::scope(|scope| {
            let (started, start) = channel();
            let sender = scope.spawn({
                let name = &name;
                move || {
                    let right = handfast::connect(name).unwrap();
                    started.send(()).unwrap();
                    while !matches!(right.try_send(b"old"), Err(SendError::Gone(_))) {}
                    send_new(name, round);
                }
            });
            start.recv().unwrap();
            drop(port);
            let port = handfast::bind(&name).unwrap();
            let got = port
                .receive_timeout(common::PATIENCE)
                .map(|new| new.bytes().to_vec());
            assert_eq!(got.unwrap(), b"new", "round {round}");
            sender.join().unwrap();
        });
    }
}

/// Sends to the port bound again, from the thread and so on the lane of the messages before.
fn send_new(name: &str, round: u32) {
    let end = Instant::now() + common::PATIENCE;
    loop {
        assert!(Instant::now() < end, "round {round}: not bound again");
        if let Ok(right) = handfast::connect(name)
            && right.send(b"new").is_ok()
        {
            return;
        }
    }
}

/// A client that is stopped while its server drops more ports than its socket holds words.
pub(crate) fn told_late(name: &str) {
    let right = handfast::connect(name).unwrap();
    right.call(b"ready").unwrap();
    common::say("connected");
    common::told().unwrap();
    // Whenever it hears of it, the port is gone; nothing is taken for sent that nobody receives.
    let gone = right.call_timeout(b"anybody?", common::PATIENCE);
    common::say(&format!("{:?}", gone.unwrap_err()));
    common::say(&format!("{:?}", right.send(b"anybody?").unwrap_err()));
}

#[test]
fn a_peer_that_was_stopped_hears_of_all_ports_that_went_meanwhile() {
    let name = common::name("late");
    let port = handfast::bind(&name).unwrap();
    let mut client = common::start("told late", &[&name]);
    let request = port.receive_timeout(common::PATIENCE).unwrap();
    request.reply(b"").unwrap();
    client.expect("connected");
    client.stop();
    let other = common::name("brief");
    for _ in 0..1000 {
        drop(handfast::bind(&other).unwrap());
    }
    drop(port);
    client.resume();
    client.tell("go on");
    client.expect("Gone(Port)");
    client.expect("Gone(Port)");
}

#[test]
fn a_port_keeps_its_strategy_when_a_receiver_gives_up_while_another_has_the_poller() {
    let _alone = common::alone();
    let spins = Strategy::SpinBlock {
        limit: Some(Duration::from_micros(400)),
    };
    let port = handfast::bind_with(&common::name("keeps"), Options::new().strategy(spins)).unwrap();
    let right = handfast::connect(port.name()).unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for receiver in 0..3 {
            let port = &port;
            scope.spawn(move || {
                while Instant::now() < end {
                    let _ = port.receive_timeout(Duration::from_micros(450 + 100 * receiver));
                }
            });
        }
        scope.spawn(|| {
            while Instant::now() < end {
                right.send(b"load").unwrap();
                // Sleep: stands for work.
                std::thread::sleep(Duration::from_micros(100));
            }
        });
    });
    while port.receive_timeout(Duration::from_millis(1)).is_ok() {}
    // Idle waits of a millisecond: each spins for 400 us of it, unless the strategy is lost.
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = used();
    for _ in 0..100 {
        let _ = port.receive_timeout(Duration::from_millis(1));
    }
    let used = used() - before;
    assert!(used > Duration::from_millis(15), "{used:?} in 100 waits");
}
