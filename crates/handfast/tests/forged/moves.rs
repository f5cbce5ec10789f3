//! Peers that forge moves: ports that arrived where none was sent, rights that moved nowhere, marks for what
//! they have not been told of.

use crate::common;
use crate::forger::{Forgery, Hand, expect_cut, refused_by_name, serves, start_honest};
use handfast::error::Rule;
use handfast::{Right, SendRight};
use handfast_layout::bell::RECEIVERS;
use handfast_layout::control::ControlMessage as M;
use handfast_layout::hello::Process;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::Kind;
use handfast_layout::part::{Part, receiver_of};
use handfast_testing::forge::Packet;

/// Rights of a hand's own.
pub(crate) const fn own(number: u32) -> Part {
    Part::OfSender {
        handle: 1 << 31 | number,
        port: 0x100,
    }
}

/// Starts a process that plays that role.
fn start(role: &'static str, what: &str) -> (common::Child, String) {
    let name = common::name(what);
    let child = common::start(role, &[&name]);
    child.expect("ready");
    (child, name)
}

/// The port of a right has moved to the sender itself.
fn moved(hand: &Hand, name: u32, port: u32, number: u64) -> Packet {
    moved_to(hand.process, name, port, number | OF_MOVED)
}

fn moved_to(home: Process, name: u32, port: u32, number: u64) -> Packet {
    Packet::of(M::Moved {
        name,
        port,
        number,
        home,
    })
}

/// A move has ended at the sender, which has these for the port.
pub(crate) fn arrived(token: u32, port: u32, handle: u32) -> Packet {
    Packet::of(M::Arrived {
        token,
        port,
        handle,
    })
}

/// As one that an honest home says.
fn an_arrival() -> Packet {
    arrived(1, 0x100, 1 << 31 | 5)
}

fn not_arrived(token: u32) -> Packet {
    Packet::of(M::NotArrived { token })
}

/// The bit of numbers by which moved ports are claimed.
const OF_MOVED: u64 = 1 << 63;

const FORGERIES: [Forgery; 20] = [
    (
        "moved-number",
        |hand| {
            let said = moved_to(hand.process, 1 << 31 | 9, 0x100, 1);
            assert!(hand.say(said));
        },
        Rule::Introduction,
    ),
    (
        "arrived-empty",
        |hand| assert!(hand.say(an_arrival().cut_to(2))),
        Rule::Introduction,
    ),
    (
        "arrived-short",
        |hand| assert!(hand.say(an_arrival().cut(4))),
        Rule::Introduction,
    ),
    (
        "arrived-long",
        |hand| assert!(hand.say(an_arrival().extended(&[0; 4]))),
        Rule::Introduction,
    ),
    (
        "arrived-and-a-byte",
        |hand| assert!(hand.say(an_arrival().extended(b"x"))),
        Rule::Introduction,
    ),
    (
        "arrived-at-no-receiver",
        |hand| assert!(hand.say(arrived(1, RECEIVERS, 1 << 31 | 5))),
        Rule::Introduction,
    ),
    (
        "arrived-by-no-handle",
        |hand| assert!(hand.say(arrived(1, 0x100, 5))),
        Rule::RightHandle,
    ),
    (
        "not-arrived-short",
        |hand| assert!(hand.say(not_arrived(1).cut(1))),
        Rule::Introduction,
    ),
    (
        "not-arrived-long",
        |hand| assert!(hand.say(not_arrived(1).extended(&[1, 0, 0, 0]))),
        Rule::Introduction,
    ),
    (
        "moved-short",
        |hand| assert!(hand.say(moved(hand, 5, 0x100, 1).cut(1))),
        Rule::Introduction,
    ),
    (
        "moved-long",
        |hand| assert!(hand.say(moved(hand, 5, 0x100, 1).extended(b"x"))),
        Rule::Introduction,
    ),
    (
        "moved-to-no-receiver",
        |hand| assert!(hand.say(moved(hand, 5, RECEIVERS, 1))),
        Rule::Introduction,
    ),
    (
        "mint-of-a-port-it-never-had",
        |hand| {
            hand.tell(LaneControl::Mint {
                word: 5,
                badge: 9,
                permissions: 0,
                is_once: false,
            })
        },
        Rule::Introduction,
    ),
    (
        "mint-by-no-handle",
        |hand| {
            let said = LaneControl::Mint {
                word: 5,
                badge: 9,
                permissions: 0,
                is_once: false,
            };
            hand.post(Kind::CONTROL, (6, 0, 0), (&said.encode(), &[]));
        },
        Rule::Introduction,
    ),
    (
        "mint-by-zero",
        |hand| {
            hand.tell(LaneControl::Mint {
                word: 0,
                badge: 9,
                permissions: 0,
                is_once: false,
            })
        },
        Rule::Introduction,
    ),
    (
        "told-of-a-port-it-never-had",
        |hand| hand.tell(LaneControl::Told { number: 1 }),
        Rule::Introduction,
    ),
    (
        "mark-at-a-port-that-has-not-moved",
        |hand| {
            hand.tell(LaneControl::Mark {
                lanes: 1,
                number: 1,
            })
        },
        Rule::Introduction,
    ),
    (
        "mark-in-no-lanes",
        |hand| {
            hand.tell(LaneControl::Mark {
                lanes: 0,
                number: 1,
            })
        },
        Rule::Introduction,
    ),
    (
        "mark-in-too-many-lanes",
        |hand| {
            hand.tell(LaneControl::Mark {
                lanes: 17,
                number: 1,
            })
        },
        Rule::Introduction,
    ),
    (
        "mark-by-no-handle",
        |hand| {
            let said = LaneControl::Mark {
                lanes: 1,
                number: 1,
            };
            let port = hand.welcome.handle | 1 << 20;
            hand.post(Kind::CONTROL, (port, 0, 0), (&said.encode(), &[]));
        },
        Rule::Introduction,
    ),
];

