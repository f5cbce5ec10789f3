//! The state of one process: its identity, its trust groups, its links, its ports, its control thread.

use crate::configuration::Configuration;
use crate::error::{Misuse, PeerFault, Resource};
use crate::options::Options;
use crate::options::WaitBy;
use crate::quotas::QuotasOf;
use crate::rank;
use crate::revocations::Revocations;
use crate::rows::Rows;
use crate::tables::Tables;
use crate::upkeep::Upkeep;
use crate::users::{Foreign, Users};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use handfast_layout::counters;
use handfast_proto::introductions::Provisions;
use handfast_proto::rights::Target;
use handfast_proto::timers::Timer;
use handfast_region::Tally;
use handfast_sys::poll::{Flag, Poll, Trigger};
use handfast_sys::socket::Peer;
use handfast_sys::sync::Mutex;
use handfast_sys::thread::Thread;
use handfast_sys::{OwnedFd, process};
use std::sync::{Arc, Weak};

/// The state shared by all handles of this process.
pub(crate) struct Process {
    pub(crate) configuration: Configuration,
    pub(crate) epoch: u32,
    pub(crate) incarnation: [u8; 16],
    /// This process passes the fences that others ask for (E11, E12).
    pub(crate) agreed: bool,
    /// The kernel lets it ask others (E12).
    pub(crate) may_ask: bool,
    /// Changes when a link ends.
    pub(crate) deaths: AtomicU32,
    /// Changes whenever messages may name what they could not before.
    pub(crate) settled: AtomicU32,
    /// Counts the times that lanes are left and their receivers look at them.
    pub(crate) leavings: AtomicU32,
    /// Until when the control thread looks for messages for ports that have ended, by `clock::ticks_ns`.
    pub(crate) unbound_until_ns: AtomicU64,
    /// The state that protocols keep of it.
    pub(crate) tables: Tables,
    pub(crate) poll: Poll,
    /// Raised to make the control thread look at its lists.
    pub(crate) attention: Flag,
    pub(crate) listeners: Mutex<Vec<(u32, Arc<Foreign>)>, rank::Listeners>,
    /// Work that threads have put off, for the control thread.
    pub(crate) upkeep: Upkeep,
    pub(crate) introductions: Introductions,
    /// Revocations of rights to ports of this process.
    pub(crate) revocations: Revocations,
    pub(crate) quotas: QuotasOf,
    /// The resources held by the users of peers.
    pub(crate) users: Arc<Users>,
    /// Links that were cut, and why: the control thread tells the application.
    pub(crate) cuts: Mutex<Vec<(Peer, PeerFault)>, rank::Cuts>,
    /// Receivers that the control thread wakes, a bit each: something has come for them under a lock that wakers must not see.
    pub(crate) to_rouse: AtomicU64,
    /// Raised by the control thread when a peer rings through a socket.
    pub(crate) sets: Mutex<Vec<Weak<Flag>>, rank::Sets>,
    /// It was shut down.
    is_over: AtomicBool,
    control_thread: Mutex<Option<Thread>, rank::ControlThread>,
    pub(crate) counting: Counting,
    pub(crate) defaults: Defaults,
}

/// The counters of a process, and their rows.
pub(crate) struct Counting {
    pub(crate) tally: Arc<Tally>,
    pub(crate) rows: Arc<Rows>,
    pub(crate) tally_fd: OwnedFd,
}

/// How callers of rights that came in messages wait, unless told.
pub(crate) struct Defaults {
    pub(crate) waiting: WaitBy,
    /// The value of [`Waiter::is_eager`](handfast_wait::Waiter::is_eager) for their waiters.
    pub(crate) eager: bool,
}

/// The introductions in which a process takes part.
pub(crate) struct Introductions {
    /// The number of the next introduction this process begins, and what others have provided of its rights
    /// (and whether its end is watched).
    pub(crate) provided: AtomicU64,
    /// Where the control thread goes on asking whether recipients live.
    pub(crate) asked_last: AtomicU32,
    pub(crate) provisions: Mutex<Provisions<(Target, bool)>, rank::Provisions>,
}

/// Tokens of the control thread's poll set: kind in the upper half, index or serial in the lower.
pub(crate) mod token {
    pub(crate) const ATTENTION: u64 = 0;
    pub(crate) const UPKEEP: u64 = 5 << 32;
    pub(crate) const LISTENER: u64 = 1 << 32;
    pub(crate) const LINK: u64 = 2 << 32;
    pub(crate) const PROCESS: u64 = 3 << 32;
    pub(crate) const PENDING: u64 = 4 << 32;
    pub(crate) const KIND: u64 = !0 << 32;
}

