//! Traps of peers: those that write over everything, that are silent, that end, or are told late.

use super::{give, holder, nothing_more, told_once};
use crate::common::{self, Random};
use crate::forger::{self, Hand};
use crate::trio::How::Linked;
use crate::trio::{Trio, call, send};
use handfast::error::{Gone, SendError};
use handfast::{Identity, Notice};
use std::time::{Duration, Instant};

#[test]
fn trap_12_a_peer_that_changes_every_field_all_the_time_harms_nobody_else() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 12");
    let (server, name) = forger::start_honest("trap-12");
    let right = handfast::connect(&name).unwrap();
    let mut calls = 0;
    for _ in 0..6 {
        let seed = random.next().to_string();
        let mut scribbler = common::start("scribbler", &[&name, &seed]);
        scribbler.expect("scribbling");
        let end = Instant::now() + Duration::from_millis(150);
        while Instant::now() < end {
            let sent = common::content((calls * 97 % 9000) as usize, calls);
            let answer = right.call_timeout(&sent, common::PATIENCE).unwrap();
            assert!(*answer == *sent, "another's bytes");
            calls += 1;
        }
        scribbler.kill();
    }
    let mut cuts = 0;
    while let Some(line) = server.said() {
        assert!(line.starts_with("cut: "), "{line}");
        cuts += 1;
    }
    println!("{calls} calls, {cuts} links cut");
    forger::serves(&name);
}

#[test]
fn trap_13_a_peer_that_is_silent_is_not_dead_and_one_whose_socket_is_closed_is() {
    let _alone = common::alone();
    // Nobody can truncate what is mapped.
    let (mut server, name) = forger::start_honest("trap-13");
    let before = common::at_rest(server.pid());
    let hand = Hand::new(&name, 1);
    for file in ["handfast link", "handfast bells"] {
        let links = std::fs::read_dir("/proc/self/map_files").unwrap();
        let is_one = |path: &std::path::PathBuf| {
            let target = std::fs::read_link(path).unwrap_or_default();
            target.to_string_lossy().contains(file)
        };
        let mut paths = links.map(|entry| entry.unwrap().path()).filter(is_one);
        let path = paths.next().unwrap();
        // Where the kernel lets it be opened at all.
        if let Ok(opened) = std::fs::File::options().write(true).open(path) {
            let refused = opened.set_len(4096).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{file}");
        }
    }
    // Without its socket a link is over, whatever is still mapped.
    let Hand { socket, region, .. } = hand;
    drop(socket);
    assert!(common::settles_at(server.pid(), before));
    drop(region);
    forger::serves(&name);

    let right = handfast::connect(&name).unwrap();
    let port = handfast::bind(&common::name("trap-13-own")).unwrap();
    right.notify_death(&port, 13);
    server.stop();
    let short = Duration::from_millis(300);
    let silent = right.call_timeout(b"x", short).unwrap_err();
    assert_eq!(silent, SendError::TimedOut);
    nothing_more(&port);
    server.resume();
    assert_eq!(&*right.call_timeout(b"y", common::PATIENCE).unwrap(), b"y");
    server.kill();
    let told = port.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::Dead(13)));
    let dead = right.call_timeout(b"z", common::PATIENCE).unwrap_err();
    assert_eq!(dead, SendError::Gone(Gone::Process));
}

#[test]
fn trap_14_what_was_meant_for_a_process_that_ended_does_not_reach_its_successor() {
    let _alone = common::alone();
    let mut trio = Trio::new("trap-14", Linked);
    trio.keep([trio.open(1)]);
    let mine = send(trio.open(2));
    assert_eq!(trio.ask("call 0 x"), "1: x 0");
    // A message that lies in the queue when its receiver dies.
    trio.exporter.stop();
    mine.send(b"old").unwrap();
    trio.exporter.kill();
    let exporter = common::start("exporter", &[&trio.names[0]]);
    exporter.expect("ready");
    trio.door = handfast::connect(&trio.names[0]).unwrap();
    let new = send(trio.open(2));
    for _ in 0..10 {
        let gone = mine.call_timeout(b"y", common::PATIENCE).unwrap_err();
        assert_eq!(gone, SendError::Gone(Gone::Process));
        assert_eq!(trio.ask("call 0 y"), "Gone(Process)");
        assert_eq!(mine.identity(&new), Identity::Different);
    }
    let back = trio.to.with([mine.into()]).call(b"keep").unwrap_err();
    assert_eq!(back.rights.len(), 1);
    assert_eq!(call(&new, "told"), "");
    assert_eq!(call(&new, "z"), "2: z 0");
    trio.exporter = exporter;
}

#[test]
fn trap_15_a_notice_is_not_told_when_a_right_has_been_made_since() {
    let _alone = common::alone();
    let mut random = Random::seeded("trap 15");
    let (_holder, to) = holder("trap-15-holder");
    let port = handfast::bind(&common::name("trap-15")).unwrap();
    give(&to, port.mint(0).into());
    for badge in 1..300 {
        port.notify_no_senders();
        to.send(b"drop").unwrap();
        // The right is given back, and the notice due, about now.
        let wait = Instant::now() + Duration::from_micros(1500 + random.below(1500));
        while Instant::now() < wait {
            std::hint::spin_loop();
        }
        let right = port.mint(badge);
        let stale = port.try_receive();
        assert!(stale.is_err(), "{stale:?} though there is one");
        give(&to, right.into());
        let stale = port.try_receive();
        assert!(stale.is_err(), "{stale:?} though there is one");
    }
    to.send(b"drop").unwrap();
    told_once(&port);
}

#[test]
fn trap_16_a_wake_up_that_dies_with_its_waker_leaves_nobody_asleep() {
    let _alone = common::alone();
    let name = common::name("trap-16");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for _ in 0..10 {
        // It takes the announcement of the sleeping server away, as if to wake it.
        let mut waker = common::start("waker that dies", &[&name]);
        waker.expect("taken");
        waker.kill();
        let soon = Duration::from_secs(5);
        let answer = right
            .call_timeout(b"x", soon)
            .expect("the server sleeps on");
        assert_eq!(&*answer, b"x");
    }
}
