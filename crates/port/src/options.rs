//! Options of an application: strategy and spin cap, by builder or environment.

use crate::error::{Misuse, SendError};
use core::time::Duration;
use handfast_layout::link::Kind;
use handfast_sys::{clock, process};
use handfast_wait::Strategy;

/// How an endpoint waits. Settings not made here are those of its [node](crate::NodeBuilder::options). The
/// [global node](crate::Node::global) has them from the environment, which it reads once; a variable with an invalid value is
/// ignored, with a warning to `tracing`:
///
/// * `HANDFAST_STRATEGY`: a strategy name as [`Strategy`] parses it (`adaptive`, `block`, `spin-block:50` ...); the default of
///   endpoints without a strategy of their own.
/// * `HANDFAST_SPIN_CAP_US`: the longest any adaptive wait may spin, in microseconds. An endpoint's own cap can only lower it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    strategy: Option<Strategy>,
    spin_cap: Option<Duration>,
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the strategy; [`Strategy::Adaptive`] unless it is set.
    #[must_use]
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// The longest a wait by [`Strategy::Adaptive`] may spin. Other strategies have limits of their own.
    #[must_use]
    pub const fn spin_cap(mut self, cap: Duration) -> Self {
        self.spin_cap = Some(cap);
        self
    }

    /// The strategy and cap in force, of an end of a node with these defaults.
    pub(crate) fn over(self, defaults: Self) -> (Strategy, Option<Duration>) {
        let strategy = self.strategy.or(defaults.strategy).unwrap_or_default();
        let cap = match (self.spin_cap, defaults.spin_cap) {
            (Some(own), Some(theirs)) => Some(own.min(theirs)),
            (own, theirs) => own.or(theirs),
        };
        (strategy, cap)
    }

    /// The options that the environment sets.
    pub(crate) fn of_environment() -> Self {
        let environment = |name| process::variable(name)?.into_string().ok();
        let strategy = environment("HANDFAST_STRATEGY").and_then(|text| match text.parse() {
            Ok(strategy) => Some(strategy),
            Err(error) => {
                crate::guest::tell!(warn, %error, "HANDFAST_STRATEGY is ignored");
                None
            }
        });
        let spin_cap = environment("HANDFAST_SPIN_CAP_US").and_then(|text| match text.parse() {
            Ok(us) => Some(Duration::from_micros(us)),
            Err(_) => {
                crate::guest::tell!(
                    warn,
                    text,
                    "HANDFAST_SPIN_CAP_US is no number of microseconds: ignored"
                );
                None
            }
        });
        Self { strategy, spin_cap }
    }
}

/// How callers wait: the strategy, and for how long they spin at most.
pub(crate) type WaitBy = (Strategy, Option<Duration>);

/// How long an operation may wait.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    Never,
    Until(u64),
    Always,
}

impl Waiting {
    /// The same, and until this deadline at the latest.
    pub(crate) fn until(self, deadline_ns: u64) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Until(own_ns) => Self::Until(own_ns.min(deadline_ns)),
            Self::Always => Self::Until(deadline_ns),
        }
    }

    /// Until when it waits; an error where it must not.
    pub(crate) fn deadline(self) -> Result<Option<u64>, SendError> {
        match self {
            Self::Never => Err(SendError::Full),
            _ if crate::guest::is_control() => Err(SendError::Misuse(Misuse::ControlThread)),
            Self::Until(deadline_ns) => Ok(Some(deadline_ns)),
            Self::Always => Ok(None),
        }
    }

    /// The deadline in two words; zeros for none.
    #[inline(always)]
    pub(crate) const fn words(self) -> (u32, u32) {
        match self {
            Self::Until(deadline_ns) => (deadline_ns as u32, (deadline_ns >> 32) as u32),
            Self::Never | Self::Always => (0, 0),
        }
    }

    /// The words that go with a message of that kind.
    pub(crate) fn words_of(self, kind: Kind) -> (u32, u32) {
        match kind {
            Kind::Call => self.words(),
            _ => (0, 0),
        }
    }

    /// Whether a deadline has passed. Reads the clock only where there is one.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Until(deadline_ns) if clock::now_ns() >= deadline_ns)
    }
}
