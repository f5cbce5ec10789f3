//! Child processes: started in a role, signalled by their process descriptors, waited for.

use handfast_cli::temporary;
use handfast_sys::{AsFd, OwnedFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running process in a role; killed and waited for on drop.
pub(crate) struct Child {
    process: std::process::Child,
    pidfd: OwnedFd,
    input: Option<ChildStdin>,
    output: ChildStdout,
    /// Read, and no whole line yet.
    begun: Vec<u8>,
}

/// The first argument of this program's children.
pub(crate) const ROLE: &str = "abuse-child";

/// The command line of a child.
#[derive(clap::Parser)]
#[command(bin_name = "handfast abuse-child")]
pub(crate) struct Spec {
    /// The child's role.
    pub(crate) role: String,
    /// The seed of its random numbers.
    pub(crate) seed: u64,
    /// Further arguments of the role.
    pub(crate) words: Vec<String>,
}

impl Spec {
    pub(crate) fn new(role: &str, seed: u64, words: &[&str]) -> Self {
        Self {
            role: role.to_owned(),
            seed,
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }
    }

    pub(crate) fn word(&self, at: usize) -> Result<&str, String> {
        let word = self.words.get(at).map(String::as_str);
        word.ok_or_else(|| format!("role {:?} wants more words", self.role))
    }

    pub(crate) fn number(&self, at: usize) -> Result<u64, Box<dyn std::error::Error>> {
        Ok(self.word(at)?.parse()?)
    }
}

impl Child {
    /// Starts this program again, with its names in `directory`, with limits, and a clock that is so many seconds ahead.
    /// The kernel kills it when this thread ends.
    pub(crate) fn start(
        spec: &Spec,
        directory: &Path,
        limits: &[(Resource, u64)],
        clock_s: Option<u64>,
    ) -> io::Result<Self> {
        Self::launch(Self::own(spec), directory, limits, clock_s)
    }

    /// The command that is this program again.
    pub(crate) fn own(spec: &Spec) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("handfast")
            .args([ROLE, &spec.role, &spec.seed.to_string()])
            .args(&spec.words);
        command
    }

    /// Starts any program, as [`Self::start`] does.
    pub(crate) fn launch(
        mut command: Command,
        directory: &Path,
        limits: &[(Resource, u64)],
        clock_s: Option<u64>,
    ) -> io::Result<Self> {
        command
            .env("HANDFAST_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if !limits.is_empty() {
            // Rust's library reports many of the failures here.
            command.stderr(Stdio::null());
        }
        let limits = limits.to_vec();
        let offsets = clock_s.map(|ahead| format!("monotonic {ahead} 0\nboottime {ahead} 0\n"));
        let prepare = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if let Some(offsets) = &offsets {
                own_clock(offsets.as_bytes())?;
            }
            for (resource, limit) in &limits {
                let limit = Rlimit {
                    current: Some(*limit),
                    maximum: Some(*limit),
                };
                rustix::process::setrlimit(*resource, limit)?;
            }
            Ok(())
        };
        // SAFETY: `prepare` makes system calls and nothing else: no allocation (an OS error holds none), no locks.
        unsafe { command.pre_exec(prepare) };
        let _goes_on = temporary::goes_on();
        let mut process = command.spawn()?;
        let pid = Pid::from_child(&process);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let (Ok(pidfd), Some(output)) = (pidfd, process.stdout.take()) else {
            let _ = process.kill();
            let _ = process.wait();
            return Err(io::Error::other("no process descriptor"));
        };
        Ok(Self {
            input: process.stdin.take(),
            pidfd,
            process,
            output,
            begun: Vec::new(),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Another descriptor of the process.
    pub(crate) fn pidfd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Lowers its limit of a resource, while it runs.
    pub(crate) fn limit(&self, resource: Resource, limit: Rlimit) {
        if !self.has_ended() {
            let pid = Pid::from_child(&self.process);
            let _ = rustix::process::prlimit(Some(pid), resource, limit);
        }
    }

    /// The next line that it says, within `patience`; nothing where it says none or has ended.
    pub(crate) fn line(&mut self, patience: Duration) -> Option<String> {
        let end = Instant::now() + patience;
        loop {
            if let Some(at) = self.begun.iter().position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(at + 1);
                let line = std::mem::replace(&mut self.begun, rest);
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok()?;
            let mut fds = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) => {}
            }
            let mut piece = [0; 4096];
            match self.output.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.begun.extend_from_slice(&piece[..len]),
            }
        }
    }

    /// Tells it a line. One that has ended hears nothing.
    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// Closes its input, by which it is told to end.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Sends a signal. `false`: it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).is_ok() && !self.has_ended()
    }

    /// Whether it has ended, by itself or not. It is not waited for.
    pub(crate) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        matches!(ended, Ok(Some(_)))
    }

    /// How it ended, within `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let left = Timespec::try_from(patience).ok()?;
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(1..) => self.process.wait().ok(),
            _ => None,
        }
    }

    /// `kill -9`. Returns how it ended, if it had before.
    pub(crate) fn kill(mut self) -> Option<ExitStatus> {
        let before = self.has_ended();
        let _ = self.process.kill();
        self.process.wait().ok().filter(|_| before)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Has the program that this process becomes see other times. Called between `fork` and `exec`: system calls alone.
fn own_clock(offsets: &[u8]) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    // SAFETY: takes no pointers. This process has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let file = open(c"/proc/self/timens_offsets", OFlags::WRONLY, Mode::empty())?;
    rustix::io::write(&file, offsets)?;
    Ok(())
}

/// In a child: has signals of storms interrupt whatever it waits in.
pub(crate) fn interrupted_by_signals() {
    extern "C" fn nothing(_: libc::c_int) {}
    for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGURG, libc::SIGCHLD] {
        // SAFETY: all-zero bytes are a valid action: the default one, no flags, nothing masked.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        // SAFETY: `action` is valid for a read, and its function does nothing.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// Whether a process that was not killed ended as none may, whatever was done to it: by a panic or a fault.
pub(crate) fn is_crash(status: ExitStatus) -> bool {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    status.code() == Some(PANICKED) || status.signal().is_some_and(|it| faults.contains(&it))
}

/// The status of a child of which a thread has panicked.
pub(crate) const PANICKED: i32 = 101;

/// In a child: says a line.
pub(crate) fn say(line: &str) {
    let mut output = io::stdout().lock();
    // A parent that does not listen has gone, and so will this process.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// In a child: gives memory back that the allocator keeps for later, and says what is in use then, and what the allocator has.
pub(crate) fn trim() {
    // SAFETY: takes no pointers.
    unsafe { libc::malloc_trim(0) };
    // SAFETY: takes nothing, and returns numbers.
    let heap = unsafe { libc::mallinfo2() };
    let in_use_kib = (heap.uordblks + heap.hblkhd) >> 10;
    let had_kib = (heap.arena + heap.hblkhd) >> 10;
    say(&format!("trimmed {in_use_kib} {had_kib}"));
}

/// In a child: the next line it is told; `None` when it is to end.
pub(crate) fn told() -> Option<String> {
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end().to_owned()),
    }
}
