//! Descriptors that are under way when calls are given up, ports are dropped and processes die.

use crate::common::{self, at_rest, descriptors, link_socket, pipe, settles_at};
use handfast::error::{Gone, RightError, SendError};
use handfast::{Memory, Right, SendRight};
use handfast_layout::control::ControlMessage;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Two threads that send back what comes, late if that is asked for. Has a second port that it never
/// looks at, and one of which rights are given out.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    let other = std::sync::Mutex::new(handfast::bind(&format!("{name}-other")).ok());
    let object = handfast::bind(&format!("{name}-object")).unwrap();
    common::say("ready");
    let serve = || loop {
        let mut request = port.receive().unwrap();
        let mut rights = request.take_rights();
        match request.bytes() {
            b"late" => drop(common::within_patience(|| request.is_cancelled())),
            b"unbind" => drop(other.lock().unwrap().take()),
            // One more, to be dropped: releases come between descriptors.
            b"object" => rights.push(object.mint(1).into()),
            b"told" => {
                object.notify_no_senders();
                let told = object.receive_timeout(common::PATIENCE).unwrap();
                assert_eq!(told.notice(), Some(handfast::Notice::NoSenders));
            }
            _ => {}
        }
        if request.is_call() {
            match request.reply_with(b"", rights) {
                Ok(()) => {}
                // Its caller has been killed.
                Err(back) => println!("{back}"),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(serve);
        scope.spawn(serve);
    });
}

/// A server, and a right to it that has been used.
fn start(what: &str) -> (common::Child, SendRight, String) {
    let name = common::name(what);
    let server = common::start("server of descriptors under way", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    right.call(b"").unwrap();
    (server, right, name)
}

#[test]
fn descriptors_of_messages_that_nobody_takes_are_closed() {
    let _alone = common::alone();
    if common::ran_in_own_process(descriptors_of_messages_that_nobody_takes_are_closed) {
        return;
    }
    let (mut server, right, name) = start("untaken");
    let other = handfast::connect(&format!("{name}-other")).unwrap();
    let before = (at_rest(std::process::id()), at_rest(server.pid()));
    // In the queue of a port that is dropped.
    other.with([pipe().1.into()]).send(b"").unwrap();
    assert!(settles_at(server.pid(), before.1 + 1));
    right.call(b"unbind").unwrap();
    assert!(settles_at(server.pid(), before.1 - 1));
    // In the reply to a call that was given up.
    for _ in 0..3 {
        let short = Duration::from_millis(10);
        let gone = right.with([pipe().1.into()]).call_timeout(b"late", short);
        assert_eq!(gone.unwrap_err().error, SendError::TimedOut);
        assert!(settles_at(std::process::id(), before.0));
    }
    // In a request and a reply that are dropped unread.
    drop(right.with([pipe().1.into()]).call(b"").unwrap());
    assert!(settles_at(std::process::id(), before.0));
    assert!(settles_at(server.pid(), before.1 - 1));
    server.kill();
}

/// Sends descriptors, some of which no message names, and waits for its end.
pub(crate) fn mortal(name: &str) {
    let right = handfast::connect(name).unwrap();
    let (_reader, writer) = pipe();
    let socket = link_socket();
    right.with([writer.into()]).send(b"last words").unwrap();
    let (_reader, writer) = pipe();
    let orphan = handfast_layout::part::Descriptors { count: 1, first: 1 };
    let said = ControlMessage::Descriptors(orphan).encode();
    handfast_sys::socket::send(&socket, &said, &[writer.as_fd()]).unwrap();
    common::say("sent");
    common::told();
}

#[test]
fn what_a_sender_sent_before_it_died_is_received_and_the_rest_is_closed() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        what_a_sender_sent_before_it_died_is_received_and_the_rest_is_closed,
    ) {
        return;
    }
    // The first use of the library makes what stays.
    drop(handfast::bind(&common::name("first")).unwrap());
    for round in 0..10 {
        common::holdings_alone();
        let before = at_rest(std::process::id());
        let name = common::name(&format!("mortal-{round}"));
        let port = handfast::bind(&name).unwrap();
        let mut child = common::start("mortal", &[&name]);
        child.expect("sent");
        if round % 2 == 0 {
            child.kill();
        }
        let mut request = port.receive_timeout(common::PATIENCE).unwrap();
        child.kill();
        assert_eq!(request.bytes(), b"last words");
        let fds = descriptors(request.take_rights());
        assert_eq!(fds.len(), 1);
        assert!(
            File::from(fds.into_iter().next().unwrap())
                .write(b"x")
                .is_err()
        );
        drop((request, child));
        // A look at the port is what forgets the dead.
        assert!(port.try_receive().is_err());
        drop(port);
        common::holdings_alone();
        // The pipe to the child is closed by a thread of its own.
        assert!(settles_at(std::process::id(), before));
    }
}

