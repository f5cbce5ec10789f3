//! Confined mode: each way around the gate works without it and fails with it, and ordinary work goes on.
//!
//! Each way is tried by a child process, twice. The child says its result in a word: it got through (`open`), it was
//! refused (`closed`, with the error), or the kernel here does not have that way at all (`none`).
#![cfg(target_arch = "x86_64")]

mod common;
#[path = "gate/forged.rs"]
mod forged;
#[path = "confined/gate.rs"]
mod gate;
#[path = "confined/ordinary.rs"]
mod ordinary;
#[path = "confined/refused.rs"]
mod refused;
#[path = "confined/tricks.rs"]
mod tricks;
#[path = "confined/ways.rs"]
mod ways;

use handfast_domain::confine::{self, ConfineOptions, confine};
use handfast_testing as testing;
use std::os::unix::process::ExitStatusExt;

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, arguments| {
        alone(|| match role {
            "way" => ways::play(arguments[0], arguments[1] == CONFINED),
            "ordinary" => ordinary::work(),
            "paths" => ordinary::paths(arguments[0]),
            "calls" => ways::all_calls(arguments[0] == CONFINED),
            "chance" => ordinary::chance(),
            "panic" => ordinary::panic_inside(),
            "fault" => ordinary::fault_inside(),
            "refused" => refused::play(arguments[0]),
            "bounded" => gate::bounded(),
            "no bases" => gate::no_bases(),
            "snapshot" => gate::snapshot(arguments[0]),
            "forged return" => forged::forged_return(arguments[0], confine_now),
            _ => unreachable!(),
        })
    });
}

/// Runs `role` in a process of one thread, which a test's is not, and ends as that does.
fn alone(role: impl FnOnce()) {
    // SAFETY: the other thread, the test harness's, waits for this one and holds nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .unwrap();
        role();
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: waits for that child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        handfast_sys::signal::set_default(signal).unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        // SAFETY: takes integers. `raise` refuses the C library's own signals, and `kill` may choose another thread.
        unsafe { libc::syscall(libc::SYS_tkill, own, signal) };
    }
    std::process::exit(libc::WEXITSTATUS(status));
}

const CONFINED: &str = "confined";
const FREE: &str = "free";

/// In a child: no way back.
fn confine_now() {
    let confined = confine(&ConfineOptions::new()).unwrap();
    assert!(
        confined.ranges > 3 && confined.copied_bytes > 1 << 16,
        "{confined:?}"
    );
    assert!(confine::is_confined());
}

/// Whether there is anything to test here.
fn is_possible() -> bool {
    if !common::has_keys() {
        return false;
    }
    let missing = confine::check_machine().err();
    if let Some(error) = &missing {
        common::leave_out(&error.to_string());
    }
    missing.is_none()
}

/// The reason to record where a way, or a call, shows nothing of confinement.
const REFUSED_ANYWAY: &str = "refused without confinement, too";

/// The child's result, or the signal that ended it.
fn outcome(name: &str, mode: &str) -> String {
    let mut child = testing::start("way", &[name, mode]);
    let status = child.process.wait().unwrap();
    match (status.signal(), status.success()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, true) => child.line(),
        (None, false) => panic!("{name}, {mode}: {status}"),
    }
}

/// The way is open without confinement, if the kernel has it, and ends so with it.
fn closes(name: &str, end: &str) {
    if !is_possible() {
        return;
    }
    let free = outcome(name, FREE);
    if free != "open" {
        // Not in this kernel, or not for this user.
        // Kernels before Linux 6.12 write no frame where the interrupted code has no rights, and end the process.
        let is_old = name == "frame at the stack pointer" && free == "signal 11";
        let is_known = free.starts_with("none") || free == REFUSED || is_old;
        assert!(is_known, "{name} without confinement: {free}");
        testing::not_exercised(REFUSED_ANYWAY);
    }
    assert_eq!(outcome(name, CONFINED), end, "{name}, confined");
}

