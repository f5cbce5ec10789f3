//! Plain shared queues through the public API, between processes.

use crate::common;
use handfast::error::Misuse;
use handfast::{PopError, PushError, QueueError, QueueKind, SharedQueue};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

const KINDS: [QueueKind; 2] = [QueueKind::TwoLock, QueueKind::Ring];
const CAPACITY: u32 = 64;

fn message(from: u64, number: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&from.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..].copy_from_slice(&(from ^ number).to_le_bytes());
    bytes
}

fn numbers(bytes: &[u8; 24]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(16), word(0) ^ word(8), "a torn message");
    (word(0), word(8))
}

/// Says this process's number among the members of a queue.
pub(crate) fn number(arguments: &[&str]) {
    let fd = arguments[2].parse().unwrap();
    // SAFETY: as in `producer`.
    let members = unsafe { OwnedFd::from_raw_fd(fd) };
    let member = handfast_sys::members::join(members).unwrap();
    common::say(&member.number().to_string());
}

/// Pushes numbered messages for ever; says how many have gone in every so often.
pub(crate) fn producer(arguments: &[&str]) {
    let inherited = |at: usize| {
        let fd = arguments[at].parse().unwrap();
        // SAFETY: the parent left exactly this descriptor open for us, and nobody else owns it.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let kind = if arguments[0] == "TwoLock" {
        QueueKind::TwoLock
    } else {
        QueueKind::Ring
    };
    let own: u64 = arguments[3].parse().unwrap();
    let queue = SharedQueue::attach(kind, CAPACITY, inherited(1), inherited(2)).unwrap();
    common::say("ready");
    for number in 0.. {
        loop {
            match queue.try_push(&message(own, number)) {
                Ok(()) => break,
                Err(PushError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Descriptors of the queue that a child inherits. They stay open here: closing one of the
/// members' file would end this process's membership.
fn inheritable(queue: &SharedQueue) -> [String; 2] {
    queue.descriptors().map(|fd| {
        let fd = rustix::io::dup(fd).unwrap();
        let number = fd.as_raw_fd().to_string();
        core::mem::forget(fd);
        number
    })
}

#[test]
fn producers_that_are_killed_lose_nothing_they_pushed_before_the_one_under_way() {
    let _alone = common::alone();
    let mut random = common::Random::seeded("queues");
    for kind in KINDS {
        let queue = SharedQueue::create(kind, CAPACITY).unwrap();
        let [memory, members] = inheritable(&queue);
        let mut popped = 0u64;
        let mut next = std::collections::HashMap::new();
        for victim in 0..25u64 {
            let own = victim.to_string();
            let kind = format!("{kind:?}");
            let mut child = common::start("producer", &[&kind, &memory, &members, &own]);
            child.expect("ready");
            let end = Instant::now() + std::time::Duration::from_micros(random.below(4000));
            while Instant::now() < end {
                popped += take(&queue, &mut next);
            }
            child.kill();
            while let taken @ 1.. = take(&queue, &mut next) {
                popped += taken;
            }
        }
        println!("{kind:?}: {popped} messages of {} producers", next.len());
        assert!(popped > 0);
        // All places are there again.
        for number in 0..u64::from(CAPACITY) {
            assert_eq!(queue.try_push(&message(999, number)), Ok(()));
        }
        assert_eq!(queue.try_push(&message(999, 0)), Err(PushError::Full));
        for number in 0..u64::from(CAPACITY) {
            assert_eq!(queue.try_pop(), Ok(message(999, number)));
        }
        assert_eq!(queue.try_pop(), Err(PopError::Empty));
    }
}

/// Pops one message, which must be its producer's next.
fn take(queue: &SharedQueue, next: &mut std::collections::HashMap<u64, u64>) -> u64 {
    match queue.try_pop() {
        Ok(bytes) => {
            let (from, number) = numbers(&bytes);
            let expected = next.entry(from).or_default();
            assert_eq!(number, *expected, "producer {from}");
            *expected += 1;
            1
        }
        Err(PopError::Empty) => 0,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    for (kind, capacity) in [
        (QueueKind::TwoLock, 0),
        (QueueKind::Ring, 0),
        (QueueKind::Ring, 3),
        (QueueKind::Ring, u32::MAX),
        (QueueKind::TwoLock, u32::MAX),
    ] {
        let refused = SharedQueue::create(kind, capacity).unwrap_err();
        assert!(matches!(refused, QueueError::Capacity { .. }), "{refused}");
    }
    for kind in KINDS {
        let queue = SharedQueue::create(kind, 8).unwrap();
        let own = || {
            queue
                .descriptors()
                .map(|fd| fd.try_clone_to_owned().unwrap())
        };
        let [memory, members] = own();
        let again = SharedQueue::attach(kind, 8, memory, members).unwrap_err();
        assert_eq!(again, QueueError::Open);
        let [memory, members] = own();
        let other = SharedQueue::attach(kind, 16, memory, members).unwrap_err();
        assert_eq!(other, QueueError::Other);
        // None of this has ended the membership: another process gets another number.
        let [memory, members] = inheritable(&queue);
        let mut child = common::start("number", &[&format!("{kind:?}"), &memory, &members]);
        child.expect("2");
        child.finish();
        let [memory, members] = own();
        let swapped = SharedQueue::attach(kind, 8, members, memory).unwrap_err();
        assert_eq!(swapped, QueueError::Other);
    }
}

#[test]
fn a_forked_child_is_told_that_the_handle_is_its_parents() {
    for kind in KINDS {
        let queue = SharedQueue::create(kind, 8).unwrap();
        // SAFETY: the child makes two calls that take no lock, and leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let refused = queue.try_push(&[0; 24]) == Err(PushError::Misuse(Misuse::Forked))
                && queue.try_pop() == Err(PopError::Misuse(Misuse::Forked));
            // SAFETY: ends the forked child at once.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: `status` is valid for a write; the child is ours.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "{kind:?}");
        assert_eq!(queue.try_push(&[1; 24]), Ok(()));
        assert_eq!(queue.try_pop(), Ok([1; 24]));
    }
}
