//! Ports that domains serve: for their clients ports like any other.

mod inside;

use crate::common::{self, PATIENCE, within_patience};
use handfast::domain::{
    CallContext, Domain, DomainOptions, Heap, Isolation, LoadError, Policy, Port, Table,
};
use handfast::error::{ConnectError, DomainError, Gone, SendError};
use handfast::{Counters, LONG_BYTES_MAX, MESSAGE_BYTES_MAX, ReceiveRight, Right, SendRight};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The answers of both kinds of server: `add N` to a sum, which is the answer; `who` asks for badge and permissions; `big N` for
/// so many bytes; anything else comes back.
fn answer(sum: &AtomicU64, (badge, permissions): (u64, u16), request: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    match text.split_once(' ') {
        Some(("add", number)) => {
            let number: u64 = number.parse().unwrap();
            let before = sum.fetch_add(number, Ordering::Relaxed);
            (before + number).to_string().into_bytes()
        }
        Some(("big", count)) => vec![b'b'; count.parse().unwrap()],
        _ if request == b"who" => format!("{badge} {permissions}").into_bytes(),
        _ => request.to_vec(),
    }
}

fn value(_: &Heap) -> AtomicU64 {
    AtomicU64::new(0)
}

fn serve(sum: &AtomicU64, call: &mut CallContext<'_>) {
    let sender = call.sender();
    go_wrong(call.request());
    let answer = answer(sum, (sender.badge, sender.permissions), call.request());
    call.reply()[..answer.len()].copy_from_slice(&answer);
    call.set_reply_len(answer.len());
}

/// Does what the request asks for, if that is one of these.
fn go_wrong(request: &[u8]) {
    match request {
        b"panic" => std::panic::resume_unwind(Box::new(())),
        // SAFETY: none: this is the fault.
        b"null" => unsafe { std::ptr::null_mut::<u64>().write_volatile(1) },
        // SAFETY: none: this is the fault.
        b"divide" => unsafe {
            std::arch::asm!("xor edx, edx", "div {zero}", zero = in(reg) 0u64, inout("rax") 1u64 => _, out("rdx") _);
        },
        // SAFETY: none: this is the fault.
        b"illegal" => unsafe { std::arch::asm!("ud2") },
        b"overflow" => drop(black_box(recurse(u64::MAX))),
        _ => {}
    }
}

#[expect(unconditional_recursion, reason = "the end of the stack is the point")]
fn recurse(left: u64) -> u64 {
    let frame = black_box([left; 64]);
    recurse(left - 1) + frame[5]
}

fn load<T: Sync + 'static>(table: &Table<T>, options: DomainOptions) -> Domain {
    crate::record_missing_keys();
    // SAFETY: the functions lend nothing, and what they do outside of the domain is whole at any instruction.
    match unsafe { Domain::new(table, options.clone()) } {
        // SAFETY: as above.
        Err(LoadError::NoKeys) => unsafe { Domain::new(table, options.unprotected()) }.unwrap(),
        loaded => loaded.unwrap(),
    }
}

fn served_by(receive: ReceiveRight) -> Port {
    let domain = load(&Table::new(value).entry(serve), DomainOptions::new());
    Port::with_threads(receive, &domain, 0, 2).unwrap()
}

fn anonymous() -> Port {
    served_by(handfast::anonymous().unwrap())
}

pub(crate) fn domain_server(name: &str) {
    let _port = served_by(handfast::bind(name).unwrap());
    common::say("ready");
    while common::told().is_some() {}
}

pub(crate) fn process_server(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let sum = AtomicU64::new(0);
    loop {
        let request = port.receive().unwrap();
        let seal = (request.badge(), request.permissions());
        let answer = answer(&sum, seal, request.bytes());
        if request.is_call() {
            request.reply(&answer).unwrap();
        }
    }
}

fn text(right: &SendRight, text: &str) -> String {
    String::from_utf8(right.call(text.as_bytes()).unwrap().to_vec()).unwrap()
}