impl Process {
    /// The state of a new node, without its control thread.
    pub(crate) fn new(configuration: Configuration) -> Result<Self, Resource> {
        let os = |call| move |errno| Resource::of(call, errno);
        let (tally_fd, tally) =
            Tally::create(counters::REGION_BYTES).map_err(os("memfd_create"))?;
        let tally = Arc::new(tally);
        let waiting = configuration.resolve(Options::new());
        // Before there are threads, if possible. Otherwise the second thread of a receiver would wait for it, while messages wait for that thread.
        handfast_sys::futex::prepare_fence();
        let process = Self {
            configuration,
            is_over: AtomicBool::new(false),
            control_thread: Mutex::new(None),
            epoch: process::fork_epoch(),
            agreed: handfast_sys::futex::register_fence(),
            may_ask: handfast_sys::futex::fence_others(),
            incarnation: process::new_incarnation().map_err(os("getrandom"))?,
            deaths: AtomicU32::new(0),
            settled: AtomicU32::new(0),
            leavings: AtomicU32::new(0),
            unbound_until_ns: AtomicU64::new(0),
            tables: Tables::default(),
            poll: Poll::new().map_err(os("epoll_create1"))?,
            attention: Flag::new().map_err(os("eventfd"))?,
            listeners: Mutex::default(),
            counting: Counting {
                rows: Rows::new(tally.clone()),
                tally,
                tally_fd,
            },
            defaults: Defaults {
                eager: waiting.0.is_eager(),
                waiting,
            },
            upkeep: Upkeep::new().map_err(os("timerfd_create"))?,
            introductions: Introductions {
                provided: AtomicU64::new(1),
                asked_last: AtomicU32::new(0),
                provisions: Mutex::default(),
            },
            revocations: Revocations::default(),
            quotas: QuotasOf::default(),
            users: Users::new(),
            cuts: Mutex::default(),
            to_rouse: AtomicU64::new(0),
            sets: Mutex::default(),
        };
        process
            .poll
            .add(&process.attention, token::ATTENTION, Trigger::Level)
            .map_err(os("epoll_ctl"))?;
        process
            .poll
            .add(process.upkeep.alarm(), token::UPKEEP, Trigger::Level)
            .map_err(os("epoll_ctl"))?;
        Ok(process)
    }

    /// A thread is about to sleep until a peer answers: makes sure that the control thread looks after it
    /// within [`WATCH_NS`]. A system call at most that often.
    #[inline]
    pub(crate) fn watch_sleepers(&self) {
        self.watch_within(WATCH_NS);
    }

    /// As [`Self::watch_sleepers`], of a thread that has entered its call in its slot: within [`SLEEPS_NS`].
    #[inline]
    pub(crate) fn watch_caller(&self) {
        self.watch_within(SLEEPS_NS);
    }

    #[inline]
    fn watch_within(&self, from_now_ns: u64) {
        if !self.upkeep.is_due_within(Timer::Sleepers, from_now_ns) {
            self.schedule_in(Timer::Sleepers, from_now_ns);
        }
    }

    /// There is work for the control thread, to be done after the time that the timer's table says.
    pub(crate) fn schedule(&self, timer: Timer) {
        self.schedule_in(timer, timer.delay_ns());
    }

    /// As [`Self::schedule`], after this time.
    pub(crate) fn schedule_in(&self, timer: Timer, from_now_ns: u64) {
        self.upkeep.schedule(timer, from_now_ns);
    }

    /// Whether its node was shut down.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with the exchange in `shutdown`; its wake-ups come after that.
        self.is_over.load(Ordering::Acquire)
    }

    /// # Errors
    /// In a forked child, or once the node was shut down.
    pub(crate) fn check(&self) -> Result<(), Misuse> {
        match self.is_over() {
            _ if self.epoch != process::fork_epoch() => Err(Misuse::Forked),
            true => Err(Misuse::Shutdown),
            false => Ok(()),
        }
    }

    /// The node is shut down from now on. `false`: it was before, or is a parent's.
    pub(crate) fn begins_shutdown(&self) -> bool {
        self.epoch == process::fork_epoch() && !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// Remembers its control thread; returns the one it had.
    pub(crate) fn set_control_thread(&self, control_thread: Option<Thread>) -> Option<Thread> {
        core::mem::replace(&mut *self.control_thread.lock(), control_thread)
    }

    /// Enters a set; its flag is forgotten when the set is dropped.
    pub(crate) fn add_set(&self, flag: &Arc<Flag>) {
        let mut sets = self.sets.lock();
        sets.retain(|set| set.strong_count() > 0);
        sets.push(Arc::downgrade(flag));
    }

    /// Makes every waiting set and every notified sleeper of this process look again.
    pub(crate) fn raise_sets(&self) {
        let mut sets = self.sets.lock();
        sets.retain(|set| set.upgrade().map(|flag| flag.raise()).is_some());
        drop(sets);
        crate::arrivals::rouse();
    }

    /// A number for the next right that this process provides, never used again.
    pub(crate) fn next_provision(&self) -> u64 {
        // Relaxed: a number.
        self.introductions.provided.fetch_add(1, Ordering::Relaxed)
    }
}

/// A lane that has rung, and a task that waits, are looked after this often, and the server woken the second time, whatever
/// the bell says: another peer of the trust group may have taken the server's announcement away, or its sleeper.
/// Twice this, and the time that three threads take to wake, is what such a peer can delay a message: 100 ms in all.
pub(crate) const WATCH_NS: u64 = Timer::Sleepers.delay_ns();
/// After this, for a caller that has slept for longer than [`WATCH_NS`]. It says when it went to sleep, so that one look
/// is enough: where many callers sleep in turn, each look is at a process whose memory no cache has.
pub(crate) const SLEEPS_NS: u64 = 2 * WATCH_NS;
/// The longest between two looks.
pub(crate) const WATCH_NS_MAX: u64 = 10_000_000_000;
