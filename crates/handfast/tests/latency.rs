//! Nobody else's latency: what a peer does to memory that it shares with a server does not delay those who call that
//! server as another user.
//!
//! Three processes of three users: a server, an attacker, a victim. The victim's calls are timed while the attacker does
//! the same work on memory of its own (the control), and then on what it shares with the server.
//!
//! A binary of its own, because it measures delays: cargo runs one binary at a time, so that no other test of this crate has the
//! processors meanwhile.
#![allow(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "attackers use bare system calls about memory that they give up"
)]

#[path = "latency/attacks.rs"]
mod attacks;
mod common;

use attacks::Attack;
use common::Child;
use std::time::{Duration, Instant};

const SERVER: u32 = 3000;
const ATTACKER: u32 = 3001;
const VICTIM: u32 = 3002;

/// How long calls are timed in one run.
const RUN: Duration = Duration::from_millis(700);
/// Between two calls of the victim.
const PAUSE: Duration = Duration::from_micros(200);
/// The delay that threads taking turns on two busy processors cause anybody now and then.
const FLOOR: Duration = Duration::from_millis(2);
/// Others have the processors for some seconds at a time. A server that an attack delays is delayed in each of them.
const ATTEMPTS: u32 = 12;
/// The bound of SECURITY.md.
const WORST: Duration = Duration::from_millis(100);

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| {
        become_user(arguments[0].parse().unwrap());
        match role {
            "server" => common::echo(arguments[1], 1, handfast::Options::new()),
            "victim" => victim(arguments[1]),
            "sender" => sender(arguments[1]),
            "receiver" => receiver(arguments[1]),
            "attacker" => attacks::attacker(arguments[1]),
            "unsealed" => attacks::unsealed(arguments[1]),
            _ => unreachable!(),
        }
    });
}

/// All threads of this process, for good.
fn become_user(uid: u32) {
    // SAFETY: the calls take numbers; nothing of the process depends on its user yet.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setresgid(uid, uid, uid), 0);
        assert_eq!(libc::setresuid(uid, uid, uid), 0);
        // Anybody may connect.
        libc::umask(0);
    }
}

/// Calls, when it is told to, for as long as a run takes, and says how long that took: of 100 calls the last but one,
/// and the longest, in microseconds.
fn victim(name: &str) {
    let right = handfast::connect(name).unwrap();
    let call = || {
        let start = Instant::now();
        let answer = right.call_timeout(b"honest", common::PATIENCE).unwrap();
        assert_eq!(&*answer, b"honest");
        start.elapsed()
    };
    call();
    common::say("ready");
    while common::told().is_some() {
        let end = Instant::now() + RUN;
        let mut took = Vec::new();
        while Instant::now() < end {
            took.push(call());
            // Sleep: the time between two calls of a client.
            std::thread::sleep(PAUSE);
        }
        took.sort_unstable();
        let (p99, worst) = (took[took.len() * 99 / 100], took[took.len() - 1]);
        common::say(&format!("{} {}", p99.as_micros(), worst.as_micros()));
    }
}

/// Sends a message that nobody answers, each time that it is told to.
fn sender(name: &str) {
    let right = handfast::connect(name).unwrap();
    common::say("ready");
    while common::told().is_some() {
        right.send(b"one-way").unwrap();
    }
}

/// Says what comes.
fn receiver(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        match request.is_call() {
            true => drop(request.reply(b"")),
            false => common::say("received"),
        }
    }
}

/// A server of one user, and clients of others.
struct Scene {
    name: String,
    server: Child,
    victim: Child,
}

/// How long calls took.
#[derive(Clone, Copy, Debug)]
struct Took {
    p99: Duration,
    worst: Duration,
}

/// Whether there can be processes of several users, which is recorded where there are none.
fn has_users() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        common::not_exercised("not root");
    }
    is_root
}

/// Everybody may look for names, which are the server's to make.
fn open_directory() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let directory = common::directory();
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    chown(directory, Some(SERVER), None).unwrap();
}

fn as_user(role: &'static str, uid: u32, name: &str) -> Child {
    common::start(role, &[&uid.to_string(), name])
}

impl Scene {
    fn new(what: &str, victim: u32) -> Self {
        let name = common::name(what);
        open_directory();
        let server = as_user("server", SERVER, &name);
        server.expect("ready");
        let victim = as_user("victim", victim, &name);
        victim.expect("ready");
        Self {
            name,
            server,
            victim,
        }
    }

    fn measure(&mut self) -> Took {
        self.victim.tell("measure");
        let line = self.victim.line();
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
        let mut next = || Duration::from_micros(numbers.next().unwrap());
        Took {
            p99: next(),
            worst: next(),
        }
    }

    /// Calls take no longer while a process of `attacker` does this to what it shares with the server than while it
    /// does so to what is its own; at best of some attempts, since others have the processors, too.
    fn is_not_delayed_by(&mut self, attack: Attack, attacker: u32, is_bounded_only: bool) {
        let mut hostile = as_user("attacker", attacker, &self.name);
        hostile.expect("ready");
        let mut run = |scene: &mut Self, order: &str| {
            hostile.tell(&format!("{order} {attack:?}"));
            hostile.expect("begun");
            let took = scene.measure();
            hostile.tell("end");
            (took, hostile.line())
        };
        let held = (0..ATTEMPTS).any(|_| {
            let (control, _) = run(self, "own");
            let (took, done) = run(self, "shared");
            println!("{attack:?}: {took:?} ({done}), control {control:?}");
            let is_near = took.p99 <= control.p99 * 3 + FLOOR;
            match is_bounded_only {
                // The delay that others on the machine cause comes on top.
                true => took.worst <= WORST + control.worst + FLOOR,
                false => is_near && took.worst <= WORST,
            }
        });
        assert!(held, "{attack:?} delays others");
        hostile.finish();
    }

