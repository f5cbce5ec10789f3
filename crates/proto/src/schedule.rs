//! Code that the simulations share: dice, seeds, and how schedules are run that must pass, or must not.

/// xorshift64*.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    /// One of these numbers, if there is one.
    pub(crate) fn pick(&mut self, of: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let count = of.clone().count();
        if count == 0 {
            return None;
        }
        of.clone().nth(self.roll(count))
    }
}

/// Seed of the first of the schedules that are always the same.
const FIRST: u64 = 1 << 40;

/// Seeds of so many schedules; of one, if `HANDFAST_SEED` names it.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    // miri is some thousand times slower, and looks for something else.
    let count = if cfg!(miri) { count.min(3) } else { count };
    let first = std::env::var("HANDFAST_SEED").ok();
    let (first, count) = first.and_then(|seed| seed.parse().ok()).map_or_else(
        || (u64::from(std::process::id()) << 32, count),
        |seed| (seed, 1),
    );
    println!("HANDFAST_SEED={first} is the first of {count}, every second number");
    (0..count).map(move |n| first + 2 * n)
}

/// Runs so many schedules, and the seeds that have failed once.
///
/// # Panics
/// If one fails: says how to run it again.
pub(crate) fn all_pass(count: u64, known: &[u64], run: impl Fn(u64) -> Result<(), String>) {
    for seed in known.iter().copied().chain(seeds(count)) {
        if let Err(broken) = run(seed) {
            panic!("HANDFAST_SEED={seed}: {broken}");
        }
    }
}

/// Whether one of so many schedules fails with these words, as it must when a rule is left out. Always the same
/// schedules: whether there is one is no question of luck.
pub(crate) fn one_fails(count: u64, words: &str, run: impl Fn(u64) -> Result<(), String>) -> bool {
    let is_it = |seed| run(seed).is_err_and(|broken| broken.contains(words));
    cfg!(miri) || (0..count).map(|n| FIRST + 2 * n).any(is_it)
}
