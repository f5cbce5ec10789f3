//! From a figure to places: which scales it has, where its marks and labels are.
//!
//! Along y places are pixels, since all plots are equally high; along x they are fractions of a width that
//! the page may change. Every place is given both ways, linear and logarithmic: the page's script picks one
//! and multiplies, and knows of scales, ticks and numbers nothing else.

use super::labels;
use super::laid::{
    BELOW, Both, HIGH, INSET, LEAST, Laid, Margins, Mark, Plot, Side, TILT, TOP, Tick, WIDE,
};
use super::scale::{self, Reach, Scale};
use super::style::{self, Style, Styles};
use super::units::{self, Unit};
use crate::result::{Axis, Curve, Figure, Kind, Point};

impl<'a> Plot<'a> {
    pub(super) fn new(figure: &'a Figure, styles: &mut Styles) -> Self {
        let x = Side::x(figure);
        let y = Side::y(figure);
        let names: Vec<&str> = figure
            .curves
            .iter()
            .map(|curve| curve.name.as_str())
            .collect();
        let mut curves: Vec<Laid<'a>> = (figure.curves.iter())
            .zip(styles.of_figure(&names))
            .map(|(curve, style)| Laid::new(curve, style, &x, &y))
            .collect();
        if matches!(figure.kind, Kind::Bars | Kind::Stacked) {
            stand(figure.kind, &mut curves, &x, &y);
        }
        let shown = curves
            .iter()
            .filter(|curve| !curve.marks.is_empty())
            .count();
        let has_direct_labels = match figure.kind {
            Kind::Lines => shown > 1 && shown as f64 * labels::PITCH <= HIGH,
            Kind::Scatter => true,
            Kind::Bars | Kind::Stacked => false,
        };
        let margins = Margins::new(figure, &x, &y, has_direct_labels);
        let mut plot = Self {
            figure,
            x,
            y,
            curves,
            margins,
            has_direct_labels,
        };
        match figure.kind {
            Kind::Lines if has_direct_labels => labels::at_ends(&mut plot.curves),
            Kind::Scatter => labels::beside(&mut plot),
            _ => {}
        }
        plot
    }

    pub(super) fn is_bars(&self) -> bool {
        matches!(self.figure.kind, Kind::Bars | Kind::Stacked)
    }

    /// Points that one of the ways cannot show.
    pub(super) fn is_log_partial(&self) -> bool {
        let hidden = |mark: &Mark<'_>| mark.x[1].is_none() || mark.y[1].is_none();
        let has_switch = self.x.has_switch || self.y.has_switch;
        has_switch
            && !self.is_bars()
            && self
                .curves
                .iter()
                .any(|curve| curve.marks.iter().any(hidden))
    }
}

impl Side {
    fn new(axis: &Axis, values: &[f64], reach: Reach, is_binary: bool) -> Self {
        let unit = Unit::parse(&axis.unit);
        let scales = [
            Scale::linear(values, reach, is_binary && unit.is_bytes()),
            Scale::log(values, reach, is_binary),
        ];
        let has_log = scales[1].is_some();
        Self {
            title: unit.title(&axis.label),
            has_switch: has_log,
            first: usize::from(axis.is_log && has_log),
            ticks: [const { Vec::new() }; 2],
            unit,
            scales,
            categories: Vec::new(),
        }
    }

