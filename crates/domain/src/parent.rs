//! A domain that is a child process, as its parent sees it: starts the child, calls it, and replaces it. The child's side is
//! `process`.

pub(crate) mod message;
pub(crate) mod plan;
mod program;

use crate::Words;
use crate::error::{LoadError, NotStarted, Status};
use crate::image::Functions;
use crate::options::{DomainOptions, Policy};
use crate::rank;
use crate::run::TRIM;
use crate::stack::{BYTES_MAX, Buffers, Sender, buffers_of, entry_of};
use crate::way::{self, Connect, Crossing, Lost, Way};
use core::time::Duration;
use handfast_sys::sync::{ReadGuard, RwLock, WriteGuard};
use handfast_sys::{Errno, OwnedFd, child, deadline, process as sys, socket};
use plan::Plan;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// A domain that runs as a child process.
pub(crate) struct Process {
    plan: Plan,
    dies: bool,
    state: RwLock<State, rank::DomainProcess>,
}

enum State {
    Live(Arc<Running>),
    /// The next child is being started.
    Resetting,
    /// It could not be: the next call tries again.
    NotStarted(NotStarted),
    Dead,
}

/// One child.
struct Running {
    pidfd: OwnedFd,
    control: OwnedFd,
    way: OnceLock<Box<dyn Way>>,
    end: OnceLock<Status>,
    /// The process that has started it; a forked one leaves it alone.
    epoch: u32,
}

impl Process {
    pub(crate) fn new(functions: &Functions, options: &DomainOptions) -> Result<Self, LoadError> {
        sys::watch_forks();
        let entries = functions.entries.len();
        if entries >= usize::from(TRIM) {
            return Err(LoadError::TooManyEntries { entries });
        }
        let plan = Plan::new(functions, options)?;
        let running = Running::start(&plan)?;
        Ok(Self {
            plan,
            dies: options.get_policy() == Policy::Dead,
            state: RwLock::new(State::Live(Arc::new(running))),
        })
    }

    /// Crosses into the domain and back, as a gate.
    ///
    /// # Safety
    /// The buffers in `control` are the caller's, or none.
    pub(crate) unsafe fn cross(&self, control: u64, words: &mut Words) -> Status {
        let buffers_at = buffers_of(control);
        let mut crossing = Crossing {
            entry: entry_of(control),
            sender: Sender::NOBODY,
            words,
            bytes: None,
            deadline_ns: Some(deadline::until_ns())
                .filter(|until_ns| *until_ns != deadline::NEVER_NS),
        };
        if buffers_at != 0 {
            let buffers: *const Buffers = core::ptr::with_exposed_provenance(buffers_at);
            // SAFETY: the caller's, for this call.
            let buffers = unsafe { buffers.read() };
            let request: *const u8 = core::ptr::with_exposed_provenance(buffers.request);
            // SAFETY: as above; made of a slice.
            let request = unsafe { core::slice::from_raw_parts(request, buffers.request_len) };
            let reply: *mut u8 = core::ptr::with_exposed_provenance_mut(buffers.reply);
            let room = buffers.reply_room.min(BYTES_MAX);
            // SAFETY: as above; made of a slice that is borrowed for this call alone.
            let reply = unsafe { core::slice::from_raw_parts_mut(reply, room) };
            crossing.sender = buffers.sender();
            crossing.bytes = Some((request, reply));
        }
        self.call(&mut crossing)
    }

    fn call(&self, crossing: &mut Crossing<'_>) -> Status {
        let running = match self.running() {
            Ok(running) => running,
            Err(code) => return Status::new(code, 0),
        };
        let Some(way) = running.way.get() else {
            return self.has_ended(&running, None);
        };
        match way.call(crossing) {
            Ok((status, len_bytes)) => match Status(status) {
                status if status.code() == Status::DONE => {
                    Status::new(Status::DONE, len_bytes as u64)
                }
                status => status,
            },
            Err(Lost::Full) => Status::new(Status::STACKS, 0),
            Err(Lost::Refused) => Status::new(Status::BUFFER, 0),
            Err(Lost::Child) => self.has_ended(&running, None),
            Err(Lost::Late) => {
                child::kill(&running.pidfd);
                self.has_ended(&running, Some(Status::new(Status::DEADLINE, 0)))
            }
        }
    }