/// A test for each way, named after it.
macro_rules! ways {
    ($($test:ident: $name:literal => $end:literal;)*) => {$(
        #[test]
        fn $test() {
            closes($name, $end);
        }
    )*};
}

const REFUSED: &str = "closed: EPERM";

ways! {
    // The list of what memory keys do not stop.
    memory_is_not_read_by_process_vm_readv: "process_vm_readv" => "closed: EPERM";
    memory_is_not_written_by_process_vm_writev: "process_vm_writev" => "closed: EPERM";
    memory_is_not_read_by_a_forked_child: "process_vm_readv of the parent" => "closed: EPERM";
    memory_is_not_read_through_its_file: "read of /proc/self/mem" => "closed: EACCES";
    memory_is_not_written_through_its_file: "write to /proc/self/mem" => "closed: EACCES";
    memory_is_not_read_through_a_threads_file: "read of /proc/self/task/TID/mem" => "closed: EACCES";
    memory_is_not_read_through_the_parents_file: "read of /proc/PARENT/mem" => "closed: EACCES";
    keys_are_not_taken_off: "pkey_mprotect" => "closed: EPERM";
    keys_are_not_freed_and_had_again: "pkey_free and pkey_alloc" => "closed: EPERM";
    nothing_is_mapped_over_a_domain: "mmap over it" => "closed: EPERM";
    nothing_is_mapped_over_a_domain_with_huge_pages: "mmap of huge pages over it" => "closed: EPERM";
    nothing_is_thrown_away_in_a_domain: "madvise" => "closed: EPERM";
    nothing_is_thrown_away_by_process_madvise: "process_madvise" => "closed: EPERM";
    nothing_is_unmapped_in_a_domain: "munmap" => "closed: EPERM";
    nothing_is_moved_away_from_a_domain: "mremap" => "closed: EPERM";
    nothing_is_filled_in_by_userfaultfd: "userfaultfd" => "closed: EPERM";
    nothing_is_attached_over_a_domain: "shmat over it" => "closed: EPERM";
    rights_are_not_written_by_own_code: "WRPKRU" => "closed: EPERM";
    rights_are_not_loaded_by_own_code: "XRSTOR" => "closed: EPERM";
    rights_are_not_changed_in_a_frame: "forged frame" => "closed: EPERM";
    rights_are_not_taken_from_a_frame_made_by_hand: "rt_sigreturn" => "signal 31";
    // Found since.
    frames_are_not_written_through_the_stack_pointer: "frame at the stack pointer" => "closed: EPERM";
    frames_of_the_c_librarys_signals_are_not_written: "frame of the C library's signal" => "signal 33";
    a_domain_is_not_left_by_a_restartable_sequence: "rseq" => "closed: EPERM";
    nothing_is_done_later_with_a_domains_rights: "io_uring" => "closed: EPERM";
    constants_are_not_made_writable: "mprotect of constants" => "closed: EPERM";
    readable_memory_is_not_made_executable: "READ_IMPLIES_EXEC" => "closed: EPERM";
    code_does_not_change_with_its_file: "write to a library" => "closed: unchanged";
    calls_of_32_bit_programs_are_refused: "int 0x80" => "closed: EPERM";
    no_process_shares_the_memory_but_not_the_fate: "clone of the memory" => "closed: EPERM";
    libraries_are_not_loaded: "dlopen" => "closed: failed to map segment from shared object";
}

#[test]
fn every_call_that_is_denied_whole_says_so() {
    if !is_possible() {
        return;
    }
    // One child for all calls.
    let [free, confined] = [FREE, CONFINED].map(|mode| testing::start("calls", &[mode]));
    for (name, ..) in ways::CALLS {
        if free.line() == REFUSED {
            testing::not_exercised(REFUSED_ANYWAY);
        }
        assert_eq!(confined.line(), REFUSED, "{name}");
    }
}
