//! The arithmetic of the tables.

/// The middle value, or the mean of the two middle ones. `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
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
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// `value / limit`, where both are there and the limit is not zero.
pub fn ratio(value: Option<f64>, limit: Option<f64>) -> Option<f64> {
    let limit = limit.filter(|limit| *limit > 0.0)?;
    Some(value? / limit)
}

/// A quantile of counted values that were read from a clock advancing in steps of `step`: each
/// value stands for the step around it, so the result is finer than the clock. `None` for no
/// values.
pub(crate) fn quantile(counted: &[(u64, u64)], quantile: f64, step: f64) -> Option<f64> {
    let total: u64 = counted.iter().map(|(_, count)| count).sum();
    let wanted = quantile * total as f64;
    // How many values lie below `at`, each spread evenly over its step.
    let below = |at: f64| -> f64 {
        let share = |value: u64| ((at - value as f64) / step + 0.5).clamp(0.0, 1.0);
        counted
            .iter()
            .map(|(value, count)| share(*value) * *count as f64)
            .sum()
    };
    let mut low = counted.iter().map(|(value, _)| *value).min()? as f64 - step;
    let mut high = counted.iter().map(|(value, _)| *value).max()? as f64 + step;
    // Halving 2^40 ns forty-eight times leaves less than a hundredth of a nanosecond.
    for _ in 0..48 {
        let middle = f64::midpoint(low, high);
        if below(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high.max(0.0))
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
    fn a_quantile_is_finer_than_the_clocks_step() {
        assert_eq!(quantile(&[], 0.5, 10.0), None);
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 0.1;
        // A quarter of the readings say 130, the rest 140: the true value is near 137.
        assert!(near(quantile(&[(130, 25), (140, 75)], 0.5, 10.0), 138.33));
        assert!(near(quantile(&[(130, 50), (140, 50)], 0.5, 10.0), 135.0));
        assert!(near(quantile(&[(130, 99), (9_000, 1)], 0.5, 10.0), 130.05));
        assert!(quantile(&[(130, 99), (9_000, 1)], 0.999, 10.0).unwrap() > 8_990.0);
    }

    #[test]
    fn a_ratio_needs_both_sides() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(ratio(Some(3.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(2.0)), None);
    }
}
