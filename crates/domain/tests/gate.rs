//! Attacks on the gate: what code outside of a domain gets by entering it at any of its instructions, with any
//! registers, by a stack pointer of its choice, and by forks.
//!
//! Each attack is a child process. The attacker runs unsafe code of the same process, but no instruction that changes
//! rights, and no system call that goes around them: those are open in a process that is not confined (SECURITY.md).
#![cfg(target_arch = "x86_64")]

mod common;
#[path = "gate/forged.rs"]
mod forged;
#[path = "gate/stack.rs"]
mod stack;

use common::{end_of, has_keys};
use handfast_testing as testing;
use std::os::unix::process::ExitStatusExt;

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, arguments| match role {
        "forged return" => forged::forged_return(arguments[0], || {}),
        "stack pointer" => stack::stack_pointer(),
        "stack pointer in a handler" => stack::stack_pointer_in_handler(),
        "handler" => stack::handler_in_a_call(),
        _ => unreachable!(),
    });
}

/// The stack that waits for a nested call's return is known, and its rights, but not which call it waits for.
/// Security finding 4.
#[test]
fn a_second_thread_does_not_return_from_the_nested_call_of_another() {
    let _alone = testing::alone();
    if !has_keys() {
        return;
    }
    // The attacker is ended, its process with it; nothing has been said of the secret.
    for at in ["out", "in"] {
        let end = end_of("forged return", &[at], &["waiting"]);
        assert_eq!(end.signal(), Some(libc::SIGILL), "{at}: {end}");
    }
}

/// Security finding 5.
#[test]
fn a_stack_pointer_in_a_domain_is_lent_no_rights() {
    let _alone = testing::alone();
    if !has_keys() {
        return;
    }
    for role in ["stack pointer", "stack pointer in a handler"] {
        let end = end_of(role, &[], &["loading"]);
        assert_eq!(end.signal(), Some(libc::SIGSEGV), "{role}: {end}");
    }
}

/// The other side of it: a handler that the kernel has started on a domain's stack runs to its end.
#[test]
fn a_handler_that_interrupts_a_domain_on_its_stack_runs() {
    let _alone = testing::alone();
    if has_keys() {
        assert!(end_of("handler", &[], &["done"]).success());
    }
}
