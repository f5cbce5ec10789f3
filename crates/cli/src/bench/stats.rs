//! The arithmetic of the tables.

/// The middle value, or the mean of the two middle ones. `None` for no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Jain's fairness index of shares: 1 when all are equal, 1/n when one has everything. `None`
/// when nobody has anything.
pub(crate) fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The geometric mean. `None` for no values.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// `value / limit`, where both are there and the limit is not zero.
pub(crate) fn ratio(value: Option<f64>, limit: Option<f64>) -> Option<f64> {
    let limit = limit.filter(|limit| *limit > 0.0)?;
    Some(value? / limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_order_and_one_wild_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1e9, 1.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_one_over_n_for_a_monopoly() {
        assert_eq!(jain(&[7, 7, 7]), Some(1.0));
        assert_eq!(jain(&[9, 0, 0, 0]), Some(0.25));
        assert_eq!(jain(&[0, 0]), None);
        let skewed = jain(&[1, 2, 3]).unwrap();
        assert!((skewed - 36.0 / 42.0).abs() < 1e-12);
    }

    #[test]
    fn the_geometric_mean_of_ratios_is_symmetric() {
        assert!((geometric_mean(&[2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[1.0, 10.0, 100.0]).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(ratio(Some(3.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(2.0)), None);
    }
}
