//! Scales: from values to places between 0 and 1, and the values that ticks stand at.

/// How far beyond its values a scale reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// From the first value to the last.
    Exact,
    /// From zero to the tick above them where it is linear; with some room at both ends otherwise.
    Beyond,
}

/// One way to lay values along an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    is_log: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

/// Ticks of an axis, about.
const TICKS: f64 = 6.0;
/// More than this many of a logarithmic one, and each second or third is left out.
const LOG_TICKS: f64 = 10.0;

/// The part of a logarithmic axis that stays empty at each end.
const ROOM: f64 = 0.06;
/// The largest value that is shown, and, upside down, the smallest on a logarithmic axis.
const MOST: f64 = 1e30;

impl Scale {
    /// A linear scale; steps are powers of two where `is_binary`. Nothing without values.
    pub(super) fn linear(values: &[f64], reach: Reach, is_binary: bool) -> Option<Self> {
        // Steps between the smallest numbers there are would be none.
        let shown = |value: &f64| {
            if value.abs() < 1.0 / MOST {
                0.0
            } else {
                *value
            }
        };
        let (mut low, mut high) = bounds(values.iter().map(shown))?;
        if reach == Reach::Beyond {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            (low, high) = (low.min(0.0), if high == 0.0 { 1.0 } else { high.max(0.0) });
        }
        let step = step((high - low) / TICKS, is_binary);
        if reach == Reach::Beyond {
            low = (low / step).floor() * step;
            high = (high / step - 1e-9).ceil() * step;
        }
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        Some(Self {
            is_log: false,
            low,
            high,
            ticks: (first..=last).map(|tick| tick as f64 * step).collect(),
        })
    }

    /// A logarithmic one, of the values above zero; ticks are powers of two where `is_binary`.
    pub(super) fn log(values: &[f64], reach: Reach, is_binary: bool) -> Option<Self> {
        let (mut low, mut high) =
            bounds(values.iter().copied().filter(|value| *value >= 1.0 / MOST))?;
        let candidates = match is_binary {
            true => powers(2.0, &[1.0]),
            false => powers(10.0, &[1.0, 2.0, 5.0]),
        };
        if reach == Reach::Beyond || low == high {
            // A point on the frame is hard to see.
            let room = (high / low).powf(ROOM).max(1.25);
            (low, high) = (low / room, high * room);
        }
        let is_within = |tick: &f64| (low * 0.999..=high * 1.001).contains(tick);
        let decades = (high / low).log10();
        let mut ticks: Vec<f64> = if is_binary || decades <= 3.0 {
            candidates.into_iter().filter(is_within).collect()
        } else {
            powers(10.0, &[1.0]).into_iter().filter(is_within).collect()
        };
        let every = (ticks.len() as f64 / LOG_TICKS).ceil().max(1.0) as usize;
        ticks = ticks.into_iter().step_by(every).collect();
        Some(Self {
            is_log: true,
            low,
            high,
            ticks,
        })
    }

    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Where a value is, 0 to 1; nothing where it cannot be shown.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        match self.is_log {
            true if value < 1.0 / MOST => None,
            true => Some((value / self.low).ln() / (self.high / self.low).ln()),
            false => Some((value - self.low) / (self.high - self.low)),
        }
    }

    /// As [`Self::place`], and the beginning for what lies below it.
    pub(super) fn place_or_low(&self, value: f64) -> f64 {
        self.place(value).unwrap_or(0.0).clamp(0.0, 1.0)
    }
}

/// Whether a value can be shown at all. Nothing that is measured is larger, and what is does not overflow here.
pub(super) fn is_sane(value: f64) -> bool {
    value.abs() <= MOST
}

/// The smallest and the largest, if there is any.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|value| is_sane(*value))
        .fold(None, |bounds, value| match bounds {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        })
}

/// The least of 1, 2, 5 times a power of ten (or of the powers of two) that is not below `least`.
fn step(least: f64, is_binary: bool) -> f64 {
    if is_binary {
        return 2f64.powf(least.log2().ceil());
    }
    let ten = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fits = steps.into_iter().find(|step| step * ten >= least * 0.999);
    fits.unwrap_or(10.0) * ten
}

