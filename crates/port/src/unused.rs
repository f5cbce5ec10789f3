//! How an unused link ends.
//!
//! The side that made it reports it unused, once all its messages through the link have been taken, or a second has
//! passed, and does not use it from then on. The other process may have begun to use it meanwhile: it ends the link, or
//! says that it stays.
//!
//! ```text
//! connector -> acceptor    unused
//! acceptor -> connector    used, and later free      (or the end of the link)
//! ```

use crate::link::Link;
use crate::paths::Held;
use crate::process::Process;
use crate::send::Sent;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use handfast_layout::control::ControlMessage;
use handfast_layout::link::LANES;
use handfast_proto::timers::Timer;
use handfast_sys::clock;
use std::sync::Arc;

/// The state of a link's last use.
mod state {
    /// There is one, or has never been one.
    pub(super) const USED: u8 = 0;
    /// Connector: it has gone; the keeper is to see to that.
    pub(super) const GONE: u8 = 1;
    /// Connector: the peer has been told.
    pub(super) const SAID: u8 = 2;
    /// Acceptor: the peer is to be told when it has gone.
    pub(super) const ASKED: u8 = 3;
}

/// The uses of a link, and what becomes of it after the last.
pub(crate) struct Usage {
    /// Send rights of this process that use it, and others.
    uses: AtomicU32,
    /// The peer has got a port of ours through it.
    granted: AtomicBool,
    state: AtomicU8,
    /// Since when it has been unused.
    unused_ns: AtomicU64,
}

impl Usage {
    /// Nobody uses it, but the peer if it connects: it has a right then.
    pub(crate) const fn new(is_granted: bool) -> Self {
        Self {
            uses: AtomicU32::new(0),
            granted: AtomicBool::new(is_granted),
            state: AtomicU8::new(state::USED),
            unused_ns: AtomicU64::new(0),
        }
    }

    /// One use more, until it is [released](release).
    pub(crate) fn add(&self) {
        // AcqRel: pairs with the last release.
        self.uses.fetch_add(1, Ordering::AcqRel);
    }

    /// The peer gets a port of ours.
    pub(crate) fn grant(&self) {
        // Release: pairs with the Acquire in `is_granted`.
        self.granted.store(true, Ordering::Release);
    }

    fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release of the thread that has granted something.
        self.granted.load(Ordering::Acquire)
    }

    fn is_used(&self) -> bool {
        // SeqCst: as in `release`.
        self.uses.load(Ordering::SeqCst) != 0
    }

    fn turn(&self, (from, to): (u8, u8)) -> bool {
        let turned = (self.state).compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
        turned.is_ok()
    }
}

/// How long the peer has to take what was sent, before it is left behind.
const LINGER_NS: u64 = 1_000_000_000;

/// A use of `link` has ended.
pub(crate) fn release(process: &Arc<Process>, link: &Arc<Link>) {
    // SeqCst, and below: store-then-load. A thread that stores a state looks at the uses then: one of the two sees
    // the other.
    if link.usage.uses.fetch_sub(1, Ordering::SeqCst) != 1 {
        return;
    }
    #[cfg(test)]
    tests::between();
    if link.is_loop() {
        return end_loop(process, link);
    }
    if link.usage.turn((state::ASKED, state::USED)) {
        return process.say(link, ControlMessage::Free);
    }
    if !link.usage.is_granted() {
        process.is_gone(link);
    }
}

/// Both ends are here, and only the one that connects is used.
fn end_loop(process: &Arc<Process>, link: &Arc<Link>) {
    if link.usage.is_granted() || !process.cut_off(link) {
        return;
    }
    // It is not the peer that goes.
    link.death_notices().clear();
    process.end_link(link);
}

impl Link {
    /// Whether this process has said that it does not use it.
    pub(crate) fn is_left(&self) -> bool {
        // Acquire: set under the lock of the list.
        self.usage.state.load(Ordering::Acquire) == state::SAID
    }

