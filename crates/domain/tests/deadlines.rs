//! Calls with a deadline.
#![cfg(target_arch = "x86_64")]

mod common;
#[path = "deadlines/refused.rs"]
mod refused;
#[path = "deadlines/signals.rs"]
mod signals;

use common::{ADD, NULL, PANIC, RUN, Value, add, end_of, first, load, value, wrong};
use handfast_domain::{CallContext, CallError, Domain, DomainOptions, Fault, Policy, Table, Words};
use handfast_sys::cpu;
use handfast_testing::{self as testing, Random};
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, _| match role {
        "fork" => fork_inside(),
        "handled" => refused::handled_by_the_program(),
        "pending" => refused::no_timers(),
        "wild stack" => wild_stack(),
        _ => unreachable!(),
    });
}

const SHORT: Duration = Duration::from_millis(5);
/// No test waits so long.
const LONG: Duration = Duration::from_secs(60);
const ENDED: Result<Words, CallError> = Err(CallError::Fault(Fault::Deadline));

fn until(domain: &Domain, function: fn(), timeout: Duration) -> Result<Words, CallError> {
    domain.call_timeout(RUN, first(function as usize as u64), timeout)
}

fn spin() {
    loop {
        black_box(0);
    }
}

fn read_nothing() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let _ = rustix::io::read(reader, &mut [0; 1]);
}

fn sleep() {
    // Sleep: what a deadline interrupts.
    std::thread::sleep(LONG);
}

fn pause() {
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

fn wait_for_a_futex() {
    std::thread::park();
}

fn allocate() {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for round in 0usize.. {
        kept.push(vec![1; 100 + round * 37 % 5000]);
        if kept.len() > 50 {
            kept.clear();
        }
    }
}

#[test]
fn a_function_that_does_not_return_ends_at_the_deadline_wherever_it_is() {
    let _alone = testing::alone();
    let (Some(domain), Some(other)) = (load(DomainOptions::new()), load(DomainOptions::new()))
    else {
        return;
    };
    other.call(ADD, first(2)).unwrap();
    for function in [spin, read_nothing, sleep, pause, wait_for_a_futex, allocate] {
        for _ in 0..3 {
            domain.call(ADD, first(9)).unwrap();
            let start = Instant::now();
            assert_eq!(until(&domain, function, SHORT), ENDED);
            let taken = start.elapsed();
            assert!(taken >= SHORT && taken < testing::PATIENCE, "{taken:?}");
            assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
        }
    }
    assert_eq!(other.call(ADD, first(1)).unwrap()[0], 3);
    let dead = load(DomainOptions::new().policy(Policy::Dead)).unwrap();
    assert_eq!(until(&dead, spin, SHORT), ENDED);
    assert_eq!(dead.call(ADD, first(1)), Err(CallError::Dead));
    assert_eq!(until(&dead, spin, SHORT), Err(CallError::Dead));
}

/// Spins for about so many nanoseconds.
fn spin_for(ns: u64) {
    let start = Instant::now();
    while start.elapsed().as_nanos() < u128::from(ns) {}
}

/// Ends a test's other threads with it, however that ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_call_that_is_in_time_is_like_any_other() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    for round in 1..1000 {
        assert_eq!(
            domain
                .call_timeout(ADD, first(1), LONG)
                .map(|words| words[0]),
            Ok(round)
        );
    }
    // Other faults are what they are.
    for (what, fault) in [
        (PANIC, Fault::Panic),
        (NULL, Fault::Access { address: 0 }),
        (common::OVERFLOW, Fault::StackOverflow),
    ] {
        let words = [what, 0, 0, 0, 0, 0, 0, 0];
        let got = domain.call_timeout(common::WRONG, words, LONG);
        assert_eq!(got, Err(CallError::Fault(fault)));
    }
    assert_eq!(
        domain.call_timeout(99, [0; 8], LONG),
        Err(CallError::NoEntry { entry: 99 })
    );
    // One that is past when the call is made lets short functions run.
    assert!(domain.call_timeout(ADD, first(1), Duration::ZERO).is_ok());
    assert_eq!(until(&domain, spin, Duration::ZERO), ENDED);
}

// ---- Nested calls.

static INNER: AtomicPtr<Domain> = AtomicPtr::new(std::ptr::null_mut());

