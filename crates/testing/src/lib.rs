//! Helpers that the tests of several crates share.
//!
//! Real processes: a test binary runs itself again and gives the copy a role.
//!
//! A child says lines that start with `@@` on its standard output, and is told lines on its
//! standard input; everything else it prints passes through. It dies with the thread that started
//! it.

pub mod commands;
pub mod forge;
mod machine;
pub mod trace;

pub use machine::not_exercised;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The longest any test waits for anything: a hang is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that hears of something by then was told: a control thread that has long found nothing looks of itself every ten seconds.
pub const TOLD: Duration = Duration::from_secs(5);

const ROLE: &str = "HANDFAST_TEST_ROLE";
const ARGUMENTS: &str = "HANDFAST_TEST_ARGUMENTS";
/// The test every binary must have, which calls [`play`].
const STAGE: &str = "a_child_process_plays_its_role";

/// A child process in a role.
pub struct Child {
    /// The process itself.
    pub process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that came before another one that was waited for.
    passed: RefCell<VecDeque<String>>,
    role: &'static str,
}

/// Starts a child in `role`.
pub fn start(role: &'static str, arguments: &[&str]) -> Child {
    start_with(role, arguments, |_| {})
}

/// As [`start`], with a last word on the command.
pub fn start_with(
    role: &'static str,
    arguments: &[&str],
    change: impl FnOnce(&mut Command),
) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", STAGE, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(ARGUMENTS, arguments.join("\n"))
        .env(machine::TEST, machine::test())
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
        passed: RefCell::default(),
        role,
    }
}

impl Child {
    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The next line the child says.
    pub fn line(&self) -> String {
        let passed = self.passed.borrow_mut().pop_front();
        passed.unwrap_or_else(|| self.new_line())
    }

    /// The next line of which `is_it` holds, whatever the child says before it: that comes afterwards.
    pub fn line_that(&self, is_it: impl Fn(&String) -> bool) -> String {
        let mut passed = self.passed.borrow_mut();
        if let Some(place) = passed.iter().position(&is_it) {
            return passed.remove(place).unwrap();
        }
        loop {
            let line = self.new_line();
            if is_it(&line) {
                return line;
            }
            passed.push_back(line);
        }
    }