    fn end(mut self) {
        self.victim.finish();
        self.server.finish();
    }
}

/// Security finding 9: a client takes the pages away in which the server answers it, while it calls. A thread that touches such
/// pages waits for that; the server's thread does, and all its clients with it.
#[test]
fn security_finding_9_taking_pages_of_a_link_away_delays_no_other_user() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let mut scene = Scene::new("latency-link", VICTIM);
    scene.is_not_delayed_by(Attack::RemoveLink, ATTACKER, false);
    scene.end();
}

/// Security finding 9, of the other memory that a server shares with its clients.
#[test]
fn security_finding_9_taking_pages_of_bells_away_delays_no_other_user() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let mut scene = Scene::new("latency-bells", VICTIM);
    scene.is_not_delayed_by(Attack::RemoveBells, ATTACKER, false);
    scene.end();
}

/// Security finding 9: of all that a server has mapped, there is no file that a client of another user can take pages away
/// from.
#[test]
fn security_finding_9_nothing_of_a_server_can_be_taken_away_by_another_user() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let mut scene = Scene::new("latency-files", VICTIM);
    let mut hostile = as_user("attacker", ATTACKER, &scene.name);
    hostile.expect("ready");
    hostile.tell("try");
    let removable = hostile.line();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", scene.server.pid())).unwrap();
    let files: Vec<_> = maps
        .lines()
        .filter(|line| line.contains("memfd:"))
        .collect();
    // Links with both, bells for both and of both, and its own.
    assert!(files.len() >= 6, "{maps}");
    for file in files {
        let inode = file.split_whitespace().nth(4).unwrap();
        let is_removable = removable.split(' ').any(|of| of == inode);
        assert!(!is_removable, "another user takes pages away: {file}");
    }
    scene.measure();
    hostile.finish();
    scene.end();
}

/// The class of security finding 9: whatever else the kernel lets a process do to pages that it shares.
#[test]
fn security_finding_9_nothing_else_done_to_shared_pages_delays_another_user() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let mut scene = Scene::new("latency-pages", VICTIM);
    for attack in Attack::OTHERS {
        scene.is_not_delayed_by(attack, ATTACKER, false);
    }
    scene.end();
}

/// Security finding 9: a client that does not seal its link has none, and takes pages away of nothing that the server
/// touches.
#[test]
fn security_finding_9_who_does_not_seal_its_link_has_none() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let mut scene = Scene::new("latency-unsealed", VICTIM);
    let mut hostile = as_user("unsealed", ATTACKER, &scene.name);
    hostile.expect("refused");
    hostile.expect("punching");
    let held = (0..ATTEMPTS).any(|_| scene.measure().worst <= WORST);
    assert!(held, "an unsealed link delays others");
    hostile.finish();
    scene.end();
}

/// Security finding 10: a client of the same user moves the sleeping receiver to another word, or wakes it for nothing, or
/// takes the wake-ups that are meant for it.
#[test]
fn security_finding_10_meddling_with_a_sleeping_receiver_delays_its_own_user_by_a_bounded_time() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    // The server's own user's may also write its bells.
    for user in [ATTACKER, SERVER] {
        let mut scene = Scene::new(&format!("latency-bell-{user}"), user);
        for attack in Attack::OF_SLEEPERS {
            scene.is_not_delayed_by(attack, user, true);
        }
        scene.end();
    }
}

/// Security finding 10, of another user.
#[test]
fn security_finding_10_meddling_with_a_sleeping_receiver_delays_no_other_user() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let mut scene = Scene::new("latency-bell-other", VICTIM);
    for attack in Attack::OF_SLEEPERS {
        scene.is_not_delayed_by(attack, ATTACKER, false);
    }
    scene.end();
}

/// Security finding 10: what nobody waits for comes in bounded time, too, though all that share a server's bells can say
/// that it is awake, or take it to sleep elsewhere.
#[test]
fn security_finding_10_a_message_without_an_answer_comes_in_bounded_time() {
    let _alone = common::alone();
    if !has_users() {
        return;
    }
    let name = common::name("latency-one-way");
    open_directory();
    let receiver = as_user("receiver", SERVER, &name);
    receiver.expect("ready");
    let mut sender = as_user("sender", SERVER, &name);
    sender.expect("ready");
    let mut hostile = as_user("attacker", SERVER, &name);
    hostile.expect("ready");
    for attack in Attack::OF_SLEEPERS {
        hostile.tell(&format!("quietly {attack:?}"));
        hostile.expect("begun");
        let mut send = |_| {
            // Sleep: the receiver sleeps by then, mostly.
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            sender.tell("send");
            receiver.expect("received");
            start.elapsed()
        };
        // All of some messages.
        let held =
            common::within_at_best(WORST + 2 * FLOOR, || (0..5).map(&mut send).max().unwrap());
        assert!(held, "{attack:?} keeps a message back");
        hostile.tell("end");
        println!("{attack:?}: {}", hostile.line());
    }
    hostile.finish();
    sender.finish();
}
