//! `handfast lab report` on the results of `tests/results`: what it writes, and the page in a real browser.
//!
//! Without a Chromium (Debian's package `chromium`, or `HANDFAST_CHROMIUM=PROGRAM`) the browser's part is not exercised.
//! `HANDFAST_PICTURES=DIR` keeps pictures of the page.

#[path = "page/browser.rs"]
mod browser;

use browser::Browser;
use handfast_testing::Directory;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results")
}

fn report(results: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_handfast-lab"))
        .args(["report", "--results"])
        .arg(results)
        .args(arguments)
        .output();
    output.unwrap()
}

/// The samples that are results, read as they are.
fn results() -> Vec<Value> {
    let read = |path: PathBuf| serde_json::from_slice(&fs::read(path).unwrap()).ok();
    let entries = fs::read_dir(samples()).unwrap();
    let values = entries.filter_map(|entry| read(entry.unwrap().path()));
    values
        .filter(|value: &Value| value["schema"] == 1)
        .collect()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap()
}

#[test]
fn files_that_are_no_results_are_named_and_left_out() {
    let directory = Directory::new("named");
    let page = directory.0.join("page.html");
    let output = report(&samples(), &["--out", page.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("broken.json: no JSON: "), "{said}");
    assert!(
        said.contains("later.json: its schema is 7, and this handfast reads 1"),
        "{said}"
    );
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Left out: 2 files"));
}

#[test]
fn without_results_the_page_lists_what_could_be_run() {
    let directory = Directory::new("empty");
    let page = directory.0.join("page.html");
    let output = report(
        &directory.0.join("none"),
        &["--out", page.to_str().unwrap()],
    );
    assert!(output.status.success());
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("There are no results yet") && page.contains("handfast lab run 003-table-1")
    );
}

#[test]
fn each_figure_is_a_file() {
    let directory = Directory::new("svg");
    let folder = directory.0.join("figures");
    let output = report(&samples(), &["--svg", "--out", folder.to_str().unwrap()]);
    assert!(output.status.success());
    let count: usize = results()
        .iter()
        .map(|result| list(result, "figures").len())
        .sum();
    let files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), count);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("<svg xmlns=") && text.ends_with("</svg>"),
            "{}",
            file.display()
        );
        let open = text.matches("<g ").count() + text.matches("<g>").count();
        assert_eq!(open, text.matches("</g>").count(), "{}", file.display());
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(program) = browser::installed() else {
        return handfast_testing::not_exercised("no Chromium");
    };
    let directory = Directory::new("browser");
    let page = directory.0.join("page.html");
    assert!(
        report(&samples(), &["--out", page.to_str().unwrap()])
            .status
            .success()
    );
    let mut browser = Browser::start(&program, &directory.0.join("profile"));
    browser.size(1600, 1000);
    browser.prefer("light");
    loads_soon(&mut browser, &page);
    shows_every_curve(&mut browser);
    takes_nothing_that_results_say_for_its_own(&mut browser);
    hides_and_shows_curves(&mut browser);
    switches_axes(&mut browser);
    stacks_what_is_left(&mut browser);
    shows_values_under_the_pointer(&mut browser);
    can_be_used_by_keyboard(&mut browser, &page);
    has_two_sets_of_colours(&mut browser);
    fits_any_width(&mut browser);
    keep_pictures(&mut browser);
    is_silent_and_alone(&browser, &page);
}

fn loads_soon(browser: &mut Browser, page: &Path) {
    // The best of a few: others use this machine, too.
    let (mut took, mut pace) = (Vec::new(), handfast_testing::Pace::new());
    for _ in 0..3 {
        pace.look();
        browser.go(page);
        let ms = browser.value("performance.getEntriesByType('navigation')[0].loadEventEnd");
        took.push(ms.as_f64().unwrap());
        let limit_ms = pace.allows(Duration::from_secs(2)).as_secs_f64() * 1e3;
        if took.last().is_some_and(|ms| *ms < limit_ms) {
            return;
        }
    }
    panic!("loading took {took:?} ms");
}

