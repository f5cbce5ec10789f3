//! The holdings of a process, seen from outside.

use crate::tally::Leaks;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The holdings of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    /// Descriptors, mappings of memory files and threads, each by kind.
    counts: BTreeMap<String, usize>,
    private_kib: u64,
}

/// How much more private memory a process may have at the end, once its allocator has given back its reserves: allocated
/// memory, and pages that lie in between.
const PRIVATE_KIB: u64 = 8 << 10;
/// How much more may be allocated at the end.
const IN_USE_KIB: u64 = 4 << 10;
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
        without_door(&mut counts);
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let private = rollup.lines().filter(|line| line.starts_with("Private_"));
        let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        Ok(Self {
            counts,
            private_kib: kib.sum(),
        })
    }

    /// The holdings that grew since `before`.
    fn beyond<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (&'a str, usize, usize)> {
        let of = |kind| before.counts.get(kind).copied().unwrap_or(0);
        let both = self
            .counts
            .iter()
            .map(move |(kind, after)| (&**kind, of(kind), *after));
        both.filter(|(_, before, after)| after > before)
    }

    pub(crate) fn private_kib(&self) -> u64 {
        self.private_kib
    }

    pub(crate) fn descriptors(&self) -> usize {
        let descriptors = self
            .counts
            .iter()
            .filter(|(kind, _)| kind.starts_with("descriptor "));
        descriptors.map(|(_, count)| count).sum()
    }

    fn has_grown(&self, before: &Self) -> bool {
        self.private_kib > before.private_kib + PRIVATE_KIB
    }
}

/// A process's report on its heap, in KiB.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heap {
    /// Allocated, and not freed.
    pub(crate) in_use: u64,
    /// The memory the allocator has from the kernel, in all, whether it has pages or not.
    pub(crate) had: u64,
}

impl Heap {
    pub(crate) fn said(line: &str) -> Option<Self> {
        let (in_use, had) = line.strip_prefix("trimmed ")?.split_once(' ')?;
        Some(Self {
            in_use: in_use.parse().ok()?,
            had: had.parse().ok()?,
        })
    }
}

/// Compares a process's holdings with its earlier ones, once it has had time.
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
    let mut is_more = false;
    for (kind, before, after) in after.beyond(before) {
        is_more = true;
        leaks
            .descriptors
            .push(format!("{who}: {kind} {before} -> {after}"));
    }
    if is_more {
        leaks.descriptors.extend(peers_of(pid, who));
    }
    let (before_kib, after_kib) = (before.private_kib, after.private_kib);
    let memory = format!("{who}: private memory {before_kib} KiB -> {after_kib} KiB");
    if after.has_grown(before) {
        leaks.memory.push(memory);
    } else {
        leaks.held.push(memory);
    }
}

/// Takes out the door by which strangers come, and its listening socket: a process makes them when another first asks for them, and
/// keeps them.
fn without_door(counts: &mut BTreeMap<String, usize>) {
    let is_door = |(kind, count): (&String, &usize)| kind.ends_with("/door") && *count == 1;
    let Some(door) = counts
        .iter()
        .find_map(|door| is_door(door).then(|| door.0.clone()))
    else {
        return;
    };
    counts.remove(&door);
    if let Some(sockets) = counts.get_mut("descriptor socket") {
        *sockets -= 1;
    }
}