#[test]
fn forged_moves_are_refused_by_name_and_harm_nobody_else() {
    refused_by_name("forged-moves", &FORGERIES, |_, _| {});
}

#[test]
fn what_is_said_of_moves_nobody_made_changes_nothing() {
    let (mut server, name) = start_honest("no-moves");
    let honest = handfast::connect(&name).unwrap();
    let mut hand = Hand::new(&name, 1);
    // Harmless by design: a move may have been given up, and a right given back, when the other hears of it.
    for token in [0, 1, 1, u32::MAX] {
        assert!(hand.say(not_arrived(token)));
        assert!(hand.say(arrived(token, 0x100, 1 << 31 | 5)));
        assert!(hand.say(moved(&hand, 1 << 31 | 9, 0x100, token.into())));
        hand.settle();
    }
    // Of a right that the process has: to the one that says so; it stays.
    hand.send(b"", &[own(7)]);
    hand.settle();
    let to = |home| moved_to(home, 1 << 31 | 7, 0x100, OF_MOVED | 1);
    assert!(hand.say(to(hand.process)));
    hand.settle();
    server.tell("call");
    let (index, generation, _) = hand.next();
    hand.answer((index, generation), Kind::Message, (b"here", &[]));
    server.expect("Ok(\"here\")");
    // To the process itself, where it is never provided: a process that says that of its own port has lost it for a minute, as to any
    // other process.
    assert!(hand.say(to(hand.peer)));
    hand.settle();
    server.tell("call");
    server.expect("Err(TimedOut)");
    assert_eq!(&*honest.call(b"well").unwrap(), b"well");
    assert_eq!(server.said(), None);
    server.finish();
}

