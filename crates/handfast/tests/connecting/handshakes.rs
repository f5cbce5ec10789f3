//! Handshakes that fail, that are put off and that never end: each with its own error, and nothing
//! is left behind.

pub(crate) mod waiting;

use crate::common::{self, answers};
use handfast::error::{BindError, ConnectError};
use handfast_layout::LAYOUT_VERSION;
use handfast_layout::hello::{HELLO_BYTES, Hello, Status, WELCOME_BYTES, Welcome, ready};
use handfast_sys::socket;
use rustix::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Calls once, and once more when it is told to.
pub(crate) fn connector(name: &str) {
    answers(name);
    common::holdings_alone();
    common::say("ready");
    common::told();
    stranger(name);
}

/// Calls once, and stays.
pub(crate) fn stranger(name: &str) {
    answers(name);
    common::say("answered");
    while common::told().is_some() {}
}

/// A hand-made server: what it sends to whoever says hello.
type Answer = (Vec<u8>, Vec<OwnedFd>);

/// Serves `name` by `answer` until this process ends.
fn hand_made(name: &str, answer: impl Fn(&[u8]) -> Answer + Send + 'static) {
    hand_made_saying(name, ready([1; 16]).to_vec(), answer);
}

/// As that, of a server that says this before the hello.
fn hand_made_saying(name: &str, first: Vec<u8>, answer: impl Fn(&[u8]) -> Answer + Send + 'static) {
    let listener = socket::listen(&common::directory().join(name), 4).unwrap();
    socket::set_nonblocking(&listener, false).unwrap();
    std::thread::spawn(move || {
        let mut linked = Vec::new();
        while let Ok(socket) = socket::accept(&listener) {
            socket::set_nonblocking(&socket, false).unwrap();
            let _ = socket::pass_descriptors(&socket, true);
            let _ = socket::send(&socket, &first, &[]);
            let mut bytes = vec![0; 2 * HELLO_BYTES];
            // One that does not fit is not said hello to.
            let Ok((len, _)) = socket::receive(&socket, &mut bytes, 4) else {
                continue;
            };
            let (bytes, fds) = answer(&bytes[..len]);
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            let _ = socket::send(&socket, &bytes, &fds);
            // That the region is sealed, as far as it has come to that.
            let mut sealed = [0; 2];
            if matches!(socket::receive(&socket, &mut sealed, 0), Ok((2, _))) {
                let _ = socket::send(&socket, &sealed, &[]);
                // It has not died.
                linked.push(socket);
            }
        }
    });
}

/// Lengths of messages of other releases.
const LENGTHS: [usize; 4] = [24, 40, 128, 200];

/// A message of the release with layout version 77.
fn of_version_77(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes[8..12].copy_from_slice(&77u32.to_le_bytes());
    bytes.resize(len, 0xaa);
    bytes
}

#[test]
fn versions_that_do_not_fit_are_both_named_on_either_side() {
    for len in LENGTHS {
        let name = common::name(&format!("newer-first-{len}"));
        let first = of_version_77(ready([1; 16]).to_vec(), len);
        hand_made_saying(&name, first, |_| (Vec::new(), Vec::new()));
        let error = handfast::connect(&name).unwrap_err();
        let both = format!("layout version 77 and this program version {LAYOUT_VERSION}");
        assert!(error.to_string().contains(&both), "{error}");

        let name = common::name(&format!("newer-{len}"));
        hand_made(&name, move |hello| {
            let hello = Hello::parse(hello).unwrap();
            assert_eq!(hello.version, LAYOUT_VERSION);
            let welcome = Welcome::refusal([1; 16], Status::Version, 0).to_bytes();
            (of_version_77(welcome.to_vec(), len), Vec::new())
        });
        let error = handfast::connect(&name).unwrap_err();
        assert!(
            matches!(
                error,
                ConnectError::Version {
                    ours: LAYOUT_VERSION,
                    theirs: 77
                }
            ),
            "{len}: {error:?}"
        );
        let both = format!("layout version 77 and this program version {LAYOUT_VERSION}");
        assert!(error.to_string().contains(&both), "{error}");
    }

    let name = common::name("older");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    for len in LENGTHS {
        let socket = common::knock(&name);
        let hello = Hello::new(common::incarnation(2), &name, 0, None).to_bytes();
        // With whatever that release sends along.
        let fds = [socket.as_fd(); 2];
        socket::send(&socket, &of_version_77(hello.to_vec(), len), &fds).unwrap();
        let mut bytes = [0; 2 * WELCOME_BYTES];
        let (len_bytes, fds) = socket::receive(&socket, &mut bytes, 4).unwrap();
        let welcome = Welcome::parse(&bytes[..len_bytes]).unwrap();
        assert_eq!(
            (welcome.status, welcome.version, fds.len()),
            (Status::Version, LAYOUT_VERSION, 0),
            "{len}"
        );
        let end = socket::receive(&socket, &mut bytes, 0);
        assert!(matches!(end, Ok((0, _))), "{end:?}");
    }
    answers(&name);
}

