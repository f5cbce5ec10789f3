//! Rights to ports that are served on every CPU, and requests that outlive such a port.

use crate::common::{self, PATIENCE, within_patience};
use crate::served::{handler, pinned, settle};
use handfast::error::{Misuse, SendError};
use handfast_sys::cpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn rights_to_it_have_badges_travel_and_are_revoked() {
    let _alone = common::alone();
    let (name, to) = (common::name("rights"), common::name("rights-holder"));
    let noticed = Arc::new(AtomicU64::new(0));
    let notices = noticed.clone();
    let handle = handler();
    let port = handfast::bind(&name).unwrap();
    let server = port.serve_per_cpu(move |worker, request| match request.notice() {
        Some(notice) => {
            assert_eq!(notice, handfast::Notice::NoSendersOf(7));
            notices.fetch_add(1, Ordering::Relaxed);
        }
        None => handle(worker, request),
    });
    let server = server.unwrap();
    assert_eq!(server.name(), name);
    let mut holder = common::start("holder", &[&to]);
    holder.expect("ready");
    let right = handfast::connect(&to).unwrap();
    for badge in [7, 8] {
        right.with([server.mint(badge).into()]).send(b"").unwrap();
        server.notify_no_senders_of(7);
        holder.tell("take");
        holder.expect(&format!("{badge}"));
    }
    server.revoke(8);
    holder.tell("call");
    holder.expect("Err(Gone(Right))");
    assert_eq!(noticed.load(Ordering::Relaxed), 0);
    holder.tell("drop");
    assert!(within_patience(|| noticed.load(Ordering::Relaxed) == 1));
    drop(server);
    holder.finish();
}

/// Takes rights and says what their badges are, as it is told on every CPU.
pub(crate) fn holder(name: &str) {
    let port = handfast::bind(name).unwrap();
    let mut rights = Vec::new();
    common::say("ready");
    while let Some(told) = common::told() {
        match told.as_str() {
            "take" => {
                let mut request = port.receive_timeout(PATIENCE).unwrap();
                rights.extend(common::send_rights(request.take_rights()));
                let right = &rights[rights.len() - 1];
                let badges = cpu::allowed().into_iter().map(|on| {
                    pinned(on, || {
                        settle(right, on);
                        right.call_timeout(b"badge", PATIENCE).unwrap()
                    })
                });
                let badges: Vec<_> = badges.collect();
                assert!(badges.iter().all(|badge| badge[..] == badges[0][..]));
                let badge = badges[0].first_chunk().unwrap();
                common::say(&u64::from_le_bytes(*badge).to_string());
            }
            "call" => {
                let called = rights[1].call_timeout(b"where", PATIENCE);
                common::say(&format!("{:?}", called.map(|_| ())));
            }
            _ => rights.clear(),
        }
    }
}

/// A process that has its right from another client of the server is served on its own CPU, too.
#[test]
fn introduced_senders_are_handled_where_they_are() {
    let (name, to) = (common::name("introduced"), common::name("introduced-to"));
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let mut holder = common::start("holder", &[&to]);
    holder.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let holds = handfast::connect(&to).unwrap();
    for on in cpu::allowed() {
        pinned(on, || settle(&right, on));
    }
    holds.with([right.clone().into()]).send(b"").unwrap();
    holder.tell("take");
    holder.expect("0");
    holder.finish();
    server.finish();
}

#[test]
fn a_forked_child_has_no_right_to_a_port_of_every_cpu_that_its_parent_has_used() {
    if common::ran_in_own_process(
        a_forked_child_has_no_right_to_a_port_of_every_cpu_that_its_parent_has_used,
    ) {
        return;
    }
    let name = common::name("forked");
    let mut server = common::start("server", &[&name, ""]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let cpus = cpu::allowed();
    let first = cpus[0];
    pinned(first, || {
        settle(&right, first);
        // SAFETY: the child makes one call and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // On another CPU, where there is one: it looks at what it has sent to the first.
            cpu::pin(&cpus[cpus.len() - 1..]).unwrap();
            let is_forked = right.try_send(b"") == Err(SendError::Misuse(Misuse::Forked));
            // SAFETY: ends the process without its parent's exit handlers.
            unsafe { libc::_exit(i32::from(!is_forked)) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    });
    server.finish();
}

#[test]
fn a_request_that_was_received_on_any_cpu_outlives_its_port() {
    let _alone = common::alone();
    let name = common::name("outlived");
    // Callers of the port have to be told one after the other.
    let clients: Vec<_> = (0..4)
        .map(|_| common::start("fickle client", &[&name]))
        .collect();
    for round in 0..40 {
        let (hands_on, held) = std::sync::mpsc::channel();
        let hands_on = std::sync::Mutex::new(hands_on);
        let port = handfast::bind(&name).unwrap();
        let server = port.serve_per_cpu(move |waiter, request| {
            if request.bytes() != b"held" {
                let _ = waiter.reply(request, b"");
                return;
            }
            hands_on.lock().unwrap().send(request).unwrap();
            // Sleep: stands for work, which goes on when the port is dropped.
            std::thread::sleep(Duration::from_millis(3));
        });
        let server = server.unwrap();
        let right = handfast::connect(&name).unwrap();
        let cpus = cpu::allowed();
        std::thread::scope(|scope| {
            let right = &right;
            let calling = scope.spawn(move || {
                cpu::pin(&[cpus[round % cpus.len()]]).unwrap();
                for _ in 0..round {
                    let _ = right.call(b"").unwrap();
                }
                right.call(b"held").map(drop)
            });
            let request = held.recv_timeout(PATIENCE).unwrap();
            drop(server);
            request.reply(b"").unwrap();
            assert_eq!(calling.join().unwrap(), Ok(()), "round {round}");
        });
    }
    drop(clients);
}