/// Calls with descriptors and memory, and checks that what comes back is what was sent, in its place.
fn exchange(right: &SendRight, random: &mut common::Random) -> Result<(), SendError> {
    let key = random.next();
    let count = 1 + random.below(3);
    let sent = (0..count).map(|place| -> Right {
        let bytes = common::content(50, key ^ place);
        if random.below(3) == 0 {
            return Memory::from_bytes(&bytes).unwrap().into();
        }
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("content", flags).unwrap();
        rustix::io::pwrite(&file, &bytes, 0).unwrap();
        file.into()
    });
    let sent: Vec<_> = sent.collect();
    let long = vec![0; random.below(3000) as usize];
    let (with, order) = (right.with(sent), random.below(4));
    let outcome = match order {
        0 => {
            let sent = with.send_timeout(&long, common::PATIENCE);
            return sent.map_err(|back| back.error);
        }
        1 => {
            let short = Duration::from_micros(random.below(100));
            with.call_timeout(&long, short)
        }
        2 => with.call_timeout(b"object", common::PATIENCE),
        _ => with.call_timeout(&long, common::PATIENCE),
    };
    let mut rights = outcome.map_err(|back| back.error)?.take_rights();
    if order == 2 {
        assert!(matches!(rights.pop(), Some(Right::Send(_))));
    }
    assert_eq!(rights.len() as u64, count);
    for (place, right) in (0..).zip(rights) {
        let bytes = common::content(50, key ^ place);
        match right {
            Right::Memory(memory) => assert!(memory.bytes() == bytes, "another's memory"),
            Right::Descriptor(fd) => {
                let mut found = [0; 50];
                rustix::io::pread(&fd, &mut found, 0).unwrap();
                assert!(found[..] == bytes, "another's descriptor");
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(())
}

/// Many exchanges at once. Returns how many there were.
fn exchanges(right: &SendRight, seed: u64, stop: &AtomicBool) -> u64 {
    let run = |number: u64| {
        let mut random = common::Random::of(seed ^ number);
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            match exchange(right, &mut random) {
                Ok(()) | Err(SendError::TimedOut) => done += 1,
                // The others have so many under way.
                Err(SendError::Right(RightError::Unclaimed { .. })) => {}
                Err(error) if stop.load(Ordering::Relaxed) => println!("{error}"),
                // It has so many under way to us, in replies to calls that were given up.
                Err(SendError::Gone(Gone::Reply)) => {}
                Err(SendError::Gone(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        done
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|number| scope.spawn(move || run(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    })
}

pub(crate) fn client(name: &str, seed: u64) {
    let right = handfast::connect(name).unwrap();
    common::say("connected");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            common::told();
            stop.store(true, Ordering::Relaxed);
        });
        let done = exchanges(&right, seed, &stop);
        common::say(&done.to_string());
    });
}

#[test]
fn whoever_is_killed_when_everything_comes_to_its_place_and_nothing_is_left() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        whoever_is_killed_when_everything_comes_to_its_place_and_nothing_is_left,
    ) {
        return;
    }
    let mut random = common::Random::seeded("descriptors");
    let (mut server, right, name) = start("campaign");
    let before = (at_rest(std::process::id()), at_rest(server.pid()));
    let stop = AtomicBool::new(false);
    let (own, killed) = std::thread::scope(|scope| {
        let (seed, right, stop) = (random.next(), &right, &stop);
        let own = scope.spawn(move || exchanges(right, seed, stop));
        let (mut killed, mut others) = (0, 0);
        let end = Instant::now() + common::campaign(4);
        while Instant::now() < end || killed == 0 {
            let seed = random.next().to_string();
            let mut client = common::start("client", &[&name, &seed]);
            client.expect("connected");
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_millis(random.below(60)));
            if random.below(3) == 0 {
                client.tell("stop");
                others += client.line().parse::<u64>().unwrap();
                client.finish();
            } else {
                client.kill();
                killed += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        println!("others: {others}");
        (own.join().unwrap(), killed)
    });
    println!("{own} exchanges, {killed} clients killed");
    assert!(own > 0);
    // All releases have been heard, whoever read them.
    right.call(b"told").unwrap();
    assert!(settles_at(server.pid(), before.1));
    assert!(settles_at(std::process::id(), before.0));
    // The server, in the middle of it.
    std::thread::scope(|scope| {
        let (seed, right) = (random.next(), &right);
        let own = scope.spawn(move || exchanges(right, seed, &AtomicBool::new(false)));
        // Sleep: the exchanges are under way by then; the test holds either way.
        std::thread::sleep(Duration::from_millis(30));
        server.kill();
        own.join().unwrap();
    });
    drop((right, server));
    let is_pipe_of_child = 2;
    common::holdings_alone();
    assert!(common::within_patience(|| {
        common::holdings(std::process::id()).0 <= before.0 - is_pipe_of_child
    }));
}
