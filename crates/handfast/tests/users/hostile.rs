//! Users against one another: a server of one user, an attacker of a second, and a third whose calls and connections go on.
//! The numbers of findings are those of the security review that each test is from.

mod ended;
mod lingering;
mod strangers;

use crate::common::{self, Child, TOLD};
use crate::forger::Hand;
use handfast::{Options, Right};
use handfast_layout::control::ControlMessage;
use handfast_layout::hello::{Hello, Status, WELCOME_BYTES, Welcome};
use handfast_layout::part::{Descriptors, UNCLAIMED_MAX};
use handfast_sys::socket;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

const SERVER: u32 = 3000;
const ATTACKER: u32 = 3001;
const VICTIM: u32 = 3002;

/// The roles, each of a process of the user that is its first argument.
pub(crate) fn play(role: &str, arguments: &[&str]) {
    common::become_user(arguments[0].parse().unwrap());
    match role {
        "server" => server(arguments[1], arguments[2].parse().unwrap()),
        "stranger" => {
            common::answers(arguments[1]);
            common::say("answered");
        }
        "victim" => victim(arguments[1]),
        "visitor" => visitor(arguments[1]),
        "curious" => curious(arguments[1]),
        "named" => named(arguments[1], arguments[2]),
        "service" => {
            let port = handfast::bind(arguments[1]).unwrap();
            common::say("ready");
            StoreServer::serve(&port, &Counts).unwrap();
        }
        "client" => {
            let client = StoreClient::new(handfast::connect(arguments[1]).unwrap());
            common::say("ready");
            while common::told().is_some() {
                common::say(&format!("{:?}", client.count()));
            }
        }
        "keeper" => ended::keeper(arguments[1]),
        "giver" => ended::giver(arguments[1]),
        "lingers" => lingering::everywhere(arguments[1]),
        "leaves" => lingering::in_requests(arguments[1]),
        "drops" => lingering::in_requests_of_a_service(arguments[1]),
        "connector" => {
            let _socket = common::knock(arguments[1]);
            common::say("here");
            while common::told().is_some() {}
        }
        _ => unreachable!("{role}"),
    }
}

/// Asks for the counters, and says how many ports they have.
fn curious(name: &str) {
    let right = handfast::connect(name).unwrap();
    let counters = right.counters().map(|counters| counters.ports.len());
    common::say(&format!("{counters:?}"));
    // The link goes on.
    let answer = right.call(b"well").map(|reply| reply.len());
    common::say(&format!("{answer:?}"));
}

/// Answers every call with what it was sent, and takes nothing else out of a message. `descriptors`: as many as it may have.
fn server(name: &str, descriptors: u64) {
    let limit = rustix::process::Rlimit {
        current: Some(descriptors),
        maximum: Some(descriptors),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    common::echo(name, 1, Options::new());
}

/// Calls when it is told to, within a limit.
fn victim(name: &str) {
    let right = handfast::connect(name).unwrap();
    common::say("ready");
    while common::told().is_some() {
        let answer = right.call_timeout(b"victim", TOLD);
        common::say(&format!("{:?}", answer.map(|answer| answer.len())));
    }
}

/// Connects and leaves.
fn visitor(name: &str) {
    drop(handfast::connect(name).unwrap());
    common::say("been");
}

/// Keeps a port that comes to its own name, and answers for it once it has taken up its name, if it is told to.
fn named(name: &str, takes: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        for right in request.take_rights() {
            let Right::Receive(mut port) = right else {
                continue;
            };
            if takes == "takes" {
                port.take_up_name().unwrap();
            }
            kept.push(port);
        }
        let bytes = request.bytes().to_vec();
        if request.is_call() {
            let _ = request.reply(&bytes);
        }
    }
}

/// A server of its own user, with a victim of another who calls and whose processes connect.
struct Stage {
    server: Child,
    victim: Child,
    name: String,
}

impl Stage {
    /// `None`, and a word why, where this process may not be others.
    fn set(what: &str, role: &'static str, argument: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            common::not_exercised("not root");
            return None;
        }
        let name = common::name(what);
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(common::directory(), open).unwrap();
        let server = common::start(role, &[&SERVER.to_string(), &name, argument]);
        server.expect("ready");
        let victim = common::start("victim", &[&VICTIM.to_string(), &name]);
        victim.expect("ready");
        Some(Self {
            server,
            victim,
            name,
        })
    }

    /// The processes of the other user go on as if nothing had happened.
    fn goes_on(&mut self, what: &str) {
        self.victim.tell("call");
        assert_eq!(self.victim.line(), "Ok(6)", "{what}");
        let start = Instant::now();
        let mut stranger = common::start("stranger", &[&VICTIM.to_string(), &self.name]);
        stranger.expect("answered");
        stranger.finish();
        assert!(start.elapsed() < common::PATIENCE / 2, "{what}");
    }

    /// They do after each step of an attacker.
    fn meets(&mut self, role: &'static str) {
        let mut attacker = common::start(role, &["0", &self.name]);
        loop {
            let what = attacker.line();
            if what == "end" {
                return attacker.kill();
            }
            self.goes_on(&what);
            attacker.tell("next");
        }
    }
}

