//! As many rights as one process can give another, nearly. Alone in its process, whose memory and
//! descriptors are counted.

mod common;

use handfast::Notice;
use std::time::Instant;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "hoarder" => hoarder(arguments[0]),
        _ => unreachable!(),
    });
}

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

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
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
    let (bytes, fds) = (resident_bytes(), descriptors());
    for first in (4..RIGHTS).step_by(4) {
        give(first..first + 4);
    }
    let each = (resident_bytes() - bytes) as f64 / RIGHTS as f64;
    println!("{each:.1} bytes for each right given");
    assert!(each <= 64.0, "{each}");
    assert_eq!(descriptors(), fds);
    let bytes = resident_bytes();
    let start = Instant::now();
    (0..RIGHTS).for_each(|badge| port.notify_no_senders_of(badge));
    let took = start.elapsed();
    let each = (resident_bytes() - bytes) as f64 / RIGHTS as f64;
    println!("{each:.1} bytes and {took:?} for all of them to be watched by badge");
    assert!(each <= 32.0, "{each}");
    let start = Instant::now();
    holder.kill();
    let mut of_badges = 0;
    loop {
        let told = port.receive_until(common::PATIENCE).unwrap();
        match told.notice().unwrap() {
            Notice::NoSenders => println!("told {:?} after the kill", start.elapsed()),
            Notice::NoSendersOf(_) => of_badges += 1,
            other => panic!("{other:?}"),
        }
        if of_badges == RIGHTS {
            break;
        }
    }
    println!("of all badges {:?} after it", start.elapsed());
}
