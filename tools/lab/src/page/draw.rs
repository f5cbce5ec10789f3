//! A laid-out figure as SVG: inside the page, where the script moves what stands here, and as a file.

use super::labels::{self, SIDES};
use super::laid::{Both, HIGH, Laid, Mark, Plot, Side, TILT, TOP, WIDE};
use super::style;
use crate::result::Kind;
use maud::{Markup, PreEscaped, html};
use std::fmt::Write;

/// Where a drawing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// In the page: both ways, with what the script needs, coloured by the page.
    Page,
    /// Alone: one way, with its colours and a legend.
    File,
}

/// Pixels beside a file's drawing.
const EDGE: f64 = 8.0;
/// Pixels of a row of a file's legend.
const ROW: f64 = 20.0;

/// Which way each axis is shown, and how wide all of it is.
struct Frame<'a> {
    plot: &'a Plot<'a>,
    medium: Medium,
    wide: f64,
}

/// The drawing; `title` is its name where it cannot be seen.
pub(super) fn svg(plot: &Plot<'_>, medium: Medium, title: &str, about: &str) -> Markup {
    let frame = Frame {
        plot,
        medium,
        wide: WIDE,
    };
    let base = TOP + HIGH + plot.margins.below[0];
    match medium {
        Medium::Page => html! {
            svg class="plot" viewBox={ "0 0 " (WIDE) " " (number(base)) } aria-hidden="true"
                data-left=(number(plot.margins.left)) data-right={ (plot.margins.right[0]) " " (plot.margins.right[1]) }
                data-below={ (number(plot.margins.below[0])) " " (number(plot.margins.below[1])) }
                data-tilt={ (i32::from(plot.margins.is_tilted[0])) " " (i32::from(plot.margins.is_tilted[1])) }
                data-inset=(plot.margins.inset) data-top=(TOP) data-base=(TOP + HIGH) data-tilted={ "rotate(-" (TILT) ")" }
                data-corners=(corners()) { (frame.inside()) }
        },
        Medium::File => {
            let legend = frame.legend(base);
            let high = base + legend.1;
            html! {
                svg xmlns="http://www.w3.org/2000/svg" width=(WIDE + 2.0 * EDGE) height=(number(high))
                    viewBox={ (-EDGE) " 0 " (WIDE + 2.0 * EDGE) " " (number(high)) } role="img" {
                    title { (plain(title)) }
                    desc { (plain(about)) }
                    style { (PreEscaped(file_css())) }
                    rect class="ground" x=(-EDGE) width=(WIDE + 2.0 * EDGE) height=(number(high)) {}
                    (frame.inside())
                    (legend.0)
                }
            }
        }
    }
}