fn status(socket: &OwnedFd) -> Status {
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, _) = socket::receive(socket, &mut bytes, 2).unwrap();
    Welcome::parse(&bytes[..len_bytes]).unwrap().status
}

/// Security finding 1: descriptors whose close blocks, wherever one may come: in the place of the bells, beside them, behind the
/// hello, in the queue of a connection that says nothing, with a control message, and claimed by none.
#[test]
fn descriptors_whose_close_blocks_hold_up_neither_the_control_thread_nor_a_receiver() {
    let Some(mut stage) = Stage::set("lingers", "server", "1024") else {
        return;
    };
    stage.meets("lingers");
    stage.server.finish();
}

/// Security finding 1: nor does what a server leaves in its requests.
#[test]
fn a_descriptor_that_a_server_does_not_take_holds_up_no_thread_that_serves() {
    let Some(mut stage) = Stage::set("left", "server", "1024") else {
        return;
    };
    stage.meets("leaves");
    stage.server.finish();
}

#[handfast::service]
trait Store {
    fn put(&self, right: handfast::SendRight) -> u32;
    fn count(&self) -> u32;
}

struct Counts;

impl Store for Counts {
    fn put(&self, _: handfast::SendRight) -> u32 {
        1
    }

    fn count(&self) -> u32 {
        7
    }
}

/// Security finding 1: nor what a typed service has no use for.
#[test]
fn a_descriptor_that_a_service_drops_holds_up_no_thread_that_serves() {
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let name = common::name("service");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(common::directory(), open).unwrap();
    let mut server = common::start("service", &[&SERVER.to_string(), &name]);
    server.expect("ready");
    let mut client = common::start("client", &[&VICTIM.to_string(), &name]);
    client.expect("ready");
    let mut attacker = common::start("drops", &["0", &name]);
    while attacker.line() != "end" {
        let start = Instant::now();
        client.tell("count");
        assert_eq!(client.line(), "Ok(7)");
        // The socket lingers for as long as that.
        assert!(start.elapsed() < common::PATIENCE / 2);
        attacker.tell("next");
    }
    attacker.kill();
    client.finish();
    server.kill();
}

/// Security finding 2: a name that comes with a port is not listened at unasked; and where it is taken up, its old home, which
/// makes the socket one that blocks, holds up the thread that accepts there, and nobody else.
#[test]
fn a_listener_that_comes_with_a_port_and_blocks_holds_up_nobody_but_its_own_thread() {
    for takes in ["takes", "keeps"] {
        let Some(mut stage) = Stage::set(&format!("gift-{takes}"), "named", takes) else {
            return;
        };
        let home = handfast::connect(&stage.name).unwrap();
        let name = common::name(&format!("given-{takes}"));
        let port = handfast::bind(&name).unwrap();
        let path = common::directory().join(&name);
        let listener = listener_of(&path);
        home.with([port.into()]).call(b"take it").unwrap();
        // The description is shared: this changes it for the new home.
        socket::set_nonblocking(&listener, false).unwrap();
        for _ in 0..3 {
            let connection = socket::connect(&path, TOLD);
            stage.goes_on(takes);
            drop(connection);
        }
        stage.goes_on(takes);
        stage.server.kill();
    }
}

/// This process's own descriptor of the socket that listens at a path, once more.
fn listener_of(path: &std::path::Path) -> OwnedFd {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = fds.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    let tail = path.file_name().unwrap().to_str().unwrap()[1..].to_owned();
    for number in numbers {
        // SAFETY: it is looked at at once, and only copied where it is there.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
        if let Ok(address) = rustix::net::getsockname(fd)
            && socket::is_listener(fd)
            && format!("{address:?}").contains(&tail)
        {
            return fd.try_clone_to_owned().unwrap();
        }
    }
    panic!("nothing listens at {path:?}");
}

/// Security finding 6: answers with descriptors that nobody reads.
#[test]
fn who_asks_for_counters_and_reads_nothing_takes_no_place_of_others() {
    let Some(mut stage) = Stage::set("unread", "server", "1024") else {
        return;
    };
    let hands: Vec<_> = (0..5)
        .map(|number| Hand::new(&stage.name, number))
        .collect();
    for _ in 0..600 {
        for hand in &hands {
            let _ = hand.say(ControlMessage::ShowCounters);
        }
    }
    stage.goes_on("counters that nobody reads");
    // Another process of the server's user may send descriptors still.
    let other = common::name("unread-other");
    let second = common::start("server", &[&SERVER.to_string(), &other, "1024"]);
    second.expect("ready");
    common::answers(&other);
    drop(hands);
    stage.goes_on("afterwards");
    stage.server.finish();
}

