//! The system calls of operations that reply or forward and then receive: with rights they make as many as without.

use crate::common;
use handfast::{Options, OwnRight, ReceiveRight, Request, Right, SendRight, Strategy};
use handfast_testing::trace::{Counts, Tracer};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Calls of one batch.
const CALLS: u64 = 20;

/// The thread by which a call waits to be answered, of a caller that is to be asleep by then; and none.
static CALLER: AtomicU64 = AtomicU64::new(NOBODY);
const NOBODY: u64 = 0;

/// How the server under test goes on to its next request.
#[derive(Clone, Copy, Debug)]
enum Way {
    Reply,
    ReplyWithRight,
    Forward,
    ForwardWithRight,
}

const WAYS: [Way; 4] = [
    Way::Reply,
    Way::ReplyWithRight,
    Way::Forward,
    Way::ForwardWithRight,
];

impl Way {
    fn go_on(
        self,
        (port, own): (&ReceiveRight, &OwnRight),
        request: Request,
        last: &SendRight,
    ) -> Request {
        let right = || Right::from(own.clone());
        match self {
            Self::Reply => port.reply_and_receive(request, b"answer").unwrap(),
            Self::ReplyWithRight => port
                .reply_with_and_receive(request, b"answer", [right()])
                .unwrap(),
            Self::Forward => port
                .forward_and_receive(request, last, b"answer", [])
                .unwrap(),
            Self::ForwardWithRight => port
                .forward_and_receive(request, last, b"answer", [right()])
                .unwrap(),
        }
    }
}

fn options(strategy: &str) -> Options {
    Options::new().strategy(match strategy {
        "asleep" => Strategy::Block,
        "busy" => Strategy::Spin,
        _ => unreachable!("{strategy}"),
    })
}

/// The server under test, whose thread says its number.
pub(crate) fn server(name: &str, strategy: &str, way: &str, last: &str) {
    let way = WAYS[way.parse::<usize>().unwrap()];
    let port = handfast::bind_with(name, options(strategy)).unwrap();
    let last = handfast::connect_with(last, options(strategy)).unwrap();
    let own = port.mint(1);
    std::thread::spawn(look_for_sleepers);
    common::say(&rustix::thread::gettid().to_string());
    let mut request = port.receive().unwrap();
    loop {
        if let Some(caller) = request.bytes().first_chunk() {
            CALLER.store(u64::from_le_bytes(*caller), Ordering::SeqCst);
            // Without a system call.
            while CALLER.load(Ordering::SeqCst) != NOBODY {
                std::hint::spin_loop();
            }
        }
        request = way.go_on((&port, &own), request, &last);
    }
}

fn look_for_sleepers() {
    loop {
        match CALLER.load(Ordering::SeqCst) {
            // Sleep: the interval of a poll, which ends with the process.
            NOBODY => std::thread::sleep(Duration::from_micros(100)),
            caller => {
                assert!(common::within_patience(|| is_asleep(caller)));
                CALLER.store(NOBODY, Ordering::SeqCst);
            }
        }
    }
}

/// Whether a thread is asleep: its process's number, then its own.
fn is_asleep(thread: u64) -> bool {
    let stat = format!("/proc/{}/task/{}/stat", thread >> 32, thread as u32);
    std::fs::read_to_string(stat).unwrap().contains(") S ")
}

fn thread_of(pid: u32, tid: i32) -> u64 {
    u64::from(pid) << 32 | tid as u64
}

/// The server that calls are passed on to. Keeps the first right that comes, so that it knows those that come later.
pub(crate) fn last(name: &str, strategy: &str) {
    let port = handfast::bind_with(name, options(strategy)).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    let mut request = port.receive().unwrap();
    loop {
        let rights = request.take_rights();
        if kept.is_empty() {
            kept = rights;
        }
        let message = request.take_message();
        request = port.reply_and_receive(request, &message).unwrap();
    }
}

/// A server that goes on in one way, and its caller.
struct Case {
    right: SendRight,
    server: common::Child,
    last: common::Child,
    /// To the last server, so that answers come straight from there.
    _link: SendRight,
    /// Of the server under test.
    thread: i32,
    sleeps: bool,
    kept: Vec<Right>,
}

