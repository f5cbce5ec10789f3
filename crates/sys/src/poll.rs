//! Waiting on descriptors: epoll and event descriptors.

use core::mem::MaybeUninit;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

/// A set of descriptors waited on together.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    /// Something is told of once only.
    #[cfg(feature = "simulation")]
    has_edges: core::sync::atomic::AtomicBool,
}

/// The new state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token given to [`Poll::add`].
    pub token: u64,
    /// Something can be read, or a connection can be accepted.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
    /// The other end is gone.
    pub hung_up: bool,
}

/// The event to wait for besides the end of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or a connection to accept.
    Read,
    /// Room to write.
    Write,
    /// Either.
    ReadWrite,
}

/// How readiness is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// As long as the descriptor is ready.
    Level,
    /// Once per change.
    Edge,
}

impl Poll {
    /// An empty set. `epoll_create1`.
    ///
    /// # Errors
    /// `EMFILE`/`ENFILE` without descriptors.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            #[cfg(feature = "simulation")]
            has_edges: core::sync::atomic::AtomicBool::new(false),
        })
    }

    /// Watches `fd` for input and hang-up. `epoll_ctl`.
    ///
    /// # Errors
    /// `EPERM` for a descriptor that cannot be waited on (a plain file), `EEXIST` twice.
    pub fn add(&self, fd: impl AsFd, token: u64, trigger: Trigger) -> Result<(), Errno> {
        self.add_for(fd, token, trigger, Interest::Read)
    }

    /// Watches `fd` for what `interest` says, and hang-up. `epoll_ctl`.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_for(
        &self,
        fd: impl AsFd,
        token: u64,
        trigger: Trigger,
        interest: Interest,
    ) -> Result<(), Errno> {
        let mut flags = epoll::EventFlags::RDHUP.union(match interest {
            Interest::Read => epoll::EventFlags::IN,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::ReadWrite => epoll::EventFlags::IN.union(epoll::EventFlags::OUT),
        });
        if trigger == Trigger::Edge {
            flags = flags.union(epoll::EventFlags::ET);
            #[cfg(feature = "simulation")]
            // Relaxed: one thread runs at a time.
            self.has_edges
                .store(true, core::sync::atomic::Ordering::Relaxed);
        }
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), flags)
    }

    /// Stops watching `fd`. `epoll_ctl`.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sleeps until something is ready or the deadline passes, and appends what is ready.
    /// One system call, blocks. Returns early after a signal handler.
    pub fn wait(&self, deadline_ns: Option<u64>, events: &mut Vec<Event>) {
        #[cfg(feature = "simulation")]
        if crate::simulation::is_active() {
            return self.wait_in_simulation(deadline_ns, events);
        }
        self.wait_here(deadline_ns, events);
    }

    /// Some of what is ready, in any order: the rest is told of later.
    #[cfg(feature = "simulation")]
    fn wait_in_simulation(&self, deadline_ns: Option<u64>, events: &mut Vec<Event>) {
        use crate::simulation::{can_read, random, until};
        use rustix::fd::AsRawFd;
        let fd = self.epoll.as_raw_fd();
        let is_late = until(deadline_ns, move || can_read(fd));
        let had = events.len();
        self.wait_here(Some(0), events);
        // Relaxed: one thread runs at a time.
        let keeps = self.has_edges.load(core::sync::atomic::Ordering::Relaxed);
        if keeps || is_late == Some(true) {
            return;
        }
        for at in (had + 1..events.len()).rev() {
            events.swap(at, had + random((at + 1 - had) as u64) as usize);
        }
        let count = (events.len() - had) as u64;
        events.truncate(had + count.min(1 + random(count.max(1) * 2)) as usize);
    }

    fn wait_here(&self, deadline_ns: Option<u64>, events: &mut Vec<Event>) {
        let timeout = deadline_ns.map(|deadline_ns| {
            let left = deadline_ns.saturating_sub(crate::clock::now_ns());
            rustix::event::Timespec {
                tv_sec: (left / 1_000_000_000).cast_signed(),
                tv_nsec: (left % 1_000_000_000).cast_signed(),
            }
        });
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; 256];
        let ready = match epoll::wait(&self.epoll, &mut buffer, timeout.as_ref()) {
            Ok((ready, _)) => ready,
            Err(_) => &mut [],
        };
        events.extend(ready.iter().map(|event| {
            let flags = event.flags;
            Event {
                token: event.data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                writable: flags.contains(epoll::EventFlags::OUT),
                hung_up: flags.intersects(
                    epoll::EventFlags::HUP
                        .union(epoll::EventFlags::RDHUP)
                        .union(epoll::EventFlags::ERR),
                ),
            }
        }));
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// A descriptor that becomes readable at a time.
#[derive(Debug)]
pub struct Timer {
    fd: OwnedFd,
}

