//! How long a server works per request in `wait`, and what the cheapest waiting would have cost.

use serde::{Deserialize, Serialize};

/// A law of service delays, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Law {
    /// Always this.
    Constant(u64),
    /// Exponential with this mean.
    Exponential(u64),
    /// Anything up to this, all alike.
    Uniform(u64),
    /// `long` with the given chance in a hundred, else `short`.
    Mixed {
        /// The chance of `long`.
        long_percent: u64,
        /// The usual delay.
        short: u64,
        /// The rare delay.
        long: u64,
    },
    /// `short` and `long` in turn, `every` requests each.
    Phases {
        /// The delay of one phase.
        short: u64,
        /// The delay of the other.
        long: u64,
        /// Requests in each phase.
        every: usize,
    },
}

/// The grid of `wait`, in the order of the table.
pub const GRID: [Law; 12] = [
    Law::Constant(0),
    Law::Constant(1),
    Law::Constant(5),
    Law::Constant(20),
    Law::Constant(100),
    Law::Exponential(1),
    Law::Exponential(5),
    Law::Exponential(20),
    Law::Exponential(100),
    Law::Mixed {
        long_percent: 10,
        short: 2,
        long: 200,
    },
    Law::Mixed {
        long_percent: 50,
        short: 2,
        long: 100,
    },
    Law::Phases {
        short: 2,
        long: 100,
        every: 500,
    },
];

impl Law {
    /// The cell's name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Constant(us) => format!("const-{us}us"),
            Self::Exponential(us) => format!("exp-{us}us"),
            Self::Uniform(us) => format!("uniform-{us}us"),
            Self::Mixed {
                long_percent,
                short,
                long,
            } => format!("{}/{long_percent}-{short},{long}us", 100 - long_percent),
            Self::Phases { short, long, every } => format!("phases-{short}/{long}us-{every}"),
        }
    }

    /// The delays in nanoseconds, the same in every process; they repeat from the start after the
    /// last.
    pub fn delays_ns(self) -> Vec<u64> {
        // Fixed seed: parent and server must draw the same.
        let mut state = 0x9E37_79B9_7F4A_7C15;
        (0..DELAYS)
            .map(|index| self.draw(index, &mut state))
            .collect()
    }

    fn draw(self, index: usize, state: &mut u64) -> u64 {
        match self {
            Self::Constant(us) => us * 1_000,
            Self::Exponential(us) => {
                // In (0, 1]: the logarithm is finite.
                let uniform = ((random(state) >> 11) + 1) as f64 / (1u64 << 53) as f64;
                (-uniform.ln() * (us * 1_000) as f64) as u64
            }
            Self::Uniform(us) => random(state) % (us * 1_000 + 1),
            Self::Mixed {
                long_percent,
                short,
                long,
            } => {
                let long_drawn = random(state) % 100 < long_percent;
                (if long_drawn { long } else { short }) * 1_000
            }
            Self::Phases { short, long, every } => {
                (if (index / every).is_multiple_of(2) {
                    short
                } else {
                    long
                }) * 1_000
            }
        }
    }
}

/// How many delays are drawn before they repeat; a multiple of the phases' period.
const DELAYS: usize = 8_000;

/// One step of the splitmix64 sequence.
const fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The cost of waiting on this machine, measured in the same round as the times compared with it.
#[derive(Clone, Copy, Debug)]
pub struct WaitCosts {
    /// CPU of both sides for one block and its wake-up: half a futex round trip's.
    pub block_ns: f64,
    /// Round trip of the spinning limit.
    pub(crate) line_ns: f64,
    /// Wake-up latency above the line's: from the wake-up to the sleeper running.
    pub(crate) wake_ns: f64,
}