impl Frame<'_> {
    fn inside(&self) -> Markup {
        let plot = self.plot;
        let (top, base) = (TOP, TOP + HIGH);
        html! {
            @for way in self.ways(&plot.y) { (self.y_axis(way)) }
            @for way in self.ways(&plot.x) { (self.x_axis(way)) }
            path class="frame" d={ "M" (number(plot.margins.left)) " " (base) "H" (number(self.edge())) } {}
            text class="title" x="0" y=(top - 18.0) { (plain(&plot.y.title)) }
            text class="title end" x=(number(self.edge())) y=(number(base + plot.margins.below[0] - 8.0)) text-anchor="end" { (plain(&plot.x.title)) }
            @for (index, curve) in self.in_order() {
                @if !curve.marks.is_empty() { (self.curve(index, curve)) }
            }
            @if self.medium == Medium::Page { path class="guide" d="" {} }
        }
    }

    /// From back to front: handfast's in front, but for bars, which stand as they are.
    fn in_order(&self) -> Vec<(usize, &Laid<'_>)> {
        let mut curves: Vec<_> = self.plot.curves.iter().enumerate().collect();
        if !self.plot.is_bars() {
            curves.sort_by_key(|(_, curve)| curve.is_own);
        }
        curves
    }

    /// Right end of the plot.
    fn edge(&self) -> f64 {
        self.wide - self.plot.margins.right[0]
    }

    fn x(&self, place: f64) -> f64 {
        let margins = &self.plot.margins;
        let (left, right) = (margins.left + margins.inset, self.edge() - margins.inset);
        left + place * (right - left)
    }

    /// Both ways in the page, the first shown in a file.
    fn ways(&self, side: &Side) -> Vec<usize> {
        match self.medium {
            Medium::Page if side.has_switch => vec![0, 1],
            _ => vec![side.first],
        }
    }

    fn class(&self, name: &str, side: &Side, way: usize) -> String {
        let way_name = ["linear", "log"][way];
        let off = if way == side.first { "" } else { " off" };
        format!("axis {name} {way_name}{off}")
    }

    fn y_axis(&self, way: usize) -> Markup {
        let plot = self.plot;
        html! {
            g class=(self.class("y", &plot.y, way)) {
                @for tick in &plot.y.ticks[way] {
                    g transform={ "translate(0 " (number(tick.place)) ")" } {
                        path class="grid" d={ "M" (number(plot.margins.left)) " 0H" (number(self.edge())) } {}
                        text x=(number(plot.margins.left - 7.0)) y="4" text-anchor="end" { (plain(&tick.label)) }
                    }
                }
            }
        }
    }

    fn x_axis(&self, way: usize) -> Markup {
        let plot = self.plot;
        let is_page = self.medium == Medium::Page;
        let turn = plot.margins.is_tilted[0].then(|| format!("rotate(-{TILT})"));
        let anchor = if turn.is_some() { "end" } else { "middle" };
        html! {
            g class=(self.class("x", &plot.x, way)) {
                @for tick in &plot.x.ticks[way] {
                    g transform={ "translate(" (number(self.x(tick.place))) " " (TOP + HIGH) ")" }
                        class=[tick.is_spare.then_some("spare")] data-x=[is_page.then(|| fraction(tick.place))] {
                        @if !plot.is_bars() { path class="tick" d="M0 0V5" {} }
                        text y="19" text-anchor=(anchor) transform=[turn.as_deref()] { (plain(&tick.label)) }
                    }
                }
            }
        }
    }

    fn curve(&self, index: usize, curve: &Laid<'_>) -> Markup {
        let is_page = self.medium == Medium::Page;
        let own = if curve.is_own { " own" } else { "" };
        let way = self.plot.y.first;
        html! {
            g class={ "curve " (curve.style.class()) (own) } data-curve=[is_page.then_some(index)] {
                @match self.plot.figure.kind {
                    Kind::Lines => {
                        @if curve.marks.iter().any(|mark| mark.range.is_some()) {
                            path class="band" d=(self.band(curve)) {}
                        }
                        path class="line" d=(self.line(curve)) stroke-dasharray=(curve.style.dash()) {}
                    }
                    Kind::Scatter => @if curve.marks.iter().any(|mark| mark.range.is_some()) {
                        path class="whisker" d=(self.whiskers(curve)) {}
                    }
                    Kind::Bars | Kind::Stacked => {}
                }
                @for mark in &curve.marks { (self.mark(curve, mark)) }
                @if self.plot.is_bars() && curve.marks.iter().any(|mark| mark.range.is_some()) {
                    path class="whisker" d=(self.whiskers(curve)) {}
                }
                @if self.plot.figure.kind == Kind::Lines {
                    @if let Some(y) = curve.label[way] {
                        text class="label" x=(number(self.edge() + 6.0)) y=(number(y + 4.0))
                            data-y=[is_page.then(|| both(curve.label, |y| number(y + 4.0)))] { (plain(&curve.name)) }
                    }
                }
            }
        }
    }

    fn mark(&self, curve: &Laid<'_>, mark: &Mark<'_>) -> Markup {
        let (x_way, y_way) = (self.plot.x.first, self.plot.y.first);
        let at = mark.x[x_way]
            .zip(mark.y[y_way])
            .map(|(x, y)| (self.x(x), y));
        let place = at.map_or_else(
            || HIDDEN.to_owned(),
            |(x, y)| format!("translate({} {})", number(x), number(y)),
        );
        let data = Data::new(self.medium, mark);
        if self.plot.is_bars() {
            let base = mark.base[y_way];
            let top = mark.y[y_way].unwrap_or(base);
            let left = self.x(mark.x[x_way].unwrap_or(0.0));
            let wide = self.x(mark.width) - self.x(0.0);
            return html! {
                rect class="bar" fill-opacity=(curve.style.shade()) x=(number(left)) y=(number(top.min(base))) width=(number((wide - 1.0).max(1.0)))
                    height=(number((top - base).abs())) data-x=[data.x] data-y=[data.y] data-range=[data.range]
                    data-base=[data.base] data-wide=[data.wide] data-key=[data.key] data-say=[data.say] data-between=[data.between] {}
            };
        }
        let text = mark.label.as_ref().map(|(text, sides)| {
            let side = sides.as_bytes()[labels::sides(false, x_way, y_way)];
            let side = SIDES.get(usize::from(side.wrapping_sub(b'0')));
            (*text, sides, side)
        });
        html! {
            g class="mark" transform=(place) data-x=[data.x] data-y=[data.y] data-range=[data.range]
                data-key=[data.key] data-say=[data.say] data-between=[data.between] {
                path d=(curve.style.marker()) {}
                @if let Some((text, sides, side)) = text {
                    @let (x, y, anchor) = side.copied().unwrap_or((0.0, 0.0, "start"));
                    @if side.is_some() || self.medium == Medium::Page {
                        text class={ "label" @if side.is_none() { " off" } } x=(x) y=(y) text-anchor=(anchor)
                            data-sides=[(self.medium == Medium::Page).then_some(sides)] { (plain(text)) }
                    }
                }
            }
        }
    }

    /// The mark's place, where both axes can show it.
    fn place(&self, mark: &Mark<'_>) -> Option<(f64, f64)> {
        let x = mark.x[self.plot.x.first]?;
        Some((self.x(x + mark.width / 2.0), mark.y[self.plot.y.first]?))
    }

    fn line(&self, curve: &Laid<'_>) -> String {
        let mut path = String::new();
        let mut is_drawing = false;
        for mark in &curve.marks {
            let Some((x, y)) = self.place(mark) else {
                is_drawing = false;
                continue;
            };
            let _ = write!(
                path,
                "{}{} {}",
                if is_drawing { 'L' } else { 'M' },
                number(x),
                number(y)
            );
            is_drawing = true;
        }
        path
    }

    /// From lowest to highest, pair by pair.
    fn band(&self, curve: &Laid<'_>) -> String {
        let edge = |mark: &Mark<'_>| {
            let (x, y) = self.place(mark)?;
            let (low, high) = mark.range.map_or((y, y), |range| range[self.plot.y.first]);
            Some((number(x), number(low), number(high)))
        };
        let mut path = String::new();
        for pair in curve.marks.windows(2) {
            if let Some(((x0, low0, high0), (x1, low1, high1))) = edge(&pair[0]).zip(edge(&pair[1]))
            {
                let _ = write!(path, "M{x0} {high0}L{x1} {high1}V{low1}L{x0} {low0}z");
            }
        }
        path
    }

    fn whiskers(&self, curve: &Laid<'_>) -> String {
        let mut path = String::new();
        for mark in &curve.marks {
            if let Some(((x, _), range)) = self.place(mark).zip(mark.range) {
                let (x, (low, high)) = (number(x), range[self.plot.y.first]);
                let (low, high) = (number(low), number(high));
                let _ = write!(path, "M{x} {low}V{high}m-3 0h6M{x} {low}m-3 0h6");
            }
        }
        path
    }

    /// Names that do not stand beside their curves, and absent ones; with its height.
    fn legend(&self, top: f64) -> (Markup, f64) {
        let mut entries = Vec::new();
        let (mut x, mut y) = (self.plot.margins.left, top + 14.0);
        for curve in &self.plot.curves {
            let is_there = !curve.marks.is_empty();
            if is_there && self.plot.has_direct_labels {
                continue;
            }
            let name = match (is_there, &curve.curve.absent) {
                (true, _) => curve.name.clone(),
                (false, Some(reason)) => format!("{}: absent ({reason})", curve.name),
                (false, None) => format!("{}: absent", curve.name),
            };
            let wide = labels::width(&name) + 44.0;
            if x > self.plot.margins.left && x + wide > self.wide {
                (x, y) = (self.plot.margins.left, y + ROW);
            }
            entries.push((x, y, curve, name));
            x += wide;
        }
        let high = if entries.is_empty() {
            0.0
        } else {
            y + 12.0 - top
        };
        let markup = html! {
            @for (x, y, curve, name) in entries {
                g transform={ "translate(" (number(x)) " " (number(y)) ")" } {
                    @if !curve.marks.is_empty() {
                        g class=(curve.style.class()) { (key(curve, self.plot.figure.kind)) }
                    }
                    text class={ "entry" @if curve.marks.is_empty() { " absent" } } x="30" y="4" { (plain(&name)) }
                }
            }
        };
        (markup, high)
    }
}

