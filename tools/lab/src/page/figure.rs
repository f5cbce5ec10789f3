//! A figure of the page: its drawing, its legend of buttons, its switches, and the same as a table.

use super::draw::{self, Medium};
use super::laid::{Laid, Plot, Side};
use super::units::prose;
use crate::result::{Kind, Table};
use maud::{Markup, html};

/// The figure; `id` is unique in the page.
pub(super) fn figure(plot: &Plot<'_>, id: &str) -> Markup {
    let figure = plot.figure;
    let kind = match figure.kind {
        Kind::Lines => "lines",
        Kind::Scatter => "scatter",
        Kind::Bars => "bars",
        Kind::Stacked => "stacked",
    };
    let is_empty = plot.curves.iter().all(|curve| curve.marks.is_empty());
    let first = |side: &Side| ["linear", "log"][side.first];
    html! {
        figure id=(id) data-kind=(kind) data-xway=(plot.x.first) data-yway=(plot.y.first) {
            figcaption id={ (id) "-title" } { (prose(&figure.title)) }
            @if is_empty {
                p.empty { "Nothing of this figure could be measured here." }
            } @else {
                @if plot.x.has_switch || plot.y.has_switch {
                    div.switches {
                        @for (axis, name, side) in [("y", "Vertical", &plot.y), ("x", "Horizontal", &plot.x)] {
                            @if side.has_switch { (switch(axis, name, first(side))) }
                        }
                    }
                }
                div.canvas tabindex="0" role="group" aria-roledescription="plot" aria-labelledby={ (id) "-title" }
                    aria-describedby={ (id) "-help" } data-x=(plot.x.title) data-y=(plot.y.title) {
                    (draw::svg(plot, Medium::Page, &figure.title, ""))
                    div.readout hidden {}
                }
                p.unseen id={ (id) "-help" } {
                    (plot.y.title) " against " (plot.x.title)
                    ". Left and right arrow keys go through the values; the same figures are in the table below."
                }
                p.unseen.spoken aria-live="polite" {}
                @if plot.is_log_partial() {
                    p.hint { "Zero has no place on a logarithmic axis: points there are left out." }
                }
            }
            (legend(plot))
            @if !is_empty {
                details.data {
                    summary { "Figures as a table" }
                    div.scroll tabindex="0" role="region" aria-label={ "Table: " (prose(&figure.title)) } { (values(plot)) }
                }
            }
        }
    }
}

fn switch(axis: &str, name: &str, first: &str) -> Markup {
    html! {
        div.switch role="group" aria-label={ (name) " axis" } {
            span aria-hidden="true" { (axis) }
            @for (way, label) in ["linear", "log"].into_iter().enumerate() {
                button type="button" data-axis=(axis) data-way=(way) aria-pressed=(label == first)
                    aria-label={ (name) " axis: " (label) } { (label) }
            }
        }
    }
}

/// The visible curves, each a button that hides and shows it; then the absent ones, and why.
fn legend(plot: &Plot<'_>) -> Markup {
    let there = || {
        plot.curves
            .iter()
            .enumerate()
            .filter(|(_, curve)| !curve.marks.is_empty())
    };
    let absent: Vec<&Laid<'_>> = plot
        .curves
        .iter()
        .filter(|curve| curve.marks.is_empty())
        .collect();
    html! {
        @if there().next().is_some() {
            div.legend role="group" aria-label="Curves shown" {
                @for (index, curve) in there() {
                    button type="button" aria-pressed="true" data-curve=(index) class=[curve.is_own.then_some("own")] {
                        svg class={ "key " (curve.style.class()) @if curve.is_own { " own" } } viewBox="0 -8 26 16" width="26" height="16" aria-hidden="true" {
                            (draw::key(curve, plot.figure.kind))
                        }
                        (curve.name)
                    }
                }
            }
        }
        @if !absent.is_empty() {
            ul.absences aria-label="Curves that are absent" {
                @for (reason, curves) in by_reason(&absent) {
                    li {
                        span.symbol aria-hidden="true" { "∅" } " "
                        @for (index, curve) in curves.iter().enumerate() {
                            @if index > 0 { ", " }
                            b { (curve.name) }
                        }
                        @if curves.len() == 1 { " is absent: " } @else { " are absent: " }
                        (prose(reason))
                    }
                }
            }
        }
    }
}

