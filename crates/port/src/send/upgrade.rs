//! A right that goes through the process that gave it, until there is a link with the exporter.

use super::{SendRight, claimed};
use crate::link::{Link, introductions};
use crate::options::Options;
use crate::process::Process;
use crate::rank;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use handfast_proto::timers::Timer;
use handfast_sys::clock;
use handfast_sys::sync::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock};

/// How long the first use of a right waits for its exporter to confirm it.
const WORD_NS: u64 = 5_000_000;

/// The direct right that a right of the vine, and its copies, become once there is a link.
pub(crate) struct Upgrade {
    pub(crate) process: Arc<Process>,
    pub(crate) introducer: Arc<Link>,
    pub(crate) exporter: [u8; 20],
    /// The introducer's number for the statement to the exporter.
    pub(crate) number: u64,
    direct: OnceLock<Arc<SendRight>>,
    options: Mutex<Option<Options>, rank::DoorOptions>,
    is_declined: AtomicBool,
    /// The introducer is another user's.
    is_on_word: bool,
    /// Messages that went by the vine and may not have arrived.
    under_way: AtomicU32,
    /// The right waits for a lane, and has been used since.
    pub(crate) is_late: AtomicBool,
    pub(crate) is_used: AtomicBool,
    /// Its place among those that wait at a door or for a lane, the last one it had; and what takes it out of there.
    pub(crate) place: AtomicU64,
    leave: fn(&Self),
}

impl Upgrade {
    pub(crate) fn new(
        process: &Arc<Process>,
        introducer: &Arc<Link>,
        (exporter, number): ([u8; 20], u64),
        leave: fn(&Self),
    ) -> Arc<Self> {
        Arc::new(Self {
            process: process.clone(),
            introducer: introducer.clone(),
            exporter,
            number,
            direct: OnceLock::new(),
            options: Mutex::default(),
            is_declined: AtomicBool::new(false),
            is_on_word: introducer.is_of_others(),
            under_way: AtomicU32::new(0),
            is_late: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            place: AtomicU64::new(0),
            leave,
        })
    }

    /// A message has gone by the vine. Its arrival is known when it was a call that was answered.
    pub(crate) fn goes(&self) {
        // Relaxed: a thread that asks whether it may overtake is the one that has counted, or another, whose
        // messages have no order relative to these.
        self.under_way.fetch_add(1, Ordering::Relaxed);
        // Relaxed, twice: the control thread looks at all that are, after this or at the next use.
        if self.is_late.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
            self.process.schedule(Timer::Claims);
        }
    }

    /// The right becomes direct, as soon as it can overtake no message under way.
    pub(crate) fn becomes(&self, direct: SendRight) {
        let options = self.options();
        if let Some(options) = *options {
            direct.set_options(options);
        }
        let _ = self.direct.set(Arc::new(direct));
    }

    /// A call that went by the vine has been answered.
    pub(crate) fn arrived(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// The direct right, if nothing is under way that it could overtake.
    pub(crate) fn direct(&self) -> Option<&Arc<SendRight>> {
        let direct = self.direct.get()?;
        // Relaxed: as in `goes`.
        let is_next = self.under_way.load(Ordering::Relaxed) == 0;
        (is_next && (!self.is_on_word || claimed::is_confirmed(direct))).then_some(direct)
    }

    /// Whether the exporter's word is awaited, and a message may go directly once it has come.
    pub(crate) fn is_held(&self) -> bool {
        let direct = self.direct.get();
        // Relaxed: as in `goes`.
        direct.is_some_and(|direct| claimed::is_held(direct) && !claimed::is_held_in_vain(direct))
            && self.under_way.load(Ordering::Relaxed) == 0
    }

    /// Waits a moment for the exporter's word, if it is awaited and was not in vain lately.
    pub(crate) fn await_word(&self) {
        let (users, user) = (&self.process.users, self.introducer.peer.uid);
        if !self.is_on_word || !self.is_held() || !users.is_patient(user, self.exporter) {
            return;
        }
        let until_ns = clock::now_ns() + WORD_NS;
        while self.is_held() {
            if clock::now_ns() >= until_ns {
                return users.lose_patience(user, self.exporter);
            }
            clock::nap();
        }
    }

    /// How callers wait, also through the direct right.
    pub(crate) fn set_options(&self, options: Options) {
        *self.options() = Some(options);
        if let Some(direct) = self.direct.get() {
            direct.set_options(options);
        }
    }

    fn options(&self) -> MutexGuard<'_, Option<Options>, rank::DoorOptions> {
        self.options.lock()
    }

    /// The right stays on the vine: the provision is not claimed.
    pub(crate) fn decline(&self) {
        // Relaxed: once, by whichever thread.
        if !self.is_declined.swap(true, Ordering::Relaxed) {
            introductions::decline(&self.introducer, self.exporter, self.number);
        }
    }
}

impl Drop for Upgrade {
    fn drop(&mut self) {
        if self.direct.get().is_none() && self.process.epoch == handfast_sys::process::fork_epoch()
        {
            (self.leave)(self);
            self.decline();
        }
    }
}
