//! Crowds: more users than a server has words to sleep in, and more sleepers at a word than a process wakes in passing.

use crate::common::{self, Child};
use crate::forger::{self, Hand};
use handfast::Options;
use handfast_channel::arm::WOKEN_FOR_ROOM;
use handfast_channel::reply::Slot;
use handfast_layout::bell;
use handfast_layout::control::ControlMessage;
use handfast_layout::link::Side;
use handfast_layout::part::{Part, receiver_of};
use handfast_region::{Memory, Region, park_any};
use handfast_ring::lane::Place;
use handfast_sys::futex::WORDS_MAX;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const SERVER: u32 = 3000;
const FIRST: u32 = 4000;

/// The role of a server of `user`.
pub(crate) fn server(user: &str, name: &str) {
    common::become_user(user.parse().unwrap());
    common::echo(name, 1, Options::new());
}

/// Stays; and says, when it is asked, how long the shortest of some calls took that each find the server asleep.
pub(crate) fn user(user: &str, name: &str) {
    common::become_user(user.parse().unwrap());
    let right = handfast::connect_timeout(name, common::PATIENCE).unwrap();
    let call = || {
        let start = Instant::now();
        let answer = right.call_timeout(b"user", common::PATIENCE).unwrap();
        assert_eq!(&*answer, b"user");
        start.elapsed()
    };
    call();
    common::say("answered");
    while common::told().is_some() {
        let calls = (0..10).map(|_| {
            // Sleep: the time between two calls of a client.
            std::thread::sleep(Duration::from_millis(5));
            call()
        });
        common::say(&calls.min().unwrap().as_micros().to_string());
    }
}

fn of_user(number: u32, name: &str) -> Child {
    common::start("user", &[&(FIRST + number).to_string(), name])
}

fn open_directory() {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(common::directory(), open).unwrap();
}

/// Users that stay, more than a receiver has words to sleep in: each is served, and wakes the server by itself, not by its control thread's
/// look at what has waited for 40 ms. Some leave, and others come in their places.
#[test]
fn users_who_stay_keep_nobody_out() {
    const USERS: u32 = 80;
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let name = common::name("stay");
    open_directory();
    let mut server = common::start("server of a user", &[&SERVER.to_string(), &name]);
    server.expect("ready");
    let before = common::at_rest(server.pid());
    let mut users: Vec<_> = (0..USERS).map(|number| of_user(number, &name)).collect();
    users.iter().for_each(|user| user.expect("answered"));
    for number in [0, 40, 70, USERS - 1] {
        users[number as usize].tell("call");
        let shortest_us: u64 = users[number as usize].line().parse().unwrap();
        println!("user {number}: {shortest_us} us");
        assert!(shortest_us < 20_000, "user {number}: {shortest_us} us");
    }
    for (number, user) in (0..USERS).zip(&mut users) {
        if number % 2 == 0 {
            user.finish();
            *user = of_user(USERS + number, &name);
            user.expect("answered");
        }
    }
    users.iter_mut().for_each(Child::finish);
    // The files of the last users' bells are kept.
    const KEPT: usize = 16;
    assert!(common::settles_at(server.pid(), before + KEPT));
    server.finish();
}

/// Threads of this process asleep at words of a region, each in one word as often as the kernel lets it be.
struct Crowd {
    threads: Vec<std::thread::JoinHandle<()>>,
    /// A thread that has not slept when the crowd was dispersed does not sleep any more.
    is_over: Arc<AtomicBool>,
}

impl Crowd {
    /// So many at each word, while that holds `value`.
    fn gather(
        region: &Arc<Region>,
        words: impl IntoIterator<Item = usize>,
        (count, value): (usize, u32),
    ) -> Self {
        let words = words
            .into_iter()
            .flat_map(|at| std::iter::repeat_n(at, count));
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = words.map(|at| {
            let (region, (sender, path)) = (region.clone(), std::sync::mpsc::channel());
            let is_over = is_over.clone();
            let sleep = move || {
                sender
                    .send(std::fs::read_link("/proc/thread-self").unwrap())
                    .unwrap();
                // It may be another for the moment.
                while park_any((0..WORDS_MAX).map(|_| (&*region, at, value)), None)
                    == Ok(handfast_region::Wait::Changed)
                    && !is_over.load(SeqCst)
                {
                    std::thread::yield_now();
                }
            };
            let thread = std::thread::Builder::new().stack_size(128 << 10);
            let thread = thread.spawn(sleep).unwrap();
            let syscall = std::path::Path::new("/proc")
                .join(path.recv().unwrap())
                .join("syscall");
            let waits = format!("{} ", libc::SYS_futex_waitv);
            let sleeps = || {
                let syscall = std::fs::read_to_string(&syscall);
                // It may have been woken since.
                syscall.is_ok_and(|it| it.starts_with(&waits)) || thread.is_finished()
            };
            assert!(common::within_patience(sleeps));
            thread
        });
        Self {
            threads: threads.collect(),
            is_over,
        }
    }

