//! Peers that forge descriptors and memory: numbers they never sent, numbers used twice, memory that
//! is none, descriptors without a message, counts that are not true.

use super::requests::says_when_cut;
use crate::common;
use handfast::error::{Rule, SendError};
use handfast::{Memory, Right, SendRight};
use handfast_layout::LINE;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{Side, UNIT_BYTES, lane, slot};
use handfast_layout::part::{Descriptors, UNCLAIMED_MAX};
use handfast_testing::forge::Packet;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

/// Receives when it is told to, and says what came and which rules were broken.
pub(crate) fn server(name: &str) {
    let told = common::Cuts(|fault: &str| common::say(&format!("cut: {fault}")));
    tracing::subscriber::set_global_default(told).unwrap();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    while common::told().is_some() {
        let mut received = Vec::new();
        while let Ok(mut request) = port.try_receive() {
            received.push(request.take_rights().len().to_string());
        }
        common::say(&format!("received: {}", received.join(" ")));
    }
}

/// A memory file that somebody can still write, or that is not whole.
fn file(kind: &str) -> OwnedFd {
    use handfast_sys::memory::{create_owner_written, create_sealed, create_whole, seal};
    // With all its pages, where nothing else is said.
    let whole = |fd: OwnedFd| {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&fd, flags, 0, 4096).unwrap();
        fd
    };
    match kind {
        "open" => create_whole("open", 4096).unwrap(),
        "size-sealed" => whole(create_sealed("sized", 4096).unwrap()),
        "owner-written" => {
            let (fd, mapping) = create_owner_written("owned", 4096).unwrap();
            std::mem::forget(mapping);
            whole(fd)
        }
        "sparse" => {
            let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("sparse", flags).unwrap();
            rustix::fs::ftruncate(&fd, 4096).unwrap();
            seal(&fd).unwrap();
            fd
        }
        _ => rustix::pipe::pipe().unwrap().1,
    }
}

const FILES: [&str; 5] = ["open", "size-sealed", "owner-written", "sparse", "pipe"];

/// The change to an honest message: the parts it has, and words of them with the bits.
fn forgery(what: &str) -> (Vec<Right>, Vec<(usize, u32)>) {
    let fd = || Right::from(file("pipe"));
    let memory = || Right::from(Memory::from_bytes(&[7; 4096]).unwrap());
    let (number, len_low, len_high) = (4, 8, 12);
    match what {
        "not-sent-yet" => (vec![fd()], vec![(number, 1)]),
        "long-ago" => (vec![fd()], vec![(number, 1 << 31)]),
        "twice-in-one" => (vec![fd(), fd()], vec![(UNIT_BYTES + number, 1)]),
        "twice" => (vec![fd()], vec![(number, 1)]),
        "kind" => (vec![fd()], vec![(0, 2)]),
        "padding" => (vec![fd()], vec![(8, 1)]),
        "no-length" => (vec![memory()], vec![(len_low, 4096)]),
        "longer" => (vec![memory()], vec![(len_low, 8192)]),
        "shorter" => (vec![memory()], vec![(len_low, 1)]),
        "much-longer" => (vec![memory()], vec![(len_high, 1 << 31)]),
        kind => (vec![file(kind).into()], vec![(0, 1), (len_low, 4096)]),
    }
}

const FORGERIES: [(&str, Rule); 10] = [
    ("not-sent-yet", Rule::Descriptor),
    ("long-ago", Rule::Descriptor),
    ("twice-in-one", Rule::Descriptor),
    ("twice", Rule::Descriptor),
    ("kind", Rule::Part),
    ("padding", Rule::Part),
    ("no-length", Rule::Part),
    ("longer", Rule::Memory),
    ("shorter", Rule::Memory),
    ("much-longer", Rule::Memory),
];

/// Sends an honest message, changes it before it is received, and looks what became of the link.
pub(crate) fn forger(name: &str, what: &str) {
    let right = handfast::connect(name).unwrap();
    let mut at = Side::Connector.lane(0) + lane::CONTROL_BYTES + slot::BYTES;
    if what == "twice" {
        right.with([file("pipe").into()]).send(b"").unwrap();
        at += LINE;
    }
    // One or two units lie inline, in front of no bytes.
    let (rights, changes) = forgery(what);
    right.with(rights).send(b"").unwrap();
    let region = common::shared_words("handfast link")[0];
    for (word, bits) in changes {
        region.word(at + word).fetch_xor(bits, SeqCst);
    }
    says_when_cut(&right);
}

fn start(what: &str) -> (common::Child, String, usize) {
    let name = common::name(what);
    let server = common::start("server that takes descriptors", &[&name]);
    server.expect("ready");
    let before = common::at_rest(server.pid());
    (server, name, before)
}

fn settles_at(pid: u32, count: usize) -> bool {
    common::within_patience(|| common::holdings(pid).0 == count)
}

#[test]
fn forged_parts_are_refused_by_name_and_leave_nothing() {
    let (mut server, name, before) = start("forged-parts");
    let files = FILES.map(|kind| (kind, Rule::Memory));
    for (what, rule) in FORGERIES.into_iter().chain(files) {
        let mut forger = common::start("forger of descriptors", &[&name, what]);
        forger.expect("sent");
        server.tell("receive");
        let fault = server.line_that(|line| line.starts_with("cut: "));
        assert!(fault.contains(rule.text()), "{what}: {fault}");
        let honest = if what == "twice" { "1" } else { "" };
        server.expect(&format!("received: {honest}"));
        forger.tell("look");
        forger.expect("cut");
        forger.kill();
        server.tell("forget it");
        server.expect("received: ");
        assert!(settles_at(server.pid(), before), "{what}");
    }
    server.finish();
}

