//! The cost of an attack to its victims beyond the controls, as a row of the table, and whether that may be.

use super::kinds::Kind;
use super::slice::{BEGINS, Slice};
use handfast_cli::output::say;
use std::time::Duration;

/// The controls and the attack.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) alone: Slice,
    pub(super) elsewhere: Slice,
    pub(super) struck: Slice,
}

/// The 99th percentile may be so many times the worse control's, or the floor: two turns of a scheduler whose processors
/// somebody else uses, too; as much again for each one more that wants a processor.
const TIMES: f64 = 3.0;
const FLOOR: Duration = Duration::from_millis(8);
/// The same for the median, which a busy machine changes less.
const MEDIAN: Duration = Duration::from_millis(1);
/// The goal for the worst call, and what fails: a machine with more to do than processors misses the goal by itself.
const GOAL: Duration = Duration::from_millis(100);
const WORST: Duration = Duration::from_secs(1);
/// A newcomer is served within.
const NEWCOMER: Duration = Duration::from_secs(2);
/// The part of a processor that a server may take which nobody calls.
const BUSY: f64 = 0.2;

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// 50th, 99th percentile and the worst.
fn percentiles(slice: &Slice) -> [f64; 3] {
    let mut sorted = slice.calls.took_us.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (sorted.len() as f64 * part) as usize;
        sorted
            .get(place.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    };
    [at(0.5), at(0.99), at(1.0)]
}

fn slowest_us(slice: &Slice) -> f64 {
    let slowest = slice.newcomers_us.iter().max();
    slowest.copied().unwrap_or_default() as f64
}

/// In as few letters as tell it.
fn short(time_us: f64) -> String {
    match time_us {
        time if time < 999.5 => format!("{time:.0}u"),
        time if time < 9_995.0 => format!("{:.1}m", time / 1e3),
        time if time < 999_500.0 => format!("{:.0}m", time / 1e3),
        time => format!("{:.1}s", time / 1e6),
    }
}

fn three(slice: &Slice) -> String {
    match slice.calls.took_us.is_empty() {
        true => "-".to_owned(),
        false => percentiles(slice).map(short).join(" "),
    }
}

fn came(slice: &Slice) -> String {
    match slice.newcomers_us.iter().max() {
        _ if !slice.refused.is_empty() => "refused".to_owned(),
        Some(worst) => short(*worst as f64),
        None => "-".to_owned(),
    }
}

pub(super) fn heading() -> handfast_cli::Outcome {
    say!(
        "\nusers: a server (uid {}), attackers ({}), a client ({}), a newcomer ({}), a server attacked instead ({})",
        super::SERVER,
        super::ATTACKER,
        super::VICTIM,
        super::NEWCOMER,
        super::DECOY
    )?;
    say!(
        "client's calls: p50 p99 worst; limits: {TIMES} x the worse control, or p50 {MEDIAN:?}, p99 {FLOOR:?} (times the load for each processor), worst {WORST:?} (goal {GOAL:?}), \
         newcomer {NEWCOMER:?}; memory {} MiB more, {} where there are many links",
        super::kinds::PLAIN.grows_mib,
        super::kinds::MANY_LINKS.grows_mib
    )?;
    say!(
        "{:<18}{:<20}{:<20}{:<20}{:<15}{:>8}{:>6}  {}",
        "attack",
        "no attack",
        "attacked elsewhere",
        "attacked",
        "newcomer",
        "KiB",
        "fds",
        "verdict"
    )
}

impl Measured {
    fn p99_limit_us(&self) -> f64 {
        let [_, alone, _] = percentiles(&self.alone);
        let [_, elsewhere, _] = percentiles(&self.elsewhere);
        (alone.max(elsewhere) * TIMES).max(us(FLOOR) * self.crowd())
    }

    /// How many wanted a processor for each that there is, at least one.
    fn crowd(&self) -> f64 {
        let slices = [&self.alone, &self.elsewhere, &self.struck];
        slices.iter().fold(1.0, |most, slice| most.max(slice.crowd))
    }

    /// The limit beyond which a time is late on a machine as busy as the controls found it.
    fn late_us(&self, limit: Duration, of: impl Fn(&Slice) -> f64) -> f64 {
        let worse = of(&self.alone).max(of(&self.elsewhere));
        (worse * TIMES).max(us(limit))
    }

