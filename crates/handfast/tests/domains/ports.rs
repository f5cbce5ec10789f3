//! Ports that domains serve: for their clients ports like any other.

use crate::common::{self, PATIENCE, within_patience};
use handfast::domain::{
    CallContext, Domain, DomainOptions, Heap, Isolation, LoadError, Policy, Port, Table,
    take_rights,
};
use handfast::error::{ConnectError, DomainError, Gone, Misuse, SendError};
use handfast::{Counters, LONG_BYTES_MAX, MESSAGE_BYTES_MAX, ReceiveRight, Right, SendRight};
use std::hint::black_box;
use std::sync::OnceLock;
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

/// Rights that a domain is given by a first call without bytes.
struct Given(OnceLock<Vec<SendRight>>);

impl Given {
    const fn new(_: &Heap) -> Self {
        Self(OnceLock::new())
    }

    fn has_come(&self, request: &[u8]) -> bool {
        if !request.is_empty() {
            return false;
        }
        let rights = take_rights().into_iter().map(|right| match right {
            Right::Send(right) => right,
            // To the port that serves it.
            Right::Own(own) => own.connect().unwrap(),
            other => panic!("{other:?}"),
        });
        self.0.set(rights.collect()).is_ok()
    }

    fn to(&self, byte: u8) -> &SendRight {
        &self.0.get().unwrap()[usize::from(byte - b'0')]
    }
}

fn give(right: &SendRight, rights: impl IntoIterator<Item = SendRight>) {
    let rights = rights.into_iter().map(Right::from);
    assert_eq!(&*right.with(rights).call(b"").unwrap(), b"");
}

/// Passes the request on, to the domain or the process that its first byte names, and answers with what that says.
fn outer(given: &Given, call: &mut CallContext<'_>) {
    let request = call.request();
    if given.has_come(request) {
        return;
    }
    let to = given.to(request[0]);
    // From this domain's memory, and into it.
    let len_bytes = match to.call_into(&request[1..], call.reply()) {
        Ok(len_bytes) => len_bytes,
        Err(error) => {
            let text = format!("{error:?}");
            call.reply()[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
    };
    call.set_reply_len(len_bytes);
}

#[test]
fn a_domain_calls_another_and_a_process_from_inside() {
    let _alone = common::alone();
    let name = common::name("domain-nested");
    let mut server = common::start("process", &[&name]);
    server.expect("ready");
    let inner = anonymous();
    let process = handfast::connect(&name).unwrap();
    let domain = load(&Table::new(Given::new).entry(outer), DomainOptions::new());
    let name = common::name("domain-outer");
    let port = Port::new(handfast::bind(&name).unwrap(), &domain, 0).unwrap();
    let here = port.connect().unwrap();
    give(&here, [inner.mint(5).connect().unwrap(), process]);
    for right in [here, handfast::connect(&name).unwrap()] {
        assert_eq!(text(&right, "0who"), "5 65535");
        assert_eq!(text(&right, "1who"), "0 65535");
        for to in ["0", "1"] {
            let long = to.to_owned() + &"x".repeat(50_000);
            assert_eq!(text(&right, &long), long[1..]);
        }
        // A fault in there is the inner call's alone.
        assert_eq!(text(&right, "0panic"), "Domain(Panic)");
        if is_isolated(&inner) {
            assert_eq!(text(&right, "0null"), "Domain(Access)");
        }
        assert_eq!(text(&right, "0who"), "5 65535");
    }
    server.kill();
    let right = port.connect().unwrap();
    assert!(within_patience(|| text(&right, "1who") == "Gone(Process)"));
}

/// Passes the call on to the one that the first byte names, without it.
fn pass_on(given: &Given, call: &mut CallContext<'_>) {
    let request = call.request();
    if given.has_come(request) {
        return;
    }
    let Some(to) = request.first().and_then(|byte| byte.checked_sub(b'0')) else {
        return;
    };
    let to = given.to(b'0' + to).clone();
    // Round and round with what it is.
    let message = if request.len() > 1 {
        &request[1..]
    } else {
        request
    };
    handfast::domain::pass_on(to.clone(), b"forgotten", Vec::new()).unwrap();
    handfast::domain::pass_on(to, message, take_rights()).unwrap();
}

#[test]
fn a_domain_passes_calls_on_and_is_not_on_the_way_back() {
    let _alone = common::alone();
    let process_name = common::name("domain-last");
    let mut server = common::start("process", &[&process_name]);
    server.expect("ready");
    let last = anonymous();
    let domain = load(&Table::new(Given::new).entry(pass_on), DomainOptions::new());
    let name = common::name("domain-passes");
    let port = Port::new(handfast::bind(&name).unwrap(), &domain, 0).unwrap();
    let here = port.connect().unwrap();
    let to_last = last.mint(5).connect().unwrap();
    let process = handfast::connect(&process_name).unwrap();
    give(&here, [to_last, process, here.clone()]);
    for right in [&here, &handfast::connect(&name).unwrap()] {
        // To a domain, to a process, and first to itself, three times.
        assert_eq!(text(right, "0who"), "5 65535");
        assert_eq!(text(right, "1who"), "0 65535");
        assert_eq!(text(right, "2220who"), "5 65535");
        assert_eq!(text(right, "2221who"), "0 65535");
        // The message may be longer than the room for the reply.
        let mut reply = [0; 7];
        assert_eq!(right.call_into(b"2220who", &mut reply), Ok(7));
        assert_eq!(&reply, b"5 65535");
        let long = [&b"0add 0"[..], &[b'0'; 40]].concat();
        assert!(right.call_into(&long, &mut reply).is_ok());
        let mut reply = [0; 20];
        let (len_bytes, room_bytes) = (30, 20);
        let too_long = SendError::ReplyTooLong {
            len_bytes,
            room_bytes,
        };
        assert_eq!(right.call_into(b"0big 30", &mut reply), Err(too_long));
        let long = "20".to_owned() + &"x".repeat(60_000);
        assert_eq!(text(right, &long), long[2..]);
        let before: u64 = text(right, "0add 0").parse().unwrap();
        right.send(b"20add 3").unwrap();
        assert!(within_patience(
            || text(right, "0add 0") == (before + 3).to_string()
        ));
        let failed = right.call(b"0panic").map(drop);
        assert_eq!(failed, Err(SendError::Domain(DomainError::Panic)));
    }
    // For ever, but for the bound.
    let failed = here.call(b"2").map(drop);
    assert_eq!(failed, Err(SendError::Domain(DomainError::TooDeep)));
    let outside = handfast::domain::pass_on(here.clone(), b"", Vec::new());
    assert_eq!(outside, Err(SendError::Misuse(Misuse::NotACall)));
    last.revoke(5);
    // A domain that is a process hears of it a little later, and what it passes on until then is dropped.
    assert!(within_patience(
        || here.call(b"0who").map(drop) == Err(SendError::Gone(Gone::Right))
    ));
    server.kill();
    assert!(within_patience(
        || here.call(b"1who").map(drop) == Err(SendError::Gone(Gone::Process))
    ));
}
