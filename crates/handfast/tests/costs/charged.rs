//! Memory of others that a process reads is not charged to it: a server in a small memory control group lives through all memory
//! that can be sent to it.

use crate::common;
use crate::forger::Hand;
use handfast::error::Rule;
use handfast::{Loan, Right};
use handfast_layout::control::ControlMessage;
use handfast_layout::loan::{Geometry, LentBlock, Told, next_number};
use handfast_layout::part::{Descriptors, Part};
use handfast_testing::forge::Packet;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::path::PathBuf;

const SERVER: u32 = 3000;
const CALLER: u32 = 3002;
/// Calls at once, for answers of so many bytes.
const THREADS: u8 = 12;
const CALLS: usize = 16;
const LONG_BYTES: usize = 65_536;

/// Many calls at once whose answers are long, and right.
pub(crate) fn call_at_length(name: &str) {
    common::become_user(CALLER);
    let right = handfast::connect(name).unwrap();
    // A server of another user that has used its own memory for the first time.
    right.call(&[1; LONG_BYTES]).unwrap();
    common::say("connected");
    common::told();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let right = &right;
            scope.spawn(move || {
                let bytes = [thread; LONG_BYTES];
                for _ in 0..3 {
                    let calls: Vec<_> = (0..CALLS)
                        .filter_map(|_| right.try_call(&bytes).ok())
                        .collect();
                    assert!(!calls.is_empty());
                    for call in calls {
                        assert_eq!(&*call.wait().unwrap(), &bytes);
                    }
                }
            });
        }
    });
    common::say("answered");
    common::told();
}

const LIMIT_BYTES: u64 = 64 << 20;
/// Of what is sent: much more than the server may have.
const LEN_BYTES: u64 = 192 << 20;
const PAGE: u64 = 4096;

/// The role of a server in a group from its beginning: answers every call with what it was sent.
pub(crate) fn server(name: &str, procs: &str) {
    std::fs::write(procs, std::process::id().to_string()).unwrap();
    common::become_user(SERVER);
    common::echo(name, 1, handfast::Options::new());
}

/// A memory control group of this test's.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made.
    fn new() -> Option<Self> {
        let hierarchies = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        hierarchies.into_iter().find_map(|(root, limit)| {
            let name = format!("handfast-test-{}", std::process::id());
            let group = Self(PathBuf::from(root).join(name));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(limit), LIMIT_BYTES.to_string()).ok()?;
            Some(group)
        })
    }

    /// The bytes that its processes are charged for.
    fn charged_bytes(&self) -> u64 {
        let files = ["memory.usage_in_bytes", "memory.current"];
        let read = |file: &str| std::fs::read_to_string(self.0.join(file)).ok();
        let text = files.into_iter().find_map(read).unwrap();
        text.trim().parse().unwrap()
    }

    fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process in it may be on its way out.
        common::within_patience(|| std::fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// In a group from its beginning: takes what comes, and reads all of it when it is told to.
pub(crate) fn reader(name: &str, procs: &str) {
    std::fs::write(procs, std::process::id().to_string()).unwrap();
    let cuts = common::Cuts(|fault: &str| common::say(&format!("cut: {fault}")));
    tracing::subscriber::set_global_default(cuts).unwrap();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let rights = port.receive().unwrap().take_rights();
        common::say("taken");
        common::told().unwrap();
        for right in rights {
            let sum = match right {
                Right::Memory(memory) => memory.iter().map(|byte| u64::from(*byte)).sum(),
                Right::Loan(loan) => sum_of(&loan),
                other => panic!("{other:?}"),
            };
            common::say(&format!("read: {sum}"));
        }
    }
}

fn sum_of(loan: &Loan) -> u64 {
    let mut piece = vec![0; 1 << 20];
    let pieces = (0..loan.len()).step_by(piece.len());
    let sums = pieces.map(|from| {
        loan.copy_to(from, &mut piece).unwrap();
        piece.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    });
    sums.sum()
}

/// The pages that a file has: ranges in pages, those behind the end, too.
type Shape = (&'static str, &'static [(u64, u64)]);

const PAGES: u64 = LEN_BYTES / PAGE;

/// Files whose holes would be filled by whoever reads them.
const HOLES: [Shape; 5] = [
    ("nothing", &[]),
    ("its first page", &[(0, 1)]),
    (
        "all but one",
        &[(0, PAGES / 2), (PAGES / 2 + 1, PAGES / 2 - 1)],
    ),
    ("all of it behind the end", &[(PAGES, PAGES)]),
    (
        "half of it far behind the end",
        &[(0, PAGES / 2), (1 << 30, PAGES / 2)],
    ),
];

const WHOLE: Shape = ("all", &[(0, PAGES)]);

