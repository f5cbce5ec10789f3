//! The flag of a stack: whose it is. The gate's assembly steps are here in Rust: for the gate without protection,
//! and for the models.
//!
//! ```text
//! UNBUILT --builder--> FREE <--> tag of a domain (1 to 15): a call is in it
//!                      FREE <--> PASSING: a call that no longer (or not yet) touches the domain's own memory
//! ```

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU16, AtomicU32};

/// Anybody's.
pub(crate) const FREE: u16 = 0;
/// It has no guard yet.
pub(crate) const UNBUILT: u16 = 0xffff;
/// Claimed, by a call that is not in any domain, or by upkeep.
pub(crate) const PASSING: u16 = 0xfffe;

/// The state of a domain.
pub(crate) mod state {
    /// Its value has not been made.
    pub(crate) const NEW: u32 = 0;
    pub(crate) const LIVE: u32 = 1;
    /// It went wrong, and waits for the calls in it to end.
    pub(crate) const DRAINING: u32 = 2;
    /// One thread makes its value anew.
    pub(crate) const RESETTING: u32 = 3;
    /// It went wrong, for good.
    pub(crate) const DEAD: u32 = 4;
}

/// The flags of all stacks of a group, and the value of those that have a call in one of its domains.
#[derive(Clone, Copy)]
pub(crate) struct Flags<'a> {
    pub(crate) all: &'a [AtomicU16],
    pub(crate) tag: u16,
}

/// The words this is about: the processor's, or a model's.
pub(crate) trait Word<T> {
    fn exchange(&self, old: T, new: T) -> bool;
    fn publish(&self, value: T);
    fn look(&self) -> T;
    fn fence();
}

macro_rules! words {
    ($fence:path: $($word:ty, $value:ty;)*) => {$(
        impl Word<$value> for $word {
            #[inline]
            fn exchange(&self, old: $value, new: $value) -> bool {
                self.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
            }
            #[inline]
            fn publish(&self, value: $value) {
                self.store(value, Release);
            }
            #[inline]
            fn look(&self) -> $value {
                self.load(Acquire)
            }
            #[inline]
            fn fence() {
                $fence(SeqCst);
            }
        }
    )*};
}
words! {
    core::sync::atomic::fence:
    AtomicU16, u16;
    AtomicU32, u32;
}
#[cfg(test)]
words! {
    loom::sync::atomic::fence:
    loom::sync::atomic::AtomicU16, u16;
    loom::sync::atomic::AtomicU32, u32;
}

/// Takes a free stack.
#[inline]
pub(crate) fn claim<W: Word<u16>>(flag: &W, tag: u16) -> bool {
    // P1 stack. Acquire: after this the last call's use of the stack is over. Release half: `release`.
    let is_taken = flag.exchange(FREE, tag);
    // P2 drain. A full fence, between the exchange and the look at the domain's state in `may_enter`; pairs with those
    // of `start_draining` and `drain`. In the gate the exchange is one.
    W::fence();
    is_taken
}

/// As [`claim`], by a call that has the stack, and has drained the domain.
#[cold]
pub(crate) fn claim_again<W: Word<u16>>(own: &W, tag: u16) {
    own.publish(tag);
    // P2 drain. A full fence, as in `claim`: another call may have gone wrong in the new value already.
    W::fence();
}

/// Gives it back.
#[inline]
pub(crate) fn release(flag: &impl Word<u16>) {
    // P1 stack, release half. Release: our use of the stack, and of the domain's memory, is over for the thread that claims it
    // next, or sees it free. Claim half: `claim`.
    flag.publish(FREE);
}

/// After a claim: whether the domain may be entered.
#[inline]
pub(crate) fn may_enter(state: &impl Word<u32>) -> bool {
    // P2 drain. Comes after the fence in `claim`: either this sees that the domain drains, or the draining thread sees
    // the claim. Acquire: the value that was made before the domain was live.
    state.look() == state::LIVE
}

/// The domain went wrong: no call enters from now on.
pub(crate) fn start_draining<W: Word<u32>>(state: &W) {
    state.exchange(state::LIVE, state::DRAINING);
    // P2 drain. A full fence, before the look at the flags in `drain`. Pairs with the fence in `claim`.
    W::fence();
}

/// A call that has done with the domain's memory, while the domain drains: when no other is in it any more, the
/// domain is this call's to reset.
pub(crate) fn drain<'a, W: Word<u16> + 'a>(
    own: &W,
    mut others: impl Iterator<Item = &'a W>,
    tag: u16,
    state: &impl Word<u32>,
) -> bool {
    // Release: this call's changes to the domain's memory are over, for any thread that sees that in the loop below.
    own.publish(PASSING);
    // P2 drain. A full fence, before the look at the others: of two last calls one sees the other's.
    W::fence();
    // Acquire: what the calls that have left did to the domain's memory is over.
    others.all(|flag| flag.look() != tag) && state.exchange(state::DRAINING, state::RESETTING)
}

/// The value is made: calls may enter.
pub(crate) fn open(state: &impl Word<u32>) {
    // P2 drain. Release: the value, for any thread that sees the domain live in `may_enter`.
    state.publish(state::LIVE);
}

#[cfg(test)]
mod model;
