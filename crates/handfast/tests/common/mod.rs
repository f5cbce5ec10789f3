//! Real processes for the tests: a test binary runs itself again and gives the copy a role.
//!
//! A child says lines that start with `@@` on its standard output, and is told lines on its
//! standard input; everything else it prints passes through. It dies with the thread that started
//! it.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The longest any test waits for anything: a hang is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const ROLE: &str = "HANDFAST_TEST_ROLE";
const ARGUMENTS: &str = "HANDFAST_TEST_ARGUMENTS";
/// The test every binary must have, which calls [`play`].
const STAGE: &str = "a_child_process_plays_its_role";

/// A child process in a role.
pub(crate) struct Child {
    pub(crate) process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    role: &'static str,
}

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
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", STAGE, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(ARGUMENTS, arguments.join("\n"))
        .env("HANDFAST_DIR", directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    change(&mut command);
    let mut process = command.spawn().unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            match line.find("@@") {
                Some(at) if sender.send(line[at + 2..].to_owned()).is_err() => return,
                None if line.contains("panicked") => eprintln!("child: {line}"),
                _ => {}
            }
        }
    });
    let input = process.stdin.take();
    Child {
        process,
        input,
        lines,
        role,
    }
}

impl Child {
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line the child says.
    pub(crate) fn line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing", self.role),
            Err(RecvTimeoutError::Disconnected) => panic!("{} has ended", self.role),
        }
    }

    /// A line the child has said already.
    pub(crate) fn said(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits for exactly this line.
    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.line(), line, "{}", self.role);
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// `kill -9`, and waits for the end.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Stops it, every thread of it.
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
            stat.contains(") T ")
        };
        let tasks = || std::fs::read_dir(&tasks).unwrap().map(Result::unwrap);
        assert!(within_patience(|| tasks().all(is_stopped)));
    }

    pub(crate) fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Closes its input, which ends every role, and checks that it found nothing wrong.
    pub(crate) fn finish(&mut self) {
        self.input = None;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                assert!(status.success(), "{} ended with {status}", self.role);
                return;
            }
            assert!(Instant::now() < end, "{} does not end", self.role);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Open descriptors and mappings.
    pub(crate) fn holdings(&self) -> (usize, usize) {
        holdings(self.pid())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the role this process was started in, if it is a child, and ends the process.
pub(crate) fn play(perform: impl FnOnce(&str, &[&str])) {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    // A panic of any thread ends the child, so that the parent sees it.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::process::exit(101);
    }));
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let arguments: Vec<_> = arguments.split('\n').collect();
    perform(&role, &arguments);
    std::process::exit(0);
}

/// In a child: says a line to the parent.
pub(crate) fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Lines of the test harness may stand before it.
    writeln!(output, "@@{line}").unwrap();
    output.flush().unwrap();
}

/// In a child: the parent's next line; `None` when it has closed our input.
pub(crate) fn told() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
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

/// Open descriptors and lines of the memory map of a process.
pub(crate) fn holdings(pid: u32) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mappings = maps.lines().filter(|line| line.contains("memfd:")).count();
    (descriptors, mappings)
}

/// Waits until `check` holds, looking every millisecond; whether it did within [`PATIENCE`].
pub(crate) fn within_patience(mut check: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !check() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
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
        if std::env::var_os(ROLE).is_some() {
            return std::env::var_os("HANDFAST_DIR").unwrap().into();
        }
        let directory = std::env::temp_dir().join(format!("handfast-t{}", std::process::id()));
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

/// Heavy tests of one binary take turns.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a campaign lasts: `HANDFAST_CAMPAIGN_SECS`, or the default.
pub(crate) fn campaign(default_secs: u64) -> Duration {
    let asked = std::env::var("HANDFAST_CAMPAIGN_SECS").ok();
    Duration::from_secs(
        asked
            .and_then(|text| text.parse().ok())
            .unwrap_or(default_secs),
    )
}

/// Numbers that look random, from a seed that is printed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by `HANDFAST_SEED`, or by the clock.
    pub(crate) fn seeded(what: &str) -> Self {
        let asked = std::env::var("HANDFAST_SEED").ok();
        let seed = asked
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(handfast_sys::clock::now_ns);
        println!("{what}: HANDFAST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
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
