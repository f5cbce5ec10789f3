//! A real process kills itself after each memory operation of a push and of a pop; another one
//! goes on. The same as `queue::two_lock::tests::death` does with objects, with the kernel's own idea of
//! death, sleep and wake-up.
#![cfg(not(miri))]

use core::sync::atomic::Ordering::SeqCst;
use handfast_layout::page_align;
use handfast_layout::queue::two_lock::{HEAD_LOCK, TAIL_LOCK, queue_bytes};
use handfast_region::model::{Countdown, Hooked};
use handfast_region::{Memory, Region};
use handfast_ring::queue::two_lock::TwoLock;
use handfast_ring::queue::{Pop, Push, Queue};
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::{OwnedFd, members};
use handfast_testing::{open, path, play, start};
use rustix::process::{Signal, getpid, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

const CAPACITY: u32 = 3;
const FILE_BYTES: usize = page_align(queue_bytes(CAPACITY));

/// Shared memory whose user is killed after a number of operations.
type Doomed = Hooked<Box<Region>, Countdown<'static>>;

fn map(file: &OwnedFd) -> Arc<Doomed> {
    let mapping = Mapping::new(file, FILE_BYTES, Access::ReadWrite).unwrap();
    let countdown = Countdown::new(|| {
        kill_process(getpid(), Signal::KILL).unwrap();
        unreachable!("nothing runs after a kill of oneself");
    });
    Arc::new(Hooked::new(Box::new(Region::mapped(mapping)), countdown))
}

#[test]
fn a_child_process_plays_its_role() {
    play(|role, arguments| {
        let memory = map(&open(arguments[1]));
        let member = members::join(open(arguments[2])).unwrap();
        let queue = TwoLock::attach(memory.clone(), 0, CAPACITY, member).unwrap();
        memory.hook.set(Some(arguments[0].parse().unwrap()));
        match role {
            "push" => queue.try_push(&[9; 24]).unwrap(),
            _ => assert_eq!(queue.try_pop(), Ok([1; 24])),
        }
    });
}

#[test]
fn a_process_killed_after_any_operation_is_survived_by_waiters_and_by_its_successor() {
    let file = create_sealed("two-lock test", FILE_BYTES).unwrap();
    let group = members::create("two-lock members").unwrap();
    let memory = map(&file);
    // A second descriptor of the group would end our membership when closed; `group` stays open.
    let member = members::join(open(&path(&group))).unwrap();
    let child = |role, steps: u32| {
        let arguments = [&steps.to_string(), &path(&file), &path(&group)];
        let mut child = start(role, &arguments.map(String::as_str));
        child.process.wait().unwrap()
    };
    let (mut deaths, mut with_lock) = (0, 0);
    for role in ["push", "pop"] {
        for steps in 0.. {
            let queue = TwoLock::create(memory.clone(), 0, CAPACITY, member.clone()).unwrap();
            queue.try_push(&[1; 24]).unwrap();
            queue.try_push(&[2; 24]).unwrap();
            let status = child(role, steps);
            if status.success() {
                break;
            }
            assert_eq!(status.signal(), Some(9), "{role} {steps}");
            deaths += 1;
            let held = |lock| memory.load(lock, SeqCst) != 0;
            with_lock += u32::from(held(HEAD_LOCK) || held(TAIL_LOCK));
            if steps % 2 == 0 {
                // The next process gets the dead one's number and is killed at its first step:
                // what it repairs, it repairs when it attaches.
                assert_eq!(child(role, 0).signal(), Some(9));
                assert!(!held(HEAD_LOCK) && !held(TAIL_LOCK), "{role} {steps}");
            }
            let mut found = Vec::new();
            while let Ok(message) = queue.try_pop() {
                found.push(message[0]);
                assert!(
                    found.len() <= CAPACITY as usize,
                    "{role} {steps}: {found:?}"
                );
            }
            let possible: [&[u8]; 2] = match role {
                "push" => [&[1, 2], &[1, 2, 9]],
                _ => [&[1, 2], &[2]],
            };
            assert!(possible.contains(&&found[..]), "{role} {steps}: {found:?}");
            for _ in 0..CAPACITY {
                assert_eq!(queue.try_push(&[7; 24]), Ok(()), "{role} {steps}");
            }
            assert_eq!(queue.try_push(&[7; 24]), Err(Push::Full), "{role} {steps}");
            for _ in 0..CAPACITY {
                assert_eq!(queue.try_pop(), Ok([7; 24]), "{role} {steps}");
            }
            assert_eq!(queue.try_pop(), Err(Pop::Empty));
        }
    }
    println!("{deaths} processes killed, {with_lock} holding a lock");
    assert!(with_lock > 15);
}
