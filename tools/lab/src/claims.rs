//! From figures to a verdict: a claim, part by part, and in each round by itself.

use crate::result::Verdict;

/// One part of a claim.
pub(crate) struct Part {
    /// `None` where it could not be measured, or what was measured makes no sense.
    pub(crate) holds: Option<bool>,
    /// The finding, with its numbers.
    pub(crate) found: String,
    /// In how many rounds, each by itself, it comes to the same, and how many there are in which it was measured.
    rounds: Option<(usize, usize)>,
    /// The measurement makes no sense: it is neither for the claim nor against it.
    is_senseless: bool,
}

/// Readings of several rounds.
pub(crate) trait Rounds: Sized {
    /// How many.
    fn count(&self) -> usize;

    /// As if there had been this round alone.
    fn only(&self, round: usize) -> Self;
}

impl<T: Rounds> Rounds for Vec<T> {
    fn count(&self) -> usize {
        self.iter().map(T::count).max().unwrap_or_default()
    }

    fn only(&self, round: usize) -> Self {
        self.iter().map(|one| one.only(round)).collect()
    }
}

impl<A: Rounds, B: Rounds> Rounds for (A, B) {
    fn count(&self) -> usize {
        self.0.count().max(self.1.count())
    }

    fn only(&self, round: usize) -> Self {
        (self.0.only(round), self.1.only(round))
    }
}

impl Part {
    pub(crate) const fn new(holds: bool, found: String) -> Self {
        Self {
            holds: Some(holds),
            found,
            rounds: None,
            is_senseless: false,
        }
    }

    /// Whether it is so in three of four rounds and more. One round says nothing of others.
    fn is_decided(&self) -> bool {
        self.rounds
            .is_none_or(|(same, all)| all > 1 && 4 * same >= 3 * all)
    }

    /// Why it may be otherwise here, said where it is: a guess.
    pub(crate) fn unless(mut self, cause: &str) -> Self {
        if self.holds == Some(false) {
            self.found += &format!(" (a likely cause, not tested: {cause})");
        }
        self
    }

    /// `what` is at least `least` times something, and no more than a measurement that went right can say.
    pub(crate) fn at_least(what: &str, ratio: Option<f64>, least: f64) -> Self {
        let most = least * ABSURD;
        let can_be = ratio.is_none_or(|ratio| (0.0..=most).contains(&ratio));
        Self::possible(can_be, what, ratio, (least, most))
    }

    /// `what` is at most `most` times something, and no less than a measurement that went right can say.
    pub(crate) fn at_most(what: &str, ratio: Option<f64>, most: f64) -> Self {
        let least = most / ABSURD;
        let can_be = ratio.is_none_or(|ratio| ratio >= least);
        Self::possible(can_be, what, ratio, (least, most))
    }

    fn possible(can_be: bool, what: &str, ratio: Option<f64>, limits: (f64, f64)) -> Self {
        match can_be {
            true => Self::within(what, ratio, limits),
            false => Self::senseless(what),
        }
    }

    /// `what` is between `least` and `most`.
    pub(crate) fn within(what: &str, ratio: Option<f64>, (least, most): (f64, f64)) -> Self {
        match ratio {
            Some(ratio) if !ratio.is_finite() => Self::senseless(what),
            Some(ratio) => {
                let [found, from, to] = [ratio, least, most].map(short);
                let holds = (least..=most).contains(&ratio);
                Self::new(holds, format!("{what} {found} (to hold: {from} to {to})"))
            }
            None => Self::missing(what),
        }
    }

    pub(crate) fn missing(what: &str) -> Self {
        Self {
            holds: None,
            found: format!("{what}: not measured"),
            rounds: None,
            is_senseless: false,
        }
    }

    /// The readings that `what` is made of contradict each other.
    pub(crate) fn senseless(what: &str) -> Self {
        Self {
            found: format!("{what}: what was measured makes no sense"),
            is_senseless: true,
            ..Self::missing(what)
        }
    }
}

/// A ratio that is so many times beyond its limit is a measurement that went wrong, and no claim that holds.
const ABSURD: f64 = 100.0;

