//! One experiment of the page: claim, verdict, method, figures, tables, and its file.

use super::SUMMARY;
use super::figure::{figure, table};
use super::laid::Plot;
use super::style::Styles;
use super::units::{date, duration, prose};
use crate::result::{Kind, Outcome, Verdict};
use maud::{Markup, html};
use std::fmt::Write;

/// The section of a measurement.
pub(super) fn section(outcome: &Outcome, styles: &mut Styles) -> Markup {
    let about = &outcome.about;
    let id = id(&about.name);
    // Scatters of the summary are shown above.
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
                    (reasons(&outcome.reasons))
                }
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
            div.details {
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
        }
    }
}

/// The reasons of a verdict: a list where it has several parts, each with its result.
fn reasons(text: &str) -> Markup {
    let parts = parts(text);
    let is_judged = parts.iter().any(|part| judged(part).0.is_some());
    if parts.len() < 3 && !is_judged {
        return html! { p.reasons { (prose(text)) } };
    }
    html! {
        ul.reasons {
            @for part in parts {
                @let (verdict, rest) = judged(part);
                li class=[verdict.map(word)] {
                    @if let Some(verdict) = verdict {
                        (icon(verdict)) span.unseen { (word(verdict)) ": " }
                    }
                    (prose(rest))
                }
            }
        }
    }
}

/// A part without the words that say whether it is as claimed.
fn judged(part: &str) -> (Option<Verdict>, &str) {
    let words = [
        ("as claimed: ", Verdict::Holds),
        ("not so: ", Verdict::Fails),
        ("undecided: ", Verdict::Undecided),
    ];
    let found = words
        .iter()
        .find_map(|(word, verdict)| Some((*verdict, part.strip_prefix(word)?)));
    found.map_or((None, part), |(verdict, rest)| (Some(verdict), rest))
}

/// The parts between semicolons outside of parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_u32);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// The text of a link to a section: names of results are file names, so almost anything.
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
        Verdict::Undecided => "undecided",
        Verdict::Absent => "absent",
        Verdict::Shown => "shown",
    }
}

/// A symbol and the word: colour says the same, and is not needed.
pub(super) fn badge(verdict: Verdict) -> Markup {
    let says = match verdict {
        Verdict::Holds => "holds",
        Verdict::Partly => "holds in part",
        Verdict::Fails => "fails",
        Verdict::Undecided => "undecided",
        Verdict::Absent => "not measured",
        Verdict::Shown => "shown, not judged",
    };
    html! { span class={ "badge " (word(verdict)) } { (icon(verdict)) (says) } }
}

fn icon(verdict: Verdict) -> Markup {
    let symbol = match verdict {
        Verdict::Holds => "M4 8.5L7 11.5L12.5 5",
        Verdict::Partly => "M8 2.5a5.5 5.5 0 0 1 0 11z",
        Verdict::Fails => "M4.5 4.5L11.5 11.5M11.5 4.5L4.5 11.5",
        Verdict::Undecided => "M4.5 6H11.5M4.5 10H11.5",
        Verdict::Absent | Verdict::Shown => "M4.5 8H11.5",
    };
    html! {
        svg.icon viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" {
            circle cx="8" cy="8" r="7" {}
            path d=(symbol) {}
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
    fn reasons_of_several_parts_are_a_list() {
        assert_eq!(parts("a (b; c); d;e"), ["a (b; c)", "d", "e"]);
        assert_eq!(parts(")(;"), [")(;"]);
        assert_eq!(judged("not so: x"), (Some(Verdict::Fails), "x"));
        let list = reasons("as claimed: a; not so: <b>; c").into_string();
        assert_eq!(list.matches("<li").count(), 3);
        assert!(list.contains("fails: ") && list.contains("&lt;b&gt;"));
        assert!(reasons("a; b").into_string().starts_with("<p"));
    }

    #[test]
    fn links_have_letters_only() {
        assert_eq!(id("000-figure-2"), "x-000-figure-2");
        assert_eq!(id("a b\"<ü>"), "x-a_b__ü_".replace('ü', "_"));
    }
}
