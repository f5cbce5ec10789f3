//! From figures to a verdict.

use crate::lab::result::Verdict;

/// One thing that is claimed, held against what was measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// Nothing where it was not measured.
    pub(super) holds: Option<bool>,
    /// With the numbers.
    pub(super) said: String,
}

impl Claim {
    /// `what` is at least `least` times something.
    pub(super) fn at_least(what: &str, ratio: Option<f64>, least: f64) -> Self {
        Self::of(
            what,
            ratio,
            |ratio| ratio >= least,
            &format!("to hold: {least} or more"),
        )
    }

    /// `what` is at most `most` times something.
    pub(super) fn at_most(what: &str, ratio: Option<f64>, most: f64) -> Self {
        Self::of(
            what,
            ratio,
            |ratio| ratio <= most,
            &format!("to hold: {most} or less"),
        )
    }

    /// `what` is between `least` and `most`.
    pub(super) fn within(what: &str, ratio: Option<f64>, (least, most): (f64, f64)) -> Self {
        let is_within = |ratio| (least..=most).contains(&ratio);
        Self::of(
            what,
            ratio,
            is_within,
            &format!("to hold: {least} to {most}"),
        )
    }

    fn of(what: &str, ratio: Option<f64>, test: impl Fn(f64) -> bool, claimed: &str) -> Self {
        let said = match ratio {
            Some(ratio) => format!("{what} {} ({claimed})", short(ratio)),
            None => format!("{what} not measured"),
        };
        Self {
            holds: ratio.map(test),
            said,
        }
    }
}

/// A number with two or three digits.
pub(super) fn short(number: f64) -> String {
    match number {
        number if number >= 99.5 => format!("{number:.0}"),
        number if number >= 9.95 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// What all claims together come to, and why: each that was measured counts alike.
pub(super) fn weigh(claims: &[Claim]) -> (Verdict, String) {
    let counted: Vec<bool> = claims.iter().filter_map(|claim| claim.holds).collect();
    let verdict = match (counted.contains(&true), counted.contains(&false)) {
        (true, true) => Verdict::Partly,
        (true, false) => Verdict::Holds,
        (false, true) => Verdict::Fails,
        (false, false) => Verdict::Absent,
    };
    let sign = |claim: &Claim| match claim.holds {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let reasons: Vec<_> = claims
        .iter()
        .map(|claim| format!("{}: {}", sign(claim), claim.said))
        .collect();
    (verdict, reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_counts_what_was_measured_and_says_the_numbers() {
        let yes = Claim::at_least("BSS / SysV", Some(1.5), 1.5);
        let no = Claim::at_most("BSLS at most clients / its peak", Some(0.876), 0.5);
        let unknown = Claim::within("fixed / default", None, (1.3, 1.5));
        assert_eq!(
            [&yes, &no, &unknown].map(|claim| claim.holds),
            [Some(true), Some(false), None]
        );
        assert_eq!(
            Claim::within("x", Some(1.51), (1.3, 1.5)).holds,
            Some(false)
        );
        let verdict = |claims: &[&Claim]| {
            let claims: Vec<Claim> = claims.iter().map(|claim| (*claim).clone()).collect();
            weigh(&claims).0
        };
        assert_eq!(verdict(&[&yes, &unknown]), Verdict::Holds);
        assert_eq!(verdict(&[&yes, &no]), Verdict::Partly);
        assert_eq!(verdict(&[&no]), Verdict::Fails);
        assert_eq!(verdict(&[&unknown]), Verdict::Absent);
        let (_, reasons) = weigh(&[yes, no, unknown]);
        assert_eq!(
            reasons,
            "yes: BSS / SysV 1.50 (to hold: 1.5 or more); no: BSLS at most clients / its peak 0.88 (to hold: 0.5 or \
             less); unknown: fixed / default not measured"
        );
    }
}
