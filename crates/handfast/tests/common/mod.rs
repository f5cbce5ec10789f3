//! Helpers that the tests of ports share, besides [`handfast_testing`].
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of this"
)]

mod process;
mod tasks;

use handfast::Right;
use handfast_layout::control::ControlMessage;
pub(crate) use handfast_testing::*;
pub(crate) use process::*;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
pub(crate) use tasks::*;

/// Starts a child in `role`.
pub(crate) fn start(role: &'static str, arguments: &[&str]) -> Child {
    start_with(role, arguments, |_| {})
}

/// As [`start`], with a last word on the command.
pub(crate) fn start_with(
    role: &'static str,
    arguments: &[&str],
    change: impl FnOnce(&mut Command),
) -> Child {
    directory();
    handfast_testing::start_with(role, arguments, change)
}

/// The last step of a handshake made by hand: the region is sealed, the server told, and there is a link. All writable mappings
/// of the region have been made.
pub(crate) fn take_offer(socket: &OwnedFd, region: &OwnedFd) {
    let sealed = ControlMessage::Sealed.encode();
    handfast_sys::shared::seal(region).unwrap();
    handfast_sys::socket::send(socket, &sealed, &[]).unwrap();
    let mut bytes = [0; 2];
    handfast_sys::socket::receive(socket, &mut bytes, 0).unwrap();
    assert_eq!(bytes, *sealed);
}

/// The role of a server that answers every call with what it was sent, on `threads` threads, until
/// its input is closed. A receive error ends it with status 3.
pub(crate) fn echo(name: &str, threads: usize, options: handfast::Options) {
    let port = match handfast::bind_with(name, options) {
        Ok(port) => port,
        Err(error) => {
            say(&format!("not bound: {error:?}"));
            std::process::exit(4);
        }
    };
    let port: &'static _ = Box::leak(Box::new(port));
    for _ in 0..threads {
        std::thread::spawn(|| serve(port));
    }
    say("ready");
    while told().is_some() {}
}

fn serve(port: &handfast::ReceiveRight) {
    let failed = |error| {
        say(&format!("error: {error}"));
        std::process::exit(3)
    };
    let mut received = port.receive();
    loop {
        let request = received.unwrap_or_else(failed);
        received = if request.is_call() {
            let bytes = request.bytes().to_vec();
            port.reply_and_receive(request, &bytes)
        } else {
            // A message that is held keeps its link's memory.
            drop(request);
            port.receive()
        };
    }
}

/// The role of a server that passes every call on to the port `to`, with what came with it; what it cannot pass
/// on it answers with why.
pub(crate) fn middle(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let to = handfast::connect(to).unwrap();
    say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let rights = request.take_rights();
        let message = request.take_message();
        if let Err(failed) = request.forward_with(&to, &message, rights) {
            let _ = failed
                .request
                .reply(format!("{:?}", failed.error).as_bytes());
        }
    }
}

/// The role of a process that keeps the rights that come with `keep`, and does with them what it is told;
/// `pass NAME` gives a copy of the last one to another keeper, and
/// `throw NAME` does not wait until that has it.
pub(crate) fn keeper(name: &str) {
    let port = handfast::bind(name).unwrap();
    say("ready");
    let mut kept = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        let order = request.bytes().to_vec();
        match &*order {
            b"keep" => kept.extend(send_rights(request.take_rights())),
            b"use" => {
                for right in kept.drain(..) {
                    // One that came by a vine may be dead by now.
                    let _ = right.send(b"used");
                }
            }
            b"drop" => kept.clear(),
            b"call" => kept.iter().for_each(|right| right.send(b"used").unwrap()),
            b"copy" => kept = kept.to_vec(),
            b"home" => {
                let last = kept.pop().map(Right::from);
                request.reply_with(b"", last).unwrap();
                continue;
            }
            b"echo" => {
                let rights = request.take_rights();
                request.reply_with(b"", rights).unwrap();
                continue;
            }
            pass => {
                let (how, name) = str::from_utf8(pass).unwrap().split_once(' ').unwrap();
                // The recipient may be gone.
                if let (Ok(to), Some(last)) = (handfast::connect(name), kept.last()) {
                    let to = to.with([last.clone().into()]);
                    let _ = match how {
                        "pass" => to.call(b"keep").map(|_| ()),
                        _ => to.send(b"keep"),
                    };
                }
            }
        }
        if request.is_call() {
            request.reply(b"").unwrap();
        }
    }
}

