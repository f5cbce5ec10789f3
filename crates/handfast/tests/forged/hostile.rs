//! Peers that write whatever they can reach.

use crate::common::{self, Pace, Random, content};
use crate::scribble;
use handfast::SendRight;
use handfast::error::{Rule, SendError};
use handfast_layout::control::ControlKind;
use handfast_testing::forge::Packet;
use rustix::fd::BorrowedFd;
use rustix::net::{SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The role of a server that says for which rule it cuts a link.
pub(crate) fn server(name: &str) {
    common::say_cuts();
    common::echo(name, 2, handfast::Options::new());
}

const RULES: [Rule; 14] = [
    Rule::ControlDescriptor,
    Rule::HeadDistance,
    Rule::MessageLength,
    Rule::ArenaBounds,
    Rule::ReplySlot,
    Rule::LaneReceiver,
    Rule::ReplyKind,
    Rule::Part,
    Rule::RightHandle,
    Rule::Path,
    Rule::Descriptor,
    Rule::DescriptorCount,
    Rule::Memory,
    Rule::Introduction,
];

/// Calls whose content is checked, until told to stop; how many, and the longest.
fn honest(right: &SendRight, key: u64, stop: &AtomicBool) -> (u64, Duration) {
    let (mut calls, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let sent = content((calls * 97 % 9000) as usize, key);
        let start = Instant::now();
        let reply = right.call_timeout(&sent, common::PATIENCE).unwrap();
        longest = longest.max(start.elapsed());
        assert!(*reply == *sent, "another's bytes");
        calls += 1;
    }
    (calls, longest)
}

/// The results of an attack so far.
struct Siege<'a> {
    server: &'a common::Child,
    cuts: Vec<String>,
    pace: Pace,
}

impl Siege<'_> {
    /// Whether a link has been cut.
    fn is_cut(&mut self) -> bool {
        self.cuts.extend(std::iter::from_fn(|| self.server.said()));
        !self.cuts.is_empty()
    }
}

/// Runs `attack` while two threads call the server honestly, then checks that it serves on. Returns
/// how many links it cut, each with the name of a rule.
fn besiege(what: &str, attack: impl FnOnce(&str, &mut Siege<'_>)) -> usize {
    let _alone = common::alone();
    let name = common::name(what);
    let mut server = common::start("echo that says its cuts", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let stop = AtomicBool::new(false);
    let mut siege = Siege {
        server: &server,
        cuts: Vec::new(),
        pace: Pace::new(),
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|key| {
                let (right, stop) = (&right, &stop);
                scope.spawn(move || honest(right, key, stop))
            })
            .collect();
        // The callers stop also when the attack panics: the scope waits for them.
        let outcome = catch_unwind(AssertUnwindSafe(|| attack(&name, &mut siege)));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    });
    println!("{what}: calls of others and their longest: {results:?}");
    let Siege { mut cuts, pace, .. } = siege;
    let limit = pace.allows_at_most(Duration::from_secs(1));
    for (calls, longest) in results {
        assert!(calls > 0 && longest < limit, "{calls}, {longest:?}");
    }
    let again = handfast::connect(&name).unwrap();
    assert_eq!(
        &*again.call_timeout(b"again", common::PATIENCE).unwrap(),
        b"again"
    );
    server.finish();
    cuts.extend(server.rest());
    for line in &cuts {
        let fault = line
            .strip_prefix(common::CUT)
            .unwrap_or_else(|| panic!("{line}"));
        let is_known = RULES.iter().any(|rule| fault.contains(rule.text()));
        assert!(is_known, "{fault}");
    }
    cuts.len()
}