    fn x(figure: &Figure) -> Self {
        let points = || figure.curves.iter().flat_map(|curve| &curve.points);
        let values: Vec<f64> = points().map(|point| point.x).collect();
        let is_power = |value: &f64| *value >= 1.0 && value.log2().fract() == 0.0;
        let is_binary = Unit::parse(&figure.x.unit).is_bytes() || values.iter().all(is_power);
        let reach = match figure.kind {
            Kind::Scatter => Reach::Beyond,
            _ => Reach::Exact,
        };
        let mut side = Self::new(
            &figure.x,
            &values,
            reach,
            is_binary && figure.kind == Kind::Lines,
        );
        if matches!(figure.kind, Kind::Bars | Kind::Stacked) {
            for point in points() {
                if !side.categories.iter().any(|(x, _)| *x == point.x) {
                    let label = point.label.clone();
                    let label =
                        label.map_or_else(|| side.unit.tick(point.x), |label| units::prose(&label));
                    side.categories.push((point.x, label));
                }
            }
            side.categories
                .sort_by(|one, other| one.0.total_cmp(&other.0));
            side.has_switch = false;
            side.first = 0;
        }
        let ticks = |way: usize| -> Vec<Tick> {
            let values = side.scales[way]
                .iter()
                .flat_map(|scale| scale.ticks().iter().copied());
            let labelled = match side.categories.is_empty() {
                true => values.map(|value| (value, side.unit.tick(value))).collect(),
                false => side.categories.clone(),
            };
            let width: f64 = labelled
                .iter()
                .map(|(_, label)| labels::width(label) + 10.0)
                .sum();
            let is_thinned = side.categories.is_empty() && width > LEAST[1] - 70.0;
            let tick = |(index, (value, label))| {
                let place = side.place(value)[way]?;
                let is_spare = is_thinned && index % 2 == 1;
                Some(Tick {
                    place,
                    label,
                    is_spare,
                })
            };
            labelled.into_iter().enumerate().filter_map(tick).collect()
        };
        side.ticks = [ticks(0), ticks(1)];
        side
    }

    fn y(figure: &Figure) -> Self {
        let points = || figure.curves.iter().flat_map(|curve| &curve.points);
        let mut values: Vec<f64> = Vec::new();
        if figure.kind == Kind::Stacked {
            for point in points() {
                let at = |other: &&Point| other.x == point.x;
                values.push(points().filter(at).map(|point| point.y).sum());
            }
        } else {
            for point in points() {
                values.push(point.y);
                values.extend(point.range.iter().flat_map(|range| [range.0, range.1]));
            }
        }
        let mut side = Self::new(&figure.y, &values, Reach::Beyond, false);
        if figure.kind == Kind::Stacked {
            // Lengths that add up are no lengths on a logarithmic axis.
            side.has_switch = false;
            side.first = 0;
        }
        let ticks = |scale: &Option<Scale>| -> Vec<Tick> {
            let tick = |scale: &Scale, value: f64| {
                Some(Tick {
                    place: down(scale.place(value)?),
                    label: side.unit.tick(value),
                    is_spare: false,
                })
            };
            let all = scale
                .iter()
                .flat_map(|scale| scale.ticks().iter().map(move |value| (scale, *value)));
            all.filter_map(|(scale, value)| tick(scale, value))
                .collect()
        };
        side.ticks = [ticks(&side.scales[0]), ticks(&side.scales[1])];
        side
    }

    /// Both ways, 0 to 1.
    fn place(&self, value: f64) -> Both {
        if self.categories.is_empty() {
            return [0, 1].map(|way| self.scales[way].as_ref()?.place(value));
        }
        let index = self.categories.iter().position(|(x, _)| *x == value);
        [index.map(|index| (index as f64 + 0.5) / self.categories.len() as f64); 2]
    }

    /// Both ways, in pixels from above; the lowest place for what is below all places.
    fn pixels(&self, value: f64) -> Both<f64> {
        [0, 1].map(|way| {
            let place = self.scales[way]
                .as_ref()
                .map(|scale| scale.place_or_low(value));
            down(place.unwrap_or(0.0))
        })
    }

    fn widest(&self) -> f64 {
        let ticks = self.ticks.iter().flatten();
        ticks
            .map(|tick| labels::width(&tick.label))
            .fold(0.0, f64::max)
    }
}

fn down(place: f64) -> f64 {
    TOP + (1.0 - place) * HIGH
}

