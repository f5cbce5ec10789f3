//! Calls by threads that end, panics that do not, and forks while others load domains.
#![cfg(target_arch = "x86_64")]

mod common;

use common::{ADD, NULL, PANIC, RUN, end_of, first, load, wrong};
use handfast_domain::{CallError, Domain, DomainOptions, Fault, LoadError};
use handfast_testing as testing;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, _| match role {
        "end" => end_of_a_thread(),
        "forks" => forks_during_loads(),
        "panic" => panic_without_end(),
        _ => unreachable!(),
    });
}

/// Calls when its thread has nothing else to do any more.
struct Last(Cell<Option<&'static Domain>>);

thread_local! {
    static LAST: Last = const { Last(Cell::new(None)) };
}

const SHORT: Duration = Duration::from_millis(5);

fn spin() {
    loop {
        std::hint::spin_loop();
    }
}

fn until_it_ends(domain: &Domain) -> Result<[u64; 8], CallError> {
    domain.call_timeout(RUN, first(spin as fn() as usize as u64), SHORT)
}

const fn fault<T>(fault: Fault) -> Result<T, CallError> {
    Err(CallError::Fault(fault))
}

impl Drop for Last {
    fn drop(&mut self) {
        let domain = self.0.get().unwrap();
        for _ in 0..2 {
            assert_eq!(domain.call(ADD, first(3)).unwrap()[0], 3);
            assert_eq!(wrong(domain, PANIC, 0), fault(Fault::Panic));
            assert_eq!(wrong(domain, NULL, 0), fault(Fault::Access { address: 0 }));
            assert_eq!(until_it_ends(domain).map(drop), fault(Fault::Deadline));
            let long = domain.call_timeout(ADD, first(2), testing::PATIENCE);
            assert_eq!(long.unwrap()[0], 2);
            assert_eq!(wrong(domain, NULL, 0), fault(Fault::Access { address: 0 }));
        }
        testing::say("called");
    }
}

extern "C" fn thread(domain: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the domain outlives the thread.
    let domain = unsafe { &*domain.cast::<Domain>() };
    // First of all, so that it is dropped last.
    LAST.with(|last| last.0.set(Some(domain)));
    domain.call(ADD, first(1)).unwrap();
    until_it_ends(domain).unwrap_err();
    domain.call(ADD, first(1)).unwrap();
    wrong(domain, NULL, 0).unwrap_err();
    std::ptr::null_mut()
}

fn end_of_a_thread() {
    let domain: &'static mut Domain = Box::leak(Box::new(load(DomainOptions::new()).unwrap()));
    let at = (&raw mut *domain).expose_provenance();
    // One of Rust's, which has an alternate stack until its function returns.
    std::thread::spawn(move || thread(std::ptr::with_exposed_provenance_mut(at)).addr())
        .join()
        .unwrap();
    let mut id: libc::pthread_t = 0;
    let (none, at) = (std::ptr::null(), std::ptr::from_mut(domain).cast());
    // SAFETY: the function and what it is given live until the join.
    let made = unsafe { libc::pthread_create(&raw mut id, none, thread, at) };
    assert_eq!(made, 0);
    // SAFETY: the thread just made.
    unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
    testing::say("joined");
}

#[test]
fn a_thread_calls_domains_until_its_end() {
    let _alone = testing::alone();
    if common::has_keys() {
        let said = ["called", "called", "joined"];
        assert!(end_of("end", &[], &said).success());
    }
}

/// A panic payload that does not go: its drop never ends.
struct Stays;

impl Drop for Stays {
    fn drop(&mut self) {
        spin();
    }
}

fn panic_for_ever() {
    std::panic::resume_unwind(Box::new(Stays));
}

fn panic_without_end() {
    let domain = load(DomainOptions::new()).unwrap();
    for _ in 0..3 {
        let function = panic_for_ever as fn() as usize as u64;
        let got = domain.call_timeout(RUN, first(function), SHORT);
        assert_eq!(got, fault(Fault::Deadline));
        assert!(!std::thread::panicking());
        assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
        assert_eq!(domain.stacks_in_use(), Ok(0));
    }
    testing::say("ended");
}

#[test]
fn a_panic_whose_value_does_not_go_ends_at_the_deadline() {
    let _alone = testing::alone();
    if common::has_keys() {
        assert!(end_of("panic", &[], &["ended"]).success());
    }
}

const FORKS: usize = 100;

fn forks_during_loads() {
    // Faults are handled from now on.
    drop(load(DomainOptions::new()).unwrap());
    static STOP: AtomicBool = AtomicBool::new(false);
    let threads = [(); 3].map(|()| {
        std::thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                drop(load(DomainOptions::new()).unwrap());
            }
        })
    });
    for round in 0..FORKS {
        // SAFETY: the child loads, calls, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: takes an integer.
            unsafe { libc::alarm(testing::PATIENCE.as_secs() as u32 / 2) };
            // SAFETY: as in `load`.
            let own = unsafe { Domain::new(&common::table(), DomainOptions::new()) };
            let is_good = match own {
                Ok(own) => own.call(ADD, first(2)).is_ok(),
                // The keys that were taken at the fork.
                Err(error) => matches!(error, LoadError::KeysTaken { .. }),
            };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!is_good)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "round {round}");
    }
    STOP.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    testing::say("forked");
}

#[test]
fn a_child_that_was_forked_while_others_loaded_domains_loads_its_own() {
    let _alone = testing::alone();
    if common::has_keys() {
        assert!(end_of("forks", &[], &["forked"]).success());
    }
}