const KINDS: [(&str, SealFlags); 2] = [
    ("memory", SealFlags::WRITE),
    ("arena", SealFlags::FUTURE_WRITE),
];

fn file((_, there): Shape, seal: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("holes", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, LEN_BYTES).unwrap();
    for (first, count) in there {
        let keep = FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, keep, first * PAGE, count * PAGE).unwrap();
    }
    let sizes = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    // The kernel may use a page for itself at that moment.
    let mut added = Err(Errno::BUSY);
    common::within_patience(|| {
        added = rustix::fs::fcntl_add_seals(&fd, sizes | seal);
        added != Err(Errno::BUSY)
    });
    added.unwrap();
    fd
}

/// Sends the file as a part of a message, as an honest peer sends an honest one. Nothing refers to an arena that was
/// refused.
fn send(hand: &mut Hand, kind: &str, fd: &OwnedFd) {
    let number = next_number(0);
    let (said, part) = match kind {
        "memory" => {
            let sent = Descriptors { count: 1, first: 0 };
            let part = Part::Memory {
                number: 0,
                len_bytes: LEN_BYTES,
            };
            (ControlMessage::Descriptors(sent).encode().to_vec(), part)
        }
        _ => {
            let geometry = Geometry::new(1, LEN_BYTES).unwrap();
            let told = Told::New { number, geometry };
            let part = Part::Loan(LentBlock {
                arena: number,
                block: 0,
                loan: 0,
                generation: 1,
                len_bytes: LEN_BYTES,
                fill: 0,
            });
            (ControlMessage::Arena(told).encode().to_vec(), part)
        }
    };
    handfast_sys::socket::send(&hand.socket, &said, &[fd.as_fd()]).unwrap();
    hand.say(ControlMessage::ShowCounters);
    let is_heard = |said: Option<Packet>| said.is_some_and(|said| said == ControlMessage::Counters);
    if kind == "memory" || is_heard(hand.try_hear()) {
        hand.send(b"", &[part]);
    }
}

/// Security finding 11: pages behind the end of a sealed file passed for its own, went once it had come, and the reader was
/// charged for new ones.
#[test]
fn a_server_in_a_small_memory_group_survives_all_memory_that_can_be_sent_to_it() {
    let _alone = common::alone();
    let Some(group) = Group::new() else {
        return common::not_exercised("no memory control group");
    };
    let name = common::name("charged");
    let procs = group.procs();
    let mut server = common::start("reader", &[&name, procs.to_str().unwrap()]);
    server.expect("ready");
    let mut number = 0;
    for (kind, seal) in KINDS {
        // The same, but for the holes: all of it is read, three times as much as the group may have.
        let fd = file(WHOLE, seal);
        number += 1;
        let mut hand = Hand::new(&name, number);
        send(&mut hand, kind, &fd);
        server.expect("taken");
        rustix::fs::ftruncate(&fd, LEN_BYTES).unwrap();
        server.tell("read");
        server.expect("read: 0");
        drop((hand, fd));
        for shape in HOLES {
            let what = format!("{kind} with {}", shape.0);
            let fd = file(shape, seal);
            number += 1;
            let mut hand = Hand::new(&name, number);
            send(&mut hand, kind, &fd);
            let line = server.line();
            if line == "taken" {
                // It trusts the file, which has no page behind its end from here on.
                rustix::fs::ftruncate(&fd, LEN_BYTES).unwrap();
                server.tell("read");
                panic!("{what}: taken, and then {:?}", server.rest());
            }
            let rule = if kind == "memory" {
                Rule::Memory
            } else {
                Rule::Arena
            };
            assert!(line.contains(rule.text()), "{what}: {line}");
            hand.expect_end();
        }
    }
    assert_eq!(server.said(), None);
    server.kill();
}

/// The memory of answers is charged to their callers: a server could not bound it.
#[test]
fn a_caller_of_another_user_pays_for_the_answers_that_it_gets() {
    let _alone = common::alone();
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let Some(group) = Group::new() else {
        return common::not_exercised("no memory control group");
    };
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(common::directory(), open).unwrap();
    let name = common::name("paid");
    let procs = group.procs();
    let mut server = common::start("charged server", &[&name, procs.to_str().unwrap()]);
    server.expect("ready");
    let mut caller = common::start("caller of another user", &[&name]);
    caller.expect("connected");
    let before = group.charged_bytes();
    caller.tell("call");
    caller.expect("answered");
    let grown = group.charged_bytes().saturating_sub(before);
    let calls = u64::from(THREADS) * CALLS as u64 * LONG_BYTES as u64;
    println!("{} KiB for answers of {} KiB", grown >> 10, calls >> 10);
    assert!(grown < 3 << 20, "{grown} bytes");
    caller.finish();
    server.finish();
}