    fn new_line(&self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing", self.role),
            Err(RecvTimeoutError::Disconnected) => panic!("{} has ended", self.role),
        }
    }

    /// A line the child has said already.
    pub fn said(&self) -> Option<String> {
        let passed = self.passed.borrow_mut().pop_front();
        passed.or_else(|| self.lines.try_recv().ok())
    }

    /// All that it says until its end, which has been asked for.
    pub fn rest(&self) -> Vec<String> {
        let next = || match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => panic!("{} does not end", self.role),
            Err(RecvTimeoutError::Disconnected) => None,
        };
        let passed = self.passed.take().into_iter();
        passed.chain(std::iter::from_fn(next)).collect()
    }

    /// Waits for exactly this line.
    pub fn expect(&self, line: &str) {
        assert_eq!(self.line(), line, "{}", self.role);
    }

    /// Sends it a line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Stops it, every thread of it.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let is_stopped = |task: std::fs::DirEntry| {
            // None is there for a thread that has ended.
            let stat = std::fs::read_to_string(task.path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        let tasks = || std::fs::read_dir(&tasks).unwrap().map(Result::unwrap);
        assert!(within_patience(|| tasks().all(is_stopped)));
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Closes its input, which ends every role, and checks that it found nothing wrong.
    pub fn finish(&mut self) {
        self.input = None;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                assert!(status.success(), "{} ended with {status}", self.role);
                return;
            }
            assert!(Instant::now() < end, "{} does not end", self.role);
            // Sleep: the interval of a poll with an end.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether this process is a child in a role.
#[must_use]
pub fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The path of a descriptor of this process, for its children.
#[must_use]
pub fn path(file: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// Opens a file by its [`path`].
#[must_use]
pub fn open(path: &str) -> OwnedFd {
    let mut options = std::fs::File::options();
    options.read(true).write(true).open(path).unwrap().into()
}

/// Runs the role this process was started in, if it is a child, and ends the process.
pub fn play(perform: impl FnOnce(&str, &[&str])) {
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
pub fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Lines of the test harness may stand before it.
    writeln!(output, "@@{line}").unwrap();
    output.flush().unwrap();
}

/// In a child: the parent's next line; `None` when it has closed our input.
pub fn told() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}

/// Waits until `check` holds, looking every millisecond; whether it did within [`PATIENCE`].
pub fn within_patience(mut check: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !check() {
        if Instant::now() >= end {
            return false;
        }
        // Sleep: the interval of a poll with an end.
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Whether all threads of a process sleep, but for the one that asks. None that waits for a processor does.
#[must_use]
pub fn sleeps(pid: u32) -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let sleeps = |task: std::fs::DirEntry| {
        // One that has ended has none.
        let stat = std::fs::read_to_string(task.path().join("stat"));
        task.file_name() == *own || stat.is_ok_and(|stat| stat.contains(") S "))
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.map(Result::unwrap).all(sleeps)
}

/// How many threads of a process have this name.
#[must_use]
pub fn threads_named(pid: u32, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // One that has ended has none.
    let is_one = |task: &std::fs::DirEntry| {
        let comm = std::fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    };
    tasks.map(Result::unwrap).filter(is_one).count()
}

/// Processor time of a thread of this process, in the kernel's ticks.
#[must_use]
pub fn used_ticks(thread: rustix::thread::Pid) -> u64 {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(stat).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    after_name.split(' ').nth(11).unwrap().parse().unwrap()
}

/// Tells how soon anything can come to pass here now: on a busy machine a woken thread waits for a processor.
#[derive(Default)]
pub struct Pace {
    /// For each processor, the threads that waited for it at a look.
    waiting: Vec<f64>,
}

impl Pace {
    /// Without a look so far.
    #[must_use]
    pub const fn new() -> Self {
        let waiting = Vec::new();
        Self { waiting }
    }

    /// Looks how many threads want to run, more than can; to be asked now and then while time is taken.
    pub fn look(&mut self) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let running = load.split([' ', '/']).nth(3);
        let running: f64 = running.map_or(0.0, |running| running.parse().unwrap());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        self.waiting.push((running / cpus - 1.0).max(0.0));
    }

    /// Work that takes less than `limit` where nobody waits takes less than this here, mostly.
    #[must_use]
    pub fn allows(&self, limit: Duration) -> Duration {
        let mean = self.waiting.iter().sum::<f64>() / self.waiting.len().max(1) as f64;
        limit.mul_f64(1.0 + mean / 2.0)
    }

    /// As [`Self::allows`], nearly always.
    #[must_use]
    pub fn allows_at_most(&self, limit: Duration) -> Duration {
        let most = self.waiting.iter().copied().fold(0.0, f64::max);
        limit.mul_f64(1.0 + 2.0 * most)
    }
}

/// Whether something takes less than `limit`, at best: if it does not at first, it is tried again, as others may have had
/// the processors meanwhile.
pub fn within_at_best(limit: Duration, mut attempt: impl FnMut() -> Duration) -> bool {
    (0..20).any(|_| {
        let took = attempt();
        if took >= limit {
            println!("{took:?}, which is longer than {limit:?}");
        }
        took < limit
    })
}

/// Heavy tests of one binary take turns.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a campaign lasts: `HANDFAST_CAMPAIGN_SECS`, or the default.
pub fn campaign(default_secs: u64) -> Duration {
    let asked = std::env::var("HANDFAST_CAMPAIGN_SECS").ok();
    Duration::from_secs(
        asked
            .and_then(|text| text.parse().ok())
            .unwrap_or(default_secs),
    )
}

/// Numbers that look random, from a seed that is printed (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Seeded by `HANDFAST_SEED`, or by the clock.
    pub fn seeded(what: &str) -> Self {
        let asked = std::env::var("HANDFAST_SEED").ok();
        let seed = asked.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
            now.as_nanos() as u64
        });
        println!("{what}: HANDFAST_SEED={seed}");
        Self(seed)
    }

    /// Seeded by `seed`.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A word to write where a peer reads: one that means something somewhere, or nothing.
    pub fn meddlesome(&mut self) -> u32 {
        match self.below(4) {
            0 => self.below(4) as u32,
            1 => self.below(256) as u32,
            2 => u32::MAX - self.below(4) as u32,
            _ => self.next() as u32,
        }
    }
}

/// A new directory where temporary files are, removed with this.
pub struct Directory(pub std::path::PathBuf);

impl Directory {
    /// One whose name ends with this, which no other test of the process uses. Short: paths of sockets have 107 characters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let name = format!("handfast-t{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
