//! What a process has, seen from outside.

use super::tally::Leaks;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a process has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    /// Descriptors, mappings of memory files and threads, each by kind.
    counts: BTreeMap<String, usize>,
    private_kib: u64,
}

/// How much more private memory a process may have at the end: servers have some 30 MiB more after the first floods, and no
/// more than that after ten minutes of them.
const PRIVATE_KIB: u64 = 64 << 10;
/// How long a process is given to let go of what was others'.
const SETTLE: Duration = Duration::from_secs(30);

impl Holdings {
    pub(crate) fn of(pid: u32) -> std::io::Result<Self> {
        let mut counts = BTreeMap::new();
        let mut count = |what: &str, kind: &str| {
            let kind = kind.trim_end_matches(|c: char| !c.is_alphabetic());
            *counts.entry(format!("{what} {kind}")).or_insert(0) += 1;
        };
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            // One that has been closed meanwhile counts for nothing.
            if let Ok(target) = fs::read_link(entry?.path()) {
                let target = target.to_string_lossy();
                count("descriptor", target.trim_end_matches(" (deleted)"));
            }
        }
        for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
            if let Some((_, name)) = line.split_once("memfd:") {
                count("mapping", name.trim_end_matches(" (deleted)"));
            }
        }
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            if let Ok(name) = fs::read_to_string(task?.path().join("comm")) {
                count("thread", &name);
            }
        }
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let private = rollup.lines().filter(|line| line.starts_with("Private_"));
        let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        Ok(Self {
            counts,
            private_kib: kib.sum(),
        })
    }

    /// What there is more of than `before`.
    fn beyond<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a str, usize, usize)> {
        let of = |kind| before.counts.get(kind).copied().unwrap_or(0);
        let both = self
            .counts
            .iter()
            .map(move |(kind, after)| (&**kind, of(kind), *after));
        both.filter(|(_, before, after)| after > before)
    }

    fn has_grown(&self, before: &Self) -> bool {
        self.private_kib > before.private_kib + PRIVATE_KIB
    }
}

/// Compares what a process has with what it had, once it has had time.
pub(crate) fn compare(who: &str, pid: u32, before: &Holdings, leaks: &mut Leaks) {
    let end = Instant::now() + SETTLE;
    let after = loop {
        let Ok(after) = Holdings::of(pid) else {
            leaks.descriptors.push(format!("{who} has ended"));
            return;
        };
        let is_same = after.beyond(before).next().is_none() && !after.has_grown(before);
        if is_same || Instant::now() >= end {
            break after;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    for (kind, before, after) in after.beyond(before) {
        leaks
            .descriptors
            .push(format!("{who}: {kind} {before} -> {after}"));
    }
    let (before_kib, after_kib) = (before.private_kib, after.private_kib);
    let memory = format!("{who}: private memory {before_kib} KiB -> {after_kib} KiB");
    if after.has_grown(before) {
        leaks.memory.push(memory);
    } else {
        leaks.held.push(memory);
    }
}

/// What lies in the directory of names.
pub(crate) fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Children of this process that are there still, those that have come to it by their parents' deaths, too: each
/// with what the kernel says of it first (number, name, state).
pub(crate) fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let found: Vec<_> = children.collect();
    let pids = found.iter().flat_map(|text| text.split_whitespace());
    let stat = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let first = |pid: &str| stat(pid).split(' ').take(3).collect::<Vec<_>>().join(" ");
    pids.map(first).collect()
}
