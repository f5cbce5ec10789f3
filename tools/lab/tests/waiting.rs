//! An experiment runs from end to end and leaves a file with all of its curves.

use handfast_testing::Directory;
use serde_json::Value;
use std::process::Command;

/// The seven strategies of paper 001, and handfast's default.
const NAMES: [&str; 8] = [
    "spin",
    "sched",
    "block",
    "notify",
    "spin-sched",
    "spin-block",
    "spin-notify",
    "adaptive",
];

#[test]
fn a_quick_experiment_leaves_a_curve_for_each_strategy() {
    let directory = Directory::new("lab-waiting");
    let results = directory.0.join("results");
    let output = Command::new(env!("CARGO_BIN_EXE_handfast-lab"))
        .args(["run", "001-ttcp", "--quick", "--again", "--results"])
        .arg(&results)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let bytes = std::fs::read(results.join("001-ttcp.json")).unwrap();
    let outcome: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (&outcome["schema"], &outcome["is_quick"]),
        (&1.into(), &true.into())
    );
    assert_eq!(outcome["about"]["paper"], "001");
    let verdict = outcome["verdict"].as_str().unwrap();
    let all = ["holds", "partly", "fails", "undecided"];
    assert!(all.contains(&verdict), "{verdict}");
    for text in ["measured", "reasons", "machine"] {
        assert!(!outcome[text].as_str().unwrap().is_empty(), "{text}");
    }

    let figures = outcome["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 3);
    for figure in figures {
        let curves = figure["curves"].as_array().unwrap();
        let names: Vec<&str> = curves
            .iter()
            .filter_map(|curve| curve["name"].as_str())
            .collect();
        assert_eq!(names, NAMES, "{}", figure["title"]);
        for curve in curves {
            let points = curve["points"].as_array().unwrap();
            assert_eq!(points.len(), 3, "{said}{curve}");
            for point in points {
                assert!(
                    point["x"].as_f64() > Some(0.0) && point["y"].as_f64() > Some(0.0),
                    "{point}"
                );
                let (low, high) = (point["range"][0].as_f64(), point["range"][1].as_f64());
                assert!(
                    low <= point["y"].as_f64() && point["y"].as_f64() <= high,
                    "{point}"
                );
            }
        }
    }
}