fn shows_every_curve(browser: &mut Browser) {
    let mut drawn = 0;
    for result in results() {
        for figure in list(&result, "figures") {
            let curves = list(figure, "curves");
            let has_points = |curve: &&Value| !list(curve, "points").is_empty();
            let there = curves.iter().filter(has_points).count();
            let title = figure["title"].as_str().unwrap();
            let find = format!(
                "(() => {{ const f = [...document.querySelectorAll('figure')].filter(f => f.querySelector('figcaption').textContent.replaceAll('\\u00a0', ' ').replaceAll(' µs', ' us') === {title:?}); \
                 return f.map(f => [f.querySelectorAll('.curve').length, f.querySelectorAll('.legend button').length, \
                 f.querySelectorAll('.absences b').length, f.querySelectorAll('.curve .mark, .curve .bar').length, \
                 [...f.querySelectorAll('.curve')].filter(c => c.getBoundingClientRect().width > 0).length]); }})()"
            );
            let found = browser.value(&find);
            let points: usize = curves.iter().map(|curve| list(curve, "points").len()).sum();
            let expected = [there, there, curves.len() - there, points, there];
            let is_found = found
                .as_array()
                .unwrap()
                .iter()
                .any(|one| *one == serde_json::json!(expected));
            assert!(is_found, "{title}: {found}, not {expected:?}");
            drawn += there;
        }
    }
    assert!(drawn > 50, "{drawn} curves only");
}

fn takes_nothing_that_results_say_for_its_own(browser: &mut Browser) {
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(
        browser.value("document.querySelectorAll('script').length"),
        1
    );
    let title = browser.value("document.title");
    assert!(
        title.as_str().unwrap().starts_with("handfast lab"),
        "{title}"
    );
    // The file behind the link is the result.
    let raw = browser.value("decodeURIComponent(document.querySelector('#x-hostile a.raw').href.replace(/^[^,]*,/, ''))");
    let raw: Value = serde_json::from_str(raw.as_str().unwrap()).unwrap();
    let there = results()
        .into_iter()
        .find(|result| result["about"]["name"] == "hostile");
    assert_eq!(Some(raw), there);
}

/// The figure most is tried with: lines with ranges and names.
const LINES: &str = "#x-000-figure-2-1";

fn hides_and_shows_curves(browser: &mut Browser) {
    let button = format!("{LINES} .legend button[data-curve='2']");
    let shown = format!(
        "(() => {{ const c = document.querySelector(\"{LINES} .curve[data-curve='2']\"); \
         return [getComputedStyle(c).display !== 'none', document.querySelector(\"{button}\").getAttribute('aria-pressed')]; }})()"
    );
    assert_eq!(browser.value(&shown), serde_json::json!([true, "true"]));
    browser.click(&button);
    assert_eq!(browser.value(&shown), serde_json::json!([false, "false"]));
    browser.click(&button);
    assert_eq!(browser.value(&shown), serde_json::json!([true, "true"]));
}

fn switches_axes(browser: &mut Browser) {
    let state = format!(
        "(() => {{ const f = document.querySelector('{LINES}'); const off = name => getComputedStyle(f.querySelector(name)).display === 'none'; \
         return [f.querySelector('.curve .mark').getAttribute('transform'), f.querySelector('.line').getAttribute('d'), \
         off('.axis.y.log'), off('.axis.y.linear'), off('.axis.x.log'), off('.axis.x.linear')]; }})()"
    );
    let before = browser.value(&state);
    assert_eq!(before.as_array().unwrap()[2..], [true, false, true, false]);
    browser.click(&format!("{LINES} button[data-axis='y'][data-way='1']"));
    let log = browser.value(&state);
    assert_eq!(log.as_array().unwrap()[2..], [false, true, true, false]);
    assert!(
        log[0] != before[0] && log[1] != before[1],
        "nothing moved: {log}"
    );
    browser.click(&format!("{LINES} button[data-axis='x'][data-way='1']"));
    let both = browser.value(&state);
    assert_eq!(both.as_array().unwrap()[2..], [false, true, false, true]);
    for axis in ["x", "y"] {
        browser.click(&format!("{LINES} button[data-axis='{axis}'][data-way='0']"));
    }
    assert_eq!(browser.value(&state), before);
}