/// The curves that are absent for the same reason together.
fn by_reason<'a>(absent: &[&'a Laid<'a>]) -> Vec<(&'a str, Vec<&'a Laid<'a>>)> {
    let mut reasons: Vec<(&str, Vec<&Laid<'_>>)> = Vec::new();
    for curve in absent {
        let reason = curve
            .curve
            .absent
            .as_deref()
            .unwrap_or("no reason was given");
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, curves)) => curves.push(curve),
            None => reasons.push((reason, vec![curve])),
        }
    }
    reasons
}

/// The figure's values: a row for each x, a column for each curve; of scatters, a row for each point.
fn values(plot: &Plot<'_>) -> Markup {
    let shown: Vec<&Laid<'_>> = plot
        .curves
        .iter()
        .filter(|curve| !curve.marks.is_empty())
        .collect();
    if plot.figure.kind == Kind::Scatter {
        return html! {
            table {
                thead { tr { th scope="col" { "system" } th scope="col" { (plot.x.title) } th scope="col" { (plot.y.title) } } }
                tbody { @for curve in shown { @for mark in &curve.marks {
                    tr {
                        th scope="row" { (mark.point.label.as_deref().unwrap_or(&curve.name)) }
                        td { (mark.x_shown) }
                        td { (mark.y_shown) (range(mark.range_shown.as_deref())) }
                    }
                } } }
            }
        };
    }
    let mut rows: Vec<(f64, &str)> = Vec::new();
    for mark in shown.iter().flat_map(|curve| &curve.marks) {
        if !rows.iter().any(|(x, _)| *x == mark.point.x) {
            rows.push((mark.point.x, &mark.x_shown));
        }
    }
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    html! {
        table {
            thead { tr {
                th scope="col" { (plot.x.title) }
                @for curve in &shown { th scope="col" { (curve.name) } }
            } }
            tbody { @for (x, x_shown) in rows {
                tr {
                    th scope="row" { (x_shown) }
                    @for curve in &shown {
                        @match curve.marks.iter().find(|mark| mark.point.x == x) {
                            Some(mark) => td { (mark.y_shown) (range(mark.range_shown.as_deref())) },
                            None => td { span aria-label="not measured" { "–" } },
                        }
                    }
                }
            } }
        }
    }
}

fn range(shown: Option<&str>) -> Markup {
    html! { @if let Some(shown) = shown { " " span.range { (shown) } } }
}

/// A table of a result.
pub(super) fn table(table: &Table) -> Markup {
    let is_number = |cell: &&String| {
        let cell = cell.trim_start_matches(['-', '+', '~', '<', '>', '=', ' ']);
        cell.starts_with(|c: char| c.is_ascii_digit()) && cell.split(' ').count() <= 2
    };
    let is_nothing = |cell: &str| matches!(cell, "" | "-" | "–" | "absent" | "never");
    // Numbers stand on the right, also where some are absent.
    let has_words = |index: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(index));
        let mut others = cells.filter(|cell| !is_number(cell) && !is_nothing(cell));
        others.next().map(|_| "words")
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Table: " (prose(&table.title)) } {
            table {
                caption { (prose(&table.title)) }
                thead { tr { @for (index, column) in table.columns.iter().enumerate() { th scope="col" class=[has_words(index)] { (prose(column)) } } } }
                tbody { @for row in &table.rows {
                    tr {
                        @for (index, cell) in row.iter().enumerate() {
                            @if index == 0 { th scope="row" { (prose(cell)) } }
                            @else { td class=[has_words(index)] { (prose(cell)) } }
                        }
                    }
                } }
            }
        }
    }
}