/// The checks that every client makes of a port of any kind.
fn client(right: &SendRight, badge: u64) {
    assert_eq!(text(right, "who"), format!("{badge} 65535"));
    let less = right.attenuate(0b101).unwrap();
    assert_eq!(text(&less, "who"), format!("{badge} 5"));
    let sum: u64 = text(right, "add 0").parse().unwrap();
    assert_eq!(text(right, "add 3"), (sum + 3).to_string());
    right.send(b"add 4").unwrap();
    assert!(within_patience(
        || text(right, "add 0") == (sum + 7).to_string()
    ));
    for len_bytes in [0, 1, 39, 40, 41, 1000, 5000, MESSAGE_BYTES_MAX] {
        let bytes = common::content(len_bytes, badge);
        assert_eq!(&*right.call(&bytes).unwrap(), &*bytes);
        assert_eq!(&*right.call_timeout(&bytes, PATIENCE).unwrap(), &*bytes);
        assert_eq!(&*right.try_call(&bytes).unwrap().wait().unwrap(), &*bytes);
        assert_eq!(&*right.with([]).call(&bytes).unwrap(), &*bytes);
        let mut reply = vec![0; len_bytes];
        assert_eq!(right.call_into(&bytes, &mut reply), Ok(len_bytes));
        assert_eq!(reply, bytes);
    }
    let mut short = [7; 10];
    let (len_bytes, room_bytes) = (11, 10);
    assert_eq!(
        right.call_into(b"big 11", &mut short),
        Err(SendError::ReplyTooLong {
            len_bytes,
            room_bytes
        })
    );
    assert_eq!(short, [7; 10]);
    let len_bytes = LONG_BYTES_MAX + 1;
    assert_eq!(
        right.call(&vec![0; len_bytes]).map(drop),
        Err(SendError::TooLong { len_bytes })
    );
    std::thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                for number in 0..300 {
                    let own = format!("{thread}:{number}");
                    assert_eq!(text(right, &own), own);
                }
            });
        }
    });
}

/// Is given a right by name or with a call to its own port, and does what clients do.
pub(crate) fn client_of(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let badge = u64::from_le_bytes(request.bytes().try_into().unwrap());
        let right = common::send_rights(request.take_rights()).remove(0);
        client(&right, badge);
        assert!(right.peer().pid != std::process::id());
        request.reply(b"").unwrap();
    }
}

#[test]
fn the_same_client_calls_domain_and_process_here_and_elsewhere() {
    let _alone = common::alone();
    // A process, and a domain in another one.
    for role in ["process", "domain"] {
        let name = common::name(role);
        let mut server = common::start(role, &[&name]);
        server.expect("ready");
        client(&handfast::connect(&name).unwrap(), 0);
        server.kill();
    }
    // A domain of this process: by the gate, and by a link.
    let name = common::name("domain-here");
    let port = served_by(handfast::bind(&name).unwrap());
    client(&port.connect().unwrap(), 0);
    client(&port.mint(7).connect().unwrap(), 7);
    client(&handfast::connect(&name).unwrap(), 0);
    // From another process.
    let to = common::name("domain-client");
    let mut child = common::start("client", &[&to]);
    child.expect("ready");
    let child_port = handfast::connect(&to).unwrap();
    let own = port.mint(8);
    let connected = own.connect().unwrap();
    for given in [Right::from(own), Right::from(connected)] {
        let _ = child_port.with([given]).call(&8u64.to_le_bytes()).unwrap();
    }
    child.kill();
}

/// Whether more is kept apart than panics.
fn is_isolated(port: &Port) -> bool {
    port.domain().isolation() != Isolation::Unprotected
}

/// A fault in the domain as a client sees it.
fn faults(right: &SendRight, is_isolated: bool) {
    let all = [
        ("panic", DomainError::Panic),
        ("null", DomainError::Access),
        ("divide", DomainError::Arithmetic),
        ("illegal", DomainError::Illegal),
        ("overflow", DomainError::StackOverflow),
    ];
    for (what, error) in &all[..if is_isolated { 5 } else { 1 }] {
        let sum: u64 = text(right, "add 1").parse().unwrap();
        assert!(sum >= 1);
        let failed = right.call(what.as_bytes()).map(drop);
        assert_eq!(failed, Err(SendError::Domain(*error)), "{what}");
        assert_eq!(
            right.try_call(what.as_bytes()).unwrap().wait().map(drop),
            failed
        );
        let failed = right.call_into(what.as_bytes(), &mut [0; 4]).map(drop);
        assert_eq!(failed, Err(SendError::Domain(*error)), "{what}");
        // It was made anew.
        assert_eq!(text(right, "add 1"), "1");
    }
}

#[test]
fn a_fault_is_the_same_error_here_and_elsewhere() {
    let _alone = common::alone();
    let port = anonymous();
    let is_isolated = is_isolated(&port);
    faults(&port.connect().unwrap(), is_isolated);
    let name = common::name("domain-faults");
    let mut server = common::start("domain", &[&name]);
    server.expect("ready");
    faults(&handfast::connect(&name).unwrap(), is_isolated);
    server.kill();
    // One that stays dead.
    let table = Table::new(value).entry(serve);
    let domain = load(&table, DomainOptions::new().policy(Policy::Dead));
    let name = common::name("domain-dead");
    let port = Port::new(handfast::bind(&name).unwrap(), &domain, 0).unwrap();
    let rights = [port.connect().unwrap(), handfast::connect(&name).unwrap()];
    assert_eq!(
        rights[0].call(b"panic").map(drop),
        Err(SendError::Domain(DomainError::Panic))
    );
    for right in rights {
        assert_eq!(
            right.call(b"x").map(drop),
            Err(SendError::Domain(DomainError::Dead))
        );
    }
    // A function that is not there.
    let port = Port::new(handfast::anonymous().unwrap(), &domain, 9).unwrap();
    let failed = port.connect().unwrap().call(b"x").map(drop);
    assert_eq!(failed, Err(SendError::Domain(DomainError::NoEntry)));
}

