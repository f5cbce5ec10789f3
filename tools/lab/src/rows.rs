//! From rows of a benchmark to curves.

use crate::claims::Rounds;
use crate::result::{Curve, Point};
use handfast_bench::report::{Board, Row};

impl Rounds for Board {
    fn count(&self) -> usize {
        self.rounds()
    }

    fn only(&self, round: usize) -> Self {
        Self::only(self, round)
    }
}

/// The curves of all rounds, with the lowest and the highest round at each point.
pub(crate) fn ranged<R: Rounds>(found: &R, curves: impl Fn(&R) -> Vec<Curve>) -> Vec<Curve> {
    let rounds = (0..found.count()).map(|round| curves(&found.only(round)));
    let rounds: Vec<_> = rounds.collect();
    let mut all = curves(found);
    for curve in &mut all {
        for point in &mut curve.points {
            let same = rounds.iter().flatten();
            let same = same.filter(|other| other.name == curve.name);
            let same = same.flat_map(|other| &other.points);
            // A point in a cloud has another x in each round, and the same name.
            let is_same = |other: &&Point| match &point.label {
                Some(_) => other.label == point.label,
                None => other.x == point.x,
            };
            let values = same.filter(is_same).map(|other| other.y);
            // A value of medians can lie outside of the values of all rounds.
            let (low, high) = values.fold((point.y, point.y), |(low, high), y| {
                (f64::min(low, y), f64::max(high, y))
            });
            point.range = Some((low, high));
        }
    }
    all
}

/// One curve for each system of a case, in the order of first appearance.
pub(crate) fn by_system(
    board: &Board,
    case: &str,
    x: impl Fn(&Row) -> Option<f64>,
    y: impl Fn(&Row) -> Option<f64>,
) -> Vec<Curve> {
    ranged(board, |board| {
        let mut curves: Vec<Curve> = Vec::new();
        for row in board.rows().iter().filter(|row| row.case == case) {
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
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_bench::report::{Key, Reading};

    #[test]
    fn points_have_the_lowest_and_the_highest_round() {
        let mut board = Board::default();
        for (payload, p50_ns) in [(24, 5.0), (24, 9.0), (24, 6.0), (64, 7.0)] {
            let key = Key {
                case: "echo".to_owned(),
                system: "pipe",
                payload_bytes: Some(payload),
                clients: None,
            };
            let reading = Reading {
                p50_ns: Some(p50_ns),
                ..Reading::default()
            };
            board.add(key, reading);
        }
        let size = |row: &Row| row.payload_bytes.map(|len| len as f64);
        let curves = by_system(&board, "echo", size, |row| row.p50_ns);
        let points = &curves[0].points;
        assert_eq!((curves.len(), points.len()), (1, 2));
        assert_eq!((points[0].y, points[0].range), (6.0, Some((5.0, 9.0))));
        assert_eq!((points[1].y, points[1].range), (7.0, Some((7.0, 7.0))));
    }
}