/// A number with two or three digits.
pub(crate) fn short(number: f64) -> String {
    match number {
        number if number > 0.0 && number < 0.0995 => format!("{number:.3}"),
        number if number >= 99.5 => format!("{number:.0}"),
        number if number >= 9.95 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Judges what was found in all rounds, each part by how many rounds agree with it.
pub(crate) fn judge<R: Rounds>(found: &R, claims: impl Fn(&R) -> Vec<Part>) -> (Verdict, String) {
    let mut parts = claims(found);
    let rounds = (0..found.count()).map(|round| claims(&found.only(round)));
    let rounds: Vec<_> = rounds.collect();
    for (place, part) in parts.iter_mut().enumerate() {
        let alone = rounds.iter().filter_map(|parts| parts.get(place));
        let alone = alone.filter(|part| part.holds.is_some() || part.is_senseless);
        let alone: Vec<_> = alone.map(|part| part.holds).collect();
        let same = alone.iter().filter(|holds| **holds == part.holds);
        part.rounds = Some((same.count(), alone.len()));
    }
    weigh(&parts)
}

/// All parts hold, some do, or none does, or too few rounds agree; and what was found, part by part.
pub(crate) fn weigh(parts: &[Part]) -> (Verdict, String) {
    let is = |part: &Part, holds| part.holds == Some(holds) && part.is_decided();
    let held = parts.iter().filter(|part| is(part, true)).count();
    let failed = parts.iter().filter(|part| is(part, false)).count();
    let is_missing = |part: &&Part| part.holds.is_none() && !part.is_senseless;
    let missing = parts.iter().filter(is_missing).count();
    let open = parts.len() - held - failed - missing;
    let verdict = match (held, failed, open) {
        (0, 0, 0) => Verdict::Absent,
        (1.., 1.., _) => Verdict::Partly,
        (.., 1..) => Verdict::Undecided,
        (0, ..) => Verdict::Fails,
        _ if missing > 0 => Verdict::Partly,
        _ => Verdict::Holds,
    };
    let say = |part: &Part| {
        let word = match part.holds {
            _ if is(part, true) => "as claimed: ",
            _ if is(part, false) => "not so: ",
            None if !part.is_senseless => "",
            _ => "undecided: ",
        };
        let rounds = part.rounds.filter(|_| part.holds.is_some());
        let rounds = rounds.map_or_else(String::new, |(same, all)| {
            format!(" (so in {same} of {all} rounds)")
        });
        format!("{word}{}{rounds}", part.found)
    };
    let count = format!("{held} of {} as claimed", parts.len());
    let reasons = parts.iter().map(say);
    let reasons: Vec<String> = std::iter::once(count).chain(reasons).collect();
    (verdict, reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;

    fn part(holds: Option<bool>, rounds: Option<(usize, usize)>) -> Part {
        Part {
            holds,
            found: "this".to_owned(),
            rounds,
            is_senseless: false,
        }
    }

    #[test]
    fn a_claim_holds_with_all_of_its_parts() {
        let verdict = |parts: &[Option<bool>]| {
            weigh(
                &parts
                    .iter()
                    .map(|holds| part(*holds, None))
                    .collect::<Vec<_>>(),
            )
            .0
        };
        assert_eq!(verdict(&[Some(true), Some(true)]), Verdict::Holds);
        assert_eq!(verdict(&[Some(true), Some(false)]), Verdict::Partly);
        assert_eq!(verdict(&[Some(true), None]), Verdict::Partly);
        assert_eq!(verdict(&[Some(false), None]), Verdict::Fails);
        assert_eq!(verdict(&[None]), Verdict::Absent);
        let (_, reasons) = weigh(&[part(Some(false), None)]);
        assert_eq!(reasons, "0 of 1 as claimed; not so: this");
        let cause = |holds| weigh(&[part(holds, None).unless("since")]).1;
        assert_eq!(
            cause(Some(false)),
            "0 of 1 as claimed; not so: this (a likely cause, not tested: since)"
        );
        assert_eq!(cause(Some(true)), "1 of 1 as claimed; as claimed: this");
    }

    #[test]
    fn what_most_rounds_do_not_agree_on_is_undecided() {
        let verdict = |parts: &[(bool, usize, usize)]| {
            let parts = parts.iter();
            let parts = parts.map(|(holds, same, all)| part(Some(*holds), Some((*same, *all))));
            weigh(&parts.collect::<Vec<_>>()).0
        };
        assert_eq!(verdict(&[(true, 5, 5), (true, 4, 5)]), Verdict::Holds);
        assert_eq!(verdict(&[(true, 5, 5), (true, 3, 5)]), Verdict::Undecided);
        assert_eq!(verdict(&[(false, 5, 5), (true, 3, 5)]), Verdict::Undecided);
        assert_eq!(verdict(&[(false, 4, 4), (true, 3, 4)]), Verdict::Partly);
        assert_eq!(verdict(&[(true, 1, 1)]), Verdict::Undecided);
        let (_, reasons) = weigh(&[part(Some(true), Some((1, 2)))]);
        assert_eq!(
            reasons,
            "0 of 1 as claimed; undecided: this (so in 1 of 2 rounds)"
        );
    }

    #[test]
    fn what_makes_no_sense_is_undecided_and_agrees_with_no_round() {
        let (verdict, reasons) = weigh(&[Part::senseless("x"), part(Some(true), None)]);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(reasons.contains("undecided: x: what was measured makes no sense"));
        assert_eq!(Part::at_most("x", Some(f64::NAN), 1.0).holds, None);
        // Nor what is far beyond the limit.
        assert_eq!(Part::at_most("x", Some(0.0), 1.0).holds, None);
        assert_eq!(Part::at_most("x", Some(0.01), 1.0).holds, Some(true));
        assert_eq!(Part::at_least("x", Some(151.0), 1.5).holds, None);
        assert_eq!(Part::at_least("x", Some(-1.0), 1.5).holds, None);
        // One round of four, and two of five, have times that cannot be.
        let over = |values: &[f64]| {
            let mut series = Series::default();
            for value in values {
                series.add("x", 0.0, *value);
            }
            let claims = |series: &Series| match series.at("x", 0.0) {
                Some(value) if value <= 0.0 => vec![Part::senseless("x")],
                value => vec![Part::at_most("x", value, 5.0)],
            };
            judge(&series, claims).0
        };
        assert_eq!(over(&[1.0, 2.0, -1.0, 3.0]), Verdict::Holds);
        assert_eq!(over(&[1.0, 2.0, -1.0, -1.0, 3.0]), Verdict::Undecided);
        assert_eq!(over(&[-1.0; 5]), Verdict::Undecided);
    }

    #[test]
    fn each_round_is_judged_by_itself() {
        let mut series = Series::default();
        for value in [1.0, 9.0, 2.0, 3.0, 1.0] {
            series.add("x", 0.0, value);
        }
        let below = |limit: f64| {
            let claims = |series: &Series| vec![Part::at_most("x", series.at("x", 0.0), limit)];
            judge(&series, claims)
        };
        let (verdict, reasons) = below(5.0);
        assert_eq!(verdict, Verdict::Holds);
        assert!(reasons.ends_with("x 2.00 (to hold: 0.050 to 5.00) (so in 4 of 5 rounds)"));
        assert_eq!(below(2.5).0, Verdict::Undecided);
        assert_eq!(below(0.5).0, Verdict::Fails);
        assert_eq!(
            judge(&Series::default(), |_| vec![Part::missing("x")]).0,
            Verdict::Absent
        );
    }

    #[test]
    fn a_ratio_is_held_against_what_is_claimed_of_it() {
        let yes = Part::at_least("BSS / SysV", Some(1.5), 1.5);
        let no = Part::at_most("BSLS at most clients / its peak", Some(0.876), 0.5);
        let unknown = Part::within("fixed / default", None, (1.3, 1.5));
        let parts = [yes, no, unknown];
        assert_eq!(
            parts.each_ref().map(|part| part.holds),
            [Some(true), Some(false), None]
        );
        assert_eq!(Part::within("x", Some(1.51), (1.3, 1.5)).holds, Some(false));
        let (verdict, reasons) = weigh(&parts);
        assert_eq!(verdict, Verdict::Partly);
        assert_eq!(
            reasons,
            "1 of 3 as claimed; as claimed: BSS / SysV 1.50 (to hold: 1.50 to 150); not so: BSLS at most clients / its peak 0.88 (to \
             hold: 0.005 to 0.50); fixed / default: not measured"
        );
    }
}
