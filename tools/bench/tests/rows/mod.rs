//! Runs a benchmark and reads its rows.

use serde_json::Value;
use std::io;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One benchmark at a time: each wants the machine for itself.
static MACHINE: Mutex<()> = Mutex::new(());

/// Until this is dropped, no other benchmark runs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn handfast(args: &[&str]) -> io::Result<Output> {
    let _alone = alone();
    Command::new(env!("CARGO_BIN_EXE_handfast-bench"))
        .args(args)
        .output()
}

/// The rows of a quick run, after checking what holds for all of them.
pub(crate) fn rows(args: &[&str]) -> Vec<Value> {
    let output = handfast(&[args, &["--quick", "--json"]].concat()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(text.lines().count(), 1, "one object on one line");
    let report: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["bench", "machine", "rows"]);
    assert_eq!(report["bench"], args[0]);
    assert!(report["machine"].as_str().unwrap().contains("Linux"));
    let rows = report["rows"].as_array().unwrap().clone();
    for row in &rows {
        for (field, value) in row.as_object().unwrap() {
            let known = match field.as_str() {
                "case" => value.is_string(),
                "system" => SYSTEMS.contains(&value.as_str().unwrap()),
                // A difference of two noisy times.
                "ns_per_right" => value.is_f64(),
                field => NUMBERS.contains(&field) && value.as_f64().is_some_and(|it| it >= 0.0),
            };
            assert!(known, "{field} in {row}");
        }
    }
    rows
}

const SYSTEMS: [&str; 27] = [
    "limit",
    "copy",
    "handfast-spin",
    "handfast-default",
    "handfast-block",
    "pipe",
    "eventfd",
    "unix-stream",
    "tcp",
    "tcp-nagle",
    "udp",
    "sysv-queue",
    "posix-queue",
    "futex",
    "handfast-domain",
    "handfast-domain-confined",
    "handfast-domain-held",
    "handfast-domain-held-confined",
    "handfast-domain-port",
    "handfast-process-domain",
    "handfast-process-domain-held",
    "handfast-process-domain-port",
    "plain-call",
    "syscall",
    "syscall-confined",
    "syscall-checked",
    "syscall-checked-confined",
];

const NUMBERS: [&str; 13] = [
    "payload_bytes",
    "clients",
    "p50_ns",
    "p99_ns",
    "ops_per_s",
    "cpu_ns_per_op",
    "ratio_to_limit",
    "ratio_to_copy",
    "ratio_to_unix",
    "jain",
    "longest_wait_ns",
    "switches",
    "cpu_ns",
];

pub(crate) fn find<'a>(rows: &'a [Value], case: &str, system: &str) -> &'a Value {
    rows.iter()
        .find(|row| row["case"] == case && row["system"] == system)
        .unwrap_or_else(|| panic!("no row {case} {system} in {rows:?}"))
}

pub(crate) fn has(row: &Value, fields: &[&str]) {
    for field in fields {
        assert!(row[field].is_number(), "{field} in {row}");
    }
}
