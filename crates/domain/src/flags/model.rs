//! loom: who may use a stack, and who may reset a domain. Each model also runs with one ordering taken away, and must
//! fail then.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU32};

/// Whether `model` finds something wrong.
fn fails(model: impl Fn() + Send + Sync + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(model))).is_err()
}

/// Two threads use one stack, each for one call that finds its own writes.
fn two_calls(give_back: fn(&AtomicU16)) {
    let flag = Arc::new(AtomicU16::new(FREE));
    let stack = Arc::new(loom::cell::UnsafeCell::new(0u32));
    let threads: Vec<_> = (1..3u16)
        .map(|tag| {
            let (flag, stack) = (flag.clone(), stack.clone());
            loom::thread::spawn(move || {
                if claim(&*flag, tag) {
                    // SAFETY: loom's cell, which reports what is not ordered.
                    stack.with_mut(|place| unsafe { *place += 1 });
                    give_back(&flag);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn p1_a_stack_is_one_calls_at_a_time() {
    loom::model(|| two_calls(release));
}

#[test]
fn p1_without_the_release_must_fail() {
    assert!(fails(|| two_calls(|flag| flag.store(FREE, Relaxed))));
}

const TAG: u16 = 1;

fn fault_and_call(
    may_enter: fn(&AtomicU32) -> bool,
    drain: fn(&[AtomicU16; 2], &AtomicU32) -> bool,
) {
    fault_and_claim(|flag| claim(flag, TAG), may_enter, drain);
}

/// One call touches the domain's memory, another goes wrong in it and resets it when it may.
fn fault_and_claim(
    claim: fn(&AtomicU16) -> bool,
    may_enter: fn(&AtomicU32) -> bool,
    drain: fn(&[AtomicU16; 2], &AtomicU32) -> bool,
) {
    let flags = Arc::new([AtomicU16::new(TAG), AtomicU16::new(FREE)]);
    let state = Arc::new(AtomicU32::new(state::LIVE));
    let memory = Arc::new(loom::cell::UnsafeCell::new(0u32));
    let call = {
        let (flags, state, memory) = (flags.clone(), state.clone(), memory.clone());
        loom::thread::spawn(move || {
            assert!(claim(&flags[1]));
            if may_enter(&state) {
                // SAFETY: loom's cell, which reports what is not ordered.
                memory.with_mut(|place| unsafe { *place += 1 });
            }
            release(&flags[1]);
        })
    };
    start_draining(&*state);
    if drain(&flags, &state) {
        // SAFETY: as above.
        memory.with_mut(|place| unsafe { *place = 0 });
        open(&*state);
    }
    release(&flags[0]);
    call.join().unwrap();
}

fn drains(flags: &[AtomicU16; 2], state: &AtomicU32) -> bool {
    drain(&flags[0], flags.iter(), TAG, state)
}

#[test]
fn p2_a_domain_is_reset_when_no_call_is_in_it() {
    loom::model(|| fault_and_call(may_enter, drains));
}

#[test]
fn p2_a_call_that_does_not_look_must_fail() {
    assert!(fails(|| fault_and_call(|_| true, drains)));
}

#[test]
fn p2_a_reset_that_does_not_look_must_fail() {
    let blind = |_: &[AtomicU16; 2], state: &AtomicU32| {
        Word::exchange(state, state::DRAINING, state::RESETTING)
    };
    assert!(fails(move || fault_and_call(may_enter, blind)));
}

#[test]
fn p2_a_value_that_is_not_published_must_fail() {
    assert!(fails(|| fault_and_call(
        |state| state.load(Relaxed) == state::LIVE,
        drains
    )));
}

/// One call has drained the domain, resets it and goes on in it; another goes wrong in the new value.
fn reset_and_go_on(claim_again: fn(&AtomicU16)) {
    let flags = Arc::new([AtomicU16::new(TAG), AtomicU16::new(FREE)]);
    let state = Arc::new(AtomicU32::new(state::DRAINING));
    let memory = Arc::new(loom::cell::UnsafeCell::new(0u32));
    let reset = |memory: &loom::cell::UnsafeCell<u32>, state: &AtomicU32| {
        // SAFETY: loom's cell, which reports what is not ordered.
        memory.with_mut(|place| unsafe { *place = 0 });
        open(state);
    };
    let other = {
        let (flags, state, memory) = (flags.clone(), state.clone(), memory.clone());
        loom::thread::spawn(move || {
            assert!(claim(&flags[1], TAG));
            if may_enter(&*state) {
                start_draining(&*state);
                if drain(&flags[1], flags.iter(), TAG, &*state) {
                    reset(&memory, &state);
                }
            }
            release(&flags[1]);
        })
    };
    if drain(&flags[0], flags.iter(), TAG, &*state) {
        reset(&memory, &state);
        claim_again(&flags[0]);
        if may_enter(&*state) {
            // SAFETY: as above.
            memory.with(|place| assert_eq!(unsafe { *place }, 0));
        }
    }
    release(&flags[0]);
    other.join().unwrap();
}

#[test]
fn p2_who_has_reset_a_domain_may_go_on_in_it() {
    loom::model(|| reset_and_go_on(|own| claim_again(own, TAG)));
}

#[test]
fn p2_who_goes_on_without_a_fence_must_fail() {
    assert!(fails(|| reset_and_go_on(|own| own.publish(TAG))));
}

/// Two last calls find that the domain drains: one of them, and only one, resets it.
fn two_leave(leave: fn(&AtomicU16, &[AtomicU16; 2], &AtomicU32) -> bool) {
    let flags = Arc::new([AtomicU16::new(TAG), AtomicU16::new(TAG)]);
    let state = Arc::new(AtomicU32::new(state::DRAINING));
    let other = {
        let (flags, state) = (flags.clone(), state.clone());
        loom::thread::spawn(move || leave(&flags[1], &flags, &state))
    };
    let resets = u32::from(leave(&flags[0], &flags, &state)) + u32::from(other.join().unwrap());
    assert_eq!(resets, 1);
}

#[test]
fn p2_one_of_two_last_calls_resets() {
    loom::model(|| two_leave(|own, all, state| drain(own, all.iter(), TAG, state)));
}

#[test]
fn p2_without_the_fence_nobody_resets() {
    fn leave(own: &AtomicU16, all: &[AtomicU16; 2], state: &AtomicU32) -> bool {
        own.publish(PASSING);
        all.iter().all(|flag| flag.look() != TAG)
            && state.exchange(state::DRAINING, state::RESETTING)
    }
    assert!(fails(|| two_leave(leave)));
}

#[test]
fn p2_a_claim_without_its_fence_must_fail() {
    let blind = |flag: &AtomicU16| flag.exchange(FREE, TAG);
    assert!(fails(move || {
        fault_and_claim(blind, may_enter, drains);
    }));
}
