//! Descriptors that travel in messages between real processes.

use crate::common::{self, at_rest, descriptors, pipe, settles_at};
use handfast::error::{RightError, SendError};
use handfast::{Right, SendRight, TryWait};
use handfast_testing::forge::Packet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// As the library has it.
const UNCLAIMED_MAX: usize = handfast_layout::part::UNCLAIMED_MAX as usize;

/// Sends back what comes; has a port that it receives from when told, and one that it never looks at.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    let later = handfast::bind(&format!("{name}-later")).unwrap();
    let _other = handfast::bind(&format!("{name}-other")).unwrap();
    common::say("ready");
    let mut limit = None;
    loop {
        let mut request = port.receive().unwrap();
        let rights = request.take_rights();
        match request.bytes() {
            b"back" => request.reply_with(b"", rights).unwrap(),
            b"open" => {
                let kinds = rights.iter().map(|right| match right {
                    Right::Descriptor(_) => "descriptor".to_owned(),
                    Right::Send(_) => "send".to_owned(),
                    Right::Lost(lost) => lost.to_string(),
                    other => panic!("{other:?}"),
                });
                let kinds = kinds.collect::<Vec<_>>().join(", ");
                request.reply(kinds.as_bytes()).unwrap();
            }
            b"full" => {
                limit = Some(full());
                request.reply(b"").unwrap();
            }
            b"room" => {
                restore(limit.take().unwrap());
                request.reply(b"").unwrap();
            }
            b"later" => {
                while let Ok(request) = later.try_receive() {
                    drop(request);
                }
                request.reply(b"").unwrap();
            }
            order => panic!("{order:?}"),
        }
    }
}

/// Leaves this process no room for another descriptor.
fn full() -> rustix::process::Rlimit {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let old = getrlimit(Resource::Nofile);
    let free = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0).unwrap();
    let first = std::os::fd::AsRawFd::as_raw_fd(&free) as u64;
    drop(free);
    let limit = Rlimit {
        current: Some(first),
        maximum: old.maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    old
}

fn restore(limit: rustix::process::Rlimit) {
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
}

/// A server, and a right to it that has been used.
fn start(what: &str) -> (common::Child, SendRight, String) {
    let name = common::name(what);
    let server = common::start("server of descriptors", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    right.call(b"open").unwrap();
    (server, right, name)
}

fn identity(fd: impl AsFd) -> (u64, u64) {
    handfast_sys::memory::identity(fd).unwrap()
}

#[test]
fn descriptors_go_there_and_back_with_calls_in_their_order_and_leave_nothing() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        descriptors_go_there_and_back_with_calls_in_their_order_and_leave_nothing,
    ) {
        return;
    }
    let (mut server, right, _) = start("there-and-back");
    let own = handfast::bind(&common::name("there-own")).unwrap();
    let before = (at_rest(std::process::id()), at_rest(server.pid()));
    for round in 0..200 {
        let (readers, writers): (Vec<_>, Vec<_>) = (0..1 + round % 4).map(|_| pipe()).unzip();
        let sent: Vec<_> = writers.iter().map(identity).collect();
        let rights = writers.into_iter().map(Right::from);
        let mut reply = right.with(rights).call(b"back").unwrap();
        let back = descriptors(reply.take_rights());
        assert_eq!(back.iter().map(identity).collect::<Vec<_>>(), sent);
        for (mut reader, fd) in readers.into_iter().zip(back) {
            let flags = rustix::io::fcntl_getfd(&fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            File::from(fd).write_all(b"through").unwrap();
            let mut text = String::new();
            // To the end: there is no other writer left anywhere.
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "through");
        }
    }
    // Beside rights of another kind, and long bytes.
    let (_reader, writer) = pipe();
    let rights = [own.mint(1).into(), writer.into(), own.mint(2).into()];
    let reply = right.with(rights).call(b"open").unwrap();
    assert_eq!(&*reply, b"send, descriptor, send");
    drop((_reader, own));
    assert!(settles_at(std::process::id(), before.0 - 1));
    assert!(settles_at(server.pid(), before.1));
    server.kill();
}