/// A curve's sample, 26 pixels wide, around zero in height.
pub(super) fn key(curve: &Laid<'_>, kind: Kind) -> Markup {
    html! {
        @if matches!(kind, Kind::Bars | Kind::Stacked) {
            rect class="bar" x="6" y="-6" width="14" height="12" fill-opacity=(curve.style.shade()) {}
        } @else {
            @if kind == Kind::Lines { path class="line" d="M0 0H26" stroke-dasharray=(curve.style.dash()) {} }
            path class="marker" transform="translate(13 0)" d=(curve.style.marker()) {}
        }
    }
}

/// The data the script needs about a mark.
#[derive(Default)]
struct Data {
    x: Option<String>,
    y: Option<String>,
    range: Option<String>,
    base: Option<String>,
    wide: Option<String>,
    key: Option<String>,
    say: Option<String>,
    between: Option<String>,
}

impl Data {
    fn new(medium: Medium, mark: &Mark<'_>) -> Self {
        if medium == Medium::File {
            return Self::default();
        }
        let range = mark
            .range
            .map(|[(low0, high0), (low1, high1)]| [low0, low1, high0, high1].map(number).join(" "));
        let is_bar = mark.width > 0.0;
        Self {
            x: Some(both(mark.x, fraction)),
            y: Some(both(mark.y, number)),
            range,
            base: is_bar.then(|| mark.base.map(number).join(" ")),
            wide: is_bar.then(|| fraction(mark.width)),
            key: Some(mark.x_shown.clone()),
            say: Some(mark.y_shown.clone()),
            between: mark.range_shown.clone(),
        }
    }
}

/// [`SIDES`] for the script.
fn corners() -> String {
    SIDES
        .map(|(x, y, anchor)| format!("{x} {y} {anchor}"))
        .join(",")
}

/// Outside of every drawing.
const HIDDEN: &str = "translate(-99 -99)";

/// Two places; `-` for one that cannot be shown.
fn both(places: Both, show: impl Fn(f64) -> String) -> String {
    places
        .map(|place| place.map_or_else(|| "-".to_owned(), &show))
        .join(" ")
}

/// Pixels, to a tenth.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn fraction(value: f64) -> String {
    format!("{value:.4}")
}

/// Text that may stand in XML: without control characters, which have no escape there.
pub(super) fn plain(text: &str) -> String {
    text.replace(
        |letter: char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}'),
        " ",
    )
}

/// The styles that files and the page have in common.
pub(super) const PLOT_CSS: &str = include_str!("plot.css");

fn file_css() -> String {
    const INK: &str = ".ground{fill:#fff}.grid{stroke:#e3e6ea}.frame,.tick{stroke:#8a929c}.mark path,.label{stroke:#fff}\
        .axis text,.entry{fill:#2a3038}.title{fill:#1c2127}";
    format!("{}{PLOT_CSS}{INK}", style::classes(false))
}