impl Timer {
    /// A timer that is not set. `timerfd_create`.
    ///
    /// # Errors
    /// `EMFILE`/`ENFILE` without descriptors.
    pub fn new() -> Result<Self, Errno> {
        #[cfg(feature = "simulation")]
        if let Some(fd) = crate::simulation::timer() {
            return Ok(Self { fd: fd? });
        }
        let flags = TimerfdFlags::CLOEXEC.union(TimerfdFlags::NONBLOCK);
        Ok(Self {
            fd: rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?,
        })
    }

    /// Sets it to `from_now_ns`, instead of its earlier setting. One system call, never blocks.
    pub fn set(&self, from_now_ns: u64) {
        #[cfg(feature = "simulation")]
        if crate::simulation::set_alarm(self.raw(), Some(from_now_ns)) {
            return;
        }
        let zero = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = rustix::time::Itimerspec {
            it_interval: zero,
            it_value: rustix::time::Timespec {
                tv_sec: (from_now_ns / 1_000_000_000).cast_signed(),
                // Zero would switch it off.
                tv_nsec: (from_now_ns % 1_000_000_000).max(1).cast_signed(),
            },
        };
        let _ = rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value);
    }

    /// Makes it unreadable until it is set again. One system call, never blocks.
    pub fn clear(&self) {
        #[cfg(feature = "simulation")]
        crate::simulation::set_alarm(self.raw(), None);
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

#[cfg(feature = "simulation")]
impl Timer {
    fn raw(&self) -> rustix::fd::RawFd {
        rustix::fd::AsRawFd::as_raw_fd(&self.fd)
    }
}

#[cfg(feature = "simulation")]
impl Drop for Timer {
    fn drop(&mut self) {
        crate::simulation::set_alarm(self.raw(), None);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The state in which [`wait_any`] found a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// There is something to read, or an end.
    pub is_readable: bool,
    /// Nobody is at the other side any more, or it has failed.
    pub has_hung_up: bool,
}

/// Waits until one of a few descriptors is readable, where that is asked for, or hung up. One system call; a signal ends the wait
/// with nothing found.
pub fn wait_any<const N: usize>(
    descriptors: [(rustix::fd::BorrowedFd<'_>, bool); N],
    deadline_ns: Option<u64>,
) -> [Ready; N] {
    use rustix::event::{PollFd, PollFlags};
    let mut asked = descriptors.map(|(descriptor, reads)| {
        let what = if reads {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        PollFd::from_borrowed_fd(descriptor, what)
    });
    let timeout = deadline_ns.map(|deadline_ns| {
        let left_ns = deadline_ns.saturating_sub(crate::clock::now_ns());
        rustix::time::Timespec {
            tv_sec: (left_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (left_ns % 1_000_000_000).cast_signed(),
        }
    });
    if rustix::event::poll(&mut asked, timeout.as_ref()).is_err() {
        return [Ready::default(); N];
    }
    asked.map(|asked| {
        let found = asked.revents();
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        Ready {
            is_readable: found.contains(PollFlags::IN),
            has_hung_up: found.intersects(gone),
        }
    })
}

/// A descriptor another thread of this process can make readable.
#[derive(Debug)]
pub struct Flag {
    fd: OwnedFd,
}

impl Flag {
    /// A flag that is down. `eventfd`.
    ///
    /// # Errors
    /// `EMFILE`/`ENFILE` without descriptors.
    pub fn new() -> Result<Self, Errno> {
        let flags =
            rustix::event::EventfdFlags::CLOEXEC.union(rustix::event::EventfdFlags::NONBLOCK);
        Ok(Self {
            fd: rustix::event::eventfd(0, flags)?,
        })
    }

    /// Raises the flag. One system call, never blocks.
    pub fn raise(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Lowers the flag. One system call, never blocks.
    pub fn lower(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl std::task::Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        self.raise();
    }
}

impl AsFd for Flag {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