fn stacks_what_is_left(browser: &mut Browser) {
    const STACK: &str = "#x-002-figure-2-1";
    let bottom = format!(
        "(() => {{ const b = document.querySelector(\"{STACK} .curve[data-curve='1'] .bar\"); \
         return Number(b.getAttribute('y')) + Number(b.getAttribute('height')); }})()"
    );
    let before = browser.value(&bottom).as_f64().unwrap();
    let button = format!("{STACK} .legend button[data-curve='0']");
    browser.click(&button);
    let after = browser.value(&bottom).as_f64().unwrap();
    let base = browser.value(&format!(
        "Number(document.querySelector('{STACK} svg.plot').dataset.base)"
    ));
    assert!(
        after > before && (after - base.as_f64().unwrap()).abs() < 0.2,
        "{before}, {after}, {base}"
    );
    browser.click(&button);
    assert_eq!(browser.value(&bottom).as_f64(), Some(before));
}

fn shows_values_under_the_pointer(browser: &mut Browser) {
    browser.point(&format!("{LINES} svg.plot"), 0.4, 0.5);
    browser.settle();
    let readout = browser.value(&format!(
        "(() => {{ const r = document.querySelector('{LINES} .readout'); return r.hidden ? '' : r.textContent; }})()"
    ));
    let readout = readout.as_str().unwrap();
    assert!(
        readout.contains("BSWY") && readout.contains("M/s"),
        "{readout:?}"
    );
    // A scatter shows the point that is nearest.
    browser.point("#summary-1 .curve[data-curve='0'] .mark path", 0.5, 0.5);
    browser.settle();
    let readout = browser.value("document.querySelector('#summary-1 .readout').textContent");
    let readout = readout.as_str().unwrap();
    assert!(
        readout.contains("handfast-default") && readout.contains("260 ns"),
        "{readout:?}"
    );
}

fn can_be_used_by_keyboard(browser: &mut Browser, page: &Path) {
    // Anew: the keyboard goes on from where the pointer was.
    browser.go(page);
    let focused = "(() => { const e = document.activeElement; const s = getComputedStyle(e); \
         return [e.className || e.id, e.closest('figure')?.id || '', s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2, \
         e.tagName, e.getAttribute('aria-pressed') || '', (e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent).length > 0]; })()";
    // From the top: everything that can be used is reached, each with a ring and a name.
    let mut reached = Vec::new();
    for _ in 0..60 {
        browser.press("Tab");
        let at = browser.value(focused);
        assert_eq!(
            (&at[2], &at[5]),
            (&Value::Bool(true), &Value::Bool(true)),
            "no ring or no name: {at}"
        );
        let is_in_figure = at[1] == "summary-1";
        if is_in_figure && at[0] == "canvas" {
            browser.press("ArrowRight");
            let spoken = browser.value("document.querySelector('#summary-1 .spoken').textContent");
            assert!(spoken.as_str().unwrap().contains("p50 latency"), "{spoken}");
            browser.press("End");
            browser.press("Escape");
            assert_eq!(
                browser.value("document.querySelector('#summary-1 .readout').hidden"),
                true
            );
        }
        if is_in_figure && at[3] == "BUTTON" && at[4] == "true" {
            // Space presses a button, and again lets it go; of a switch it stays.
            browser.press(" ");
            let pressed = browser.value(focused)[4].clone();
            if browser.value("document.activeElement.closest('.legend') !== null") == true {
                assert_eq!(pressed, "false");
                browser.press("Enter");
            }
            assert_eq!(browser.value(focused)[4], "true");
        }
        reached.push(at);
        if reached.last().is_some_and(|at| at[1] == "summary-2") {
            break;
        }
    }
    let has = |name: &str, value: usize| reached.iter().any(|at| at[value] == name);
    assert!(
        has("skip", 0) && has("theme", 0) && has("canvas", 0) && has("summary-2", 1),
        "{reached:?}"
    );
    let buttons = reached
        .iter()
        .filter(|at| at[1] == "summary-1" && at[3] == "BUTTON")
        .count();
    // Two for each axis, and one for each curve.
    assert_eq!(buttons, 4 + 9);
}