#[test]
fn a_client_that_scribbles_over_all_it_maps_disturbs_neither_the_server_nor_others() {
    let mut random = Random::seeded("scribblers");
    let mut scribblers = 0;
    let cuts = besiege("scribbled", |name, siege| {
        let end = Instant::now() + common::campaign(4);
        // Many a scribble breaks no rule, and on a busy machine there are few: until one has.
        let patience = end + common::PATIENCE;
        while Instant::now() < end || (!siege.is_cut() && Instant::now() < patience) {
            siege.pace.look();
            let seed = random.next().to_string();
            let mut scribbler = common::start("scribbler", &[name, &seed]);
            scribbler.expect("scribbling");
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_millis(200 + random.below(600)));
            scribbler.kill();
            scribblers += 1;
        }
    });
    println!("{scribblers} scribblers, {cuts} cut off for a rule they broke");
    assert!(cuts > 0, "none of {scribblers} scribblers was cut off");
}

pub(crate) fn scribbling_server(name: &str, seed: u64) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let first = port.receive().unwrap();
    std::thread::spawn(move || scribble::scribble(seed));
    let mut last = first;
    loop {
        let bytes = content((last.bytes().len() * 7) % 3000, seed);
        match port.reply_and_receive(last, &bytes) {
            Ok(request) => last = request,
            Err(_) => return,
        }
    }
}

