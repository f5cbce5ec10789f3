//! One experiment of the page: claim, verdict, method, figures, tables, and its file.

use super::SUMMARY;
use super::figure::{figure, table};
use super::plot::Plot;
use super::style::Styles;
use super::units::{date, duration, prose};
use crate::lab::result::{Kind, Outcome, Verdict};
use maud::{Markup, html};
use std::fmt::Write;

/// What was measured.
pub(super) fn section(outcome: &Outcome, styles: &mut Styles) -> Markup {
    let about = &outcome.about;
    let id = id(&about.name);
    // Those are the summary.
    let is_above = |kind| about.name == SUMMARY && kind == Kind::Scatter;
    let figures: Vec<Markup> = (outcome.figures.iter().enumerate())
        .filter(|(_, one)| !is_above(one.kind))
        .map(|(index, one)| figure(&Plot::new(one, styles), &format!("{id}-{}", index + 1)))
        .collect();
    html! {
        section.experiment id=(id) aria-labelledby={ (id) "-name" } {
            header.words {
                p.name { code { (about.name) } @if outcome.is_quick { " " span.quick { "quick run" } } }
                h3 id={ (id) "-name" } { (prose(&about.title)) }
                p.claim { span.what { "Claim" } (prose(&about.claim)) }
                div class={ "verdict " (word(outcome.verdict)) } {
                    p { (badge(outcome.verdict)) }
                    p.reasons { (prose(&outcome.reasons)) }
                }
                dl {
                    dt { "Method" } dd { (prose(&about.method)) }
                    dt { "Measured here" } dd { (prose(&outcome.measured)) }
                    dt { "Machine" } dd { (outcome.machine) }
                    dt { "When" } dd { (date(outcome.unix_s)) ", in " (duration(outcome.seconds)) }
                }
                @if outcome.is_quick {
                    p.warning { "A quick run: it shows that the experiment works, not how fast anything is." }
                }
                @if !outcome.notes.is_empty() {
                    ul.notes { @for note in &outcome.notes { li { (prose(note)) } } }
                }
                p { a.raw download={ (about.name) ".json" } href=(data_url(outcome)) { "Raw data (JSON)" } }
            }
            div.pictures {
                @if outcome.figures.iter().any(|one| is_above(one.kind)) {
                    p { "Speed against processor time is " a href="#speed" { "at the top of the page" } "." }
                }
                @for one in figures { (one) }
                @for one in &outcome.tables { (table(one)) }
                @if outcome.figures.is_empty() && outcome.tables.is_empty() {
                    p.empty { "No figures: " (prose(&outcome.reasons)) }
                }
            }
        }
    }
}

/// What a link to a section says: names of results are file names, so almost anything.
pub(super) fn id(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let name: String = name
        .chars()
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect();
    format!("x-{name}")
}

/// The verdict's word.
pub(super) const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Partly => "partly",
        Verdict::Fails => "fails",
        Verdict::Absent => "absent",
    }
}

/// A symbol and the word: colour says the same, and is not needed.
pub(super) fn badge(verdict: Verdict) -> Markup {
    let symbol = match verdict {
        Verdict::Holds => "M4 8.5L7 11.5L12.5 5",
        Verdict::Partly => "M8 2.5a5.5 5.5 0 0 1 0 11z",
        Verdict::Fails => "M4.5 4.5L11.5 11.5M11.5 4.5L4.5 11.5",
        Verdict::Absent => "M4.5 8H11.5",
    };
    let says = match verdict {
        Verdict::Holds => "holds",
        Verdict::Partly => "holds in part",
        Verdict::Fails => "fails",
        Verdict::Absent => "not measured",
    };
    html! {
        span class={ "badge " (word(verdict)) } {
            svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" {
                circle cx="8" cy="8" r="7" {}
                path d=(symbol) {}
            }
            (says)
        }
    }
}

/// The result as a link's address, in characters that an address may have.
fn data_url(outcome: &Outcome) -> String {
    let json = serde_json::to_vec(outcome).unwrap_or_default();
    let mut url = "data:application/json;charset=utf-8,".to_owned();
    for byte in json {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b','
            | b':'
            | b'['
            | b']'
            | b'{'
            | b'}' => {
                url.push(char::from(byte));
            }
            _ => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_letters_only() {
        assert_eq!(id("000-figure-2"), "x-000-figure-2");
        assert_eq!(id("a b\"<ü>"), "x-a_b__ü_".replace('ü', "_"));
    }
}
