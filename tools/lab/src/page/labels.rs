//! Names beside curves and points, so that they do not cover one another.

use super::laid::{HIGH, LEAST, Laid, Plot, TOP};

/// Pixels from one name to the next below it.
pub(super) const PITCH: f64 = 15.0;

/// About how wide a text is, in pixels at 12 pixels high.
pub(super) fn width(text: &str) -> f64 {
    let wide = |letter: char| match letter {
        'i' | 'j' | 'l' | 't' | 'f' | 'r' | '.' | ',' | ' ' | '(' | ')' | '/' | '-' => 4.2,
        'm' | 'w' | 'M' | 'W' | '%' => 10.0,
        'A'..='Z' => 8.2,
        _ => 6.8,
    };
    text.chars().map(wide).sum()
}

/// Names at the ends of lines, each as near to its line's end as the others let it.
pub(super) fn at_ends(curves: &mut [Laid<'_>]) {
    for way in [0, 1] {
        let mut ends: Vec<(usize, f64)> = Vec::new();
        for (index, curve) in curves.iter().enumerate() {
            let last = curve.marks.iter().rev().find_map(|mark| mark.y[way]);
            ends.extend(last.map(|y| (index, y)));
        }
        ends.sort_by(|one, other| one.1.total_cmp(&other.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
        for ((index, _), place) in ends.iter().zip(spread(&wanted, PITCH, TOP, TOP + HIGH)) {
            curves[*index].label[way] = Some(place);
        }
    }
}

/// Places at least `pitch` apart, in the order of `wanted` (ascending) and near it, between `low` and `high`
/// where they fit.
fn spread(wanted: &[f64], pitch: f64, low: f64, high: f64) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    let mut least = low;
    for want in wanted {
        let place = want.max(least);
        places.push(place);
        least = place + pitch;
    }
    // Labels pushed out below go back up, and push the ones above.
    let mut most = high;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - pitch;
    }
    places
}

/// Where a name may be, from its point: right, left, above, below, and the corners. Offsets and anchor.
pub(super) const SIDES: [(f64, f64, &str); 8] = [
    (10.0, 4.0, "start"),
    (-10.0, 4.0, "end"),
    (0.0, -11.0, "middle"),
    (0.0, 19.0, "middle"),
    (8.0, -7.0, "start"),
    (8.0, 16.0, "start"),
    (-8.0, -7.0, "end"),
    (-8.0, 16.0, "end"),
];

/// Which of [`SIDES`] a name takes at a width and two ways; `9` where it finds no place.
pub(super) fn sides(is_narrow: bool, x_way: usize, y_way: usize) -> usize {
    usize::from(is_narrow) * 4 + x_way * 2 + y_way
}

/// Names beside the points of a scatter, for each width and way.
pub(super) fn beside(plot: &mut Plot<'_>) {
    for curve in &mut plot.curves {
        let name = curve.curve.name.as_str();
        for mark in &mut curve.marks {
            let text = mark.point.label.as_deref().unwrap_or(name);
            mark.label = Some((text, "99999999".to_owned()));
        }
    }
    for (is_narrow, width) in [false, true].into_iter().zip(LEAST) {
        for (x_way, y_way) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let place = sides(is_narrow, x_way, y_way);
            let chosen = choose(plot, width, x_way, y_way, is_narrow);
            let marks = plot.curves.iter_mut().flat_map(|curve| &mut curve.marks);
            for (mark, digit) in marks.zip(chosen) {
                if let Some((_, sides)) = &mut mark.label {
                    sides.replace_range(place..=place, digit);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn shared(self, other: Self) -> f64 {
        let wide = self.right.min(other.right) - self.left.max(other.left);
        let high = self.bottom.min(other.bottom) - self.top.max(other.top);
        wide.max(0.0) * high.max(0.0)
    }
}

/// A digit for each mark, in order: the side with the least under it.
fn choose(
    plot: &Plot<'_>,
    width_px: f64,
    x_way: usize,
    y_way: usize,
    is_narrow: bool,
) -> Vec<&'static str> {
    const DIGITS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let margins = &plot.margins;
    let right = margins.right[usize::from(is_narrow)];
    let frame = Area {
        left: margins.left,
        top: TOP - 8.0,
        right: width_px - 2.0,
        bottom: TOP + HIGH,
    };
    let place = |x: f64| margins.left + x * (width_px - margins.left - right);
    let marks: Vec<_> = plot.curves.iter().flat_map(|curve| &curve.marks).collect();
    let points: Vec<Option<(f64, f64)>> = marks
        .iter()
        .map(|mark| Some((place(mark.x[x_way]?), mark.y[y_way]?)))
        .collect();
    let mut taken: Vec<Area> = points
        .iter()
        .flatten()
        .map(|(x, y)| around(*x, *y, 6.0))
        .collect();
    // handfast's choose first.
    let own = plot
        .curves
        .iter()
        .flat_map(|curve| curve.marks.iter().map(|_| curve.is_own));
    let mut order: Vec<(usize, bool)> = own.enumerate().collect();
    order.sort_by_key(|(_, is_own)| !is_own);
    let mut chosen = vec!["9"; marks.len()];
    for (index, _) in order {
        let Some(((x, y), (text, _))) = points[index].zip(marks[index].label.as_ref()) else {
            continue;
        };
        let area = |side: usize| text_area(text, x, y, side);
        let cost = |side: usize| -> f64 {
            let area = area(side);
            let size = (area.right - area.left) * (area.bottom - area.top);
            let outside = size - area.shared(frame);
            taken.iter().map(|other| area.shared(*other)).sum::<f64>() + outside * 4.0
        };
        let best = (0..SIDES.len()).map(|side| (side, cost(side)));
        let best = best.min_by(|one, other| one.1.total_cmp(&other.1));
        // A little of it covered can still be read.
        if let Some((side, _)) = best.filter(|(_, cost)| *cost < 60.0) {
            taken.push(area(side));
            chosen[index] = DIGITS[side];
        }
    }
    chosen
}

fn around(x: f64, y: f64, by: f64) -> Area {
    Area {
        left: x - by,
        top: y - by,
        right: x + by,
        bottom: y + by,
    }
}

fn text_area(text: &str, x: f64, y: f64, side: usize) -> Area {
    let (right, down, anchor) = SIDES[side];
    let wide = width(text);
    let left = match anchor {
        "start" => x + right,
        "end" => x + right - wide,
        _ => x - wide / 2.0,
    };
    Area {
        left,
        top: y + down - 10.0,
        right: left + wide,
        bottom: y + down + 3.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_names_keep_their_order_and_distance() {
        let wanted = [10.0, 12.0, 13.0, 60.0, 99.0, 100.0];
        let places = spread(&wanted, 15.0, 0.0, 100.0);
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] >= 14.999, "{places:?}");
        }
        assert!(places[0] >= 0.0 && places[5] <= 100.0, "{places:?}");
        assert_eq!(places[3], 60.0);
    }
}