fn inner() -> &'static Domain {
    // SAFETY: stored before the call by the test that makes it, and there until it has ended.
    unsafe { &*INNER.load(Ordering::SeqCst) }
}

/// The outcome of the inner call of the last outer one: 1 ended at the deadline, 2 anything else.
static SEEN: AtomicU64 = AtomicU64::new(0);

fn see(got: &Result<Words, CallError>) {
    SEEN.store(if *got == ENDED { 1 } else { 2 }, Ordering::SeqCst);
}

fn outer(_: &Value, call: &mut CallContext<'_>) {
    let function = first(spin as fn() as usize as u64);
    match call.words()[0] {
        // It has the caller's deadline; and then this function goes on for ever, too.
        0 => {
            see(&inner().call(RUN, function));
            spin();
        }
        // An earlier one of its own, and this function ends well.
        1 => see(&inner().call_timeout(RUN, function, SHORT)),
        // A later one counts for nothing.
        2 => {
            see(&inner().call_timeout(RUN, function, LONG));
            spin();
        }
        // All is in time.
        3 => see(&inner().call_timeout(ADD, first(1), LONG)),
        // The inner one is made anew all the time.
        4 => loop {
            let _ = wrong(inner(), PANIC, 0);
            let _ = inner().call(ADD, first(1));
        },
        // In the call of a call.
        _ => {
            let _ = inner().call(RUN, first(go_deeper as fn() as usize as u64));
            spin();
        }
    }
    call.words()[0] = 77;
}

/// Calls itself as deep as it goes, and stays there.
fn go_deeper() {
    let _ = inner().call(RUN, first(go_deeper as fn() as usize as u64));
    spin();
}

#[test]
fn a_deadline_holds_for_the_calls_that_the_function_makes() {
    let _alone = testing::alone();
    let Some(mut inside) = load(DomainOptions::new()) else {
        return;
    };
    INNER.store(&raw mut inside, Ordering::SeqCst);
    let table = Table::new(value).entry(outer).entry(add);
    // SAFETY: as in `load`.
    let domain = unsafe { Domain::new(&table, DomainOptions::new()) }.unwrap();
    let seen = |what, timeout| {
        SEEN.store(0, Ordering::SeqCst);
        domain.call(1, first(1)).unwrap();
        inside.call(ADD, first(1)).unwrap();
        let got = domain.call_timeout(0, first(what), timeout);
        (got.map(|words| words[0]), SEEN.load(Ordering::SeqCst))
    };
    let ended = Err(CallError::Fault(Fault::Deadline));
    // The inner one first, and then the outer one: mostly after it has seen what became of the inner one.
    let both_end = |what| {
        testing::within_patience(|| {
            let (got, seen) = seen(what, SHORT);
            assert_eq!(got, ended);
            assert_eq!(domain.call(1, first(1)).unwrap()[0], 1);
            seen == 1
        })
    };
    for _ in 0..3 {
        assert!(both_end(0));
        assert_eq!(inside.call(ADD, first(1)).unwrap()[0], 1);
        assert_eq!(seen(1, LONG), (Ok(77), 1));
        assert_eq!(domain.call(1, first(1)).unwrap()[0], 3);
        assert!(both_end(2));
        assert_eq!(seen(3, LONG), (Ok(77), 2));
        assert_eq!(seen(5, SHORT), (ended, 0));
        // Also where the outer call has none; and nothing of it is left.
        domain.call(0, first(1)).unwrap();
        assert_eq!(SEEN.load(Ordering::SeqCst), 1);
    }
    // The inner one is not caught while it is made anew, which would be its end.
    for _ in 0..100 {
        let got = domain.call_timeout(0, first(4), SHORT / 2);
        assert_eq!(got, ENDED);
        assert!(testing::within_patience(|| domain.call(1, [0; 8]).is_ok()));
        assert!(testing::within_patience(|| inside
            .call(ADD, [0; 8])
            .is_ok()));
    }
    INNER.store(std::ptr::null_mut(), Ordering::SeqCst);
}

// ---- The signal comes at any moment.

struct Fatal;

impl Drop for Fatal {
    fn drop(&mut self) {
        // SAFETY: none: this is the fault.
        unsafe { std::ptr::null_mut::<u64>().write_volatile(1) };
    }
}

fn fault_in_a_panic() {
    let _fatal = Fatal;
    std::panic::resume_unwind(Box::new(()));
}