    /// The child there is, or the code of the status why there is none. Tries once to start one where that has failed before.
    fn running(&self) -> Result<Arc<Running>, u8> {
        let live = |state: &State| match state {
            State::Live(running) => Ok(running.clone()),
            State::Resetting => Err(Status::RESETTING),
            State::NotStarted(_) => Err(Status::NOT_STARTED),
            State::Dead => Err(Status::DEAD),
        };
        let found = live(&self.read());
        if !matches!(found, Err(Status::NOT_STARTED)) {
            return found;
        }
        let mut state = self.write();
        // Another call may have been faster.
        let State::NotStarted(_) = &*state else {
            return live(&state);
        };
        *state = State::Resetting;
        drop(state);
        self.start_next()
    }

    /// Starts the next child. Only the thread that moved the state to `Resetting` may.
    fn start_next(&self) -> Result<Arc<Running>, u8> {
        let (next, result) = match Running::start(&self.plan) {
            Ok(next) => {
                let next = Arc::new(next);
                (State::Live(next.clone()), Ok(next))
            }
            // The value is made of the same things each time; with keys that is the end, too.
            Err(LoadError::Init(_)) => (State::Dead, Err(Status::DEAD)),
            Err(error) => (State::NotStarted(error.into()), Err(Status::NOT_STARTED)),
        };
        *self.write() = next;
        result
    }

    pub(crate) fn why_not_started(&self) -> Option<NotStarted> {
        match &*self.read() {
            State::NotStarted(why) => Some(*why),
            _ => None,
        }
    }

    /// The child of a call is gone, or is given up: says how the domain went wrong, and starts the next one if there
    /// is to be one and nobody else does.
    #[cold]
    fn has_ended(&self, running: &Arc<Running>, own: Option<Status>) -> Status {
        let ended = running.end();
        let status = own.unwrap_or(ended);
        let mut state = self.write();
        match &*state {
            State::Live(live) if Arc::ptr_eq(live, running) => {}
            // Another call has found it.
            _ => return status,
        }
        if self.dies {
            *state = State::Dead;
            return status;
        }
        *state = State::Resetting;
        drop(state);
        // Where that fails, the next call hears of it.
        let _ = self.start_next();
        status
    }

    fn read(&self) -> ReadGuard<'_, State, rank::DomainProcess> {
        self.state.read()
    }

    fn write(&self) -> WriteGuard<'_, State, rank::DomainProcess> {
        self.state.write()
    }
}