    /// The peer uses it: it stays.
    pub(crate) fn stays_in_use(&self) {
        self.usage.turn((state::SAID, state::USED));
    }

    /// Whether the peer has taken all that was sent.
    fn is_drained(&self) -> bool {
        (0..LANES).all(|lane| self.is_taken(lane, Sent::Something))
    }
}

impl Process {
    /// As [`Self::find_link`], among links that may be used, with a use: without one another thread may end it at any
    /// time.
    pub(crate) fn hold_link(self: &Arc<Self>, check: impl Fn(&Link) -> bool) -> Option<Held> {
        self.hold_any(|link| !link.is_left() && check(link))
    }

    /// As [`Self::hold_link`], also among links that the peer has been told are not used.
    pub(crate) fn hold_any(self: &Arc<Self>, check: impl Fn(&Link) -> bool) -> Option<Held> {
        let links = self.links.lock();
        let mut links = links.iter().flatten();
        let link = links.find(|link| !link.is_down() && check(link))?;
        // Under the lock: as `cut_off` looks, and `leave`.
        Some(Held::new(self, link))
    }

    /// A use of a link that was found, if it is there still.
    pub(crate) fn hold(self: &Arc<Self>, link: &Link) -> Option<Held> {
        self.hold_link(|known| known.serial == link.serial)
    }

    /// From now on no thread finds a link that is unused. Returns whether it is.
    fn cut_off(&self, link: &Link) -> bool {
        let _links = self.links.lock();
        let is_unused = !link.usage.is_used();
        if is_unused {
            // Release: as in `Link::take_down`.
            link.down.store(true, Ordering::Release);
        }
        is_unused
    }

    /// Keeper: tells the peer if a link is not used any more. Returns whether that has to be seen to again.
    pub(crate) fn leave(&self, link: &Link) -> bool {
        if !link.usage.turn((state::GONE, state::USED)) {
            return false;
        }
        let is_unused = || !link.usage.is_used() && !link.usage.is_granted();
        if !is_unused() {
            return false;
        }
        // Relaxed: as in `is_gone`.
        let since_ns = link.usage.unused_ns.load(Ordering::Relaxed);
        if clock::ticks_ns().saturating_sub(since_ns) < LINGER_NS && !link.is_drained() {
            return link.usage.turn((state::USED, state::GONE));
        }
        {
            let _links = self.links.lock();
            if !is_unused() || !link.usage.turn((state::USED, state::SAID)) {
                return false;
            }
        }
        // It is not the peer that goes.
        link.death_notices().clear();
        self.say(link, ControlMessage::Unused);
        false
    }

    /// Keeper: the peer does not use the link any more. Returns whether this process does not either, so that
    /// it is to be ended.
    pub(crate) fn hear_unused(&self, link: &Link) -> bool {
        link.usage.state.store(state::ASKED, Ordering::SeqCst);
        let is_over = self.cut_off(link);
        // A peer that asks reads the answer; one that does not hears only of the end of the use.
        if !is_over && !link.is_behind() {
            self.say(link, ControlMessage::Used);
            if !link.usage.is_used() {
                // Since the look; it may have been said before that.
                link.usage.turn((state::ASKED, state::USED));
                self.say(link, ControlMessage::Free);
            }
        }
        is_over
    }

    /// Keeper: the peer does not use the link any more either.
    pub(crate) fn hear_free(&self, link: &Link) {
        // The peer used it until now, also if it has not said so.
        link.stays_in_use();
        if !link.usage.is_used() {
            self.is_gone(link);
        }
    }

    /// Has the keeper see to a link whose last use has ended.
    fn is_gone(&self, link: &Link) {
        // Relaxed: at worst the time of another end.
        link.usage
            .unused_ns
            .store(clock::ticks_ns(), Ordering::Relaxed);
        if link.usage.turn((state::USED, state::GONE)) {
            self.schedule(Timer::UnusedLinks);
        }
    }
}

#[cfg(test)]
mod tests;