    /// Users of one trust group may delay each other by up to the goal.
    fn is_slow(&self, kind: &Kind) -> bool {
        let [_, p99, _] = percentiles(&self.struck);
        let limit = match kind.attacker == kind.victim {
            true => us(GOAL) * 1.5,
            false => self.p99_limit_us(),
        };
        p99 > limit
    }

    /// Whether something was late, and nothing else is wrong.
    pub(super) fn is_noisy(&self, kind: &Kind) -> bool {
        self.wrongs(kind).is_empty() && !self.delays(kind).is_empty()
    }

    /// Why this may not be.
    fn failures(&self, kind: &Kind) -> Vec<String> {
        let mut failures = self.wrongs(kind);
        failures.extend(self.delays(kind));
        failures
    }

    /// Failures on any machine, however busy.
    fn wrongs(&self, kind: &Kind) -> Vec<String> {
        let struck = &self.struck;
        let mut failures = Vec::new();
        failures.extend(
            struck
                .ended
                .iter()
                .map(|how| format!("the server ended: {how}")),
        );
        failures.extend(struck.breaches.iter().cloned());
        for (slice, where_to) in [(&self.elsewhere, "elsewhere"), (struck, "here")] {
            if slice.absent > 0 {
                failures.push(format!(
                    "{} attackers did not come to their attack {where_to} within {BEGINS:?}",
                    slice.absent
                ));
            }
        }
        if let Some(failure) = struck.calls.failures.first() {
            let count = struck.calls.failures.len();
            failures.push(format!("{count} calls failed: {failure}"));
        }
        if let Some(refused) = struck.refused.first() {
            failures.push(format!("newcomer: {refused}"));
        }
        if struck.memory_kib > self.alone.memory_kib.max(0) + (kind.grows_mib << 10) {
            failures.push("the server's memory grew".to_owned());
        }
        if struck.busy > BUSY {
            let percent = struck.busy * 100.0;
            failures.push(format!(
                "the server took {percent:.0} % of a processor when nobody called it"
            ));
        }
        failures.dedup();
        failures
    }

    /// Delays beyond the limits.
    fn delays(&self, kind: &Kind) -> Vec<String> {
        let struck = &self.struck;
        let [median, _, worst] = percentiles(struck);
        let mut failures = Vec::new();
        if slowest_us(struck) > self.late_us(NEWCOMER, slowest_us) {
            failures.push("newcomer was served late".to_owned());
        }
        if worst > self.late_us(WORST, |slice| percentiles(slice)[2]) {
            failures.push(format!("the worst call took {}", short(worst)));
        }
        let is_apart = kind.attacker != kind.victim;
        if is_apart
            && median > self.late_us(MEDIAN.mul_f64(self.crowd()), |slice| percentiles(slice)[0])
        {
            failures.push("the median is too high".to_owned());
        }
        if self.is_slow(kind) {
            failures.push("p99 is too high".to_owned());
        }
        failures
    }

    /// Writes the row. Whether all was well.
    pub(super) fn row(&self, kind: &Kind) -> Result<bool, Box<dyn std::error::Error>> {
        let struck = &self.struck;
        let failures = self.failures(kind);
        let [_, _, worst] = percentiles(struck);
        let verdict = match (failures.is_empty(), worst > us(GOAL)) {
            (false, _) => "FAILED",
            (true, true) => "ok, above the goal",
            (true, false) => "ok",
        };
        say!(
            "{:<18}{:<20}{:<20}{:<20}{:<15}{:>8}{:>6}  {verdict}",
            kind.name,
            three(&self.alone),
            three(&self.elsewhere),
            three(struck),
            format!("{} / {}", came(&self.alone), came(struck)),
            struck.memory_kib,
            struck.descriptors,
        )?;
        say!("    {}", kind.what)?;
        for failure in &failures {
            say!("    ! {failure}")?;
        }
        let mut notes = struck.notes.clone();
        notes.dedup();
        for note in notes {
            say!("    {note}")?;
        }
        Ok(failures.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::PLAIN;
    use super::*;

    #[test]
    fn an_attacker_that_does_not_come_to_its_attack_is_a_failure() {
        let mut measured = Measured::default();
        assert!(measured.failures(&PLAIN).is_empty());
        measured.struck.absent = 1;
        assert_eq!(measured.failures(&PLAIN).len(), 1);
        measured.elsewhere.absent = 2;
        assert_eq!(measured.failures(&PLAIN).len(), 2);
        assert!(!measured.is_noisy(&PLAIN));
    }
}
