//! Readings of several rounds, to curves of medians and to a verdict.

use super::result::{Curve, Point, Verdict};
use crate::bench::stats::median;

/// Readings of one quantity: for each curve and x, those of all rounds.
#[derive(Default)]
pub(crate) struct Series(Vec<(String, Vec<Place>)>);

/// One x.
struct Place {
    x: f64,
    values: Vec<f64>,
}

impl Series {
    pub(crate) fn add(&mut self, curve: &str, x: f64, value: f64) {
        let index = self.0.iter().position(|(name, _)| name == curve);
        let index = index.unwrap_or_else(|| {
            self.0.push((curve.to_owned(), Vec::new()));
            self.0.len() - 1
        });
        let places = &mut self.0[index].1;
        match places.iter_mut().find(|place| place.x == x) {
            Some(place) => place.values.push(value),
            None => places.push(Place {
                x,
                values: vec![value],
            }),
        }
    }

    /// The median of the readings there.
    pub(crate) fn at(&self, curve: &str, x: f64) -> Option<f64> {
        let (_, places) = self.0.iter().find(|(name, _)| name == curve)?;
        median(&places.iter().find(|place| place.x == x)?.values)
    }

    /// These curves; those without readings say so.
    pub(crate) fn curves(&self, names: &[&str]) -> Vec<Curve> {
        names
            .iter()
            .map(|name| self.curve(name, |_| None))
            .collect()
    }

    /// As [`Self::curves`], with what stands at x 0, 1 and so on.
    pub(crate) fn bars(&self, names: &[&str], labels: &[&str]) -> Vec<Curve> {
        let label = |x: f64| labels.get(x as usize).map(|label| (*label).to_owned());
        names.iter().map(|name| self.curve(name, label)).collect()
    }

    fn curve(&self, name: &str, label: impl Fn(f64) -> Option<String>) -> Curve {
        let places = self.0.iter().find(|(known, _)| known == name);
        let places = places.map_or(&[][..], |(_, places)| places);
        let point = |place: &Place| {
            let values = || place.values.iter().copied();
            Some(Point {
                x: place.x,
                y: median(&place.values)?,
                range: values().reduce(f64::min).zip(values().reduce(f64::max)),
                label: label(place.x),
            })
        };
        let points: Vec<Point> = places.iter().filter_map(point).collect();
        Curve {
            name: name.to_owned(),
            absent: points.is_empty().then(|| ABSENT.to_owned()),
            points,
        }
    }
}

const ABSENT: &str =
    "no turn of it came to an end here; what was said on standard error has the reason";

/// One part of a claim.
pub(crate) struct Part {
    /// `None` where it could not be measured.
    pub(crate) holds: Option<bool>,
    /// What was found, with its numbers.
    pub(crate) found: String,
}

impl Part {
    pub(crate) const fn new(holds: bool, found: String) -> Self {
        Self {
            holds: Some(holds),
            found,
        }
    }

    /// Why it may be otherwise here; said where it is.
    pub(crate) fn unless(mut self, cause: &str) -> Self {
        if self.holds == Some(false) {
            self.found += &format!(" ({cause})");
        }
        self
    }

    pub(crate) fn missing(what: &str) -> Self {
        Self {
            holds: None,
            found: format!("{what}: not measured"),
        }
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
    fn a_curve_has_the_median_and_the_range_of_its_rounds() {
        let mut series = Series::default();
        for value in [3.0, 1.0, 9.0] {
            series.add("spin", 1.0, value);
        }
        let curves = series.bars(&["spin", "block"], &["alone", "hog"]);
        let point = &curves[0].points[0];
        assert_eq!((point.y, point.range), (3.0, Some((1.0, 9.0))));
        assert_eq!(point.label.as_deref(), Some("hog"));
        assert!(curves[0].absent.is_none() && curves[1].absent.is_some());
        assert_eq!(series.at("spin", 2.0), None);
    }

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
        assert_eq!(cause(Some(false)), "not so: this (since)");
        assert_eq!(cause(Some(true)), "as claimed: this");
    }
}