/// Keeps the rights that come. Told `right`, makes a port, and gives the last that came a right to it; told
/// `member`, one that shares the receiver; told `move`, moves the port to the first.
pub(crate) fn mover(name: &str) {
    let cuts = common::Cuts(|fault: &str| common::say(&format!("cut: {fault}")));
    tracing::subscriber::set_global_default(cuts).unwrap();
    let port = handfast::bind(name).unwrap();
    let kept = std::sync::Mutex::new(Vec::<SendRight>::new());
    let mut moving: Option<Right> = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let mut request = port.receive().unwrap();
                for right in request.take_rights() {
                    if let Right::Send(right) = right {
                        kept.lock().unwrap().push(right);
                    }
                }
                if request.is_call() {
                    let bytes = request.bytes().to_vec();
                    let _ = request.reply(&bytes);
                }
            }
        });
        common::say("ready");
        while let Some(told) = common::told() {
            let kept = kept.lock().unwrap();
            match told.as_str() {
                "right" => {
                    let port = handfast::anonymous().unwrap();
                    let to = kept.last().unwrap();
                    to.with([port.mint(7).into()]).send(b"").unwrap();
                    moving = Some(port.into());
                }
                "member" => {
                    let member = port.member().unwrap();
                    let to = kept.last().unwrap();
                    to.with([member.mint(7).into()]).send(b"").unwrap();
                    moving = Some(member.into());
                }
                "move" => {
                    let port = moving.take().unwrap();
                    kept[0].with([port]).send(b"").unwrap();
                }
                _ => unreachable!("{told}"),
            }
        }
        std::process::exit(0);
    });
}

/// A move as a sender has been told of it: its right, the receiver there, and the number.
struct Told {
    handle: u32,
    receiver: u32,
    number: u64,
}

impl Told {
    fn mark(&self, hand: &mut Hand, lane: u32, (number, lanes): (u64, u32)) {
        let said = LaneControl::Mark { lanes, number };
        let at = (lane, self.receiver);
        let body = (&said.encode()[..], &[][..]);
        hand.post_to(at, Kind::CONTROL, (self.handle, 0, 0), body);
    }
}

/// A mover, with a forger that is to be the home of what it moves.
pub(crate) fn moving(what: &str) -> (common::Child, String, Hand) {
    let (child, name) = start("mover", what);
    let mut home = Hand::new(&name, 1);
    home.send(b"", &[own(5)]);
    home.settle();
    (child, name, home)
}

/// A port moves to the home; says with which token.
pub(crate) fn departs(mover: &mut common::Child, home: &mut Hand) -> u32 {
    mover.tell("move");
    let units = home.next_units(1);
    match Part::parse(&units).unwrap().0 {
        Part::Receive { token, .. } | Part::Member { token, .. } => token,
        part => panic!("{part:?}"),
    }
}

/// The port that moves in this turn, as it is numbered then.
pub(crate) const fn new_port(turn: u32) -> u32 {
    0x101 + (turn << 8)
}

/// A sender gets a right, and is told that its port has moved.
fn is_told(mover: &mut common::Child, (home, sender): (&mut Hand, &mut Hand), turn: u32) -> Told {
    let (handle, port) = is_given(mover, "right", sender);
    let (token, new) = (departs(mover, home), new_port(turn));
    assert!(home.say(arrived(token, new, 1 << 31 | (100 + turn))));
    let (name, at, number, of) = hears_of_move(sender);
    assert_eq!((name, at, of), (handle, new, home.process));
    Told {
        handle,
        receiver: receiver_of(port),
        number,
    }
}

/// A sender gets a right: its name, and its port.
pub(crate) fn is_given(mover: &mut common::Child, what: &str, sender: &mut Hand) -> (u32, u32) {
    sender.send(b"", &[own(6)]);
    sender.settle();
    mover.tell(what);
    match Part::parse(&sender.next_units(1)).unwrap().0 {
        Part::OfSender { handle, port } => (handle, port),
        part => panic!("{part:?}"),
    }
}

/// The next message: a right's name, the port at its new home, the number there, and which process that is.
pub(crate) fn hears_of_move(sender: &Hand) -> (u32, u32, u64, Process) {
    match sender.hear().message() {
        M::Moved {
            name,
            port,
            number,
            home,
        } => (name, port, number, home),
        said => panic!("{said:?}"),
    }
}

