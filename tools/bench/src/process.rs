//! Child processes of a benchmark: started with chosen descriptors, ended without fail, and
//! watched from outside.

use crate::CHILD;
use crate::plan::ChildSpec;
use handfast_cli::temporary;
use handfast_sys::{AsFd, AsRawFd, BorrowedFd, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A running child; killed and waited for on drop.
pub(crate) struct Child(std::process::Child);

impl Child {
    /// Starts this program again, or another, as `spec` says. The child inherits `fds` under the same numbers
    /// and nothing else, and is killed by the kernel when this thread ends.
    pub(crate) fn spawn(
        program: Option<&Path>,
        spec: &mut ChildSpec,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<Self> {
        let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        spec.fds.clone_from(&numbers);
        // The running image, even when a build has replaced the file since.
        let mut command = Command::new(program.unwrap_or(Path::new("/proc/self/exe")));
        if program.is_none() {
            command.arg0("handfast");
        }
        command
            .arg(CHILD)
            .arg(serde_json::to_string(spec)?)
            .env("XDG_RUNTIME_DIR", &spec.dir)
            .env("TMPDIR", &spec.dir)
            // It would come first, and the socket files of killed servers stay there.
            .env_remove("HANDFAST_DIR")
            .env_remove("HANDFAST_INTRODUCTIONS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if !spec.plan.meets_strangers() {
            command.env("HANDFAST_INTRODUCTIONS", "vine");
        }
        let prepare = move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            for fd in &numbers {
                // SAFETY: the command takes integers and touches no memory.
                if unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) } != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: `prepare` makes two kinds of system call and nothing else: no allocation (an OS
        // error holds none), no locks.
        unsafe { command.pre_exec(prepare) };
        let _goes_on = temporary::goes_on();
        command.spawn().map(Self)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// All it writes to standard output until it closes it, at the longest until `deadline_ns`.
    pub(crate) fn output(&mut self, deadline_ns: u64) -> io::Result<Vec<u8>> {
        let mut pipe = self.0.stdout.take().ok_or(io::ErrorKind::InvalidInput)?;
        let mut bytes = Vec::new();
        let mut piece = [0; 16_384];
        loop {
            let left = Duration::from_nanos(deadline_ns.saturating_sub(clock::now_ns()));
            let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
            if poll(&mut fds, Some(&timeout))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match pipe.read(&mut piece)? {
                0 => return Ok(bytes),
                len => bytes.extend_from_slice(&piece[..len]),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes over descriptor number `fd`, inherited from the parent.
pub(crate) fn adopt(fd: i32) -> io::Result<handfast_sys::OwnedFd> {
    // SAFETY: the command takes integers and touches no memory.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the parent passed this open descriptor to us alone, and `fd` numbers come from our
    // spec, each adopted once.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

/// A second descriptor of the same file, close-on-exec.
pub(crate) fn dup(fd: impl AsFd) -> io::Result<handfast_sys::OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}
