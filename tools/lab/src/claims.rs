//! From figures to a verdict: a claim, part by part.

use crate::result::Verdict;

/// One part of a claim.
pub(crate) struct Part {
    /// `None` where it could not be measured.
    pub(crate) holds: Option<bool>,
    /// The finding, with its numbers.
    pub(crate) found: String,
}

impl Part {
    pub(crate) const fn new(holds: bool, found: String) -> Self {
        Self {
            holds: Some(holds),
            found,
        }
    }

    /// Why it may be otherwise here, said where it is: a guess.
    pub(crate) fn unless(mut self, cause: &str) -> Self {
        if self.holds == Some(false) {
            self.found += &format!(" (a likely cause, not tested: {cause})");
        }
        self
    }

    /// `what` is at least `least` times something.
    pub(crate) fn at_least(what: &str, ratio: Option<f64>, least: f64) -> Self {
        Self::of(
            what,
            ratio,
            |ratio| ratio >= least,
            &format!("to hold: {least} or more"),
        )
    }

    /// `what` is at most `most` times something.
    pub(crate) fn at_most(what: &str, ratio: Option<f64>, most: f64) -> Self {
        Self::of(
            what,
            ratio,
            |ratio| ratio <= most,
            &format!("to hold: {most} or less"),
        )
    }

    /// `what` is between `least` and `most`.
    pub(crate) fn within(what: &str, ratio: Option<f64>, (least, most): (f64, f64)) -> Self {
        let is_within = |ratio| (least..=most).contains(&ratio);
        Self::of(
            what,
            ratio,
            is_within,
            &format!("to hold: {least} to {most}"),
        )
    }

    fn of(what: &str, ratio: Option<f64>, test: impl Fn(f64) -> bool, claimed: &str) -> Self {
        match ratio {
            Some(ratio) => Self::new(test(ratio), format!("{what} {} ({claimed})", short(ratio))),
            None => Self::missing(what),
        }
    }

    pub(crate) fn missing(what: &str) -> Self {
        Self {
            holds: None,
            found: format!("{what}: not measured"),
        }
    }
}

/// A number with two or three digits.
pub(crate) fn short(number: f64) -> String {
    match number {
        number if number >= 99.5 => format!("{number:.0}"),
        number if number >= 9.95 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// All parts hold, some do, or none does; and what was found, part by part.
pub(crate) fn judge(parts: &[Part]) -> (Verdict, String) {
    let count = |holds| parts.iter().filter(|part| part.holds == holds).count();
    let verdict = match (count(Some(true)), count(Some(false)), count(None)) {
        (0, 0, _) => Verdict::Absent,
        (_, 0, 0) => Verdict::Holds,
        (0, ..) => Verdict::Fails,
        _ => Verdict::Partly,
    };
    let say = |part: &Part| match part.holds {
        Some(true) => format!("as claimed: {}", part.found),
        Some(false) => format!("not so: {}", part.found),
        None => part.found.clone(),
    };
    let reasons: Vec<String> = parts.iter().map(say).collect();
    (verdict, reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_with_all_of_its_parts() {
        let part = |holds| Part {
            holds,
            found: "this".to_owned(),
        };
        let verdict = |parts: &[Option<bool>]| {
            judge(&parts.iter().map(|holds| part(*holds)).collect::<Vec<_>>()).0
        };
        assert_eq!(verdict(&[Some(true), Some(true)]), Verdict::Holds);
        assert_eq!(verdict(&[Some(true), Some(false)]), Verdict::Partly);
        assert_eq!(verdict(&[Some(true), None]), Verdict::Partly);
        assert_eq!(verdict(&[Some(false), None]), Verdict::Fails);
        assert_eq!(verdict(&[None]), Verdict::Absent);
        let (_, reasons) = judge(&[part(Some(false))]);
        assert_eq!(reasons, "not so: this");
        let cause = |holds| judge(&[part(holds).unless("since")]).1;
        assert_eq!(
            cause(Some(false)),
            "not so: this (a likely cause, not tested: since)"
        );
        assert_eq!(cause(Some(true)), "as claimed: this");
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
        let (verdict, reasons) = judge(&parts);
        assert_eq!(verdict, Verdict::Partly);
        assert_eq!(
            reasons,
            "as claimed: BSS / SysV 1.50 (to hold: 1.5 or more); not so: BSLS at most clients / its peak 0.88 (to hold: 0.5 \
             or less); fixed / default: not measured"
        );
    }
}