fn refusal(status: Status, limit: u32) -> Welcome {
    Welcome::refusal(common::incarnation(1), status, limit)
}

fn sized(len_bytes: usize) -> OwnedFd {
    handfast_sys::shared::create("test", len_bytes).unwrap()
}

fn sealed(len_bytes: usize) -> OwnedFd {
    handfast_sys::memory::create_sealed("test", len_bytes).unwrap()
}

fn unsealed(len_bytes: usize) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len_bytes as u64).unwrap();
    fd
}

/// Answers that no handfast server sends, and the reason that is given for each.
fn garbage() -> Vec<(&'static str, Answer, &'static str)> {
    use handfast_layout::bell::REGION_BYTES as BELLS;
    use handfast_layout::link::REGION_BYTES as LINK;
    let linked = refusal(Status::Linked, 0).to_bytes().to_vec();
    let with = |at: usize, value: u8| {
        let mut bytes = linked.clone();
        bytes[at] = value;
        (bytes, Vec::new())
    };
    let memory = |fds| (linked.clone(), fds);
    let stranger = "not handfast at the other end";
    vec![
        ("noise", (vec![7; 80], Vec::new()), stranger),
        ("short", (b"handfast".to_vec(), Vec::new()), stranger),
        ("cut", (linked[..79].to_vec(), Vec::new()), stranger),
        ("long", (vec![7; 200], Vec::new()), stranger),
        ("longer", ([&linked[..], &[0]].concat(), vec![]), stranger),
        ("status", with(40, 7), "status"),
        ("port", with(44, 64), "port"),
        ("index", with(53, 4), "link index"),
        ("none", memory(vec![]), "sent no memory"),
        (
            "right",
            memory(vec![sized(LINK), sealed(BELLS)]),
            "no right",
        ),
        ("one", memory(vec![sized(LINK)]), "sent no memory"),
        (
            "unsealed-link",
            memory(vec![unsealed(LINK), sealed(BELLS)]),
            "not sealed",
        ),
        (
            "unsealable-link",
            memory(vec![sealed(LINK), sealed(BELLS)]),
            "cannot be sealed",
        ),
        (
            "unsealed-bells",
            memory(vec![sized(LINK), unsealed(BELLS)]),
            "not sealed",
        ),
        (
            "small-link",
            memory(vec![sized(4096), sealed(BELLS)]),
            "not sealed",
        ),
        (
            "small-bells",
            memory(vec![sized(LINK), sealed(4096)]),
            "not sealed",
        ),
        (
            "malformed",
            (refusal(Status::Malformed, 0).to_bytes().to_vec(), vec![]),
            "could not read this program's hello",
        ),
    ]
}

fn serve_answer(name: &str, (bytes, fds): Answer) {
    hand_made(name, move |_| {
        let fds = fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
        (bytes.clone(), fds)
    });
}

#[test]
fn garbage_instead_of_a_welcome_is_a_failed_handshake() {
    for (what, answer, reason) in garbage() {
        let name = common::name(&format!("garbage-{what}"));
        serve_answer(&name, answer);
        let error = handfast::connect(&name).unwrap_err();
        assert!(
            matches!(&error, ConnectError::Handshake { name: of, .. } if *of == name),
            "{what}: {error:?}"
        );
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains(&name), "{text}");
    }
}