/// Rights to ports, and nothing else.
pub(crate) fn send_rights(rights: Vec<Right>) -> Vec<handfast::SendRight> {
    let rights = rights.into_iter().map(|right| match right {
        Right::Send(right) => right,
        other => panic!("{other:?}"),
    });
    rights.collect()
}

/// Binds `own`, and at the moment it is told connects to `other` and calls it.
pub(crate) fn crosser(own: &str, other: &str) {
    let port: &'static handfast::ReceiveRight = Box::leak(Box::new(handfast::bind(own).unwrap()));
    std::thread::spawn(|| {
        loop {
            let request = port.receive().unwrap();
            let bytes = request.bytes().to_vec();
            request.reply(&bytes).unwrap();
        }
    });
    say("bound");
    let start_ns: u64 = told().unwrap().parse().unwrap();
    while handfast_sys::clock::now_ns() < start_ns {
        std::hint::spin_loop();
    }
    let right = handfast::connect_timeout(other, PATIENCE).unwrap();
    assert_eq!(&*right.call_timeout(b"x", PATIENCE).unwrap(), b"x");
    say("connected");
    // Both are now.
    let _ = told();
    assert_eq!(&*right.call_timeout(b"y", PATIENCE).unwrap(), b"y");
    let own_pid = u64::from(std::process::id());
    let is_own = |row: &&Vec<u64>| handfast::Counters::value(row, "peer_pid") == own_pid;
    let links = || {
        right
            .counters()
            .unwrap()
            .links
            .iter()
            .filter(is_own)
            .count()
    };
    // One that gave way may be ending there still.
    within_patience(|| links() == 1);
    say(&format!("{} links", links()));
    while told().is_some() {}
}

/// Takes the announcement of the sleeping server away, as if to wake it, and is killed there.
pub(crate) fn waker_that_dies(name: &str) {
    let _right = handfast::connect(name).unwrap();
    // Of the two bells mapped here one is ours, where nobody sleeps.
    let mut bells = shared_words("handfast bells");
    let taken = within_patience(|| {
        bells.iter_mut().any(|bell| {
            let word = bell.word(handfast_layout::bell::bell(0) + handfast_layout::bell::SLEEP);
            word.swap(0, std::sync::atomic::Ordering::SeqCst) != 0
        })
    });
    say(if taken { "taken" } else { "nobody sleeps" });
    while told().is_some() {}
}

/// Calls through a process that passes calls on until replies come by a path.
pub(crate) fn warm(right: &handfast::SendRight) {
    let vines = || {
        let counters = right.counters().unwrap();
        let values = counters.links.iter();
        values
            .map(|row| handfast::Counters::value(row, "vines"))
            .sum::<u64>()
    };
    assert!(within_patience(|| {
        let before = vines();
        for _ in 0..20 {
            let _ = right.call(b"warm").unwrap();
        }
        before == vines()
    }));
}

/// A port name nobody else uses.
pub(crate) fn name(what: &str) -> String {
    directory();
    format!("{what}-{}", std::process::id())
}

/// The rendezvous directory of this test process and its children. Removed when the process ends.
pub(crate) fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        if is_child() {
            return std::env::var_os("HANDFAST_DIR").unwrap().into();
        }
        let directory = std::env::temp_dir().join(format!("handfast-t{}", std::process::id()));
        // Of a process with this number that was killed.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        // SAFETY: only the environment functions of Rust's library are used in this process, and
        // they exclude one another.
        unsafe { std::env::set_var("HANDFAST_DIR", &directory) };
        // SAFETY: the function lives for ever and does not unwind.
        unsafe { libc::atexit(remove_directory) };
        directory
    })
}

extern "C" fn remove_directory() {
    let _ = std::fs::remove_dir_all(directory());
}

/// Median, 99th percentile and longest of some durations.
pub(crate) fn spread(times: &mut [Duration]) -> (Duration, Duration, Duration) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    (at(50), at(99), at(100))
}

/// Content of a message: depends on its length and a key.
pub(crate) fn content(len_bytes: usize, key: u64) -> Vec<u8> {
    let mut random = Random::of(key ^ (len_bytes as u64) << 32);
    let mut bytes = vec![0; len_bytes];
    for chunk in bytes.chunks_mut(8) {
        let word = random.next().to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
    bytes
}

/// The words of this process's mappings of a kind of memory file, one slice of addresses each.
pub(crate) fn shared_words(kind: &str) -> Vec<Shared> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().filter(|line| line.contains(kind));
    found
        .map(|line| {
            let range = line.split(' ').next().unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            let inode = line.split_whitespace().nth(4).unwrap();
            Shared {
                base: address(from),
                len_bytes: address(to) - address(from),
                inode: inode.parse().unwrap(),
            }
        })
        .collect()
}