impl Case {
    fn new(strategy: &str, way: usize) -> Self {
        let of = |what| common::name(&format!("combined-{strategy}-{way}-{what}"));
        let (name, last) = (of("server"), of("last"));
        let last_server = common::start("last of combined", &[&last, strategy]);
        last_server.expect("ready");
        let number = way.to_string();
        let server = common::start("combined", &[&name, strategy, &number, &last]);
        let thread = server.line().parse().unwrap();
        let link = handfast::connect_with(&last, options(strategy)).unwrap();
        let right = handfast::connect_with(&name, options(strategy)).unwrap();
        let mut case = Self {
            right,
            server,
            last: last_server,
            _link: link,
            thread,
            sleeps: strategy == "asleep",
            kept: Vec::new(),
        };
        case.call(b"warm");
        common::warm(&case.right);
        case
    }

    fn call(&mut self, bytes: &[u8]) {
        let mut reply = self.right.call_timeout(bytes, common::PATIENCE).unwrap();
        assert_eq!(&*reply, b"answer");
        let rights = reply.take_rights();
        if self.kept.is_empty() {
            self.kept = rights;
        }
    }

    /// A call whose sides both sleep, if they sleep at all, whenever the other one has to wake them.
    fn call_in_turn(&mut self) {
        if !self.sleeps {
            return self.call(b"");
        }
        self.wait_for_sleepers();
        let caller = thread_of(
            std::process::id(),
            rustix::thread::gettid().as_raw_nonzero().get(),
        );
        self.call(&caller.to_le_bytes());
    }

    fn wait_for_sleepers(&self) {
        let server = thread_of(self.server.pid(), self.thread);
        let sleep = || is_asleep(server) && common::sleeps(self.last.pid());
        assert!(!self.sleeps || common::within_patience(sleep));
    }

    /// The system calls of the server's thread for some calls.
    fn batch(&mut self) -> io::Result<Counts> {
        let mut tracer = Tracer::thread(self.thread)?;
        let (has_begun, is_counting) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                // Before that the thread returns from the call that tracing has interrupted.
                self.call_in_turn();
                self.wait_for_sleepers();
                has_begun.store(true, Ordering::SeqCst);
                while !is_counting.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                (0..CALLS).for_each(|_| self.call_in_turn());
                self.wait_for_sleepers();
            });
            while !calls.is_finished() {
                if !tracer.step()? {
                    if has_begun.swap(false, Ordering::SeqCst) {
                        tracer.take_counts();
                        is_counting.store(true, Ordering::SeqCst);
                    }
                    // Sleep: the interval of a poll with an end.
                    std::thread::sleep(Duration::from_micros(20));
                }
            }
            Ok(tracer.take_counts())
        })
    }
}

/// Expects that a batch of each way makes so many system calls and wakes, with a right and without. A batch is disturbed at times, and
/// makes more then: a wait may end early, for one.
fn expect_of_all(strategy: &str, expected: (u64, u64)) {
    for (number, way) in WAYS.iter().enumerate() {
        let mut case = Case::new(strategy, number);
        let mut last = None;
        let is_expected = common::within_patience(|| {
            last = match case.batch() {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    handfast_testing::not_exercised("tracing is forbidden");
                    None
                }
                counts => Some(counts.unwrap()),
            };
            let is_it = |counts: &Counts| (counts.calls(), counts.wakes()) == expected;
            last.as_ref().is_none_or(is_it)
        });
        assert!(is_expected, "{strategy}, {way:?}: {last:?}");
    }
}

#[test]
fn combined_operations_wake_once_and_sleep_once_for_each_call_with_a_right_or_without() {
    let _alone = common::alone();
    expect_of_all("asleep", (2 * CALLS, CALLS));
}

#[test]
fn combined_operations_make_no_system_call_while_all_are_busy_with_a_right_or_without() {
    let _alone = common::alone();
    expect_of_all("busy", (0, 0));
}