#[test]
fn a_thread_whose_panic_ended_in_a_fault_has_deadlines_still() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    // In a thread of its own: it is taken to panic from then on.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let got = until(&domain, fault_in_a_panic, LONG);
            assert_eq!(got, Err(CallError::Fault(Fault::Access { address: 0 })));
            assert!(std::thread::panicking());
            assert_eq!(until(&domain, spin, SHORT), ENDED);
        });
    });
}

fn panic_again_and_again() {
    loop {
        let caught = std::panic::catch_unwind(|| panic!("again"));
        assert!(caught.is_err());
        // Here it may end.
        spin_for(10_000);
    }
}

#[test]
fn what_a_function_shares_with_all_threads_is_whole_when_it_is_ended() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    let mut random = Random::seeded("ended while it panics or allocates");
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| spin_for(20_000)));
    let (done, begun) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stop = Stop(&done);
        // They stop where the allocator's lock stays held.
        let others: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    while !done.load(Ordering::Relaxed) {
                        drop(black_box(vec![1u8; 3000]));
                    }
                })
            })
            .collect();
        assert!(testing::within_patience(
            || begun.load(Ordering::Relaxed) == 2
        ));
        for round in 0..200 {
            let function = [panic_again_and_again, allocate][round % 2];
            let timeout = Duration::from_micros(100 + random.below(400));
            assert_eq!(until(&domain, function, timeout), ENDED);
            // Were it still in the hook, this would end the process.
            let got = std::panic::catch_unwind(|| panic!("once"));
            assert!(got.is_err() && !std::thread::panicking());
            drop(black_box(vec![1u8; 3000]));
        }
        drop(stop);
        for other in others {
            other.join().unwrap();
        }
    });
    std::panic::set_hook(usual);
}

static SHARED: Mutex<u64> = Mutex::new(0);

fn count_shielded() {
    loop {
        handfast_domain::shielded(|| {
            let mut count = SHARED.lock().unwrap();
            spin_for(20_000);
            *count += 1;
        });
    }
}

#[test]
fn what_is_shielded_is_done_before_the_function_ends() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    for round in 0..200 {
        assert_eq!(
            until(&domain, count_shielded, Duration::from_micros(round)),
            ENDED
        );
        drop(SHARED.try_lock().expect("nobody holds it"));
    }
    assert!(*SHARED.lock().unwrap() >= 200);
}

static CHILD: AtomicU64 = AtomicU64::new(0);

fn fork_inside() {
    fn fork() {
        // SAFETY: the child makes calls and exits.
        let child = unsafe { libc::fork() };
        CHILD.store(child.unsigned_abs().into(), Ordering::SeqCst);
        // The deadline is the parent's.
        spin_for(30_000_000);
        if child == 0 {
            let own = load(DomainOptions::new()).unwrap();
            see(&until(&own, spin, SHORT));
        }
    }
    let domain = load(DomainOptions::new()).unwrap();
    let got = until(&domain, fork, SHORT);
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 {
        let own = load(DomainOptions::new()).unwrap();
        let has_ended = SEEN.load(Ordering::SeqCst) == 1;
        let is_good = got.is_ok() && has_ended && until(&own, spin, SHORT) == ENDED;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!is_good)) };
    }
    testing::say(if got == ENDED { "ended" } else { "not ended" });
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child as i32, &raw mut status, 0) };
    testing::say(&format!("{status}"));
}

#[test]
fn a_child_that_was_forked_in_a_call_has_no_deadline_in_it() {
    let _alone = testing::alone();
    if common::has_keys() {
        assert!(end_of("fork", &[], &["ended", "0"]).success());
    }
}

fn wild_stack() {
    fn lose() {
        // SAFETY: none: this is the fault.
        unsafe { std::arch::asm!("mov rsp, 16", "push rax", options(noreturn)) };
    }
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(3)).unwrap();
    let got = until(&domain, lose, LONG);
    let is_fault = matches!(got, Err(CallError::Fault(Fault::Access { .. })));
    testing::say(if is_fault { "a fault" } else { "no fault" });
    assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 1);
}

#[test]
fn a_stack_pointer_that_leads_nowhere_is_a_fault_of_a_call_with_a_deadline() {
    let _alone = testing::alone();
    if common::has_keys() {
        assert!(end_of("wild stack", &[], &["a fault"]).success());
    }
}
