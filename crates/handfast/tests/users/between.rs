//! Processes of three users: what is passed on between them arrives as within one.

use crate::common;
use handfast::Right;
use handfast::error::SendError;
use handfast::service::{CallError, Refusal, Unencodable};

const REPLIER: u32 = 3000;
const FORWARDER: u32 = 3001;
const CALLER: u32 = 3002;
/// Outside of slots; as long as a message can be; and inside of them.
const LENGTHS: [usize; 4] = [41, 65_536, 7, 5000];
const ROUNDS: usize = 100;

/// The roles, each of a process of the user that is its first argument.
pub(crate) fn play(role: &str, arguments: &[&str]) {
    common::become_user(arguments[0].parse().unwrap());
    match role {
        "replier" => common::echo(arguments[1], 1, handfast::Options::new()),
        "forwarder" => forwarder(arguments[1], arguments[2]),
        "caller" => caller(arguments[1]),
        "server of lengths" => server(arguments[1]),
        "client of lengths" => client(arguments[1]),
        _ => unreachable!("{role}"),
    }
}

/// Passes calls on, and gives its right away to who asks for that.
fn forwarder(name: &str, to: &str) {
    let to = handfast::connect(to).unwrap();
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        if request.bytes() == b"right" {
            let right = Right::from(to.clone());
            request.reply_with(b"here", [right]).unwrap();
        } else {
            let bytes = request.bytes().to_vec();
            request.forward(&to, &bytes).unwrap();
        }
    }
}

fn caller(name: &str) {
    let right = handfast::connect(name).unwrap();
    let answers = |right: &handfast::SendRight| {
        for round in 0..ROUNDS {
            let bytes = vec![round as u8; LENGTHS[round % LENGTHS.len()]];
            let calls: Vec<_> = (0..5).filter_map(|_| right.try_call(&bytes).ok()).collect();
            for call in calls {
                assert_eq!(&*call.wait().unwrap(), &*bytes);
            }
        }
    };
    answers(&right);
    let mut message = right.call(b"right").unwrap();
    let Some(Right::Send(direct)) = message.take_rights().pop() else {
        panic!("no right came");
    };
    // A process that connects pays for a link's memory: it was given a right by one user, and makes no link with another for
    // that. A door is shown within some calls.
    for _ in 0..20 {
        answers(&direct);
        let peers = peers();
        assert!(peers.contains(&FORWARDER), "{peers:?}");
        assert!(!peers.contains(&REPLIER), "{peers:?}");
    }
    common::say("answered");
}

#[handfast::service]
trait Lengths {
    fn made(&self, len_bytes: u32) -> Vec<u8>;
    fn taken(&self, bytes: &[u8]) -> u32;
}

struct Server;

impl Lengths for Server {
    fn made(&self, len_bytes: u32) -> Vec<u8> {
        vec![1; len_bytes as usize]
    }

    fn taken(&self, bytes: &[u8]) -> u32 {
        bytes.len() as u32
    }
}

fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    LengthsServer::serve(&port, &Server).unwrap();
}

/// Of another user than the server: what is too long between users is refused, and nothing else ends.
fn client(name: &str) {
    let lengths = LengthsClient::new(handfast::connect(name).unwrap());
    for _ in 0..2 {
        assert_eq!(lengths.made(60_000).unwrap().len(), 60_000);
        let error = lengths.made(100_000).unwrap_err();
        let why = Refusal::Result(Unencodable::TooLong);
        assert!(
            matches!(error, CallError::Refused { why: is, .. } if is == why),
            "{error}"
        );
        assert_eq!(lengths.taken(&[1; 60_000]).unwrap(), 60_000);
        let error = lengths.taken(&[1; 100_000]).unwrap_err();
        assert!(
            matches!(error, CallError::Send(SendError::TooLong { .. })),
            "{error}"
        );
    }
    common::say("refused");
}

/// The users whose processes this one has connections with.
fn peers() -> Vec<u32> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let user = |number| {
        // SAFETY: it is this process's, and nothing else is done with it here.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        Some(handfast_sys::socket::peer(fd).ok()?.uid)
    };
    let mut users: Vec<u32> = numbers.filter_map(user).collect();
    users.sort_unstable();
    users
}

/// Whether processes of several users can be started, which all find the names.
fn are_several_users() -> bool {
    if !rustix::process::geteuid().is_root() {
        common::not_exercised("not root");
        return false;
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(common::directory(), open).unwrap();
    true
}

#[test]
fn calls_that_are_passed_on_and_rights_of_third_processes_work_between_users() {
    if !are_several_users() {
        return;
    }
    let names = [common::name("replier"), common::name("forwarder")];
    let mut replier = common::start("replier", &[&REPLIER.to_string(), &names[0]]);
    replier.expect("ready");
    let words = [&FORWARDER.to_string(), &names[1], &names[0]];
    let mut forwarder = common::start("forwarder", &words.map(String::as_str));
    forwarder.expect("ready");
    let mut caller = common::start("caller", &[&CALLER.to_string(), &names[1]]);
    caller.expect("answered");
    // Each user's links are counted by themselves, though they have the same number in their groups.
    let counters = handfast::connect(&names[0]).unwrap().counters().unwrap();
    let links = counters.links.iter();
    let mut users: Vec<_> = links
        .map(|row| handfast::Counters::value(row, "peer_uid"))
        .collect();
    users.sort_unstable();
    assert_eq!(users, [0, FORWARDER.into()]);
    caller.finish();
    forwarder.kill();
    replier.finish();
}

#[test]
fn typed_values_that_are_too_long_between_users_are_refused() {
    if !are_several_users() {
        return;
    }
    let name = common::name("lengths");
    let mut server = common::start("server of lengths", &[&REPLIER.to_string(), &name]);
    server.expect("ready");
    let mut client = common::start("client of lengths", &[&CALLER.to_string(), &name]);
    client.expect("refused");
    client.finish();
    server.kill();
}