#[test]
fn a_server_that_scribbles_makes_its_clients_neither_crash_nor_outstay_their_deadlines() {
    let _alone = common::alone();
    let mut random = Random::seeded("scribbling servers");
    let end = Instant::now() + common::campaign(4);
    let (mut rounds, mut longest, mut faults) = (0, Duration::ZERO, 0);
    // Many a scribble is only ever a wrong reply: until one was more.
    let patience = end + common::PATIENCE;
    let mut pace = Pace::new();
    while Instant::now() < end || (faults == 0 && Instant::now() < patience) {
        let name = common::name(&format!("scribbling-{rounds}"));
        let seed = random.next().to_string();
        let server = common::start("scribbling server", &[&name, &seed]);
        server.expect("ready");
        let right = handfast::connect(&name).unwrap();
        pace.look();
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            let sent = content(random.below(9000) as usize, 5);
            let start = Instant::now();
            let outcome = match random.below(3) {
                0 => right.send_timeout(&sent, Duration::from_millis(20)),
                _ => right
                    .call_timeout(&sent, Duration::from_millis(20))
                    .map(|_| ()),
            };
            longest = longest.max(start.elapsed());
            match outcome {
                Ok(()) | Err(SendError::TimedOut | SendError::Gone(_)) => {}
                Err(SendError::Fault(fault)) => {
                    assert!(!fault.rule.text().is_empty());
                    faults += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        rounds += 1;
    }
    println!("{rounds} scribbling servers, {faults} cut; the longest operation took {longest:?}");
    assert!(
        faults > 0,
        "none of {rounds} scribbling servers was cut off"
    );
    let limit = pace.allows_at_most(Duration::from_millis(520));
    assert!(longest < limit, "{longest:?} with a deadline of 20 ms");
}

fn raw_connection(name: &str) -> Option<rustix::fd::OwnedFd> {
    let family = rustix::net::AddressFamily::UNIX;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::SEQPACKET, flags, None).unwrap();
    let address = SocketAddrUnix::new(common::directory().join(name)).unwrap();
    rustix::net::connect(&socket, &address).ok()?;
    handfast_sys::socket::set_nonblocking(&socket, false).unwrap();
    handfast_sys::socket::set_timeout(&socket, common::PATIENCE).unwrap();
    let is_ready = common::is_ready(&socket);
    handfast_sys::socket::set_nonblocking(&socket, true).unwrap();
    is_ready.then_some(socket)
}

#[test]
fn garbage_hellos_and_connections_that_say_nothing_keep_nobody_out() {
    let cuts = besiege("garbage", |name, siege| {
        let mut random = Random::seeded("hellos");
        let good =
            handfast_layout::hello::Hello::new(common::incarnation(7), name, 3, Some(3)).to_bytes();
        let mut silent = Vec::new();
        let end = Instant::now() + common::campaign(2);
        while Instant::now() < end {
            siege.pace.look();
            let Some(socket) = raw_connection(name) else {
                continue;
            };
            let mut bytes = good.to_vec();
            match random.below(4) {
                0 => bytes = content(random.below(300) as usize, random.next()),
                1 => bytes.truncate(random.below(128) as usize),
                2 => {}
                _ => {
                    for _ in 0..1 + random.below(4) {
                        bytes[random.below(128) as usize] = random.next() as u8;
                    }
                }
            }
            if random.below(3) > 0 {
                let fds: Vec<_> = (0..random.below(4))
                    .map(|_| rustix::fd::AsFd::as_fd(&socket))
                    .collect();
                let mut space =
                    [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !fds.is_empty() {
                    control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
                }
                let parts = [std::io::IoSlice::new(&bytes)];
                let _ = rustix::net::sendmsg(&socket, &parts, &mut control, SendFlags::NOSIGNAL);
            }
            silent.push(socket);
            if silent.len() > 100 {
                silent.swap_remove(random.below(100) as usize);
            }
            if random.below(50) == 0 {
                let right = handfast::connect(name).unwrap();
                assert_eq!(
                    &*right.call_timeout(b"in", common::PATIENCE).unwrap(),
                    b"in"
                );
            }
        }
    });
    assert_eq!(cuts, 0, "no rule of the memory was broken");
}

/// Takes the offer of a link.
fn is_linked(socket: &rustix::fd::OwnedFd) -> bool {
    let mut bytes = [0; handfast_layout::hello::WELCOME_BYTES];
    handfast_sys::socket::set_nonblocking(socket, false).unwrap();
    handfast_sys::socket::set_timeout(socket, common::PATIENCE).unwrap();
    let received = handfast_sys::socket::receive(socket, &mut bytes, 2);
    // Crossed, where another has the incarnation.
    let region = received.ok().and_then(|(_, fds)| fds.into_iter().next());
    region
        .iter()
        .for_each(|region| common::take_offer(socket, region));
    handfast_sys::socket::set_nonblocking(socket, true).unwrap();
    region.is_some()
}

/// Kinds whose messages are passed over where they are not whole.
const KINDS: [ControlKind; 5] = [
    ControlKind::Ring,
    ControlKind::ShowCounters,
    ControlKind::Counters,
    ControlKind::Closed,
    ControlKind::Release,
];

#[test]
fn random_control_messages_disturb_nobody() {
    besiege("control", |name, siege| {
        let mut random = Random::seeded("control messages");
        let end = Instant::now() + common::campaign(2);
        while Instant::now() < end {
            siege.pace.look();
            // A link of our own, made by hand.
            let Some(socket) = raw_connection(name) else {
                continue;
            };
            let bells =
                handfast_sys::memory::create_sealed("fake", handfast_layout::bell::REGION_BYTES);
            let bells = bells.unwrap();
            let hello = handfast_layout::hello::Hello::new(
                common::incarnation(random.next() as u8),
                name,
                3,
                None,
            );
            let fds = [rustix::fd::AsFd::as_fd(&bells)];
            handfast_sys::socket::send(&socket, &hello.to_bytes(), &fds).unwrap();
            // Without a link what follows is the end of a handshake.
            if random.below(4) > 0 && !is_linked(&socket) {
                continue;
            }
            for _ in 0..random.below(300) {
                let any = content(2, random.next());
                let whole = match KINDS.get(random.below(6) as usize) {
                    Some(kind) => Packet::of_kind(*kind, any[0], &any[1..]),
                    None => Packet::unknown(any[0]).extended(&any[1..]),
                };
                let bytes = whole.cut_to(random.below(4) as usize);
                let fd: BorrowedFd<'_> = rustix::fd::AsFd::as_fd(&bells);
                let fds = [fd; 4];
                let fds = &fds[..random.below(5) as usize];
                if handfast_sys::socket::send(&socket, &bytes, fds).is_err() {
                    break;
                }
            }
        }
    });
}