impl Running {
    /// Starts a child and waits until it serves.
    fn start(plan: &Plan) -> Result<Self, LoadError> {
        let connect = way::connect().ok_or(LoadError::NoPorts)?;
        let os = |call| {
            move |errno: Errno| LoadError::Os {
                call,
                errno: errno.into(),
            }
        };
        let marker = marker().ok_or(LoadError::Library)?;
        let (control, theirs) = socket::pair().map_err(os("socketpair"))?;
        let mut command = Command::new("/proc/self/exe");
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        // A group of its own: what a terminal sends to this program is not for it.
        let spawned = command
            .arg("handfast-domain")
            .env(MARKER, marker)
            .stdin(Stdio::from(theirs))
            .process_group(0)
            .spawn();
        drop(command);
        let spawned = spawned.map_err(|error| LoadError::Os {
            call: "the start of a child process (/proc/self/exe)",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO).into(),
        })?;
        let pid = spawned.id();
        let mut running = Self {
            pidfd: sys::pidfd(pid).map_err(os("pidfd_open"))?,
            control,
            way: OnceLock::new(),
            end: OnceLock::new(),
            epoch: sys::fork_epoch(),
        };
        match running.prepare(connect, plan, pid) {
            Ok(()) => Ok(running),
            Err(error) => {
                let status = running.end();
                let went_wrong = status.code() >= Status::PANIC && status.code() != Status::ENDED;
                match error {
                    // It ended while it made the value.
                    LoadError::Child { .. } if went_wrong => Err(LoadError::Init(status.fault())),
                    error => Err(error),
                }
            }
        }
    }

    fn prepare(&mut self, connect: Connect, plan: &Plan, pid: u32) -> Result<(), LoadError> {
        let failed = |what| LoadError::Child { what };
        let os = |call| {
            move |errno: Errno| LoadError::Os {
                call,
                errno: errno.into(),
            }
        };
        socket::set_timeout(&self.control, START_LIMIT).map_err(os("setsockopt"))?;
        let is_other = "it does not run this program (/proc/self/exe)";
        match self.hear(false) {
            Some((message::HERE, _, _)) => {}
            _ => return Err(failed(is_other)),
        }
        for piece in plan.bytes().chunks(message::PLAN_BYTES) {
            if socket::send(&self.control, piece, &[]).is_err() {
                return Err(failed(is_other));
            }
        }
        // Making the value takes as long as it takes.
        match self.hear(true) {
            Some((message::READY, _, Some(door))) => {
                let way = connect(&door, pid).map_err(failed)?;
                let _ = self.way.set(way);
                Ok(())
            }
            Some((message::FAILED, 0, _)) => Err(failed("it could not load the domain")),
            Some((message::FAILED | message::FAULT, status, _)) => {
                Err(LoadError::Init(Status(status).fault()))
            }
            _ => Err(failed("it ended before the domain was loaded")),
        }
    }

    /// The next message of the child's; if `patient`, however long it takes.
    fn hear(&self, patient: bool) -> Option<(u8, u64, Option<OwnedFd>)> {
        let mut bytes = [0; message::BYTES];
        loop {
            match socket::receive(&self.control, &mut bytes, 1) {
                Ok((len_bytes, fds)) => {
                    let (kind, number) = message::parse(bytes.get(..len_bytes)?)?;
                    return Some((kind, number, fds.into_iter().next()));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if patient => {}
                Err(_) => return None,
            }
        }
    }

    /// Sees to it that the child has ended, and says how.
    fn end(&self) -> Status {
        *self.end.get_or_init(|| {
            if !child::ends_within(&self.pidfd, END_LIMIT_MS) {
                child::kill(&self.pidfd);
            }
            let signal = child::wait(&self.pidfd);
            let _ = socket::set_nonblocking(&self.control, true);
            while let Some((kind, number, _)) = self.hear(false) {
                if kind == message::FAULT {
                    return Status(number);
                }
            }
            let code = match signal {
                Some(libc::SIGSEGV) => Status::ACCESS,
                Some(libc::SIGBUS) => Status::BUS,
                Some(libc::SIGFPE) => Status::ARITHMETIC,
                Some(libc::SIGILL) => Status::ILLEGAL,
                _ => Status::ENDED,
            };
            Status::new(code, 0)
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.epoch != sys::fork_epoch() {
            return;
        }
        child::kill(&self.pidfd);
        let _ = self.end();
    }
}

impl core::fmt::Debug for Process {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Process")
    }
}

/// The marker's value in children of this very library: there may be several releases of it in a program.
pub(crate) fn marker() -> Option<String> {
    let own = [Process::new as *const () as usize];
    let place = program::places_of(own.into_iter())?.pop()?;
    Some(format!("{place:x}"))
}

/// Says that this process was started to run a domain.
pub(crate) const MARKER: &str = "HANDFAST_DOMAIN";

/// How long a child may take to say that it is one.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long one that does not answer may take to end by itself.
const END_LIMIT_MS: u32 = 100;
