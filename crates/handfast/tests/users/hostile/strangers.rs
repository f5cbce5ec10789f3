//! Strangers: introductions of them, their incarnations, and connections of those that have ended.

use super::status;
use crate::common::{self, Child, own_kib};
use crate::forger::{self, Hand};
use handfast_layout::hello::{Hello, Status, WELCOME_BYTES, Welcome};
use handfast_layout::part::{Part, ThirdForm};
use handfast_sys::socket;
use rustix::fd::{AsFd, OwnedFd};

/// Security finding 12: what a peer makes this process say to it is bounded wherever it is said.
#[test]
fn who_introduces_strangers_and_reads_nothing_costs_no_more_than_a_limit() {
    let (mut server, name) = forger_server("strangers");
    let mut hand = Hand::new(&name, 1);
    hand.send(b"", &[]);
    hand.settle();
    let before = own_kib(server.pid());
    for number in 0..60_000u64 {
        let mut exporter = [3; 16];
        exporter[..8].copy_from_slice(&number.to_le_bytes());
        let part = Part::Third {
            vine: (1 << 31 | 5, 0x100),
            port: 0x100,
            exporter,
            number,
            pid: 7,
            form: ThirdForm::Plain,
        };
        hand.send(b"", &[part]);
    }
    hand.settle_quietly();
    let grown = own_kib(server.pid()).saturating_sub(before);
    println!("{grown} KiB");
    assert!(grown < 8 << 10, "{grown} KiB");
    forger::serves(&name);
    server.kill();
}

/// A server of this user that drops what comes.
fn forger_server(what: &str) -> (Child, String) {
    let name = common::name(what);
    let user = rustix::process::geteuid().as_raw().to_string();
    let server = common::start("server", &[&user, &name, "1024"]);
    server.expect("ready");
    (server, name)
}

/// Security finding 13: a process that claims to be another is refused, and that one is let in.
#[test]
fn an_incarnation_that_another_process_has_is_refused_and_keeps_its_owner_out_of_nothing() {
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let (mut server, name) = forger_server("posed-to");
    let owner = common::name("posed-as");
    let _owner = handfast::bind(&owner).unwrap();
    // This process's own incarnation, as every peer of it is told; said by another process's connection.
    let socket = common::knock(&owner);
    let bells = handfast_layout::bell::REGION_BYTES;
    let bells = handfast_sys::memory::create_sealed("fake", bells).unwrap();
    let hello_bytes = Hello::new(common::incarnation(1), &owner, 3, None).to_bytes();
    socket::send(&socket, &hello_bytes, &[bells.as_fd()]).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, _) = socket::receive(&socket, &mut bytes, 2).unwrap();
    let known = Welcome::parse(&bytes[..len_bytes]).unwrap().incarnation;
    let (_other, borrowed) = connection_of_another(&name);
    let hello_bytes = Hello::new(known, &name, 3, None).to_bytes();
    socket::send(&borrowed, &hello_bytes, &[bells.as_fd()]).unwrap();
    assert_eq!(status(&borrowed), Status::Malformed);
    // The owner comes second.
    common::answers(&name);
    server.kill();
}

/// A process that has made a connection to `name`, and that connection, which this process has, too.
fn connection_of_another(name: &str) -> (Child, OwnedFd) {
    let maker = common::start("connector", &["0", name]);
    maker.expect("here");
    let pid = rustix::process::Pid::from_raw(maker.pid().cast_signed()).unwrap();
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let fds = std::fs::read_dir(format!("/proc/{}/fd", maker.pid())).unwrap();
    let numbers = fds.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let mut copies = numbers.filter_map(|number| {
        let flags = rustix::process::PidfdGetfdFlags::empty();
        rustix::process::pidfd_getfd(&pidfd, number, flags).ok()
    });
    let found = copies.find(|fd| socket::is_of_messages(fd));
    (maker, found.expect("its connection"))
}

/// Security finding 18: a connector that has ended has no identity.
#[test]
fn a_connection_of_a_process_that_has_ended_is_not_linked() {
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let (mut server, name) = forger_server("dead-connector");
    let before = common::at_rest(server.pid());
    let (mut maker, socket) = connection_of_another(&name);
    maker.kill();
    let bells = handfast_layout::bell::REGION_BYTES;
    let bells = handfast_sys::memory::create_sealed("fake", bells).unwrap();
    let hello_bytes = Hello::new(common::incarnation(1), &name, 3, None).to_bytes();
    socket::send(&socket, &hello_bytes, &[bells.as_fd()]).unwrap();
    let end = socket::receive(&socket, &mut [0; 256], 2);
    assert!(matches!(end, Ok((0, _)) | Err(_)), "{end:?}");
    drop(socket);
    assert!(common::settles_at(server.pid(), before));
    server.kill();
}
