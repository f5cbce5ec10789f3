//! The comparison with peers, where none of them is built: handfast alone, and everybody else absent with the reason.

use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn peers_that_are_not_built_are_absent_and_their_command_is_named() {
    let folder = std::env::temp_dir().join(format!("handfast-lab-peers-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_handfast"))
        .args(["lab", "run", "peers-summary", "peers-death", "--quick"])
        .arg("--results")
        .arg(&folder)
        .env("HANDFAST_PEERS", &folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let read = |name: &str| -> Value {
        let text = fs::read(folder.join(format!("{name}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let summary = read("peers-summary");
    assert_eq!(summary["verdict"], "absent");
    let figures = summary["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 3);
    for figure in figures {
        assert_eq!(figure["kind"], "scatter");
        for curve in figure["curves"].as_array().unwrap() {
            let points = curve["points"].as_array().unwrap();
            if curve["name"].as_str().unwrap().starts_with("handfast") {
                assert_eq!(points[0]["label"], curve["name"]);
            } else {
                assert!(points.is_empty(), "{curve}");
                let why = curve["absent"].as_str().unwrap();
                assert!(why.contains("peers/build"), "{why}");
            }
        }
    }
    // A killed process is noticed on both sides, and its name's socket is all that is left.
    let death = read("peers-death");
    let rows = death["tables"][0]["rows"].as_array().unwrap();
    let own = rows
        .iter()
        .find(|row| row[0] == "handfast-default")
        .unwrap();
    assert!(own[1].as_str().unwrap().ends_with('s'), "{own}");
    assert!(own[2].as_str().unwrap().ends_with('s'), "{own}");
    assert_eq!([&own[3], &own[4], &own[5]], ["nothing", "1", "0"]);
    fs::remove_dir_all(folder).unwrap();
}