impl<'a> Laid<'a> {
    fn new(curve: &'a Curve, style: Style, x: &Side, y: &Side) -> Self {
        let is_sane = |point: &&Point| scale::is_sane(point.x) && scale::is_sane(point.y);
        let mut points: Vec<&'a Point> = curve.points.iter().filter(is_sane).collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        let mark = |point: &'a Point| {
            let sane = point
                .range
                .filter(|(low, high)| scale::is_sane(*low) && scale::is_sane(*high));
            let range = sane.map(|(low, high)| {
                let (low, high) = (y.pixels(low), y.pixels(high));
                [(low[0], high[0]), (low[1], high[1])]
            });
            let category = x.categories.iter().find(|(value, _)| *value == point.x);
            Mark {
                point,
                x: x.place(point.x),
                y: y.place(point.y).map(|place| place.map(down)),
                range,
                width: 0.0,
                base: y.pixels(0.0),
                x_shown: category.map_or_else(|| x.unit.show(point.x), |(_, label)| label.clone()),
                y_shown: y.unit.show(point.y),
                range_shown: sane
                    .map(|(low, high)| format!("{} to {}", y.unit.show(low), y.unit.show(high))),
                label: None,
            }
        };
        Self {
            curve,
            name: units::prose(&curve.name),
            style,
            is_own: style::is_own(&curve.name),
            marks: points.into_iter().map(mark).collect(),
            label: [None; 2],
        }
    }
}

/// Bars beside one another, or on top of one another.
fn stand(kind: Kind, curves: &mut [Laid<'_>], x: &Side, y: &Side) {
    let slot = 1.0 / x.categories.len().max(1) as f64;
    let mut tops = vec![0.0; x.categories.len()];
    let shown = curves
        .iter()
        .filter(|curve| !curve.marks.is_empty())
        .count()
        .max(1);
    // A bar alone is no wider than one of two.
    let width = slot * 0.74 / shown.max(2) as f64;
    let full = if kind == Kind::Stacked {
        slot * 0.5
    } else {
        width * shown as f64
    };
    for (index, curve) in curves
        .iter_mut()
        .filter(|curve| !curve.marks.is_empty())
        .enumerate()
    {
        for mark in &mut curve.marks {
            let start = |centre: Option<f64>| centre.map(|centre| centre - full / 2.0);
            mark.x = mark.x.map(start);
            if kind == Kind::Bars {
                mark.width = width;
                mark.x = mark
                    .x
                    .map(|start| start.map(|start| start + width * index as f64));
                // A value that cannot be shown is a bar of no height.
                mark.y = y.pixels(mark.point.y).map(Some);
                continue;
            }
            mark.width = full;
            let category = x
                .categories
                .iter()
                .position(|(value, _)| *value == mark.point.x);
            let Some(top) = category.and_then(|category| tops.get_mut(category)) else {
                continue;
            };
            mark.base = y.pixels(*top);
            *top += mark.point.y;
            mark.y = y.pixels(*top).map(Some);
            mark.range = None;
        }
    }
}

impl Margins {
    fn new(figure: &Figure, x: &Side, y: &Side, has_direct_labels: bool) -> Self {
        let left = (y.widest() + 14.0).max(40.0);
        let names = figure
            .curves
            .iter()
            .filter(|curve| !curve.points.is_empty());
        let name = names
            .map(|curve| labels::width(&curve.name))
            .fold(0.0, f64::max);
        let is_line = figure.kind == Kind::Lines;
        let right = match is_line && has_direct_labels {
            true => (name + 30.0).min(WIDE * 0.3),
            false => 26.0,
        };
        let is_tilted = [LEAST[0] - right, LEAST[1] - 20.0].map(|width| {
            let slot = (width - left) / x.categories.len().max(1) as f64;
            !x.categories.is_empty() && x.widest() + 8.0 > slot
        });
        let steep = TILT.to_radians().sin() * x.widest();
        Self {
            left,
            right: [right, 20.0],
            below: is_tilted.map(|is_tilted| if is_tilted { BELOW + steep } else { BELOW }),
            is_tilted,
            inset: if is_line { INSET } else { 0.0 },
        }
    }
}