fn has_two_sets_of_colours(browser: &mut Browser) {
    let ground = "getComputedStyle(document.body).backgroundColor";
    let line = "getComputedStyle(document.querySelector('.curve .line')).stroke";
    let light = (browser.value(ground), browser.value(line));
    browser.prefer("dark");
    let dark = (browser.value(ground), browser.value(line));
    assert!(
        light.0 != dark.0 && light.1 != dark.1,
        "{light:?}, {dark:?}"
    );
    browser.click("#theme");
    assert_eq!(browser.value(ground), light.0);
    browser.click("#theme");
    assert_eq!(browser.value(ground), dark.0);
    browser.prefer("light");
    assert_eq!(browser.value(ground), dark.0, "what was chosen stays");
    browser.print(true);
    assert_eq!(browser.value(ground), light.0, "paper is white");
    browser.print(false);
    browser.click("#theme");
}

/// Nothing is wider than the window, no name of an axis stands on another, no name leaves its drawing.
fn fits_any_width(browser: &mut Browser) {
    for wide in [1600, 1059, 768, 400, 320] {
        browser.size(wide, 1000);
        let over = browser.value("document.documentElement.scrollWidth - innerWidth");
        assert!(
            over.as_i64().unwrap() <= 0,
            "{over} pixels too wide at {wide}"
        );
        let covered = browser.value(
            "[...document.querySelectorAll('figure')].flatMap(f => { \
               const seen = q => [...f.querySelectorAll(q)].filter(e => e.getClientRects().length && e.getBoundingClientRect().width > 0); \
               const tilted = f.querySelector('.axis.x:not(.off) text[transform]'); \
               const boxes = q => seen(q).map(e => [e.textContent, e.getBoundingClientRect()]); \
               const covers = (list) => list.flatMap(([n, a], i) => list.slice(i + 1).filter(([, b]) => \
                 a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3).map(([m]) => f.id + ': ' + n + ' on ' + m)); \
               const outside = boxes('.axis:not(.off) text, .label, .title').filter(([, b]) => b.left < -1 || b.right > innerWidth + 1).map(([n]) => f.id + ': ' + n + ' is outside'); \
               return [...(tilted ? [] : covers(boxes('.axis.x:not(.off) text'))), ...covers(boxes('.axis.y:not(.off) text')), \
                 ...covers(boxes('.curve > .label')), ...outside]; }).filter(t => !t.includes('img'))",
        );
        assert_eq!(covered, serde_json::json!([]), "at {wide}");
    }
}

fn keep_pictures(browser: &mut Browser) {
    let Some(folder) = env::var_os("HANDFAST_PICTURES").map(PathBuf::from) else {
        return;
    };
    fs::create_dir_all(&folder).unwrap();
    for scheme in ["light", "dark"] {
        browser.value(
            "(localStorage.removeItem('theme'), delete document.documentElement.dataset.theme)",
        );
        browser.prefer(scheme);
        for wide in [1600, 400] {
            browser.size(wide, 1000);
            let high = browser.value("document.documentElement.scrollHeight");
            let picture = browser.picture(high.as_f64().unwrap());
            let path = folder.join(format!("{scheme}-{wide}.png"));
            let mut decode = Command::new("base64")
                .arg("-d")
                .stdin(Stdio::piped())
                .stdout(fs::File::create(path).unwrap())
                .spawn()
                .unwrap();
            decode
                .stdin
                .take()
                .unwrap()
                .write_all(picture.as_bytes())
                .unwrap();
            assert!(decode.wait().unwrap().success());
        }
    }
}

fn is_silent_and_alone(browser: &Browser, page: &Path) {
    let own = format!("file://{}", page.display());
    for event in &browser.events {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" | "Log.entryAdded" => panic!("{params}"),
            "Runtime.consoleAPICalled" => panic!("{params}"),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap();
                assert!(
                    url == own || url.starts_with("data:"),
                    "the page asked for {url}"
                );
            }
            _ => {}
        }
    }
}