/// A link made by hand, so that its socket is at hand, too.
fn link_by_hand(name: &str, number: u8) -> OwnedFd {
    use handfast_layout::hello::{Hello, WELCOME_BYTES};
    let socket = common::knock(name);
    let bells = handfast_layout::bell::REGION_BYTES;
    let bells = handfast_sys::memory::create_sealed("fake", bells).unwrap();
    let hello = Hello::new(common::incarnation(number), name, 3, None).to_bytes();
    handfast_sys::socket::send(&socket, &hello, &[bells.as_fd()]).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let (_, fds) = handfast_sys::socket::receive(&socket, &mut bytes, 2).unwrap();
    common::take_offer(&socket, &fds[0]);
    socket
}

#[test]
fn descriptors_that_do_not_come_as_they_should_cut_their_link_and_are_closed() {
    let (mut server, name, before) = start("forged-control");
    let sent = |count, first| Packet::of(ControlMessage::Descriptors(Descriptors { count, first }));
    let forged: [(Packet, usize); 8] = [
        (sent(1, 1), 1),
        (sent(1, u32::MAX), 1),
        (sent(2, 0), 1),
        (sent(1, 0), 2),
        (sent(1, 0), 0),
        (sent(5, 0), 4),
        (sent(1, 0).cut(1), 1),
        (sent(1, 0).cut_to(1), 1),
    ];
    for (number, (message, fds)) in (0u8..).zip(forged) {
        let socket = link_by_hand(&name, number);
        let fd = file("pipe");
        let fds = vec![fd.as_fd(); fds];
        handfast_sys::socket::send(&socket, &message, &fds).unwrap();
        let end = handfast_sys::socket::receive(&socket, &mut [0; 8], 0);
        // A reset, where the server has closed a queue with something in it.
        let is_end = matches!(end, Ok((0, _)) | Err(handfast_sys::Errno::CONNRESET));
        assert!(is_end, "{message:?}: {end:?}");
        let fault = server.line();
        let rule = Rule::DescriptorCount.text();
        assert!(fault.contains(rule), "{message:?}: {fault}");
        drop(socket);
        assert!(settles_at(server.pid(), before), "{message:?}");
    }
    server.finish();
}

#[test]
fn descriptors_without_messages_are_held_up_to_the_limit_and_not_beyond() {
    let (mut server, name, before) = start("surplus");
    let socket = link_by_hand(&name, 1);
    let made = common::holdings(server.pid()).0;
    let fd = file("pipe");
    let send = |first| {
        let sent = ControlMessage::Descriptors(Descriptors { count: 4, first }).encode();
        handfast_sys::socket::send(&socket, &sent, &[fd.as_fd(); 4])
    };
    for first in (0..UNCLAIMED_MAX).step_by(4) {
        send(first).unwrap();
    }
    let limit = UNCLAIMED_MAX as usize;
    assert!(common::within_patience(
        || common::holdings(server.pid()).0 >= made + limit - 2
    ));
    assert!(server.said().is_none());
    send(UNCLAIMED_MAX).unwrap();
    let fault = server.line();
    assert!(fault.contains(Rule::DescriptorCount.text()), "{fault}");
    assert!(settles_at(server.pid(), before));
    server.finish();
}

#[test]
fn descriptors_with_a_message_that_has_none_cut_its_link() {
    let (mut server, name, before) = start("not-expected");
    let fd = file("pipe");
    let ring = Packet::of(ControlMessage::Ring { receiver: 0 });
    let counters = Packet::of(ControlMessage::Counters);
    let door = Packet::of(ControlMessage::Door { token: 0 });
    // With each as many as it may not have; counters that nobody has asked for.
    let forged = [
        (ring, 1),
        (Packet::unknown(0), 3),
        (door, 2),
        (counters.clone(), 1),
        (counters, 0),
    ];
    for (number, (message, fds)) in (0u8..).zip(forged) {
        let socket = link_by_hand(&name, number);
        let fds = vec![fd.as_fd(); fds];
        handfast_sys::socket::send(&socket, &message, &fds).unwrap();
        let fault = server.line();
        let rule = Rule::ControlDescriptor.text();
        assert!(fault.contains(rule), "{message:?}: {fault}");
        drop(socket);
        assert!(settles_at(server.pid(), before), "{message:?}");
    }
    server.finish();
}

/// Claims what it was never sent: so says the count that it publishes.
pub(crate) fn liar(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let request = port.receive().unwrap();
    let region = common::shared_words("handfast link")[0];
    region.word(Side::Connector.claimed()).store(2, SeqCst);
    request.reply(b"").unwrap();
    common::told();
}

#[test]
fn a_count_of_claims_that_is_not_true_cuts_the_link() {
    let name = common::name("liar");
    let mut server = common::start("liar", &[&name]);
    server.expect("ready");
    let right: SendRight = handfast::connect(&name).unwrap();
    right.call(b"").unwrap();
    let refused = right.with([file("pipe").into()]).send(b"").unwrap_err();
    let SendError::Fault(fault) = refused.error else {
        panic!("{refused}");
    };
    assert_eq!(fault.rule, Rule::DescriptorCount);
    assert_eq!(refused.rights.len(), 1);
    server.kill();
}
