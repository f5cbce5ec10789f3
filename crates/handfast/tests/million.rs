//! As many rights as one process can give another, nearly. Alone in its process, whose memory and
//! descriptors are counted.

mod common;

use handfast::Notice;
use std::time::{Duration, Instant};

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "hoarder" => hoarder(arguments[0]),
        _ => unreachable!(),
    });
}

/// How long the sweep of the rights of the dead may take.
const SWEEP_MAX: Duration = Duration::from_millis(100);

/// Keeps every right that comes.
fn hoarder(name: &str) {
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
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() * 1024
}

#[test]
fn a_million_rights_take_little_memory_no_descriptors_and_go_with_their_holder() {
    const RIGHTS: u64 = 1_000_000;
    let name = common::name("hoarder");
    let mut holder = common::start("hoarder", &[&name]);
    holder.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let port = handfast::bind(&common::name("million")).unwrap();
    let give = |badges: std::ops::Range<u64>| {
        let rights = badges.map(|badge| port.mint(badge).into());
        right
            .with(rights)
            .call_until(b"", common::PATIENCE)
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
    let start = Instant::now();
    // It has closed its end of the link when the kernel says that it is dead.
    holder.kill();
    let dead = start.elapsed();
    let told = port.receive_until(common::PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(Notice::NoSenders));
    let told = start.elapsed();
    println!("dead {dead:?} after the kill, told {told:?} after it");
    assert!(told < dead + SWEEP_MAX, "{told:?}, {dead:?}");
}
