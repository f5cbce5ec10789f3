//! As many rights as one process can give another, nearly. Each test has a process of its own, whose memory and descriptors
//! are counted.

use crate::common;
use handfast::Notice;
use std::time::{Duration, Instant};

/// How long the sweep of the rights of the dead may take, and what else comes with a death, of a processor's time.
const SWEEP_MAX: Duration = Duration::from_millis(100);

/// Keeps every right that comes.
pub(crate) fn hoarder(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        request.reply(b"").unwrap();
    }
}

/// Memory that is this process's own.
fn own_bytes() -> usize {
    common::own_kib(std::process::id()) * 1024
}

/// Processor time of this process.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_million_rights_take_little_memory_no_descriptors_and_go_with_their_holder() {
    let _alone = common::alone();
    if !common::ran_in_own_process(
        a_million_rights_take_little_memory_no_descriptors_and_go_with_their_holder,
    ) {
        a_million("hoarder", false);
    }
}

#[test]
fn a_million_badges_that_are_watched_take_little_memory_and_are_told_of_once_each() {
    let _alone = common::alone();
    if !common::ran_in_own_process(
        a_million_badges_that_are_watched_take_little_memory_and_are_told_of_once_each,
    ) {
        a_million("watched", true);
    }
}

fn a_million(what: &str, are_watched: bool) {
    const RIGHTS: u64 = 1_000_000;
    let name = common::name(what);
    let mut holder = common::start("hoarder", &[&name]);
    holder.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let port = handfast::bind(&common::name(&format!("{what}-own"))).unwrap();
    let give = |badges: std::ops::Range<u64>| {
        let rights = badges.map(|badge| port.mint(badge).into());
        right
            .with(rights)
            .call_timeout(b"", common::PATIENCE)
            .unwrap();
    };
    give(0..4);
    port.notify_no_senders();
    let fds = [std::process::id(), holder.pid()].map(common::at_rest);
    let bytes = own_bytes();
    for first in (4..RIGHTS).step_by(4) {
        give(first..first + 4);
    }
    let each = (own_bytes() - bytes) as f64 / RIGHTS as f64;
    println!("{each:.1} bytes for each right given");
    assert!(each <= 64.0, "{each}");
    let fds_then = [std::process::id(), holder.pid()].map(common::at_rest);
    assert_eq!(fds_then, fds);
    let watched = u64::from(are_watched) * RIGHTS;
    let bytes = own_bytes();
    let start = Instant::now();
    (0..watched).for_each(|badge| port.notify_no_senders_of(badge));
    let took = start.elapsed();
    let each = (own_bytes() - bytes) as f64 / RIGHTS as f64;
    println!("{each:.1} bytes and {took:?} for those that are watched by badge");
    assert!(each <= 32.0, "{each}");
    let (start, used_before) = (Instant::now(), used());
    // It has closed its end of the link when the kernel says that it is dead.
    holder.kill();
    let dead = start.elapsed();
    let (mut of_badges, mut of_all) = (0, 0);
    while (of_badges, of_all) != (watched, 1) {
        let told = port.receive_timeout(common::PATIENCE).unwrap();
        match told.notice().unwrap() {
            Notice::NoSenders => {
                let told = start.elapsed();
                let used = used() - used_before;
                println!("dead {dead:?} after the kill, told {told:?} after it, {used:?} used");
                assert!(are_watched || used < SWEEP_MAX, "{used:?}");
                of_all += 1;
            }
            Notice::NoSendersOf(_) => of_badges += 1,
            other => panic!("{other:?}"),
        }
    }
    println!("of all badges {:?} after it", start.elapsed());
}