#[test]
fn what_is_not_sent_comes_back_and_nothing_of_it_is_at_the_receiver() {
    let _alone = common::alone();
    let (mut server, right, name) = start("not-sent");
    let other = handfast::connect(&format!("{name}-other")).unwrap();
    let before = at_rest(server.pid());
    let some = |count| -> Vec<Right> { (0..count).map(|_| pipe().1.into()).collect() };

    let long = vec![0; handfast::LONG_BYTES_MAX + 1];
    let refused = right.with(some(4)).send(&long).unwrap_err();
    assert!(matches!(refused.error, SendError::TooLong { .. }));
    assert_eq!(descriptors(refused.rights).len(), 4);
    let refused = right.with(some(5)).send(b"open").unwrap_err();
    let too_many = RightError::TooMany { count: 5 };
    assert_eq!(refused.error, SendError::Right(too_many));
    assert_eq!(descriptors(refused.rights).len(), 5);

    // Its queue is full; nobody receives there.
    while other.try_send(b"fill").is_ok() {}
    let refused = other.with(some(4)).try_send(b"x").unwrap_err();
    assert_eq!(refused.error, SendError::Full);
    let short = Duration::from_millis(20);
    let refused = other.with(refused.rights).call_timeout(b"x", short);
    let refused = refused.unwrap_err();
    assert_eq!(refused.error, SendError::TimedOut);
    assert_eq!(descriptors(refused.rights).len(), 4);

    // Nothing of all that is under way: the numbers have no gap, and the quota is untouched.
    right.call(b"open").unwrap();
    assert!(settles_at(server.pid(), before));
    for _ in 0..UNCLAIMED_MAX {
        let kinds = right.with(some(2)).call(b"open").unwrap();
        assert_eq!(&*kinds, b"descriptor, descriptor");
    }
    server.kill();
    let refused = right.with(some(1)).call(b"open").unwrap_err();
    assert!(matches!(refused.error, SendError::Gone(_)), "{refused}");
    let fds = descriptors(refused.rights).len();
    assert!(fds <= 1, "{fds}");
}

#[test]
fn descriptors_that_nobody_receives_are_limited_and_the_limit_is_named() {
    let _alone = common::alone();
    let (mut server, right, name) = start("limited");
    let later = handfast::connect(&format!("{name}-later")).unwrap();
    let before = at_rest(server.pid());
    for _ in 0..3 {
        // Four to a message, so that there is room in the queue.
        let four = || (0..4).map(|_| pipe().1.into());
        for _ in 0..UNCLAIMED_MAX / 4 {
            later.with(four()).send(b"").unwrap();
        }
        let refused = later.with(four()).send(b"").unwrap_err();
        let limit = UNCLAIMED_MAX as u32;
        let unclaimed = RightError::Unclaimed { limit };
        assert_eq!(refused.error, SendError::Right(unclaimed));
        assert_eq!(descriptors(refused.rights).len(), 4);
        assert!(refused.error.to_string().contains("64 descriptors"));
        // All the link's: through other rights, too.
        assert!(right.with(four()).call(b"open").is_err());
        assert!(settles_at(server.pid(), before + UNCLAIMED_MAX));
        // Messages without any pass.
        right.call(b"later").unwrap();
        assert!(settles_at(server.pid(), before));
        assert!(right.with(four()).call(b"open").is_ok());
    }
    server.kill();
}