#[test]
fn what_was_revoked_is_refused_by_both_ways_and_others_go_on() {
    let _alone = common::alone();
    let name = common::name("domain-revoked");
    let port = served_by(handfast::bind(&name).unwrap());
    let minted = port.mint(1);
    let (right, good) = (minted.connect().unwrap(), port.mint(2).connect().unwrap());
    let by_link = handfast::connect(&name).unwrap();
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Ok(reply) = right.call(b"who") {
                    assert_eq!(&*reply, b"1 65535");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        assert!(within_patience(|| calls.load(Ordering::Relaxed) > 10_000));
        port.revoke(1);
        // At once, by this process's own word.
        assert_eq!(
            right.call(b"who").map(drop),
            Err(SendError::Gone(Gone::Right))
        );
    });
    let again = minted.connect().map(drop);
    assert!(
        matches!(again, Err(ConnectError::Gone(Gone::Right))),
        "{again:?}"
    );
    port.revoke(0);
    assert!(within_patience(
        || by_link.call(b"who").map(drop) == Err(SendError::Gone(Gone::Right))
    ));
    assert_eq!(text(&good, "who"), "2 65535");
    port.revoke_from(good.holder(), 2);
    assert!(within_patience(
        || good.call(b"who").map(drop) == Err(SendError::Gone(Gone::Right))
    ));
}

#[test]
fn a_dropped_port_is_gone_by_both_ways() {
    let _alone = common::alone();
    let name = common::name("domain-dropped");
    let port = served_by(handfast::bind(&name).unwrap());
    let rights = [port.connect().unwrap(), handfast::connect(&name).unwrap()];
    for right in &rights {
        assert_eq!(text(right, "x"), "x");
    }
    drop(port);
    assert_eq!(
        rights[0].call(b"x").map(drop),
        Err(SendError::Gone(Gone::Port))
    );
    for right in &rights {
        let failed = || right.call(b"x").map(drop) == Err(SendError::Gone(Gone::Port));
        assert!(within_patience(failed));
    }
    // The name is free once the threads have left.
    assert!(within_patience(|| handfast::bind(&name).is_ok()));
}

fn calls_of(right: &SendRight, name: &str) -> u64 {
    let counters = right.counters().unwrap();
    let row = counters.ports.iter().find(|(of, _)| of == name).unwrap();
    Counters::value(&row.1, "calls")
}

#[test]
fn calls_here_are_counted_as_all_others() {
    let _alone = common::alone();
    let name = common::name("domain-counted");
    let port = served_by(handfast::bind(&name).unwrap());
    let (right, by_link) = (port.connect().unwrap(), handfast::connect(&name).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| (0..1000).for_each(|_| drop(text(&right, "x"))));
        }
    });
    (0..10).for_each(|_| drop(text(&by_link, "x")));
    assert!(
        within_patience(|| calls_of(&by_link, &name) == 5010),
        "{}",
        calls_of(&by_link, &name)
    );
    // Threads without a place of their own.
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| drop(text(&right, "x")));
            }
        });
    }
    assert!(
        within_patience(|| calls_of(&by_link, &name) == 5170),
        "{}",
        calls_of(&by_link, &name)
    );
}

/// Calls by the right it is given until that is dead.
pub(crate) fn caller(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut request = port.receive().unwrap();
    let right = common::send_rights(request.take_rights()).remove(0);
    request.reply(b"").unwrap();
    let mut number = 0u64;
    loop {
        number += 1;
        let bad = number.is_multiple_of(64);
        let _ = right.call(if bad { b"panic" } else { b"who" });
    }
}

#[test]
fn callers_that_are_killed_and_calls_that_go_wrong_disturb_nobody() {
    let _alone = common::alone();
    let port = anonymous();
    let right = port.mint(1).connect().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match right.call(b"who") {
                        Ok(reply) => assert_eq!(&*reply, b"1 65535"),
                        // Somebody else's fault, while it is made anew.
                        Err(error) => assert_eq!(error, SendError::Domain(DomainError::Resetting)),
                    }
                }
            });
        }
        for round in 0..6 {
            let name = common::name(&format!("domain-caller{round}"));
            let mut peer = common::start("caller", &[&name]);
            peer.expect("ready");
            let to = handfast::connect(&name).unwrap();
            let _ = to.with([port.mint(2).into()]).call(b"").unwrap();
            std::thread::yield_now();
            peer.kill();
        }
        done.store(true, Ordering::Relaxed);
    });
    // A call that the last of them has left may still be at work, and go wrong.
    let resetting = SendError::Domain(DomainError::Resetting);
    assert!(within_patience(|| match right.call(b"who") {
        Ok(reply) => *reply == *b"1 65535",
        Err(error) => {
            assert_eq!(error, resetting);
            false
        }
    }));
}
