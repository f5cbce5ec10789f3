//! A figure laid out: its marks and labels, and where they are.

use super::scale::Scale;
use super::style::Style;
use super::units::Unit;
use crate::result::{Curve, Figure, Point};

/// A place both ways: linear, logarithmic. Nothing where it cannot be shown.
pub(super) type Both<T = Option<f64>> = [T; 2];

/// Pixels above the plot, for the title of y; of the plot itself; below it, for ticks and the title of x.
pub(super) const TOP: f64 = 34.0;
pub(super) const HIGH: f64 = 260.0;
pub(super) const BELOW: f64 = 50.0;
/// How wide a drawing is where nothing says otherwise.
pub(super) const WIDE: f64 = 640.0;
/// The least widths of a plot on a desk and on a phone: labels that stand clear of one another there do so
/// where there is more room.
pub(super) const LEAST: [f64; 2] = [540.0, 288.0];
/// Between frame and first value.
pub(super) const INSET: f64 = 12.0;
/// The tilt of bars' names where they do not fit side by side, in degrees.
pub(super) const TILT: f64 = 38.0;

/// A figure laid out.
pub(super) struct Plot<'a> {
    pub(super) figure: &'a Figure,
    pub(super) x: Side,
    pub(super) y: Side,
    pub(super) curves: Vec<Laid<'a>>,
    pub(super) margins: Margins,
    /// Names stand beside the curves.
    pub(super) has_direct_labels: bool,
}

/// One axis.
pub(super) struct Side {
    pub(super) unit: Unit,
    pub(super) title: String,
    /// Whether it can be switched between linear and logarithmic.
    pub(super) has_switch: bool,
    /// Which way is shown first: an index into each [`Both`].
    pub(super) first: usize,
    pub(super) ticks: Both<Vec<Tick>>,
    pub(super) scales: Both<Option<Scale>>,
    pub(super) categories: Vec<(f64, String)>,
}

pub(super) struct Tick {
    pub(super) place: f64,
    pub(super) label: String,
    /// Left out on a phone.
    pub(super) is_spare: bool,
}

/// A curve laid out.
pub(super) struct Laid<'a> {
    pub(super) curve: &'a Curve,
    pub(super) name: String,
    pub(super) style: Style,
    pub(super) is_own: bool,
    pub(super) marks: Vec<Mark<'a>>,
    /// Where its name is, along y.
    pub(super) label: Both,
}

/// A point laid out.
pub(super) struct Mark<'a> {
    pub(super) point: &'a Point,
    pub(super) x: Both,
    pub(super) y: Both,
    pub(super) range: Option<Both<(f64, f64)>>,
    /// For bars: fraction of the width, and where they stand.
    pub(super) width: f64,
    pub(super) base: Both<f64>,
    pub(super) x_shown: String,
    pub(super) y_shown: String,
    pub(super) range_shown: Option<String>,
    /// For scatters: the name beside it, and on which side for each width and way (`labels::sides`).
    pub(super) label: Option<(&'a str, String)>,
}

/// Pixels around the plot; margins that differ, on a desk and on a phone.
pub(super) struct Margins {
    pub(super) left: f64,
    pub(super) right: [f64; 2],
    pub(super) below: [f64; 2],
    pub(super) is_tilted: [bool; 2],
    pub(super) inset: f64,
}
