//! Peers that forge rights: handles they were never given, parts that are none, releases of what
//! they do not have.

use crate::common;
use handfast::SendRight;
use handfast::error::{Gone, ReceiveError, Rule, SendError};
use handfast_layout::LINE;
use handfast_layout::link::{Side, UNIT_BYTES, lane, slot};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Sends an honest message with a right, changes one word of it before it is received, and says
/// what became of the link.
pub(crate) fn forger(name: &str, message: &str, at: &str, mask: &str) {
    let own = handfast::bind(&format!("{name}-forger")).unwrap();
    let right = handfast::connect(name).unwrap();
    let mut first = Side::Connector.lane(0) + lane::CONTROL_BYTES;
    match message {
        "with a right" => right.with([own.mint(5).into()]).send(b"").unwrap(),
        "after an honest one" => {
            right.call(b"honest").unwrap();
            right.send(b"").unwrap();
            first += LINE;
        }
        _ => right.send(b"").unwrap(),
    }
    let region = common::shared_words("handfast link")[0];
    let word = region.word(first + at.parse::<usize>().unwrap());
    word.fetch_xor(mask.parse().unwrap(), SeqCst);
    says_when_cut(&right);
}

/// A forger that has sent what it was to send: once it is told to, says that its link is cut.
pub(crate) fn says_when_cut(right: &SendRight) {
    common::say("sent");
    common::told().unwrap();
    let gone = |error| error == SendError::Gone(Gone::Process);
    assert!(common::within_patience(|| right
        .try_send(b"x")
        .is_err_and(gone)));
    common::say("cut");
}

/// Offset of a word of the first unit, which lies inline in front of no bytes.
const UNIT: usize = slot::BYTES;

/// Of which message, and what is changed: a word of its slot, and its bits.
const FORGERIES: [(&str, &str, usize, u32, Rule); 15] = [
    ("index", RIGHT, slot::PORT, 1, Rule::RightHandle),
    ("generation", RIGHT, slot::PORT, 1 << 20, Rule::RightHandle),
    (
        "not-a-handle",
        RIGHT,
        slot::PORT,
        1 << 31,
        Rule::RightHandle,
    ),
    ("units", RIGHT, slot::META, 2 << 20, Rule::MessageLength),
    ("kind", RIGHT, UNIT, 16, Rule::Part),
    // Kind 1 becomes 2, with a port where there must be none.
    ("padding", RIGHT, UNIT, 3, Rule::Part),
    ("rest", RIGHT, UNIT + UNIT_BYTES - 4, 1, Rule::Part),
    ("receiver", RIGHT, UNIT + 8, 0xff, Rule::Part),
    ("bare", RIGHT, UNIT + 4, 1 << 31, Rule::RightHandle),
    // The first right of a link is bit 31 and nothing else: this is zero.
    ("zero", "first", slot::PORT, 1 << 31, Rule::RightHandle),
    ("other", "first", slot::PORT, 1, Rule::RightHandle),
    ("later-zero", LATER, slot::PORT, 1 << 31, Rule::RightHandle),
    ("later-other", LATER, slot::PORT, 1, Rule::RightHandle),
    // A word that was never claimed: that may come yet, for a while.
    (
        "unclaimed",
        RIGHT,
        slot::PORT,
        1 << 31 | 5,
        Rule::RightHandle,
    ),
    ("later-old", LATER, slot::PORT, 1 << 20, Rule::RightHandle),
];

const RIGHT: &str = "with a right";
const LATER: &str = "after an honest one";

/// The rules that peers have broken.
static FAULTS: Mutex<String> = Mutex::new(String::new());

