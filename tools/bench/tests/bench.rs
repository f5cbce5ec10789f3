//! Every benchmark runs from end to end and prints what its users parse.

use rows::{alone, find, handfast, has, rows};
use serde_json::Value;
use std::process::Command;

mod rows;

/// Whether there are several processors, which is recorded where there is one.
fn has_processors() -> bool {
    let has_processors = std::thread::available_parallelism().unwrap().get() > 1;
    if !has_processors {
        handfast_testing::not_exercised("one processor");
    }
    has_processors
}

#[test]
fn rtt_prints_every_system_on_two_cpus_and_on_one() {
    let rows = rows(&["rtt", "--payloads", "24,4096"]);
    for system in [
        "limit",
        "futex",
        "eventfd",
        "pipe",
        "unix-stream",
        "tcp",
        "udp",
    ] {
        let row = find(&rows, "same-core", system);
        has(row, &["payload_bytes", "p50_ns", "p99_ns", "ops_per_s"]);
        has(row, &["cpu_ns_per_op", "ratio_to_limit"]);
    }
    assert_eq!(find(&rows, "same-core", "futex")["ratio_to_limit"], 1.0);
    find(&rows, "same-core", "sysv-queue");
    find(&rows, "same-core", "posix-queue");
    if has_processors() {
        assert_eq!(find(&rows, "cross-core", "limit")["ratio_to_limit"], 1.0);
        find(&rows, "cross-core", "futex");
    }
    for case in ["free", "paced"] {
        let of_case = rows.iter().filter(|row| row["case"] == case);
        assert!(of_case.clone().all(|row| row["payload_bytes"] == 24));
        find(&rows, case, "unix-stream");
    }
}

#[test]
fn chain_prints_its_three_kinds_on_one_cpu() {
    let rows = rows(&["chain", "--cpus", "1", "--only", "handfast-default"]);
    for kind in ["nested", "tail", "ring"] {
        let of_kind = |row: &&Value| row["case"].as_str().unwrap().starts_with(kind);
        assert_eq!(rows.iter().filter(of_kind).count(), 5, "{kind} in {rows:?}");
    }
}

#[test]
fn scale_prints_fairness_and_the_longest_wait_for_both_limits() {
    let rows = rows(&["scale", "--clients", "1,5", "--with-peers", "--hogs", "1"]);
    for case in ["spin", "yield"] {
        let row = find(&rows, case, "limit");
        has(row, &["clients", "ops_per_s", "p50_ns", "p99_ns"]);
        has(row, &["cpu_ns_per_op", "ratio_to_limit"]);
        has(row, &["jain", "longest_wait_ns"]);
    }
    let peaks = rows.iter().filter(|row| row["ratio_to_limit"] == 1.0);
    assert!(peaks.count() >= 1);
    assert_eq!(find(&rows, "free", "unix-stream")["jain"], 1.0);
    assert!(rows.iter().any(|row| row["clients"] == 5));
}

