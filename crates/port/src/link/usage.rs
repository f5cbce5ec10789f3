//! The uses of a link, of which the last one's end may be the link's.

use super::Link;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use handfast_layout::control::ControlMessage;
use handfast_proto::rights::Imports;
use handfast_proto::timers::Timer;
use handfast_sys::clock;

/// The state of a link's last use.
pub(crate) mod state {
    /// There is one, or has never been one.
    pub(crate) const USED: u8 = 0;
    /// Connector: it has gone; the control thread is to see to that.
    pub(crate) const GONE: u8 = 1;
    /// Connector: the peer has been told.
    pub(crate) const SAID: u8 = 2;
    /// Acceptor: the peer is to be told when it has gone.
    pub(crate) const ASKED: u8 = 3;
}

/// The uses of a link, and what becomes of it after the last.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Send rights of this process that use it, and others.
    uses: AtomicU32,
    /// The peer has got a port of ours through it.
    granted: AtomicBool,
    state: AtomicU8,
    /// Since when it has been unused.
    unused_ns: AtomicU64,
    /// Connector: when the peer was told last; zero: never.
    said_ns: AtomicU64,
    /// Connector: how often the peer may still say that it does not use it any more.
    frees: AtomicU8,
}

/// An acceptor says so twice at most, when its last use ends while it says that there is one.
const FREES_MAX: u8 = 2;
/// The least time from one word to the peer to the next.
const SAID_NS: u64 = 100_000_000;

impl Usage {
    /// Nobody uses it, but the peer if it connects: it has a right then.
    pub(crate) const fn new(is_granted: bool) -> Self {
        Self {
            uses: AtomicU32::new(0),
            granted: AtomicBool::new(is_granted),
            state: AtomicU8::new(state::USED),
            unused_ns: AtomicU64::new(0),
            said_ns: AtomicU64::new(0),
            frees: AtomicU8::new(0),
        }
    }

    /// Connector: whether the peer was told so shortly before that it is not told yet.
    pub(crate) fn is_said_at(&self, now_ns: u64) -> bool {
        // Relaxed, all here and below: the control thread's alone.
        let said_ns = self.said_ns.load(Ordering::Relaxed);
        said_ns != 0 && now_ns.saturating_sub(said_ns) < SAID_NS
    }

    /// Connector: the peer is told now.
    pub(crate) fn say_at(&self, now_ns: u64) {
        self.said_ns.store(now_ns, Ordering::Relaxed);
        self.frees.store(FREES_MAX, Ordering::Relaxed);
    }

    /// Connector: the peer says that it does not use the link any more. Whether that answers what it was told.
    pub(crate) fn take_free(&self) -> bool {
        let frees = self.frees.load(Ordering::Relaxed);
        self.frees.store(frees.saturating_sub(1), Ordering::Relaxed);
        frees > 0
    }

    /// One use more, until it is [released](Self::release).
    pub(crate) fn add(&self) {
        // AcqRel: pairs with the last release.
        self.uses.fetch_add(1, Ordering::AcqRel);
    }

    /// A use has ended. Whether it was the last.
    pub(crate) fn release(&self) -> bool {
        // SeqCst, and in the states below: store-then-load. A thread that stores a state looks at the uses then: one of
        // the two sees the other.
        self.uses.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// The peer gets a port of ours.
    pub(crate) fn grant(&self) {
        // Release: pairs with the Acquire in `is_granted`.
        self.granted.store(true, Ordering::Release);
    }

    pub(crate) fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release of the thread that has granted something.
        self.granted.load(Ordering::Acquire)
    }

    #[cfg(all(test, feature = "simulation"))]
    pub(crate) fn has_uses(&self, uses: usize) -> bool {
        // Relaxed: one thread runs at a time.
        self.uses.load(Ordering::Relaxed) as usize == uses
    }

    pub(crate) fn is_used(&self) -> bool {
        // SeqCst: as in `unused::release`.
        self.uses.load(Ordering::SeqCst) != 0
    }

    /// Changes the state, if it is the first of these. Whether it was.
    pub(crate) fn turn(&self, (from, to): (u8, u8)) -> bool {
        let turned = (self.state).compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
        turned.is_ok()
    }

    /// The peer does not use it.
    pub(crate) fn is_asked(&self) {
        self.state.store(state::ASKED, Ordering::SeqCst);
    }

    /// The peer uses it: it stays.
    pub(crate) fn stays(&self) {
        self.turn((state::SAID, state::USED));
    }

    /// Whether this process has said that it does not use it.
    pub(crate) fn is_left(&self) -> bool {
        // Acquire: set under the lock of the list.
        self.state.load(Ordering::Acquire) == state::SAID
    }

    /// Since when it has been unused.
    pub(crate) fn unused_ns(&self) -> u64 {
        // Relaxed, here and below: at worst the time of another end.
        self.unused_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_unused_ns(&self, now_ns: u64) {
        self.unused_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// A use of the link has ended.
pub(crate) fn release_use(link: &Link) {
    if !link.life.usage.release() {
        return;
    }
    #[cfg(test)]
    tests::between();
    if !link.is_loop() && link.life.usage.turn((state::ASKED, state::USED)) {
        return link.say(ControlMessage::Free);
    }
    if !link.life.usage.is_granted() {
        is_gone(link);
    }
}

/// Has the control thread see to a link whose last use has ended.
pub(crate) fn is_gone(link: &Link) {
    link.life.usage.set_unused_ns(clock::ticks_ns());
    if link.life.usage.turn((state::USED, state::GONE)) {
        link.process.schedule(Timer::UnusedLinks);
    }
}

/// Changes the rights that we have; the first one and the last one are a use of the link, as [`Held`](super::held::Held) is.
#[inline(always)]
pub(crate) fn change_imports<T>(link: &Link, change: impl FnOnce(&mut Imports) -> T) -> T {
    let mut imports = link.imports();
    let had = imports.has_rights();
    let changed = change(&mut imports);
    let has = imports.has_rights();
    if has && !had {
        // Under the lock, so before the last right is dropped.
        link.life.usage.add();
    }
    drop(imports);
    if had && !has {
        release_use(link);
    }
    changed
}

#[cfg(test)]
pub(crate) mod tests {
    use core::cell::RefCell;

    pub(crate) type Step = Box<dyn FnOnce()>;

    thread_local! {
        pub(crate) static BETWEEN: RefCell<Option<Step>> = const { RefCell::new(None) };
    }

    /// The step of this thread's test when the last use of a link has gone.
    pub(crate) fn between() {
        if let Some(step) = BETWEEN.take() {
            step();
        }
    }
}
