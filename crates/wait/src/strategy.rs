//! Waiting strategies by name: the seven of paper 001, the four of paper 000, and the default.

use crate::calibration::calibration;
use core::time::Duration;

/// A waiter's behaviour until the awaited event is there. Chosen by the receiving side, per
/// endpoint, at run time; changing it never needs the peer.
///
/// `limit` of `None` stands for the blocking cost measured on this machine. A wait by [`SpinBlock`](Self::SpinBlock) then costs at most
/// twice as much as one by the best choice for its length, which nobody knows beforehand (paper 001, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// The default: spins, then sleeps. The spin limit is the one of {0, T/2, T, 2T} that would have been best for the recent waits, T being the
    /// blocking cost of this machine. On a machine with one processor the strategy does not spin. When the peer was last seen on
    /// the processor of this thread, the strategy yields at most eight times instead, unless yields were in vain lately (paper 000, section
    /// 4.1). A thread whose calls are passed on, or that passes calls on or receives passed ones, yields between its looks where other threads run
    /// meanwhile.
    #[default]
    Adaptive,
    /// *spin*: looks in a loop, never makes a system call. Burns a processor.
    Spin,
    /// *sched*: looks, yields the processor, looks again. With one busy neighbour on the same
    /// processor a yield can take milliseconds.
    Sched,
    /// *block*: sleeps at once.
    Block,
    /// *notify*: sleeps; a signal raised through the link's socket runs a handler that wakes the thread. In a process
    /// that has not switched this on (`notify::notify`), the same as *block*.
    Notify,
    /// *spin-sched*: spins up to `limit`, then *sched*.
    SpinSched {
        /// How long to spin; nothing for the blocking cost of this machine.
        limit: Option<Duration>,
    },
    /// *spin-block*: spins up to `limit`, then *block*.
    SpinBlock {
        /// How long to spin; nothing for the blocking cost of this machine.
        limit: Option<Duration>,
    },
    /// *spin-notify*: spins up to `limit`, then *notify*.
    SpinNotify {
        /// How long to spin; nothing for the blocking cost of this machine.
        limit: Option<Duration>,
    },
    /// Both Sides Spin (paper 000, Figure 1): looks and `busy_wait`s in turn, which is a short delay where there are other processors, and a yield on
    /// one.
    Bss,
    /// Both Sides Wait (paper 000, Figure 5): looks, announces, looks again, and sleeps.
    Bsw,
    /// Both Sides Wait and Yield (paper 000, Figure 7): as [`Bsw`](Self::Bsw); a caller that has woken its server `busy_wait`s first, and once more before it
    /// announces; a receiver that finds nothing yields first, and looks again.
    Bswy,
    /// Both Sides Limited Spin (paper 000, Figure 9): as [`Bsw`](Self::Bsw), after at most `max_spin` polls, each of which looks for 1.5 us where there are
    /// other processors, and yields on one; a caller `busy_wait`s once more before it announces.
    Bsls {
        /// `MAX_SPIN` of the paper: polls before sleeping.
        max_spin: u32,
    },
}

impl Strategy {
    /// Whether a waiter with it looks a few hundred times before anything else: see
    /// [`Waiter::is_eager`](crate::Waiter::is_eager).
    #[must_use]
    #[inline]
    pub fn is_eager(&self) -> bool {
        self.is_eager_on(calibration().cpus)
    }

    pub(crate) const fn is_eager_on(&self, cpus: u32) -> bool {
        let looks_as_said = matches!(
            self,
            Self::Block
                | Self::Notify
                | Self::Sched
                | Self::Bss
                | Self::Bsw
                | Self::Bswy
                | Self::Bsls { .. }
        );
        !looks_as_said && cpus > 1
    }
}

/// A strategy name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no strategy is called {0:?}; there are adaptive, spin, sched, block, notify, spin-sched[:US], \
     spin-block[:US], spin-notify[:US], bss, bsw, bswy, bsls[:MAX_SPIN]"
)]
pub struct UnknownStrategy(pub String);

impl core::str::FromStr for Strategy {
    type Err = UnknownStrategy;

    /// `NAME` or `NAME:NUMBER`; the number is microseconds of spinning, or polls for `bsls`. Names: `adaptive`, `spin`, `sched`,
    /// `block`, `notify`, `spin-sched[:US]`, `spin-block[:US]`, `spin-notify[:US]`, `bss`, `bsw`, `bswy`, `bsls[:POLLS]`.
    fn from_str(text: &str) -> Result<Self, UnknownStrategy> {
        let unknown = || UnknownStrategy(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse::<u32>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let limit = number.map(|us| Duration::from_micros(us.into()));
        let strategy = match name {
            "spin-sched" => Self::SpinSched { limit },
            "spin-block" => Self::SpinBlock { limit },
            "spin-notify" => Self::SpinNotify { limit },
            "bsls" => Self::Bsls {
                max_spin: number.unwrap_or(BSLS_MAX_SPIN),
            },
            _ if number.is_some() => return Err(unknown()),
            "adaptive" => Self::Adaptive,
            "spin" => Self::Spin,
            "sched" => Self::Sched,
            "block" => Self::Block,
            "notify" => Self::Notify,
            "bss" => Self::Bss,
            "bsw" => Self::Bsw,
            "bswy" => Self::Bswy,
            _ => return Err(unknown()),
        };
        Ok(strategy)
    }
}

/// `MAX_SPIN` where the paper blocks 3 % of the time with one client (section 4.2).
const BSLS_MAX_SPIN: u32 = 20;

impl Strategy {
    /// Whether the sleep of this strategy is ended by a signal handler.
    #[must_use]
    pub const fn notifies(self) -> bool {
        matches!(self, Self::Notify | Self::SpinNotify { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_unknown_ones_list_the_known() {
        assert_eq!("adaptive".parse(), Ok(Strategy::Adaptive));
        let limit = Some(Duration::from_micros(5));
        assert_eq!("spin-block:5".parse(), Ok(Strategy::SpinBlock { limit }));
        assert_eq!("bsls:7".parse(), Ok(Strategy::Bsls { max_spin: 7 }));
        for bad in ["", "spin:5", "bsls:x", "sleep"] {
            let error = bad.parse::<Strategy>().unwrap_err().to_string();
            assert!(error.contains("spin-block"), "{error}");
        }
    }
}