/// One shared mapping of this process, to be treated as no honest program does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    base: usize,
    pub(crate) len_bytes: usize,
    /// Grows with the age of the file.
    pub(crate) inode: u64,
}

impl Shared {
    /// The word at offset `at`. Only for mappings that stay: the child never ends its link.
    pub(crate) fn word(&self, at: usize) -> &'static std::sync::atomic::AtomicU32 {
        assert!(at + 4 <= self.len_bytes);
        let word = std::ptr::with_exposed_provenance_mut::<u32>(self.base + at);
        // SAFETY: `at` lies in a mapping that lasts as long as the process, is aligned, and is
        // only accessed as shared memory is: by atomics and copies without references.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(word) }
    }
}

/// Calls, and gets back what it has sent.
pub(crate) fn call(right: &handfast::SendRight, bytes: &[u8]) {
    let reply = right.call_timeout(bytes, PATIENCE).unwrap();
    assert!(
        *reply == *bytes,
        "{} bytes came back as {} others",
        bytes.len(),
        reply.len()
    );
}

/// Connects to `name`, calls it once, and lets go of it.
pub(crate) fn answers(name: &str) {
    let right = handfast::connect(name).unwrap();
    assert_eq!(
        &*right.call_timeout(b"there?", PATIENCE).unwrap(),
        b"there?"
    );
}

/// Said by [`say_cuts`], before the rule.
pub(crate) const CUT: &str = "cut: ";

/// Has this process say of each link that it cuts for what rule.
pub(crate) fn say_cuts() {
    let cuts = Cuts(|fault: &str| say(&format!("{CUT}{fault}")));
    tracing::subscriber::set_global_default(cuts).unwrap();
}

/// Tells of every rule for whose breach a link is cut.
pub(crate) struct Cuts<F>(pub(crate) F);

impl<F: Fn(&str) + Send + Sync + 'static> tracing::Subscriber for Cuts<F> {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                if field.name() == "fault" {
                    self.0(&format!("{value:?}"));
                }
            },
        );
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Both ends of a pipe.
pub(crate) fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    (reader.into(), writer)
}

/// The descriptors that came in a message, and nothing else.
pub(crate) fn descriptors(rights: Vec<Right>) -> Vec<OwnedFd> {
    let fds = rights.into_iter().map(|right| match right {
        Right::Descriptor(fd) => fd,
        other => panic!("{other:?}"),
    });
    fds.collect()
}

/// Another descriptor of the socket of this process's only link.
pub(crate) fn link_socket() -> OwnedFd {
    let own = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    );
    let own = own.unwrap();
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_socket = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        target.to_string_lossy().starts_with("socket:")
    };
    let sockets = entries.map(Result::unwrap).filter(is_socket);
    let copies = sockets.filter_map(|entry| {
        let fd = entry.file_name().to_str()?.parse().ok()?;
        let flags = rustix::process::PidfdGetfdFlags::empty();
        rustix::process::pidfd_getfd(&own, fd, flags).ok()
    });
    let is_connected = |fd: &OwnedFd| rustix::net::getpeername(fd).is_ok();
    let mut links: Vec<_> = copies.filter(is_connected).collect();
    assert_eq!(links.len(), 1);
    links.pop().unwrap()
}

/// An incarnation that this process may say it is: the kernel's half, and a number.
pub(crate) fn incarnation(number: u8) -> [u8; 16] {
    let mut incarnation = handfast_sys::process::new_incarnation().unwrap();
    incarnation[8..].fill(number);
    incarnation
}

/// Connects by hand to a server by name, which has said then that a hello may come.
pub(crate) fn knock(name: &str) -> OwnedFd {
    let path = directory().join(name);
    let socket = handfast_sys::socket::connect(&path, PATIENCE).unwrap();
    assert!(is_ready(&socket), "refused before the hello");
    socket
}

/// Whether the server at the other end says that a hello may come.
pub(crate) fn is_ready(socket: &OwnedFd) -> bool {
    let mut bytes = [0; 256];
    let received = handfast_sys::socket::receive(socket, &mut bytes, 0);
    received.is_ok_and(|(len_bytes, _)| {
        handfast_layout::hello::parse_ready(&bytes[..len_bytes]).is_ok_and(|ready| ready.is_some())
    })
}