#[test]
fn what_a_server_refuses_for_is_what_the_client_is_told() {
    let name = common::name("refuses-exhausted");
    serve_answer(
        &name,
        (refusal(Status::Exhausted, 1234).to_bytes().to_vec(), vec![]),
    );
    let error = handfast::connect(&name).unwrap_err();
    assert!(
        matches!(&error, ConnectError::Exhausted(exhausted) if exhausted.limit == 1234),
        "{error:?}"
    );
    let name = common::name("refuses-port");
    serve_answer(
        &name,
        (refusal(Status::NoSuchPort, 0).to_bytes().to_vec(), vec![]),
    );
    let error = handfast::connect(&name).unwrap_err();
    assert!(
        matches!(&error, ConnectError::NoSuchName { name: of, .. } if *of == name),
        "{error:?}"
    );
}

#[test]
fn a_server_that_puts_off_for_ever_is_given_up_at_the_limit() {
    let _alone = common::alone();
    for (what, status) in [("known", Status::Known), ("crossed", Status::Crossed)] {
        let name = common::name(&format!("puts-off-{what}"));
        serve_answer(&name, (refusal(status, 0).to_bytes().to_vec(), vec![]));
        passes(&name, 30);
    }
}

/// Says hello to `name` as a process that knows of no link, and returns the answer's status.
fn hello_by_hand(name: &str, incarnation: u8, link: u32) -> (OwnedFd, Status) {
    let socket = common::knock(name);
    let bells = sealed(handfast_layout::bell::REGION_BYTES);
    let hello = Hello::new(common::incarnation(incarnation), name, link, None).to_bytes();
    socket::send(&socket, &hello, &[bells.as_fd()]).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let (len, fds) = socket::receive(&socket, &mut bytes, 4).unwrap();
    if let Some(region) = fds.first() {
        common::take_offer(&socket, region);
    }
    (socket, Welcome::parse(&bytes[..len]).unwrap().status)
}

#[test]
fn a_client_that_has_a_link_and_asks_for_one_is_told_once_to_look_again() {
    let name = common::name("has-a-link");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let before = common::at_rest(server.pid());
    let (first, status) = hello_by_hand(&name, 1, 0);
    assert_eq!(status, Status::Linked);
    let (_refused, status) = hello_by_hand(&name, 1, 1);
    assert_eq!(status, Status::Crossed);
    // It may have its reasons.
    let (second, status) = hello_by_hand(&name, 1, 1);
    assert_eq!(status, Status::Linked);
    // One whose link has ended has none.
    drop((first, second));
    assert!(common::settles_at(server.pid(), before));
    let (_third, status) = hello_by_hand(&name, 1, 0);
    assert_eq!(status, Status::Linked);
    // Nor has another process of the same number.
    let (_other, status) = hello_by_hand(&name, 2, 1);
    assert_eq!(status, Status::Linked);
    answers(&name);
}

/// Of each kind. A trust group has 1,024 links: each of a few kinds together must give them back.
const FAILURES: usize = 350;

/// Fails to connect to each of the names but the first, again and again; then connects to that.
pub(crate) fn unlucky(names: &[&str]) {
    let (putting_off, names) = names.split_last().unwrap();
    answers(names[0]);
    for name in &names[1..] {
        handfast::connect(name).unwrap_err();
    }
    let before = common::holdings_alone();
    for name in names[1..].repeat(FAILURES) {
        let error = handfast::connect(name).unwrap_err();
        assert!(matches!(error, ConnectError::Handshake { .. }), "{error:?}");
    }
    // One that asks again and again, each time with an index of its own.
    let short = Duration::from_millis(12);
    for _ in 0..FAILURES / 2 {
        handfast::connect_timeout(putting_off, short).unwrap_err();
    }
    let settled = || common::holdings(std::process::id()) == before;
    if !common::within_patience(settled) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let maps: Vec<_> = maps
            .lines()
            .filter(|line| line.contains("memfd:"))
            .collect();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let open: Vec<_> = open
            .map(|entry| std::fs::read_link(entry.unwrap().path()))
            .collect();
        panic!("{before:?} -> {maps:#?} {open:#?}");
    }
    answers(names[0]);
    common::say("left nothing");
    while common::told().is_some() {}
}

