//! Readings of several rounds, to curves of medians.

use crate::claims::Rounds;
use crate::result::{Curve, Point};
use handfast_bench::stats::median;

/// Readings of one quantity: for each curve and x, the readings of all rounds.
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

    /// The named curves; curves without readings say so.
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

impl Rounds for Series {
    fn count(&self) -> usize {
        let places = self.0.iter().flat_map(|(_, places)| places);
        let counts = places.map(|place| place.values.len());
        counts.max().unwrap_or_default()
    }

    /// Where a turn of an earlier round has failed, that of a later one is in its place.
    fn only(&self, round: usize) -> Self {
        let place = |place: &Place| Place {
            x: place.x,
            values: place.values.get(round).copied().into_iter().collect(),
        };
        let curves = self.0.iter();
        let curves =
            curves.map(|(name, places)| (name.clone(), places.iter().map(place).collect()));
        Self(curves.collect())
    }
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
}
