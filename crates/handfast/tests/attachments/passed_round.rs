//! One memory that goes round several processes, each of which passes it on.

use crate::common::{self, content};
use handfast::{Memory, ReceiveRight, Request, Right};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

const LEN_BYTES: usize = 8 << 20;
const KEY: u64 = 35;
const ROUNDS: usize = 30;

/// Passes what comes on to the port `next`, with the number of its memory file in the message.
pub(crate) fn layer(name: &str, next: &str) {
    let next = handfast::connect(next).unwrap();
    serve(name, |port, request, seen, memory| {
        port.forward_and_receive(request, &next, seen, [memory.into()])
            .unwrap()
    });
}

/// Sends what comes back to the first process.
pub(crate) fn last(name: &str) {
    serve(name, |port, request, seen, memory| {
        port.reply_with_and_receive(request, seen, [memory.into()])
            .unwrap()
    });
}

/// Receives the memory, and has it passed on with the numbers of the file that all have seen so far.
fn serve(name: &str, pass_on: impl Fn(&ReceiveRight, Request, &[u8], Memory) -> Request) {
    let port = handfast::bind(name).unwrap();
    let expected = content(LEN_BYTES, KEY);
    common::say("ready");
    let mut request = port.receive().unwrap();
    loop {
        let memory = only_memory(request.take_rights());
        assert!(*memory == *expected);
        let seen = with_file(request.bytes(), &memory);
        request = pass_on(&port, request, &seen, memory);
    }
}

fn only_memory(mut rights: Vec<Right>) -> Memory {
    match rights.pop() {
        Some(Right::Memory(memory)) if rights.is_empty() => memory,
        other => panic!("{other:?}"),
    }
}

/// The file numbers that others have seen, and the one of this memory.
fn with_file(seen: &[u8], memory: &Memory) -> Vec<u8> {
    [seen, &file(memory).to_le_bytes()].concat()
}

fn file(memory: &Memory) -> u64 {
    rustix::fs::fstat(memory.as_fd()).unwrap().st_ino
}

/// The memory files that a process has open or mapped.
fn memory_files(pid: u32) -> BTreeSet<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mapped = maps.lines().filter(|line| line.contains("/memfd:"));
    let mapped = mapped.map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap());
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = open.filter_map(|entry| {
        let path = entry.unwrap().path();
        // One that was closed meanwhile has none.
        let target = std::fs::read_link(&path).ok()?;
        let is_memory = target.to_string_lossy().starts_with("/memfd:");
        Some(std::fs::metadata(path).ok().filter(|_| is_memory)?.ino())
    });
    mapped.chain(open).collect()
}

#[test]
fn one_memory_goes_round_three_processes_and_no_other_is_made() {
    let _alone = common::alone();
    if common::ran_in_own_process(one_memory_goes_round_three_processes_and_no_other_is_made) {
        return;
    }
    let [first, second] = ["round-first", "round-second"].map(common::name);
    let mut children = vec![common::start("last", &[&second])];
    children[0].expect("ready");
    // So that replies come straight back.
    let _link = handfast::connect(&second).unwrap();
    children.push(common::start("layer", &[&first, &second]));
    children[1].expect("ready");
    let right = handfast::connect(&first).unwrap();

    let expected = content(LEN_BYTES, KEY);
    let memory = Memory::from_bytes(&expected).unwrap();
    let number = file(&memory);
    let round = |memory: Memory| {
        let mut reply = right.with([memory.into()]).call(b"").unwrap();
        // Each process has seen the content in the same file.
        assert_eq!(*reply, *[number.to_le_bytes(); 2].concat());
        let memory = only_memory(reply.take_rights());
        assert!(file(&memory) == number && *memory == *expected);
        memory
    };
    let mut memory = round(memory);
    let pids = [std::process::id(), children[0].pid(), children[1].pid()];
    let others = || pids.map(|pid| &memory_files(pid) - &BTreeSet::from([number]));
    // Both have passed it on, and have it no longer.
    assert!(common::within_patience(|| {
        let has_it = |pid: &u32| memory_files(*pid).contains(&number);
        !pids[1..].iter().any(has_it)
    }));
    let (files, before) = (others(), pids.map(common::holdings));
    for nth in 1..ROUNDS {
        memory = round(memory);
        assert_eq!(others(), files, "round {nth}");
    }
    assert!(common::within_patience(|| {
        let mut both = pids.map(common::holdings).into_iter().zip(before);
        both.all(|(now, before)| now.0 <= before.0 && now.1 <= before.1)
    }));
    drop(memory);
    children.iter_mut().for_each(common::Child::kill);
}
