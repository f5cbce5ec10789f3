//! From rows of a benchmark to curves.

use crate::claims::Rounds;
use crate::result::Curve;
use handfast_bench::report::{Board, Row};

impl Rounds for Board {
    fn count(&self) -> usize {
        self.rounds()
    }

    fn only(&self, round: usize) -> Self {
        Self::only(self, round)
    }
}

/// One curve for each system of a case, in the order of first appearance.
pub(crate) fn by_system(
    rows: &[Row],
    case: &str,
    x: impl Fn(&Row) -> Option<f64>,
    y: impl Fn(&Row) -> Option<f64>,
) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows.iter().filter(|row| row.case == case) {
        let Some((x, y)) = x(row).zip(y(row)) else {
            continue;
        };
        let point = Curve::new(row.system, [(x, y)]);
        match curves.iter_mut().find(|curve| curve.name == row.system) {
            Some(curve) => curve.points.extend(point.points),
            None => curves.push(point),
        }
    }
    curves
}

/// The value of `field` in the row of a system at one payload.
pub(crate) fn value(
    rows: &[Row],
    (case, system): (&str, &str),
    payload_bytes: usize,
    field: impl Fn(&Row) -> Option<f64>,
) -> Option<f64> {
    rows.iter()
        .find(|row| {
            row.case == case && row.system == system && row.payload_bytes == Some(payload_bytes)
        })
        .and_then(field)
}
