//! The report: one page that needs nothing else, and each figure as a file.
//!
//! A result's [`Figure`](crate::result::Figure) is laid out by [`plot`] (with [`scale`], [`units`], [`labels`] and
//! [`style`]) and drawn by [`draw`], for the page and for files alike. `page.js` moves what is drawn when axes are
//! switched or the window changes; the page says the same without it. [`maud`] escapes all that results say.

mod draw;
mod figure;
mod labels;
mod laid;
mod plot;
mod scale;
mod section;
mod style;
mod summary;
mod units;

use crate::result::{About, Outcome};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The parts of the page.
pub(crate) struct Report {
    /// Results, in the order of their sections.
    pub(crate) outcomes: Vec<Outcome>,
    /// Experiments without a result.
    pub(crate) missing: Vec<About>,
    /// Files that are no results, and why.
    pub(crate) broken: Vec<String>,
}

/// The figures of this experiment are the summary.
pub(crate) const SUMMARY: &str = "peers-summary";

/// The titles of the papers.
const PAPERS: [(&str, &str, &str); 5] = [
    (
        "000",
        "Efficient Sleep/Wake-up Protocols for User-Level IPC",
        "Unrau and Krieger, 1997",
    ),
    (
        "001",
        "Reducing Waiting Costs in User-Level Communication",
        "Damianakis, Chen and Felten, 1997",
    ),
    (
        "002",
        "Optimizing IPC Performance for Shared-Memory Multiprocessors",
        "Gamsa, Krieger and Stumm, 1994",
    ),
    (
        "003",
        "The Measured Performance of a Fast Local IPC",
        "Shapiro, Farber and Smith, 1996",
    ),
    (
        "004",
        "A Fast Mach Network IPC Implementation",
        "Barrera, 1991",
    ),
];

/// Results of one paper, or of none.
struct Group<'a> {
    title: &'a str,
    authors: &'a str,
    outcomes: Vec<&'a Outcome>,
    missing: Vec<&'a About>,
}

impl Report {
    fn groups(&self) -> Vec<Group<'_>> {
        let group = |paper: Option<&str>, title, authors| Group {
            title,
            authors,
            outcomes: (self.outcomes.iter())
                .filter(|outcome| known(outcome.about.paper.as_deref()) == paper)
                .collect(),
            missing: (self.missing.iter())
                .filter(|about| known(about.paper.as_deref()) == paper)
                .collect(),
        };
        let mut groups = vec![group(None, "Beside today's systems", "")];
        groups.extend(
            PAPERS
                .iter()
                .map(|(paper, title, authors)| group(Some(paper), title, authors)),
        );
        groups.retain(|group| !group.outcomes.is_empty() || !group.missing.is_empty());
        groups
    }

    /// The whole page.
    pub(crate) fn page(&self) -> String {
        let mut styles = style::Styles::default();
        let groups = self.groups();
        let summary = summary::summary(self, &groups, &mut styles);
        let sections: Vec<Markup> = groups
            .iter()
            .map(|group| sections(group, &mut styles))
            .collect();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    // Nothing is fetched, whatever a result says.
                    meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                    meta name="color-scheme" content="light dark";
                    link rel="icon" href="data:,";
                    title { "handfast lab: what the papers measured, on this machine" }
                    style { (PreEscaped(css())) }
                }
                body {
                    a.skip href="#main" { "Skip to the results" }
                    header.top {
                        p.brand { b { "handfast" } " lab" }
                        button #theme type="button" hidden { "Dark" }
                    }
                    main #main {
                        (summary)
                        @for one in sections { (one) }
                    }
                    footer {
                        p {
                            "Made by " code { "handfast lab report" } " from one JSON file for each experiment. This page is one file and loads nothing from anywhere. Run "
                            code { "handfast lab run --all" } " to measure your own machine."
                        }
                    }
                    script { (PreEscaped(include_str!("page.js"))) }
                }
            }
        };
        page.into_string()
    }

    /// Each figure as a file: its name, and what is in it.
    pub(crate) fn figures(&self) -> Vec<(String, String)> {
        let mut styles = style::Styles::default();
        let mut files = Vec::new();
        for outcome in &self.outcomes {
            for (index, figure) in outcome.figures.iter().enumerate() {
                let plot = laid::Plot::new(figure, &mut styles);
                let quick = if outcome.is_quick { " Quick run." } else { "" };
                let about = format!(
                    "{} {}, {}.{quick}",
                    outcome.about.title,
                    outcome.machine,
                    units::date(outcome.unix_s)
                );
                let svg = draw::svg(&plot, draw::Medium::File, &figure.title, &about);
                let name = format!(
                    "{}-{}.svg",
                    section::id(&outcome.about.name).trim_start_matches("x-"),
                    index + 1
                );
                files.push((name, svg.into_string()));
            }
        }
        files
    }
}

/// A paper that has a title here.
fn known(paper: Option<&str>) -> Option<&str> {
    paper.filter(|paper| PAPERS.iter().any(|(known, ..)| known == paper))
}

fn sections(group: &Group<'_>, styles: &mut style::Styles) -> Markup {
    html! {
        @if !group.outcomes.is_empty() {
            div.paper {
                h2 { (group.title) @if !group.authors.is_empty() { " " small { (group.authors) } } }
                @for outcome in &group.outcomes { (section::section(outcome, styles)) }
            }
        }
    }
}

fn css() -> String {
    let page = include_str!("page.css");
    format!("{}{}{page}", draw::PLOT_CSS, style::classes(true))
}

#[cfg(test)]
mod tests;