    /// Wakes those that sleep still; how often they did.
    fn disperse(self, region: &Region, words: impl IntoIterator<Item = usize>) -> u32 {
        self.is_over.store(true, SeqCst);
        let words: Vec<_> = words.into_iter().collect();
        let wake = || words.iter().map(|at| region.wake(*at, u32::MAX)).sum();
        let left = wake();
        for thread in self.threads {
            // It may have been about to sleep.
            assert!(common::within_patience(|| {
                let _: u32 = wake();
                thread.is_finished()
            }));
            thread.join().unwrap();
        }
        left
    }
}

/// How often each of two threads sleeps there.
const BOTH: u32 = 2 * WORDS_MAX as u32;

#[test]
fn of_a_crowd_that_sleeps_for_room_few_are_woken_by_who_makes_it() {
    let (mut server, name) = forger::start_honest("room");
    let mut hand = Hand::new(&name, 1);
    hand.settle();
    let space = Place::of(Side::Connector, 0).space();
    let region = hand.region.clone();
    // It wakes for what it has taken, once it has nothing else to do.
    let pid = server.pid();
    assert!(common::within_patience(|| common::sleeps(pid)));
    region.store(space, 1, SeqCst);
    let crowd = Crowd::gather(&region, [space], (2, 1));
    // Taken, and waked for, before the server is ready for the second one.
    hand.settle();
    assert!(common::within_patience(|| region.load(space, SeqCst) == 0));
    hand.settle();
    let left = crowd.disperse(&region, [space]);
    println!("{left} of {BOTH} left");
    assert!(left >= BOTH - WORDS_MAX as u32 - WOKEN_FOR_ROOM, "{left}");
    server.finish();
}

#[test]
fn of_a_crowd_at_published_bells_nobody_is_woken_by_their_owner() {
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let name = common::name("bells");
    open_directory();
    let mut server = common::start("server of a user", &[&SERVER.to_string(), &name]);
    server.expect("ready");
    let mut hand = Hand::new(&name, 1);
    hand.settle();
    let sleep = bell::bell(receiver_of(hand.welcome.port)) + bell::SLEEP;
    let bells = Arc::new(std::mem::replace(&mut hand.bells, Region::heap(64)));
    let crowd = Crowd::gather(&bells, [sleep], (2, 1));
    let before = common::at_rest(server.pid());
    // The end of a link is told to all who receive.
    for number in 2..6 {
        drop(Hand::new(&name, number));
        assert!(common::settles_at(server.pid(), before));
    }
    let left = crowd.disperse(&bells, [sleep]);
    println!("{left} of {BOTH} left");
    // And the server.
    assert!(left >= BOTH, "{left}");
    server.finish();
}

/// Each waiter is told, once, whoever else sleeps where it does: not by threads that wake a few in passing.
#[test]
fn who_sleeps_behind_a_crowd_hears_that_its_port_is_gone() {
    let (mut server, name) = forger::start_honest("behind");
    let mut hand = Hand::new(&name, 1);
    let own = Part::OfSender {
        handle: 1 << 31 | 5,
        port: 0x100,
    };
    hand.send(b"", &[own]);
    hand.settle();
    let region = hand.region.clone();
    // The words of its first lane.
    let words = || (0..16).map(|index| Slot::of(Side::Acceptor, index).wait());
    let crowd = Crowd::gather(&region, words(), (24, 0));
    server.tell("call");
    let announced = || words().any(|at| region.load(at, SeqCst) == 1);
    assert!(common::within_patience(announced));
    let pid = server.pid();
    assert!(common::within_patience(|| common::sleeps(pid)));
    let start = Instant::now();
    assert!(hand.say(ControlMessage::Closed {
        has_moved: false,
        port: 0x100,
    }));
    let said = server.line();
    assert!(said.contains("Gone(Port)"), "{said}");
    // The call is over by itself after five seconds.
    assert!(start.elapsed() < Duration::from_secs(4));
    println!("{} left; {said}", crowd.disperse(&region, words()));
    server.finish();
}

/// Takes its time for messages, and says how many have come.
pub(crate) fn slow(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    for count in 1.. {
        let request = port.receive().unwrap();
        if request.is_call() {
            let _ = request.reply(&u32::to_le_bytes(count));
        } else if count % 512 == 0 {
            // Every lane fills up meanwhile, and this goes to sleep.
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Threads that share full lanes, far more than are woken at once, all get their messages through.
#[test]
fn threads_that_wait_for_room_by_the_dozen_all_find_it() {
    const THREADS: u32 = 100;
    const EACH: u32 = 300;
    let name = common::name("slow");
    let mut server = common::start("slow", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..EACH).for_each(|_| right.send(b"one of many").unwrap()));
        }
    });
    let counted = right.call_timeout(b"", common::PATIENCE).unwrap();
    let count = u32::from_le_bytes(counted[..4].try_into().unwrap());
    assert!(count <= THREADS * EACH + 1, "{count}");
    server.kill();
}