#[test]
fn handshakes_that_fail_leave_nothing_behind() {
    let name = common::name("lucky");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let mut names = vec![name];
    for (what, answer, _) in garbage() {
        let name = common::name(&format!("unlucky-{what}"));
        serve_answer(&name, answer);
        names.push(name);
    }
    let name = common::name("unlucky-known");
    let known = refusal(Status::Known, 0).to_bytes().to_vec();
    serve_answer(&name, (known, vec![]));
    names.push(name);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut client = common::start("unlucky", &names);
    client.expect("left nothing");
    client.finish();
}

#[test]
fn a_server_that_neither_accepts_nor_answers_is_given_up_and_keeps_its_name() {
    let _alone = common::alone();
    let name = common::name("deaf");
    let path = common::directory().join(&name);
    let _listener = socket::listen(&path, 0).unwrap();
    let start = Instant::now();
    let error = handfast::connect(&name).unwrap_err();
    assert!(is_timeout(&error, &name, 5_000), "{error:?}");
    // Its queue of connections is full now: the kernel lets one more in than asked for.
    let _one = socket::connect(&path, Duration::from_secs(5)).ok();
    let taken = handfast::bind(&name).map(|_| ()).unwrap_err();
    assert!(matches!(taken, BindError::NameTaken { .. }), "{taken:?}");
    assert!(start.elapsed() < common::PATIENCE);
}

#[test]
fn a_connection_that_says_nothing_is_closed_and_keeps_nobody_waiting() {
    let name = common::name("says-nothing");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    // Held, so that what the server has for it stays.
    let right = handfast::connect(&name).unwrap();
    right.call_timeout(b"there?", common::PATIENCE).unwrap();
    let before = common::at_rest(server.pid());
    let silent: Vec<_> = (0..3).map(|_| common::knock(&name)).collect();
    assert!(common::within_patience(
        || common::holdings(server.pid()).0 >= before + silent.len()
    ));
    let mut client = common::start("stranger that answers", &[&name]);
    client.expect("answered");
    client.finish();
    for socket in &silent {
        let end = socket::receive(socket, &mut [0; 8], 0);
        assert!(matches!(end, Ok((0, _))), "{end:?}");
    }
    assert!(common::within_patience(
        || common::holdings(server.pid()).0 <= before
    ));
    right.call_timeout(b"still?", common::PATIENCE).unwrap();
}

#[test]
fn a_connector_that_gives_way_to_many_others_comes_again() {
    let name = common::name("crowd");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let mut connector = common::start("connector that gives way", &[&name]);
    connector.expect("ready");
    server.stop();
    let before = common::holdings(connector.pid()).0;
    connector.tell("connect");
    assert!(common::within_patience(|| common::holdings(
        connector.pid()
    )
    .0 > before));
    // More than there are places for handshakes; it is the oldest of them.
    let path = common::directory().join(&name);
    let crowd: Vec<_> = (0..100)
        .map(|_| socket::connect(&path, common::PATIENCE).unwrap())
        .collect();
    server.resume();
    connector.expect("answered");
    drop(crowd);
}

fn is_timeout(error: &ConnectError, of: &str, limit_ms: u64) -> bool {
    let text = error.to_string();
    matches!(error, ConnectError::TimedOut { name, limit }
        if name == of && *limit == Duration::from_millis(limit_ms))
        && text.contains(of)
        && text.contains("allow more time")
}

/// Connects with a limit that passes, and checks that it and no other did.
fn passes(name: &str, limit_ms: u64) {
    let start = Instant::now();
    let error = handfast::connect_timeout(name, Duration::from_millis(limit_ms)).unwrap_err();
    assert!(is_timeout(&error, name, limit_ms), "{error:?}");
    // Without a limit of its own a connection has five seconds.
    assert!(start.elapsed() < Duration::from_secs(4));
}