#[test]
fn forged_rights_are_refused_by_name_and_nobody_else_is_harmed() {
    let cuts = common::Cuts(|fault: &str| FAULTS.lock().unwrap().push_str(fault));
    tracing::subscriber::set_global_default(cuts).unwrap();
    for (what, message, at, mask, rule) in FORGERIES {
        let name = common::name(&format!("forged-{what}"));
        let port = handfast::bind(&name).unwrap();
        let honest = handfast::connect(&name).unwrap();
        let (at, mask) = (at.to_string(), mask.to_string());
        let mut forger = common::start("forger", &[&name, message, &at, &mask]);
        if message == LATER {
            let first = port.receive_timeout(common::PATIENCE).unwrap();
            assert_eq!(first.bytes(), b"honest");
            first.reply(b"").unwrap();
        }
        forger.expect("sent");
        let faults = || std::mem::take(&mut *FAULTS.lock().unwrap());
        let mut fault = String::new();
        let is_cut = common::within_patience(|| {
            let received = port.receive_timeout(Duration::from_millis(50));
            let is_nothing = matches!(received, Err(ReceiveError::TimedOut));
            assert!(is_nothing, "{what}: {received:?}");
            fault += &faults();
            fault.contains(rule.text())
        });
        assert!(is_cut, "{what}: {fault}");
        forger.tell("look");
        forger.expect("cut");
        honest.send(b"honest").unwrap();
        let mut request = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(request.bytes(), b"honest");
        assert!(request.take_rights().is_empty(), "{what}: another's rights");
        forger.kill();
    }
}

/// A link made by hand, so that its socket is at hand, too.
fn link_by_hand(name: &str, number: u8) -> rustix::fd::OwnedFd {
    use handfast_layout::hello::{Hello, WELCOME_BYTES, Welcome};
    let socket = common::knock(name);
    let bells = handfast_layout::bell::REGION_BYTES;
    let bells = handfast_sys::memory::create_sealed("fake", bells).unwrap();
    let hello = Hello::new(common::incarnation(number), name, 3, None).to_bytes();
    let fds = [rustix::fd::AsFd::as_fd(&bells)];
    handfast_sys::socket::send(&socket, &hello, &fds).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, fds) = handfast_sys::socket::receive(&socket, &mut bytes, 2).unwrap();
    common::take_offer(&socket, &fds[0]);
    let welcome = Welcome::parse(&bytes[..len_bytes]).unwrap();
    assert_eq!(welcome.handle, 1 << 31, "the first right of a link");
    socket
}

#[test]
fn releases_of_what_was_not_given_cut_the_link_that_they_come_through() {
    use handfast_layout::control::{ControlMessage, Released};
    let name = common::name("released");
    let port = handfast::bind(&name).unwrap();
    let given = 1u32 << 31;
    let forged = [
        (given, 2),
        (given, 0),
        (given + 1, 1),
        (given | 1 << 20, 1),
        (0, 1),
    ];
    for (number, (handle, count)) in (0u8..).zip(forged) {
        let socket = link_by_hand(&name, number);
        port.notify_no_senders();
        let rights = [Released {
            name: handle,
            count,
        }];
        let message = ControlMessage::Release {
            rights: (&rights).into(),
        };
        handfast_sys::socket::send(&socket, &message.encode(), &[]).unwrap();
        // It may be told before that others' ports are gone.
        let end = loop {
            match handfast_sys::socket::receive(&socket, &mut [0; 8], 0) {
                Ok((1.., _)) => {}
                end => break end,
            }
        };
        assert!(matches!(end, Ok((0, _))), "{handle:#x}, {count}: {end:?}");
        // Its right has gone with the link, once.
        let told = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(told.notice(), Some(handfast::Notice::NoSenders));
        let honest = handfast::connect(&name).unwrap();
        honest.send(b"honest").unwrap();
        assert_eq!(
            port.receive_timeout(common::PATIENCE).unwrap().bytes(),
            b"honest"
        );
    }
}

#[test]
fn links_that_come_and_go_change_nothing_while_there_is_a_sender() {
    let name = common::name("come-and-go");
    let port = handfast::bind(&name).unwrap();
    for number in 0..5 {
        let keeper = handfast::connect(&name).unwrap();
        port.notify_no_senders();
        drop(link_by_hand(&name, number));
        let nothing = port.receive_timeout(Duration::from_millis(20));
        assert!(
            matches!(nothing, Err(ReceiveError::TimedOut)),
            "{nothing:?}"
        );
        drop(keeper);
        let told = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(told.notice(), Some(handfast::Notice::NoSenders));
    }
}