#[test]
fn a_receiver_without_room_is_told_so_and_serves_on() {
    let _alone = common::alone();
    if common::ran_in_own_process(a_receiver_without_room_is_told_so_and_serves_on) {
        return;
    }
    let (mut server, right, _) = start("no-room");
    // Its control thread may still hold what it made the link with, in places that it frees then.
    let _ = at_rest(server.pid());
    for _ in 0..3 {
        right.call(b"full").unwrap();
        let (_readers, writers): (Vec<_>, Vec<_>) = (0..3).map(|_| pipe()).unzip();
        let kinds = right.with(writers.into_iter().map(Right::from));
        let kinds = String::from_utf8(kinds.call(b"open").unwrap().to_vec()).unwrap();
        println!("{kinds}");
        assert_eq!(kinds.matches("RLIMIT_NOFILE").count(), 3, "{kinds}");
        right.call(b"room").unwrap();
        let kinds = right.with([pipe().1.into()]).call(b"open").unwrap();
        assert_eq!(&*kinds, b"descriptor");
    }
    // The caller's own room, for a reply.
    let mut call = right.with([pipe().1.into()]).try_call(b"back").unwrap();
    let old = full();
    let outcome = loop {
        call = match call.try_wait() {
            TryWait::Ready(outcome) => break outcome,
            TryWait::Pending(call) => call,
        };
    };
    restore(old);
    let rights = outcome.unwrap().take_rights();
    assert!(
        matches!(rights[..], [Right::Lost(_) | Right::Descriptor(_)]),
        "{rights:?}"
    );
    // A right that was lost is not sent on.
    if let [Right::Lost(_)] = rights[..] {
        let refused = right.with(rights).send(b"").unwrap_err();
        assert_eq!(refused.error, SendError::Right(RightError::Lost));
    }
    server.kill();
}

/// Fills the control socket of a peer that is stopped, and sends a descriptor.
pub(crate) fn sender(name: &str) {
    let right = handfast::connect(name).unwrap();
    right.call(b"open").unwrap();
    common::say("connected");
    common::told().unwrap();
    let socket = common::link_socket();
    // A message of a later release, which is passed over.
    let later = Packet::unknown(0);
    while handfast_sys::socket::send(&socket, &later, &[]).is_ok() {}
    let (_reader, writer) = pipe();
    let refused = right.with([writer.into()]).try_call(b"open").unwrap_err();
    assert_eq!(refused.error, SendError::Full);
    let short = Duration::from_millis(30);
    let refused = right.with(refused.rights).send_timeout(b"open", short);
    let refused = refused.unwrap_err();
    assert_eq!(refused.error, SendError::TimedOut);
    common::say("full");
    let kinds = right.with(refused.rights).call(b"open").unwrap();
    assert_eq!(&*kinds, b"descriptor");
    common::say("done");
    common::told();
}

#[test]
fn a_full_control_socket_is_waited_for_and_loses_nothing() {
    let _alone = common::alone();
    let (mut server, _right, name) = start("unread");
    let mut sender = common::start("sender", &[&name]);
    sender.expect("connected");
    server.stop();
    sender.tell("go");
    sender.expect("full");
    server.resume();
    sender.expect("done");
    sender.finish();
    server.kill();
}

#[test]
fn descriptors_of_calls_that_are_passed_on_come_back_whichever_way_the_answer_takes() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        descriptors_of_calls_that_are_passed_on_come_back_whichever_way_the_answer_takes,
    ) {
        return;
    }
    let (mut server, _right, to) = start("last");
    let name = common::name("middle");
    let mut middle = common::start("middle", &[&name, &to]);
    middle.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let call = || {
        let (_reader, writer) = pipe();
        let sent = identity(&writer);
        let mut reply = right.with([writer.into()]).call(b"back").unwrap();
        let back = descriptors(reply.take_rights());
        assert_eq!(back.iter().map(identity).collect::<Vec<_>>(), [sent]);
    };
    call();
    let before = [std::process::id(), middle.pid(), server.pid()].map(|pid| (pid, at_rest(pid)));
    (0..100).for_each(|_| call());
    for (pid, count) in before {
        assert!(common::within_patience(|| common::holdings(pid).0 <= count));
    }
    middle.kill();
    server.kill();
}
