//! Domains whose process is killed all the time, or whose parent forks.

use super::{ADD, ECHO, PANIC, WHO, WRONG, first, kill, lives, load, pid_of};
use crate::common::{self, PATIENCE, within_patience};
use handfast::SendRight;
use handfast::domain::{CallError, DomainOptions, Fault, Port};
use handfast::error::{DomainError, SendError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_forked_process_has_no_part_in_it() {
    if common::ran_in_own_process(a_forked_process_has_no_part_in_it) {
        return;
    }
    let domain = load(DomainOptions::new());
    let pid = pid_of(&domain);
    // SAFETY: the child makes one call, which fails, drops the handle, and ends.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let failed = domain.call(ADD, [0; 8]);
        drop(domain);
        let is_right = failed == Err(CallError::Forked) && lives(pid);
        // SAFETY: takes an integer.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    assert_eq!(unsafe { libc::waitpid(forked, &raw mut status, 0) }, forked);
    assert_eq!(status, 0);
    assert_eq!(pid_of(&domain), pid);
}

#[test]
fn calls_end_once_while_the_process_is_killed_all_the_time() {
    if common::ran_in_own_process(calls_end_once_while_the_process_is_killed_all_the_time) {
        return;
    }
    let domain = load(DomainOptions::new());
    let port = Port::new(handfast::anonymous().unwrap(), &domain, ECHO).unwrap();
    let done = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    let call = |right: &SendRight, number: u64| {
        match domain.call(ADD, first(1)) {
            Ok(_) => drop(served.fetch_add(1, Ordering::Relaxed)),
            Err(CallError::Fault(Fault::Ended | Fault::Panic) | CallError::Resetting) => {}
            Err(other) => panic!("{other:?}"),
        }
        match right.call(&number.to_le_bytes()) {
            Ok(reply) => assert_eq!(*reply, number.to_le_bytes()),
            Err(SendError::Domain(
                DomainError::Ended | DomainError::Panic | DomainError::Resetting,
            )) => {}
            Err(other) => panic!("{other:?}"),
        }
        if number.is_multiple_of(50) {
            let _ = domain.call(WRONG, first(PANIC));
        }
    };
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = 0;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let right = port.connect().unwrap();
            let (call, done) = (&call, &done);
            scope.spawn(move || {
                for number in 0.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    call(&right, number);
                }
            });
        }
        for round in 0..20 {
            let end = Instant::now() + PATIENCE;
            let known = served.load(Ordering::Relaxed);
            while served.load(Ordering::Relaxed) < known + 20 {
                assert!(Instant::now() < end, "nothing is served any more");
                // Sleep: the interval of a poll with an end.
                std::thread::sleep(Duration::from_micros(100));
            }
            if let Ok(words) = domain.call(WHO, [0; 8]) {
                kill(words[0] as u32);
            }
            if round == 4 {
                before = fds();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(within_patience(|| domain.call(ADD, [0; 8]).is_ok()));
    assert!(
        within_patience(|| fds() <= before + 4),
        "{} {before}",
        fds()
    );
}