/// A connection that has been answered, with the answer left where it is. A user's own processes and root's have no limit but the
/// kernel's.
fn unread(name: &str, number: u32) -> OwnedFd {
    let bytes = handfast_layout::bell::REGION_BYTES;
    let (bells, _mapping) = handfast_sys::memory::create_owner_written("fake", bytes).unwrap();
    let socket = socket::connect(&common::directory().join(name), TOLD).unwrap();
    if common::is_ready(&socket) {
        let incarnation = common::incarnation(number as u8);
        let hello = Hello::new(incarnation, name, 3, None).to_bytes();
        // Its handshake may have given way.
        let _ = socket::send(&socket, &hello, &[bells.as_fd()]);
        let mut answered = [PollFd::new(&socket, PollFlags::IN)];
        poll(&mut answered, None).unwrap();
    }
    socket
}

/// Security finding 6: nor who is welcomed again and again, and keeps what it was sent in the queues of its sockets.
#[test]
fn who_never_reads_its_welcomes_takes_no_place_of_others() {
    let Some(mut stage) = Stage::set("unwelcome", "server", "1024") else {
        return;
    };
    let name = stage.name.clone();
    let kept = common::as_user(ATTACKER, move || {
        (0..700)
            .map(|number| unread(&name, number))
            .collect::<Vec<_>>()
    });
    stage.goes_on("welcomes that nobody reads");
    let other = common::name("unwelcome-other");
    let second = common::start("server", &[&SERVER.to_string(), &other, "1024"]);
    second.expect("ready");
    let right = handfast::connect(&other).unwrap();
    let (sent, _) = socket::pair().unwrap();
    right
        .with([Right::Descriptor(sent)])
        .call(b"take it")
        .unwrap();
    // Resources held by the unread welcomes end with them.
    drop(kept);
    let mut hand = Hand::new(&stage.name, 1);
    hand.settle();
    stage.server.finish();
}

/// Security finding 7: links of one user, each full of descriptors that nobody claims.
#[test]
fn descriptors_of_one_user_leave_room_for_those_of_others() {
    let Some(mut stage) = Stage::set("hoard", "server", "1024") else {
        return;
    };
    let before = common::holdings(stage.server.pid()).0;
    let (hoarded, _other) = socket::pair().unwrap();
    let mut hands = Vec::new();
    for number in 0..24 {
        // Each takes some 67 of the 672 that one user may have.
        if common::holdings(stage.server.pid()).0 + 70 > before + 672 {
            break;
        }
        let hand = Hand::new(&stage.name, number);
        for first in (0..UNCLAIMED_MAX).step_by(4) {
            let message = ControlMessage::Descriptors(Descriptors { count: 4, first }).encode();
            // Cut, where it has been too many.
            let _ = socket::send(&hand.socket, &message, &[hoarded.as_fd(); 4]);
        }
        hands.push(hand);
        // The server takes a connection when it has taken what came before.
        stage.goes_on("hoarded descriptors");
    }
    // The user has all that one user may: it is told so, and nobody else.
    let path = common::directory().join(&stage.name);
    let connect = |_| socket::connect(&path, TOLD).unwrap();
    let more: Vec<_> = (0..100).map(connect).collect();
    assert!(more.iter().any(|socket| !common::is_ready(socket)));
    stage.goes_on("as many descriptors as one user may have");
    let held = common::holdings(stage.server.pid()).0;
    println!("{before}, then {held} of 1024 by {} links", hands.len());
    assert!(held <= 800 && hands.len() < 24, "{held}");
    drop(more);
    // The user has its own limit to itself.
    drop(hands);
    assert!(common::within_patience(|| {
        common::holdings(stage.server.pid()).0 <= before + 2
    }));
    stage.server.finish();
}

/// Security finding 19: they tell of the processes of all users.
#[test]
fn counters_are_shown_to_processes_of_the_same_user_and_of_root_only() {
    let Some(mut stage) = Stage::set("curious", "server", "1024") else {
        return;
    };
    let asked_by = |user: u32| {
        let mut curious = common::start("curious", &[&user.to_string(), &stage.name]);
        let answers = [curious.line(), curious.line()];
        curious.finish();
        answers
    };
    for (user, shown) in [(SERVER, "Ok(1)"), (0, "Ok(1)"), (VICTIM, "Err(NotShown)")] {
        assert_eq!(asked_by(user), [shown, "Ok(4)"], "{user}");
    }
    stage.server.finish();
}

/// Security finding 8: users come and go, more than there can be at once.
#[test]
fn users_who_have_left_keep_nobody_out() {
    let Some(mut stage) = Stage::set("visitors", "server", "1024") else {
        return;
    };
    for user in 0..70 {
        let user = (4000 + user).to_string();
        let mut visitor = common::start("visitor", &[&user, &stage.name]);
        visitor.expect("been");
        visitor.finish();
    }
    stage.goes_on("after 70 users");
    stage.server.finish();
}
