//! How curves look: colour, marker and dashes, so that no two of a figure differ in colour only.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// One curve's look: an index into each list below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Style(usize);

/// On white and on near-black. Each has a contrast of 4.5 or more with its ground; neighbours differ in
/// lightness, too, for eyes that see few colours.
const COLOURS: [(&str, &str); 8] = [
    ("#005fa8", "#5cb3ff"),
    ("#b8430a", "#ff9152"),
    ("#00735a", "#3fd0a0"),
    ("#93388f", "#e58fe0"),
    ("#866000", "#e3b341"),
    ("#4b4b9b", "#a9a7f5"),
    ("#8b1a3d", "#ff8fab"),
    ("#5a5f66", "#aab2bd"),
];

/// About 8 pixels wide, around zero.
const MARKERS: [&str; 8] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.4H-4.6z",
    "M0-5L5 0L0 5L-5 0z",
    "M-4.6-3.4H4.6L0 4.8z",
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "M-4.2-2L0 1.2L4.2-2V2L0 4.6L-4.2 2z",
    "M-4.5-1.8h9v3.6h-9z",
];

const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

const SHADES: [&str; 4] = ["1", "0.25", "0.7", "0"];

impl Style {
    /// The class that colours what has it.
    pub(super) fn class(self) -> String {
        format!("c{}", self.0 % COLOURS.len())
    }

    pub(super) fn marker(self) -> &'static str {
        // Another marker when the colours come round, and another dash.
        MARKERS[(self.0 + self.0 / COLOURS.len()) % MARKERS.len()]
    }

    /// How full a bar is of its colour.
    pub(super) fn shade(self) -> &'static str {
        SHADES[(self.0 + self.0 / COLOURS.len()) % SHADES.len()]
    }

    pub(super) fn dash(self) -> &'static str {
        DASHES[(self.0 + self.0 / COLOURS.len()) % DASHES.len()]
    }
}

/// Which style each name has, over the whole page.
#[derive(Default)]
pub(super) struct Styles(HashMap<String, usize>);

impl Styles {
    /// The styles of one figure's curves: what a name has elsewhere, unless that is too near to another's here.
    /// The first of handfast's curves always has the first style.
    pub(super) fn of_figure(&mut self, names: &[&str]) -> Vec<Style> {
        let own = names.iter().position(|name| is_own(name));
        let mut used: Vec<usize> = own.iter().map(|_| 0).collect();
        // While colours last, each curve has another.
        let is_few = names.len() < COLOURS.len();
        let is_free = |used: &[usize], style: usize| {
            let is_near = |other: &usize| match is_few {
                true => other % COLOURS.len() == style % COLOURS.len(),
                false => *other == style,
            };
            // None but handfast's has its colour.
            !style.is_multiple_of(COLOURS.len()) && !used.iter().any(is_near)
        };
        let mut styles = vec![None; names.len()];
        for (index, name) in names.iter().enumerate() {
            let known = self.0.get(*name).copied();
            styles[index] = match own == Some(index) {
                true => Some(0),
                false => known.filter(|style| is_free(&used, *style)),
            };
            used.extend(styles[index]);
        }
        for (style, name) in styles.iter_mut().zip(names) {
            let style = style.get_or_insert_with(|| {
                let taken: HashSet<usize> = self.0.values().copied().collect();
                let mut nobodys = (1..COLOURS.len()).filter(|style| !taken.contains(style));
                let free = nobodys.find(|style| is_free(&used, *style));
                free.or_else(|| (1..).find(|style| is_free(&used, *style)))
                    .unwrap_or(1)
            });
            used.push(*style);
            self.0.entry((*name).to_owned()).or_insert(*style);
        }
        styles.into_iter().flatten().map(Style).collect()
    }
}

/// Whether a curve is handfast's: drawn stronger.
pub(super) fn is_own(name: &str) -> bool {
    // The strategy of its default, where the others are its strategies, too.
    name.starts_with("handfast") || name == "adaptive"
}

/// The classes of the colours: for the page, which has both grounds, or for a file, which is white.
pub(super) fn classes(is_page: bool) -> String {
    let mut css = String::new();
    for (index, (light, dark)) in COLOURS.iter().enumerate() {
        let colour = match is_page {
            true => format!("light-dark({light},{dark})"),
            false => (*light).to_owned(),
        };
        let _ = write!(
            css,
            ".c{index}{{color:{colour};fill:{colour};stroke:{colour}}}"
        );
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_curves_of_a_figure_look_alike_without_colour() {
        let mut styles = Styles::default();
        let names: Vec<String> = (0..24).map(|number| format!("s{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let styles = styles.of_figure(&names);
        let looks: HashSet<_> = styles
            .iter()
            .map(|style| (style.class(), style.marker(), style.dash()))
            .collect();
        assert_eq!(looks.len(), names.len());
        // While colours last, each marker is another one, too.
        let first = &styles[..7];
        let markers: HashSet<_> = first.iter().map(|style| style.marker()).collect();
        assert_eq!(markers.len(), 7);
    }

    /// As WCAG has it, of a colour such as `#1b2026`.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            match part <= 0.03928 {
                true => part / 12.92,
                false => ((part + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn every_colour_can_be_read_on_its_ground() {
        for (light, dark) in COLOURS {
            let on_light = (luminance("#fbfbfa") + 0.05) / (luminance(light) + 0.05);
            let on_dark = (luminance(dark) + 0.05) / (luminance("#11151a") + 0.05);
            assert!(
                on_light >= 4.5 && on_dark >= 4.5,
                "{light} {on_light}, {dark} {on_dark}"
            );
        }
    }

    #[test]
    fn curves_of_a_small_figure_have_different_colours() {
        let mut styles = Styles::default();
        let names: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        styles.of_figure(&names);
        for few in names.windows(7) {
            let colours: HashSet<_> = (styles.of_figure(few).iter())
                .map(|style| style.class())
                .collect();
            assert_eq!(colours.len(), 7);
        }
    }

    #[test]
    fn a_name_looks_the_same_in_all_figures_unless_another_took_its_style() {
        let mut styles = Styles::default();
        let first = styles.of_figure(&["pipe", "tcp", "handfast-default"]);
        let second = styles.of_figure(&["handfast-default", "tcp", "new"]);
        assert_eq!((first[2], first[1]), (second[0], second[1]));
        assert_eq!(first[2], Style(0));
        let third = styles.of_figure(&["pipe", "new"]);
        assert_ne!(third[0], third[1]);
    }
}
