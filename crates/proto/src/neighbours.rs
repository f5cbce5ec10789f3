//! Whether other threads run on this processor while one yields.
//!
//! Of three and more processes that wait for each other in turn, each waits for all others. Where they have fewer processors than there are of
//! them, one that spins keeps another one off its processor, which it waits for in the end. None of them knows who that is: a process that passes a
//! call on hears nothing of the next one. But a yield tells: one that lets another thread run takes longer than one that does not. So a wait
//! looks for a while before it yields, where its thread was alone at the last yield, and yields between any two looks where it was not.
//!
//! The simulations have two to six members of chains (`chains`), and a server with one to 299 clients (`crowds`), on one to four processors.

/// A thread that was alone when it last yielded looks for this part of T before it yields.
const QUIET_PARTS: u64 = 4;
/// A yield that let another thread run takes so many times as long as one that did not, or longer.
const RAN_TIMES: u64 = 2;
/// So many yields in a row that let nobody run: the thread is alone. A neighbour may sleep for one turn.
const ALONE: u32 = 4;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// Yields since the last one that let another thread run, up to [`ALONE`].
    alone: u32,
    /// From then on a wait yields.
    due_ns: u64,
    quiet_ns: u64,
    ran_ns: u64,
}

impl Neighbours {
    /// For a machine where one block and wake-up costs T, and a yield takes so long that lets nobody run.
    #[must_use]
    pub const fn new(block_cost_ns: u64, yield_ns: u64) -> Self {
        Self {
            alone: ALONE,
            due_ns: 0,
            quiet_ns: block_cost_ns / QUIET_PARTS,
            ran_ns: RAN_TIMES * yield_ns,
        }
    }

    /// Whether others have run when this thread yielded lately.
    #[must_use]
    pub const fn has_any(&self) -> bool {
        self.alone < ALONE
    }

    /// A wait begins.
    pub const fn begins(&mut self, now_ns: u64) {
        let quiet_ns = match self.has_any() {
            true => 0,
            false => self.quiet_ns,
        };
        self.due_ns = now_ns.saturating_add(quiet_ns);
    }

    /// Whether a wait yields now, before it looks again.
    #[must_use]
    pub const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// A yield took so long, until now.
    pub const fn yielded(&mut self, now_ns: u64, took_ns: u64) {
        self.alone = match took_ns >= self.ran_ns {
            true => 0,
            false if self.alone < ALONE => self.alone + 1,
            false => ALONE,
        };
        self.begins(now_ns);
    }
}

#[cfg(any(test, feature = "laws"))]
mod chains;
#[cfg(any(test, feature = "laws"))]
mod crowds;
#[cfg(any(test, feature = "laws"))]
pub mod laws;
#[cfg(any(test, feature = "laws"))]
mod machine;
