//! The top of the page: what a newcomer should know after a minute.

use super::figure::figure;
use super::laid::Plot;
use super::section::{badge, id, word};
use super::style::Styles;
use super::units::{date, prose};
use super::{Group, Report, SUMMARY};
use crate::result::{Kind, Outcome, Verdict};
use maud::{Markup, html};

pub(super) fn summary(report: &Report, groups: &[Group<'_>], styles: &mut Styles) -> Markup {
    let scatters = scatters(report, styles);
    let quick = report
        .outcomes
        .iter()
        .filter(|outcome| outcome.is_quick)
        .count();
    html! {
        div.summary {
            h1 { "What the papers measured, measured here" }
            p.lead {
                "handfast sends messages between processes of one machine. Here are the figures and tables of the papers that it is built from, "
                "measured again on the machine below, with handfast and today's systems beside them, and for each claim whether it still holds."
            }
            @if let Some(newest) = report.outcomes.iter().max_by_key(|outcome| outcome.unix_s) {
                p.machine { (machines(report)) " · " (date(newest.unix_s)) }
            }
            (tally(report))
            @if quick > 0 {
                p.warning {
                    (quick) " of " (report.outcomes.len())
                    " results are quick runs: they show that the experiments work, not how fast anything is."
                }
            }
            @if report.outcomes.is_empty() { p.empty { "There are no results yet." } }
            @if !scatters.is_empty() {
                h2 #speed { "Speed against processor time burnt" }
                p.lead {
                    "Each point is one way to call another process. " b { "Further left is faster, further down burns less" }
                    " processor time for each call: the lower left corner is the place to be."
                }
                div.scatters { @for one in scatters { (one) } }
            }
            h2 #verdicts { "Every claim, and whether it holds" }
            (verdicts(groups))
            @if !report.broken.is_empty() {
                details.left-out {
                    summary { "Left out: " (report.broken.len()) @if report.broken.len() == 1 { " file" } @else { " files" } }
                    ul { @for reason in &report.broken { li { (reason) } } }
                }
            }
        }
    }
}

fn machines(report: &Report) -> String {
    let mut machines: Vec<&str> = report
        .outcomes
        .iter()
        .map(|outcome| outcome.machine.as_str())
        .collect();
    machines.sort_unstable();
    machines.dedup();
    match machines[..] {
        [one] => one.to_owned(),
        _ => format!("{} machines: each result names its own", machines.len()),
    }
}

fn scatters(report: &Report, styles: &mut Styles) -> Vec<Markup> {
    let outcomes = report
        .outcomes
        .iter()
        .filter(|outcome| outcome.about.name == SUMMARY);
    outcomes
        .flat_map(|outcome| &outcome.figures)
        .filter(|one| one.kind == Kind::Scatter)
        .enumerate()
        .map(|(index, one)| figure(&Plot::new(one, styles), &format!("summary-{}", index + 1)))
        .collect()
}

/// How many claims hold.
fn tally(report: &Report) -> Markup {
    let all = [
        Verdict::Holds,
        Verdict::Partly,
        Verdict::Fails,
        Verdict::Undecided,
        Verdict::Absent,
        Verdict::Shown,
    ];
    let count = |verdict| {
        report
            .outcomes
            .iter()
            .filter(|outcome| outcome.verdict == verdict)
            .count()
    };
    html! {
        ul.tally {
            @for verdict in all {
                li class=(word(verdict)) { strong { (count(verdict)) } " " (badge(verdict)) }
            }
            li { strong { (report.missing.len()) } " " span.badge { "not run" } }
        }
    }
}

fn verdicts(groups: &[Group<'_>]) -> Markup {
    let line = |outcome: &Outcome| {
        html! {
            tr {
                td { (badge(outcome.verdict)) @if outcome.is_quick { " " span.quick { "quick run" } } }
                th scope="row" {
                    a href={ "#" (id(&outcome.about.name)) } { (prose(&outcome.about.title)) }
                    p.reasons { (prose(&outcome.reasons)) }
                }
            }
        }
    };
    html! {
        table.verdicts {
            @for group in groups {
                tbody {
                    tr { th.group colspan="2" scope="rowgroup" { (group.title) } }
                    @for outcome in &group.outcomes { (line(outcome)) }
                    @for about in &group.missing {
                        tr.missing {
                            td { span.badge { "not run" } }
                            th scope="row" { (prose(&about.title)) " " code { "handfast lab run " (about.name) } }
                        }
                    }
                }
            }
        }
    }
}
