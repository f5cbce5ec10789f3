//! The comparison with peers, where none of them is built: handfast alone, and everybody else absent with the reason.

use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn peers_that_are_not_built_are_absent_and_their_command_is_named() {
    let folder = std::env::temp_dir().join(format!("handfast-lab-peers-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let outcome = |name: &str| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_handfast-lab"))
            .args(["run", name, "--quick", "--again", "--results"])
            .arg(&folder)
            .env("HANDFAST_PEERS", &folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let text = fs::read(folder.join(format!("{name}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let summary = outcome("peers-summary");
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
    let own = || {
        let death = outcome("peers-death");
        let rows = death["tables"][0]["rows"].as_array().unwrap();
        let is_own = |row: &&Value| row[0] == "handfast-default";
        rows.iter().find(is_own).unwrap().clone()
    };
    // A time; none, where it could not be taken on a busy machine.
    let is_taken = |own: &Value, at: usize| own[at].as_str().unwrap().ends_with('s');
    let tries = (0..3).map(|_| own());
    let own = { tries }.find(|own| is_taken(own, 1) && is_taken(own, 2));
    let own = own.expect("both sides notice it");
    assert_eq!([&own[3], &own[4], &own[5]], ["nothing", "1", "0"]);
    fs::remove_dir_all(folder).unwrap();
}