/// Of paper 000.
#[test]
fn every_protocol_answers_its_clients() {
    let names = [
        "bss",
        "bss-yield",
        "bsw",
        "bsw-futex",
        "bswy",
        "bswy-handoff-any",
        "bsls",
        "handfast-bss",
        "handfast-bsw",
        "handfast-bswy",
        "handfast-bsls",
        "sysv-queue",
    ];
    let only = names.join(",");
    // More clients than one, so that replies can go astray.
    let args = [
        "scale",
        "--quick",
        "--json",
        "--clients",
        "1,5",
        "--only",
        &only,
    ];
    let output = handfast(&args).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    for name in names {
        for clients in [1, 5] {
            let is_row = |row: &&Value| row["system"] == name && row["clients"] == clients;
            let row = rows
                .iter()
                .find(is_row)
                .unwrap_or_else(|| panic!("{name} {clients}"));
            assert!(row["ops_per_s"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn ppc_prints_calls_into_domains_for_every_number_of_threads() {
    let rows = rows(&["ppc", "--clients", "1,2", "--payloads", "8,65536"]);
    for system in ["plain-call", "syscall", "syscall-checked"] {
        has(
            find(&rows, "null", system),
            &["clients", "p50_ns", "ops_per_s"],
        );
    }
    if !handfast_sys::keys::are_supported() {
        // By its name, and by no other.
        has(find(&rows, "null", "handfast-process-domain"), &["p50_ns"]);
        let is_by_keys = |row: &Value| {
            row["system"]
                .as_str()
                .unwrap()
                .starts_with("handfast-domain")
        };
        assert!(!rows.iter().any(is_by_keys));
        return handfast_testing::not_exercised("no memory keys");
    }
    let mut systems = vec!["limit", "handfast-domain", "handfast-domain-held"];
    if handfast_sys::seccomp::is_supported() && handfast_sys::landlock::version() > 0 {
        systems.push("handfast-domain-confined");
        has(find(&rows, "null", "syscall-confined"), &["p50_ns"]);
    } else {
        handfast_testing::not_exercised("no seccomp or Landlock");
    }
    for system in systems {
        for case in ["null", "null-cold", "payload"] {
            let row = find(&rows, case, system);
            has(
                row,
                &["clients", "p50_ns", "p99_ns", "ops_per_s", "ratio_to_limit"],
            );
        }
    }
    assert_eq!(find(&rows, "null", "limit")["ratio_to_limit"], 1.0);
    assert!(rows.iter().any(|row| row["clients"] == 2));
    assert!(rows.iter().any(|row| row["payload_bytes"] == 65_536));
}

#[test]
fn stream_prints_throughput_without_latencies() {
    let rows = rows(&["stream"]);
    let pipe = rows.iter().find(|row| row["system"] == "pipe").unwrap();
    has(pipe, &["ops_per_s", "ratio_to_limit", "cpu_ns_per_op"]);
    assert!(pipe.get("p50_ns").is_none());
}

#[test]
fn payload_compares_with_leaving_it_in_place() {
    let rows = rows(&["payload", "--payloads", "64,65536", "--only", "limit,pipe"]);
    assert_eq!(find(&rows, "in-place", "limit")["ratio_to_limit"], 1.0);
    has(find(&rows, "one-copy", "limit"), &["ratio_to_limit"]);
    has(find(&rows, "hot", "pipe"), &["p50_ns"]);
    assert_eq!(find(&rows, "echo", "limit")["ratio_to_limit"], 1.0);
    assert_eq!(rows.len(), 7);
}

#[test]
fn payload_compares_messages_one_way_and_back_with_a_stream_and_one_memcpy() {
    let sizes = ["payload", "--rounds", "1", "--payloads", "65536,8388608"];
    let only = ["--only", "copy,unix-stream,handfast-default"];
    let rows = rows(&[&sizes[..], &only].concat());
    for len_bytes in [65_536, 8_388_608] {
        let rows = rows.iter().filter(|row| row["payload_bytes"] == len_bytes);
        let rows: Vec<_> = rows.cloned().collect();
        assert_eq!(find(&rows, "memcpy", "copy")["ratio_to_copy"], 1.0);
        for case in ["hot", "echo"] {
            assert_eq!(find(&rows, case, "unix-stream")["ratio_to_unix"], 1.0);
            let row = find(&rows, case, "handfast-default");
            has(row, &["p50_ns", "ratio_to_copy", "ratio_to_unix"]);
        }
        has(find(&rows, "sent", "handfast-default"), &["ratio_to_copy"]);
    }
}

#[test]
fn payload_compares_loans_and_messages_at_lengths_that_go_through_no_lane() {
    let only = ["--only", "limit,handfast-default"];
    let rows = rows(&[&["payload", "--payloads", "4096,262144"][..], &only].concat());
    let loans = rows.iter().filter(|row| row["case"] == "loan");
    let lengths = loans.map(|row| {
        has(row, &["p50_ns", "ratio_to_limit"]);
        row["payload_bytes"].as_u64().unwrap()
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [4096, 262_144]);
    // In place, one copy, a call, and one in pieces at both lengths; at the longer echoes of both, and one sent.
    assert_eq!(rows.len(), 13);
    let long = handfast(&["rtt", "--payloads", "65537"]).unwrap();
    assert!(!long.status.success());
}

#[test]
fn wait_prints_a_row_per_load_and_policy() {
    // A turn may fail on a busy machine, which is said, and leaves out its row, or all rows of its round.
    let mut rows_of = std::collections::BTreeMap::new();
    for _ in 0..10 {
        for row in rows(&["wait", "--rounds", "1"]) {
            let key = (row["case"].to_string(), row["system"].to_string());
            rows_of.insert(key, row);
        }
        if rows_of.len() >= 12 * 4 {
            break;
        }
    }
    assert_eq!(rows_of.len(), 12 * 4);
    let rows: Vec<_> = rows_of.into_values().collect();
    has(
        find(&rows, "const-20us", "futex"),
        &["cpu_ns_per_op", "ratio_to_limit"],
    );
    find(&rows, "phases-2/100us-500/spin-half", "limit");
}

#[test]
fn idle_counts_switches_and_cpu_of_both_sides() {
    let rows = rows(&["idle", "--clients", "8"]);
    for case in ["server", "clients"] {
        has(
            find(&rows, case, "futex"),
            &["clients", "switches", "cpu_ns"],
        );
        has(find(&rows, case, "unix-stream"), &["switches", "cpu_ns"]);
    }
}

#[test]
fn eros_prints_every_part_with_its_own_ratio() {
    let rows = rows(&["eros", "--payloads", "0,64,32768"]);
    let one_way = find(&rows, "one-way", "handfast-default");
    has(one_way, &["payload_bytes", "p50_ns", "ratio_to_copy"]);
    assert_eq!(find(&rows, "one-way", "copy")["ratio_to_copy"], 1.0);
    has(
        find(&rows, "echo", "handfast-default"),
        &["p50_ns", "ratio_to_copy"],
    );
    if has_processors() {
        let limits = rows.iter().filter(|row| row["system"] == "limit");
        assert!(limits.clone().all(|row| row["ratio_to_limit"] == 1.0));
        // A limit that leaves nothing in place is none.
        let places = limits.map(|row| (row["case"].as_str(), row["payload_bytes"].as_u64()));
        let one_way = [0, 64, 32_768].map(|len| (Some("one-way"), Some(len)));
        let echo = [64, 32_768].map(|len| (Some("echo"), Some(len)));
        assert!(places.eq(one_way.into_iter().chain(echo)));
    }
    for servers in [2, 3] {
        let row = find(&rows, &format!("nested-{servers}"), "handfast-default");
        assert_eq!(row["ratio_to_limit"], 1.0);
        let row = find(&rows, &format!("tail-{servers}"), "handfast-default");
        has(row, &["p50_ns", "payload_bytes", "ratio_to_limit"]);
    }
    // The harness leaves out what did not come as it was sent.
    for case in [
        "one-way", "echo", "nested-2", "nested-3", "tail-2", "tail-3", "table1",
    ] {
        let of_case = |row: &&Value| row["case"] == case && row["system"] == "handfast-default";
        let lengths = rows.iter().filter(of_case).map(|row| &row["payload_bytes"]);
        assert!(lengths.eq([0, 64, 32_768]), "{case}");
    }
    for system in [
        "handfast-default",
        "pipe",
        "udp",
        "tcp",
        "tcp-nagle",
        "unix-stream",
    ] {
        has(
            find(&rows, "table1", system),
            &["payload_bytes", "ops_per_s", "ratio_to_limit"],
        );
    }
}

#[test]
fn rights_prints_what_each_adds_to_a_plain_call() {
    let rows = rows(&["rights"]);
    if has_processors() {
        has(find(&rows, "plain", "limit"), &["p50_ns"]);
    }
    let plain = find(&rows, "plain", "handfast-default");
    assert_eq!(plain["ratio_to_limit"], 1.0);
    assert!(plain.get("ns_per_right").is_none());
    for difference in [
        "",
        ", four",
        ", new each time",
        ", back home",
        ", in the reply",
    ] {
        let case = format!("known-link{difference}");
        let row = find(&rows, &case, "handfast-default");
        has(row, &["payload_bytes", "p50_ns", "ops_per_s"]);
        has(row, &["ratio_to_limit", "ns_per_right"]);
    }
    for case in [
        "known-link, third",
        "known-link, third, called",
        "vine",
        "vine, called",
        "new-link",
    ] {
        let row = find(&rows, case, "handfast-default");
        has(row, &["payload_bytes", "p50_ns", "p99_ns", "cpu_ns_per_op"]);
        has(row, &["ratio_to_limit", "ns_per_right"]);
        assert_eq!(row.get("ops_per_s").is_none(), case == "new-link");
    }
    // A call through a right takes longer than none.
    let p50_ns = |case| find(&rows, case, "handfast-default")["p50_ns"].as_f64();
    assert!(p50_ns("vine, called") > p50_ns("vine"));
    assert!(p50_ns("new-link") > p50_ns("known-link, third"));
}

#[test]
fn the_table_is_for_people_and_wrong_arguments_are_refused() {
    let output = handfast(&["stream", "--quick", "--rounds", "1"]).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counts = text.contains(" M") || text.contains(" k");
    assert!(
        text.contains("ratio") && counts && !text.contains('{'),
        "{text}"
    );
    assert!(!handfast(&["nothing"]).unwrap().status.success());
    let unknown = handfast(&["rtt", "--only", "limit,nonsense"]).unwrap();
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success());
    assert!(
        said.contains("nonsense") && said.contains("unix-stream"),
        "{said}"
    );
    assert!(
        !handfast(&["rtt", "--payloads", "7"])
            .unwrap()
            .status
            .success()
    );
}

#[test]
fn ending_the_parent_ends_its_children() {
    let _alone = alone();
    let mut parent = Command::new(env!("CARGO_BIN_EXE_handfast-bench"))
        .args(["scale", "--seconds", "60", "--clients", "3"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut seen = Vec::new();
    while seen.len() < 4 && std::time::Instant::now() < patience {
        let text = std::fs::read_to_string(&children).unwrap();
        seen = text.split_whitespace().map(str::to_owned).collect();
    }
    assert_eq!(seen.len(), 4);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let left = std::env::temp_dir().join(format!("handfast-bench-{}", parent.id()));
    std::fs::remove_dir(left).unwrap();
    let runs = |pid: &String| {
        // A zombie whose reaper is slow does not run.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains("(handfast-bench)") && !stat.contains(") Z "))
    };
    while seen.iter().any(runs) {
        assert!(std::time::Instant::now() < patience, "children outlive");
    }
}

#[test]
fn a_benchmark_that_has_measured_nothing_fails_and_says_why() {
    let run = |arguments: &[&str]| {
        let output = handfast(arguments).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(output.stdout.is_empty());
        said
    };
    let said = run(&["stream", "--quick", "--json", "--only", "plain-call"]);
    assert!(
        said.contains("stream measures nothing called plain-call"),
        "{said}"
    );
    // Not of whole pieces.
    let said = run(&["payload", "--quick", "--payloads", "100"]);
    assert!(
        said.contains("payload 100 left out") && said.contains("nothing could be measured"),
        "{said}"
    );
}

#[test]
fn a_benchmark_has_the_descriptors_that_its_user_may_have() {
    let _alone = alone();
    let bench = env!("CARGO_BIN_EXE_handfast-bench");
    let run = |limit: &str, clients: &str| {
        let script = format!(
            "ulimit {limit} && exec {bench} idle --quick --json --rounds 1 --seconds 0.01 --clients {clients} --only futex"
        );
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    // The setting of many systems: room for more is there, but has to be asked for.
    let output = run("-Sn 40", "40");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let output = run("-n 40", "40");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ulimit -Hn; it is 40"), "{said}");
}
