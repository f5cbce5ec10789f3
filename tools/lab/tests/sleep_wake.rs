//! Paper 000 in the lab: what an experiment leaves is whole.

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One at a time: each wants the machine for itself.
static MACHINE: Mutex<()> = Mutex::new(());

fn lab(args: &[&str]) -> Vec<u8> {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(env!("CARGO_BIN_EXE_handfast-lab"))
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    output.stdout
}

/// The outcome that `lab run NAME --quick` leaves.
fn outcome(name: &str) -> Value {
    let folder = Folder::new(name);
    let path = folder.0.to_str().unwrap();
    lab(&["run", name, "--quick", "--results", path]);
    let file = folder.0.join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("handfast-lab-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The curves of a figure, all with points, or with a word about why not: then it is one at fixed priority.
fn curves(figure: &Value, is_whole: impl Fn(&[f64]) -> bool) -> Vec<&str> {
    let mut names = Vec::new();
    for curve in figure["curves"].as_array().unwrap() {
        let name = curve["name"].as_str().unwrap();
        let points = curve["points"].as_array().unwrap();
        let values: Vec<f64> = points
            .iter()
            .map(|point| point["y"].as_f64().unwrap())
            .collect();
        if curve["absent"].is_string() {
            assert!(
                name.contains("fixed priority") || name.contains("SCHED_RR"),
                "{curve}"
            );
            assert!(points.is_empty());
        } else {
            assert!(is_whole(&values), "{curve}");
        }
        names.push(name);
    }
    names
}

#[test]
fn a_figure_has_all_its_curves_with_throughput_and_costs() {
    let outcome = outcome("000-figure-3");
    assert_eq!(
        (&outcome["about"]["paper"], &outcome["is_quick"]),
        (&"000".into(), &true.into())
    );
    assert_ne!(outcome["verdict"], "absent");
    let figures = outcome["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 5);
    for figure in figures {
        let is_throughput = figure["y"]["label"] == "throughput";
        // One, two and six clients. A cost of zero is no gap.
        let is_whole = |values: &[f64]| {
            values.len() == 3
                && values
                    .iter()
                    .all(|value| *value > 0.0 || (!is_throughput && *value == 0.0))
        };
        let names = curves(figure, is_whole);
        assert_eq!(names[0], "BSS");
        assert_eq!(names.len(), 5, "{names:?}");
    }
    // Four system calls a message are what makes System V queues slow.
    let syscalls = &figures[3]["curves"][3];
    assert_eq!(syscalls["name"], "SysV queues");
    for point in syscalls["points"].as_array().unwrap() {
        // In the best turn: where few messages are to be had, beginning and end count, too.
        let calls = point["range"][0].as_f64().unwrap();
        assert!((3.5..4.5).contains(&calls), "{syscalls}");
    }
}

#[test]
fn table_1_has_a_time_for_each_operation() {
    let outcome = outcome("000-table-1");
    let rows = outcome["tables"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    for row in rows {
        assert!(row[3].as_str().unwrap().ends_with(" ns"), "{row}");
    }
    let names = curves(&outcome["figures"][0], |values| {
        !values.is_empty() && values.iter().all(|value| *value > 0.0)
    });
    assert_eq!(names.len(), 4);
}
