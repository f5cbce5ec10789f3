//! Peers that forge receive rights: listeners that are none, names of others, more than there is room for.

use crate::common;
use crate::forger::{Hand, expect_cut, serves, units};
use handfast::Right;
use handfast::error::Rule;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::{Kind, UNIT_BYTES};
use handfast_layout::part::{Bound, Descriptors, Part};
use rustix::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Starts a process that plays that role.
fn start(role: &'static str, what: &str) -> (common::Child, String) {
    let name = common::name(what);
    let child = common::start(role, &[&name]);
    child.expect("ready");
    (child, name)
}

/// Keeps the receive rights that come, and drops them when it is told.
pub(crate) fn keeper(name: &str) {
    let cuts = common::Cuts(|fault: &str| common::say(&format!("cut: {fault}")));
    tracing::subscriber::set_global_default(cuts).unwrap();
    let port = handfast::bind(name).unwrap();
    let kept = std::sync::Mutex::new(Vec::<Right>::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let mut request = port.receive().unwrap();
                kept.lock().unwrap().extend(request.take_rights());
                if request.is_call() {
                    let bytes = request.bytes().to_vec();
                    let _ = request.reply(&bytes);
                }
            }
        });
        common::say("ready");
        while common::told().is_some() {
            kept.lock().unwrap().clear();
            common::say("dropped");
        }
        std::process::exit(0);
    });
}

/// Sends a receive right with a name, of which the listener is this.
fn send_named(
    hand: &mut Hand,
    (first, number): (u32, u32),
    listener: &OwnedFd,
    bound: (&str, (u64, u64)),
) {
    let sent = ControlMessage::Descriptors(Descriptors { count: 1, first }).encode();
    handfast_sys::socket::send(&hand.socket, &sent, &[listener.as_fd()]).unwrap();
    let (name, file) = bound;
    let part = Part::Receive {
        token: 1,
        number,
        name_bytes: name.len() as u8,
        asks: false,
    };
    let name = name.to_owned();
    let mut units = units(&[part]);
    units.extend(Bound { file, name }.to_units());
    let handle = hand.welcome.handle;
    hand.post(Kind::Message, (handle, 0, 0), (b"", &units));
}

/// A socket that listens somewhere; not at a name.
fn listener(what: &str) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let address = SocketAddrUnix::new_abstract_name(common::name(what).as_bytes()).unwrap();
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    // It blocks: whoever takes connections from it is not to wait for ever.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    socket
}

#[test]
fn forged_receive_rights_are_refused_by_name_and_harm_nobody_else() {
    let (mut server, name) = start("keeper", "forged-receive");
    let pipe = || rustix::pipe::pipe().unwrap().1;
    type Forge = fn(&mut Hand, &OwnedFd, &OwnedFd);
    let forgeries: [(&str, Forge, Rule); 6] = [
        (
            "no-listener",
            |hand, _, pipe| send_named(hand, (0, 0), pipe, ("some", (0, 0))),
            Rule::Descriptor,
        ),
        (
            "a-path",
            |hand, listener, _| send_named(hand, (0, 0), listener, ("../some", (0, 0))),
            Rule::Part,
        ),
        (
            "a-name-with-zero",
            |hand, listener, _| send_named(hand, (0, 0), listener, ("so\0me", (0, 0))),
            Rule::Part,
        ),
        (
            "a-descriptor-never-sent",
            |hand, listener, _| send_named(hand, (0, 1), listener, ("some", (0, 0))),
            Rule::Descriptor,
        ),
        (
            "no-name-behind",
            |hand, _, _| {
                let part = Part::Receive {
                    token: 1,
                    number: 0,
                    name_bytes: 4,
                    asks: false,
                };
                let handle = hand.welcome.handle;
                hand.post(Kind::Message, (handle, 0, 0), (b"", &units(&[part])));
            },
            Rule::Part,
        ),
        (
            "padding",
            |hand, _, _| {
                let part = Part::Receive {
                    token: 1,
                    number: 0,
                    name_bytes: 0,
                    asks: false,
                };
                let mut units = units(&[part]);
                units[0][UNIT_BYTES - 2] = 1;
                let handle = hand.welcome.handle;
                hand.post(Kind::Message, (handle, 0, 0), (b"", &units));
            },
            Rule::Part,
        ),
    ];
    for (number, (what, forge, rule)) in (100u8..).zip(forgeries) {
        let mut hand = Hand::new(&name, number);
        forge(&mut hand, &listener(what), &pipe());
        expect_cut(&server, rule, what);
        hand.expect_end();
        serves(&name);
    }
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn a_socket_file_of_another_stays_whatever_is_said_of_it() {
    let (mut server, name) = start("keeper", "others-file");
    let victim = common::name("others-file-victim");
    let port = handfast::bind(&victim).unwrap();
    let path = common::directory().join(&victim);
    let file = std::fs::symlink_metadata(&path).unwrap();
    let mut hand = Hand::new(&name, 1);
    let of_file = (file.dev(), file.ino());
    for (first, said) in (0..).zip([(0, 0), (1, 1), (of_file.0, 1), of_file]) {
        send_named(
            &mut hand,
            (first, first),
            &listener(&format!("others-file-{first}")),
            (&victim, said),
        );
        hand.settle_quietly();
        server.tell("drop");
        server.expect("dropped");
        serves(&name);
        let now = std::fs::symlink_metadata(&path).map(|file| (file.dev(), file.ino()));
        assert_eq!(now.ok(), Some(of_file), "{said:?}");
    }
    assert_eq!(port.name(), victim);
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn a_flood_of_receive_rights_is_refused_beyond_what_there_is_room_for() {
    let (mut server, name) = start("keeper", "flood-receive");
    let honest = handfast::connect(&name).unwrap();
    let mut hand = Hand::new(&name, 1);
    for turn in 0..3 {
        let mut answers = [0; 2];
        for token in 0..2 * RECEIVERS {
            let part = Part::Receive {
                token,
                number: 0,
                name_bytes: 0,
                asks: true,
            };
            hand.send(b"", &[part]);
            // Beside word of ports that have ended.
            let (answer, of) = loop {
                match hand.hear().message() {
                    ControlMessage::Arrived { token, .. } => break (0, token),
                    ControlMessage::NotArrived { token } => break (1, token),
                    _ => {}
                }
            };
            answers[answer] += 1;
            assert_eq!(of, token);
        }
        // One is the process's own.
        assert!(
            answers[0] < RECEIVERS && answers[0] > 0,
            "{turn}: {answers:?}"
        );
        assert_eq!(&*honest.call(b"well").unwrap(), b"well");
        server.tell("drop");
        server.expect("dropped");
    }
    assert_eq!(server.said(), None);
    server.finish();
}