#[test]
fn forged_marks_cut_who_makes_them() {
    let (mut server, name, mut home) = moving("forged-marks");
    let honest = handfast::connect(&name).unwrap();
    type Forge = fn(&Told, &mut Hand);
    let forgeries: [(&str, Forge); 5] = [
        ("another-number", |told, hand| {
            told.mark(hand, 1, (told.number + 1, 1));
        }),
        ("another-sender's", |told, hand| {
            told.mark(hand, 1, (told.number - 1, 1));
        }),
        ("other-lanes", |told, hand| {
            told.mark(hand, 1, (told.number, 3));
            told.mark(hand, 1, (told.number, 2));
        }),
        ("fewer-lanes", |told, hand| {
            told.mark(hand, 1, (told.number, 2));
            told.mark(hand, 1, (told.number, 1));
        }),
        ("once-more", |told, hand| {
            told.mark(hand, 1, (told.number, 1));
            told.mark(hand, 1, (told.number, 1));
        }),
    ];
    for (turn, (what, forge)) in (0..).zip(forgeries) {
        let mut sender = Hand::new(&name, 10 + turn);
        let told = is_told(&mut server, (&mut home, &mut sender), turn.into());
        forge(&told, &mut sender);
        expect_cut(&server, Rule::Introduction, what);
        sender.expect_end();
        assert_eq!(&*honest.call(what.as_bytes()).unwrap(), what.as_bytes());
    }
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn a_move_is_answered_once_by_who_it_went_to() {
    let (mut server, name, mut home) = moving("answers");
    let mut other = Hand::new(&name, 2);
    let mut sender = Hand::new(&name, 3);
    sender.send(b"", &[own(6)]);
    sender.settle();
    server.tell("right");
    let Part::OfSender { handle, port } = Part::parse(&sender.next_units(1)).unwrap().0 else {
        panic!("no right");
    };
    let token = departs(&mut server, &mut home);
    // Another's.
    assert!(other.say(arrived(token, 0x101, 1 << 31 | 9)));
    assert!(other.say(not_arrived(token)));
    other.settle();
    assert!(home.say(arrived(token, 0x101, 1 << 31 | 9)));
    let (name, at, ..) = hears_of_move(&sender);
    assert_eq!((name, at), (handle, 0x101));
    // Again, and otherwise.
    assert!(home.say(arrived(token, 0x102, 1 << 31 | 10)));
    assert!(home.say(not_arrived(token)));
    home.settle();
    // A message that is sent by the old way is passed on.
    let at = (1, receiver_of(port));
    sender.post_to(at, Kind::Message, (handle, 0, 0), (b"on", &[]));
    let _ = home.next();
    other.settle();
    assert_eq!(server.said(), None);
    server.finish();
}

#[test]
fn a_mark_for_a_port_that_went_down_with_its_home_is_no_fault() {
    let (mut server, name, mut home) = moving("late-marks");
    let mut sender = Hand::new(&name, 3);
    let told = is_told(&mut server, (&mut home, &mut sender), 0);
    drop(home);
    // The port is dead: this is told.
    assert!(sender.try_hear().is_some());
    told.mark(&mut sender, 1, (told.number, 1));
    for _ in 0..3 {
        sender.settle();
    }
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}

/// The receiver of a port that has gone is the next one's soon, and may be before its senders have heard of that.
#[test]
fn a_mark_for_a_port_that_has_gone_is_no_fault_of_who_says_it_to_the_next_one_there() {
    let (mut server, name, mut home) = moving("next-there");
    let mut sender = Hand::new(&name, 3);
    let told = is_told(&mut server, (&mut home, &mut sender), 0);
    assert!(home.say(M::Closed {
        has_moved: false,
        port: new_port(0),
    }));
    assert!(sender.try_hear().is_some());
    // Its receiver is free a moment after that has been said.
    common::at_rest(server.pid());
    let next = is_told(&mut server, (&mut home, &mut sender), 1);
    assert_eq!(told.receiver, next.receiver);
    told.mark(&mut sender, 1, (told.number, 1));
    next.mark(&mut sender, 1, (next.number, 1));
    for _ in 0..3 {
        sender.settle();
    }
    serves(&name);
    assert_eq!(server.said(), None);
    server.finish();
}