/// Multiples of all the powers that numbers of a result may come near to, ascending.
fn powers(base: f64, multiples: &[f64]) -> Vec<f64> {
    let most = (1e15f64.ln() / base.ln()) as i32;
    (-most..=most)
        .flat_map(|power| multiples.iter().map(move |times| times * base.powi(power)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_span_the_values_from_zero() {
        let scale = Scale::linear(&[37.0, 412.0], Reach::Beyond, false).unwrap();
        assert_eq!(scale.ticks(), [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(scale.place(0.0), Some(0.0));
        assert_eq!(scale.place(250.0), Some(0.5));
    }

    #[test]
    fn exact_scales_end_at_their_values() {
        let scale = Scale::linear(&[1.0, 6.0], Reach::Exact, false).unwrap();
        assert_eq!(scale.ticks(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((scale.place(1.0), scale.place(6.0)), (Some(0.0), Some(1.0)));
        let log = Scale::log(&[16.0, 32_768.0], Reach::Exact, true).unwrap();
        assert_eq!(
            (log.place(16.0), log.place(32_768.0)),
            (Some(0.0), Some(1.0))
        );
        assert_eq!(&log.ticks()[..3], [16.0, 64.0, 256.0]);
    }

    #[test]
    fn log_scales_show_nothing_at_zero_or_below() {
        let scale = Scale::log(&[0.0, -4.0, 3.0, 250.0], Reach::Beyond, false).unwrap();
        assert_eq!(scale.place(0.0), None);
        assert_eq!(scale.place(-4.0), None);
        assert_eq!(scale.place_or_low(0.0), 0.0);
        let ticks = scale.ticks();
        assert_eq!((ticks.first(), ticks.last()), (Some(&5.0), Some(&200.0)));
        assert!(scale.place(3.0).is_some_and(|place| place > 0.04));
        assert_eq!(Scale::log(&[0.0, -1.0], Reach::Beyond, false), None);
    }

    #[test]
    fn many_decades_have_few_ticks() {
        let scale = Scale::log(&[1e-3, 1e12], Reach::Beyond, false).unwrap();
        assert!(scale.ticks().len() <= 9, "{:?}", scale.ticks());
    }

    #[test]
    fn a_single_value_has_room_around_it() {
        for values in [[0.0], [5.0], [-5.0], [1e29], [5e-324], [1e-30]] {
            let scale = Scale::linear(&values, Reach::Exact, false).unwrap();
            let place = scale.place(values[0]).unwrap();
            assert!((0.0..=1.0).contains(&place), "{values:?} at {place}");
        }
        assert_eq!(
            Scale::log(&[8.0], Reach::Exact, true).unwrap().place(8.0),
            Some(0.5)
        );
    }

    #[test]
    fn no_values_no_scale() {
        assert_eq!(Scale::linear(&[], Reach::Beyond, false), None);
        assert_eq!(
            Scale::linear(&[f64::NAN, f64::INFINITY], Reach::Beyond, false),
            None
        );
    }

    /// Every tick is within its scale, for values of all sizes.
    #[test]
    fn ticks_are_within_their_scale() {
        for exponent in -12..=12 {
            for width in [1.0, 1.3, 7.7, 42.0, 9_000.0] {
                let low = 1.7 * 10f64.powi(exponent);
                let values = [low, low * width];
                for reach in [Reach::Exact, Reach::Beyond] {
                    for is_binary in [false, true] {
                        let both = [
                            Scale::linear(&values, reach, is_binary),
                            Scale::log(&values, reach, is_binary),
                        ];
                        for scale in both.into_iter().flatten() {
                            assert!(scale.ticks().len() <= 13, "{scale:?}");
                            for tick in scale.ticks() {
                                let place = scale.place(*tick).unwrap();
                                assert!((-0.01..=1.01).contains(&place), "{tick} in {scale:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
