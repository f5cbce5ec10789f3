//! Temporary objects of a command for as long as it runs, and how it ends: by itself, or by `SIGINT`, `SIGTERM` or `SIGHUP`.
//! Either way none of them stays.

use crate::Outcome;
use handfast_sys::{AsFd, clock, signal};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::BTreeMap;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// Something that is removed when this is dropped, or a signal ends the command.
#[must_use]
pub struct Temporary(u64);

type Remove = Box<dyn FnOnce() + Send>;

/// The removals to run, by number.
static MADE: Mutex<(u64, BTreeMap<u64, Remove>)> = Mutex::new((0, BTreeMap::new()));

impl Temporary {
    /// The object that `remove` will remove. Its maker has [`goes_on`] from before it is there.
    pub fn new(remove: impl FnOnce() + Send + 'static) -> Self {
        let mut made = made();
        made.0 += 1;
        let number = made.0;
        made.1.insert(number, Box::new(remove));
        Self(number)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut made = made();
        if let Some(remove) = made.1.remove(&self.0) {
            // Under the lock: a signal ends nothing in the middle of it.
            remove();
        }
    }
}

fn made() -> MutexGuard<'static, (u64, BTreeMap<u64, Remove>)> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory for files of this process, which others may not enter.
pub struct Directory {
    path: PathBuf,
    _temporary: Temporary,
}

impl Directory {
    /// Makes one, called `prefix` and this process's number, where temporary files are; removes directories of processes that
    /// were killed.
    pub fn new(prefix: &str) -> Result<Self, String> {
        let parent = std::env::temp_dir();
        let path = parent.join(format!("{prefix}{}", process::id()));
        let why = |error: std::io::Error| {
            format!(
                "no directory can be made in {} ({error}); set TMPDIR to a directory of yours",
                parent.display()
            )
        };
        if path.as_os_str().len() > PATH_MAX {
            return Err(format!(
                "{} has {} characters and the limit for directories of sockets is {PATH_MAX}; set TMPDIR to a shorter one",
                path.display(),
                path.as_os_str().len()
            ));
        }
        let _goes_on = goes_on();
        for left in left_by_dead(&parent, prefix).map_err(why)? {
            // Another user's stays.
            let _ = fs::remove_dir_all(parent.join(left));
        }
        let make = fs::DirBuilder::new().mode(0o700).create(&path);
        make.map_err(why)?;
        let own = path.clone();
        let temporary = Temporary::new(move || drop(fs::remove_dir_all(own)));
        Ok(Self {
            path,
            _temporary: temporary,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A socket's path has 107 characters, and what comes below a directory here up to 32 of them.
const PATH_MAX: usize = 75;

/// Files in `directory` that are called `prefix` and the number of a process that is no more, or of this one.
pub fn left_by_dead(directory: &Path, prefix: &str) -> std::io::Result<Vec<String>> {
    let is_dead = |pid: u32| pid == process::id() || !Path::new(&format!("/proc/{pid}")).exists();
    let entries = fs::read_dir(directory)?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let of_dead = |name: &String| {
        let pid = name.strip_prefix(prefix).map(str::parse);
        matches!(pid, Some(Ok(pid)) if is_dead(pid))
    };
    Ok(names.filter(of_dead).collect())
}

/// The thread that ends the command has this for writing, for good: a thread that starts a process, makes something or says
/// something has it for reading meanwhile, and waits for the end then.
static GOES_ON: RwLock<()> = RwLock::new(());

/// While this is held, no signal ends the command; once one has, nobody gets it any more.
pub fn goes_on() -> RwLockReadGuard<'static, ()> {
    GOES_ON.read().unwrap_or_else(PoisonError::into_inner)
}

/// Where the handler writes its signals.
static TELLS: AtomicI32 = AtomicI32::new(-1);

/// From now on, signals that end the command remove what is [`Temporary`] first. Ignored signals (`nohup`) stay so.
pub fn watch() -> Outcome {
    let (hears, tells) = pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| format!("no pipe to hear signals by ({error}); raise RLIMIT_NOFILE"))?;
    // Relaxed: the handler is installed after it, by a system call, and needs nothing else.
    TELLS.store(tells.into_raw_fd(), Relaxed);
    thread::Builder::new()
        .name("handfast-ends".to_owned())
        .spawn(move || {
            signal::block_all();
            let mut heard = [0];
            while rustix::io::read(hears.as_fd(), &mut heard) != Ok(1) {}
            end_by(heard[0].into())
        })?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal);
    }
    Ok(())
}

/// In a process that another one of this command has started: what a terminal sends to all of them is that one's, which
/// ends the others. It would take their ends for failures.
pub fn leave_to_parent() {
    for signal in [libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler is set.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn handle(signal: i32) {
    // SAFETY: all-zero bytes are a valid action: the default one, no flags, nothing masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is valid for a write.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    if known != 0 || action.sa_sigaction != libc::SIG_DFL {
        return;
    }
    action.sa_sigaction = heard as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `action` is valid for a read, and `heard` makes one system call.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn heard(signal: libc::c_int) {
    // SAFETY: `__errno_location` always returns this thread's valid errno slot.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; the interrupted code must find its errno unchanged.
    let saved = unsafe { *errno };
    let byte = signal as u8;
    // Relaxed: see `watch`.
    let tells = TELLS.load(Relaxed);
    // SAFETY: `byte` is valid for a read of one byte.
    let _ = unsafe { libc::write(tells, (&raw const byte).cast(), 1) };
    // SAFETY: as the load above.
    unsafe { *errno = saved };
}

/// Ends the command as `signal` would have, with nothing left of it.
fn end_by(signal: i32) -> ! {
    let _for_good = GOES_ON.write().unwrap_or_else(PoisonError::into_inner);
    end_children();
    let mut made = made();
    for remove in std::mem::take(&mut made.1).into_values() {
        remove();
    }
    let _ = signal::set_default(signal);
    signal::unblock(signal);
    // SAFETY: takes a number.
    unsafe { libc::raise(signal) };
    // Not reached: the signal ends processes.
    process::abort()
}

/// How long killed processes are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Kills this process's children, and children that come to it by their deaths. Their starters may wait for them meanwhile.
fn end_children() {
    let end = Instant::now() + PATIENCE;
    loop {
        let living: Vec<_> = children().into_iter().filter(|pid| lives(*pid)).collect();
        if living.is_empty() || Instant::now() >= end {
            return;
        }
        for pid in living {
            let _ = kill_process(pid, Signal::KILL);
        }
        clock::nap();
    }
}

/// Children of this process that have not been waited for.
pub fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let files = tasks.filter_map(|task| {
        let path = task.ok()?.path().join("children");
        fs::read_to_string(path).ok()
    });
    let texts: Vec<_> = files.collect();
    let numbers = texts.iter().flat_map(|text| text.split_whitespace());
    let pids = numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?));
    pids.collect()
}

/// Whether a child has not ended with all of its threads: before that its files are open, also where its first thread is a
/// zombie. It can be waited for afterwards as before.
fn lives(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}