impl WaitCosts {
    /// CPU beyond service of one message under the best decision an oracle could make, given that
    /// a wait is either spun through or slept through.
    ///
    /// Client spins: both its wait (the service and a round trip) and the server's (a round trip)
    /// cost their length, capped by a block. Client sleeps: one block, and the server then waits
    /// for the client's wake-up too.
    pub fn optimum_ns(&self, delay_ns: u64) -> f64 {
        let spun = delay_ns as f64 + self.line_ns + self.line_ns.min(self.block_ns);
        let slept = self.block_ns + (self.line_ns + self.wake_ns).min(self.block_ns);
        spun.min(slept)
    }

    /// CPU beyond the work of one round trip in which both sides work for this delay before they send: each waits for the other's, spins
    /// through it or sleeps, whichever is cheaper, where a sleeper needs no time to wake.
    pub fn both_ns(&self, delay_ns: u64) -> f64 {
        2.0 * (delay_ns as f64 + self.line_ns / 2.0).min(self.block_ns)
    }

    /// As [`Self::optimum_ns`] where a sleeper needs no time to wake: the sum over both waits of
    /// min(delay, block). No policy can reach it for delays longer than a block.
    pub(crate) fn strict_optimum_ns(&self, delay_ns: u64) -> f64 {
        let line = self.line_ns.min(self.block_ns);
        (delay_ns as f64 + self.line_ns).min(self.block_ns) + line
    }
}

/// The mean of `cost` over `count` delays of the repeating list, beginning with number `first`.
pub fn mean_cost(
    delays_ns: &[u64],
    first: u64,
    count: u64,
    cost: impl Fn(u64) -> f64,
) -> Option<f64> {
    let start = usize::try_from(first).ok()? % delays_ns.len();
    let count = usize::try_from(count).ok()?;
    let sum: f64 = delays_ns
        .iter()
        .cycle()
        .skip(start)
        .take(count)
        .map(|delay| cost(*delay))
        .sum();
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_us(law: Law) -> f64 {
        let delays = law.delays_ns();
        mean_cost(&delays, 0, delays.len() as u64, |ns| ns as f64 / 1_000.0).unwrap()
    }

    #[test]
    fn the_laws_have_their_means_and_repeat_exactly() {
        assert_eq!(mean_us(Law::Constant(5)), 5.0);
        assert!((mean_us(Law::Exponential(20)) / 20.0 - 1.0).abs() < 0.05);
        assert!((mean_us(Law::Uniform(300)) / 150.0 - 1.0).abs() < 0.05);
        assert!((mean_us(GRID[9]) / 21.8 - 1.0).abs() < 0.08);
        assert_eq!(mean_us(GRID[11]), 51.0);
        assert_eq!(
            Law::Exponential(5).delays_ns(),
            Law::Exponential(5).delays_ns()
        );
    }

    #[test]
    fn the_optimum_spins_through_short_delays_and_sleeps_through_long_ones() {
        let costs = WaitCosts {
            block_ns: 10_000.0,
            line_ns: 250.0,
            wake_ns: 7_000.0,
        };
        assert_eq!(costs.optimum_ns(0), 500.0);
        assert_eq!(costs.optimum_ns(5_000), 5_500.0);
        assert_eq!(costs.optimum_ns(1_000_000), 17_250.0);
        assert_eq!(costs.strict_optimum_ns(1_000_000), 10_250.0);
        assert!(costs.strict_optimum_ns(5_000) <= costs.optimum_ns(5_000));
        assert_eq!(costs.both_ns(0), 250.0);
        assert_eq!(costs.both_ns(1_000_000), 20_000.0);
    }

    #[test]
    fn a_mean_over_a_part_of_the_list_wraps_around() {
        assert_eq!(mean_cost(&[1, 2, 3], 2, 2, |ns| ns as f64), Some(2.0));
        assert_eq!(mean_cost(&[1, 2, 3], 5, 1, |ns| ns as f64), Some(3.0));
        assert_eq!(mean_cost(&[1, 2, 3], 0, 0, |ns| ns as f64), None);
    }
}