/// A process's allocations, once it has had time to free what was others'.
pub(crate) fn settled_heap(before: Heap, mut look: impl FnMut() -> Heap) -> Heap {
    let end = Instant::now() + SETTLE;
    loop {
        let after = look();
        if after.in_use <= before.in_use + IN_USE_KIB || Instant::now() >= end {
            return after;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Compares a process's allocations with its earlier ones: memory it holds for processes that are gone is in use,
/// memory the allocator holds back in between is not.
pub(crate) fn compare_heap(who: &str, (before, after): (Heap, Heap), leaks: &mut Leaks) {
    let what = format!(
        "{who}: allocated {} KiB -> {} KiB, of {} KiB -> {} KiB that the allocator has",
        before.in_use, after.in_use, before.had, after.had
    );
    match after.in_use > before.in_use + IN_USE_KIB {
        true => leaks.memory.push(what),
        false => leaks.held.push(what),
    }
}

/// Whose links a process has: what its process descriptors say of its peers, and how its sockets and mappings are spread.
fn peers_of(pid: u32, who: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let number = entry.file_name().to_string_lossy().into_owned();
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy() != "anon_inode:[pidfd]" {
            continue;
        }
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
        let peer = info.lines().find_map(|line| line.strip_prefix("Pid:"));
        let peer = peer.map_or("?", str::trim);
        let said = match peer {
            "-1" => "has ended, and been waited for".to_owned(),
            peer => process_in_words(peer),
        };
        found.push(format!(
            "{who}: link, descriptor {number}: peer {peer}: {said}"
        ));
    }
    found.push(format!("{who}: {}", of_links(pid)));
    found.push(format!("{who}: looks at {}", polled(pid).join(", ")));
    found
}

/// Which descriptors a process's poll sets have: each with what is waited for, and the token.
fn polled(pid: u32) -> Vec<String> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .into_iter()
        .flatten()
        .flatten();
    let texts = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let polled = lines.filter(|line| line.starts_with("tfd:"));
    let short = |line: String| {
        let words: Vec<_> = line.split_whitespace().take(6).collect();
        words.join(" ")
    };
    polled.map(short).collect()
}

/// The kernel's words for a process: its command line, and its state.
fn process_in_words(pid: &str) -> String {
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map_or("gone", |(_, rest)| rest.trim_start());
    let state = state.split(' ').next().unwrap_or_default();
    format!("{:?}, state {state}", words.replace('\0', " ").trim_end())
}

/// Where a process has mapped links and bells, and which descriptors lead to sockets.
fn of_links(pid: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let memory = maps.lines().filter(|line| line.contains("memfd:"));
    let memory = memory.filter_map(|line| {
        let inode = line.split_whitespace().nth(4)?;
        let (_, name) = line.split_once("memfd:")?;
        Some(format!("{}:{inode}", name.trim_end_matches(" (deleted)")))
    });
    let sockets = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let sockets = sockets.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let target = target.to_string_lossy().into_owned();
        let is_socket = target.starts_with("socket:");
        is_socket.then(|| format!("{}={target}", entry.file_name().to_string_lossy()))
    });
    let (memory, sockets): (Vec<_>, Vec<_>) = (memory.collect(), sockets.collect());
    format!("memory {}; sockets {}", memory.join(" "), sockets.join(" "))
}

/// The files in the directory of names, but for the files that each of their users has one of.
pub(crate) fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with(handfast_sys::directory::PLACE))
        .collect()
}

/// A file in the directory of names: whether a process listens at it, and its kind.
pub(crate) fn file_in_words(directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    let listens = std::os::unix::net::UnixStream::connect(&path).err();
    let listeners = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let bound: Vec<_> = listeners
        .lines()
        .filter(|line| line.contains(name))
        .collect();
    let age = fs::symlink_metadata(&path)
        .and_then(|it| it.modified())
        .ok();
    let age = age.and_then(|time| time.elapsed().ok());
    format!("{name}: connecting says {listens:?}, {age:?} old, sockets {bound:?}")
}

/// Children of this process that are there still, including children that have come to it by their parents' deaths: each
/// with the kernel's first fields about it (number, name, state).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_and_its_socket_are_no_leak_and_a_second_door_is() {
        let counted = |door: usize, sockets: usize| {
            let mut counts = BTreeMap::from([("descriptor socket".to_owned(), sockets)]);
            if door > 0 {
                counts.insert("descriptor /run/handfast/~~0/door".to_owned(), door);
            }
            without_door(&mut counts);
            let private_kib = 0;
            Holdings {
                counts,
                private_kib,
            }
        };
        let before = counted(0, 4);
        assert_eq!(counted(1, 5).beyond(&before).count(), 0);
        assert_eq!(counted(1, 6).beyond(&before).count(), 1);
        assert_eq!(counted(2, 6).beyond(&before).count(), 2);
    }
}
