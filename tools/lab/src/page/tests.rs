//! The content of the page, without a browser.

use super::*;
use crate::result::{Axis, Curve, Figure, Kind, Point, SCHEMA, Table, Verdict};

/// Everything that a page must not take for its own.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\"'&\u{1}";

fn hostile(kind: Kind) -> Outcome {
    let point = |x| Point {
        x,
        y: x * 2.0,
        range: Some((x, x * 3.0)),
        label: Some(HOSTILE.to_owned()),
    };
    let mut curve = Curve::new(HOSTILE, []);
    curve.points = vec![point(0.0), point(1.0), point(5.0)];
    let mut absent = Curve::new("gone", []);
    absent.absent = Some(HOSTILE.to_owned());
    Outcome {
        schema: SCHEMA,
        about: About {
            name: HOSTILE.to_owned(),
            paper: Some(HOSTILE.to_owned()),
            title: HOSTILE.to_owned(),
            claim: HOSTILE.to_owned(),
            method: HOSTILE.to_owned(),
        },
        measured: HOSTILE.to_owned(),
        verdict: Verdict::Partly,
        reasons: HOSTILE.to_owned(),
        figures: vec![Figure {
            title: HOSTILE.to_owned(),
            kind,
            x: Axis::linear(HOSTILE, HOSTILE),
            y: Axis::log(HOSTILE, HOSTILE),
            curves: vec![curve.clone(), curve, absent],
        }],
        tables: vec![Table {
            title: HOSTILE.to_owned(),
            columns: vec![HOSTILE.to_owned()],
            rows: vec![vec![HOSTILE.to_owned()]],
        }],
        notes: vec![HOSTILE.to_owned()],
        machine: HOSTILE.to_owned(),
        unix_s: 0,
        seconds: 1.0,
        is_quick: true,
    }
}

const KINDS: [Kind; 4] = [Kind::Lines, Kind::Scatter, Kind::Bars, Kind::Stacked];

fn report(outcomes: Vec<Outcome>) -> Report {
    Report {
        missing: outcomes
            .iter()
            .map(|outcome| outcome.about.clone())
            .collect(),
        outcomes,
        broken: vec![HOSTILE.to_owned()],
    }
}

#[test]
fn nothing_that_results_say_becomes_part_of_the_page() {
    let page = report(KINDS.map(hostile).into()).page();
    assert!(!page.contains("<img"));
    // The page's own one, at its end.
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(page.contains("&lt;/script&gt;"));
    // In an attribute a quote would end it.
    assert!(!page.contains("onerror=alert(1)>"));
    for word in ["http://", "https://", "src=\"", "@import", "url("] {
        assert!(
            !page.contains(word),
            "the page would load something: {word}"
        );
    }
}

#[test]
fn figures_are_files_of_their_own() {
    for kind in KINDS {
        let files = report(vec![hostile(kind)]).figures();
        let [(name, svg)] = &files[..] else {
            panic!("{} files", files.len());
        };
        assert!(
            name.ends_with("-1.svg") && !name.contains(['/', '<', '.', ' '])
                || name.matches('.').count() == 1
        );
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>"));
        assert!(!svg.contains("<img") && !svg.contains("var(") && !svg.contains("light-dark"));
        assert!(!svg.contains(|letter: char| letter.is_control()) || svg.contains('\n'));
        assert!(!svg.contains('\u{1}') && !svg.contains("NaN") && !svg.contains("inf"));
    }
}

#[test]
fn figures_with_nothing_to_show_say_so() {
    let mut outcome = hostile(Kind::Lines);
    for curve in &mut outcome.figures[0].curves {
        curve.points.clear();
    }
    let report = report(vec![outcome]);
    assert!(report.page().contains("could be measured here"));
    assert_eq!(report.figures().len(), 1);
}

#[test]
fn places_are_finite_whatever_the_values() {
    for kind in KINDS {
        for values in [
            [0.0, 0.0],
            [-5.0, -1.0],
            [1e-300, 1e300],
            [f64::MAX, f64::MIN],
            [f64::NAN, 1.0],
        ] {
            let mut outcome = hostile(kind);
            for curve in &mut outcome.figures[0].curves {
                for (point, value) in curve.points.iter_mut().zip(values) {
                    (point.x, point.y, point.range) = (value, value, Some((value, value)));
                }
            }
            let page = report(vec![outcome]).page();
            let drawn = page.split("<script>").next().unwrap();
            assert!(
                !drawn.contains("NaN") && !drawn.contains("inf\"") && !drawn.contains("inf "),
                "{kind:?} {values:?}"
            );
        }
    }
}

#[test]
fn what_was_not_run_and_what_is_broken_is_named() {
    let page = report(vec![hostile(Kind::Lines)]).page();
    assert!(page.contains("handfast lab run"));
    assert!(page.contains("Left out: 1 file"));
    assert!(page.contains("quick run"));
    assert!(page.contains("<b>gone</b> is absent: "));
}
