//! Options of an application: strategy and spin cap, by builder or environment.

use core::time::Duration;
use handfast_sys::process;
use handfast_wait::Strategy;

/// How an endpoint waits. Settings not made here come from the environment, whenever options are used (by `bind`,
/// `connect`, `set_options`); a variable with an invalid value is ignored, with a warning to `tracing`:
///
/// * `HANDFAST_STRATEGY`: a strategy name as [`Strategy`] parses it (`adaptive`, `block`, `spin-block:50` ...); the default of
///   endpoints that set none.
/// * `HANDFAST_SPIN_CAP_US`: the longest any adaptive wait may spin, in microseconds. A cap set by
///   the builder can only lower it.
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

    /// The longest a wait by [`Strategy::Adaptive`] may spin. Others have limits of their own.
    #[must_use]
    pub const fn spin_cap(mut self, cap: Duration) -> Self {
        self.spin_cap = Some(cap);
        self
    }

    /// The strategy and cap in force, with the environment's word.
    pub(crate) fn resolve(self) -> (Strategy, Option<Duration>) {
        let environment = |name| process::variable(name)?.into_string().ok();
        let strategy = self
            .strategy
            .or_else(|| match environment("HANDFAST_STRATEGY")?.parse() {
                Ok(strategy) => Some(strategy),
                Err(error) => {
                    crate::guest::tell!(warn, %error, "HANDFAST_STRATEGY is ignored");
                    None
                }
            })
            .unwrap_or_default();
        let from_environment =
            environment("HANDFAST_SPIN_CAP_US").and_then(|text| match text.parse() {
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
        let cap = match (self.spin_cap, from_environment) {
            (Some(own), Some(theirs)) => Some(own.min(theirs)),
            (own, theirs) => own.or(theirs),
        };
        (strategy, cap)
    }
}
