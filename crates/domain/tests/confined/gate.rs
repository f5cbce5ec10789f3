//! The gate of a confined process, entered by hand; and copies of the process.

use super::common::{ADD, RUN, end_of, first, load};
use super::forged::{ENTRY, Forged, HINT, enter_by_hand, is_done, rights, row_at};
use super::{confine_now, is_possible};
use handfast_domain::{Domain, DomainOptions};
use handfast_testing::say;
use std::arch::asm;
use std::os::unix::process::ExitStatusExt;

const SECRET: u64 = 41;
/// The domain's key: the first one of the process.
const KEY: u64 = 1;
const PAGE: usize = 4096;
/// In a control word: a call with a deadline.
const BOUNDED: u64 = ENTRY >> 1;

/// Domains never take the caller's word for it that a call has a deadline, which would have them note that in the
/// thread's own memory: the caller says where that is. Security finding 3.
#[test]
fn nothing_is_written_into_a_domain_by_the_fs_register() {
    if is_possible() {
        let end = end_of("bounded", &[], &["refused"]);
        assert!(end.success(), "{end}");
    }
}

/// Whatever a call does behind the gate, it does without the thread's own memory: that is nowhere then.
#[test]
fn calls_run_without_the_bases_of_fs_and_gs() {
    if is_possible() {
        let end = end_of("no bases", &[], &["done"]);
        assert!(end.success(), "{end}");
    }
}

/// A copy of the process has no copy of its domains: no fresh tries for whoever guesses. Security finding 14.
#[test]
fn a_forked_child_has_no_copy_of_a_domain() {
    if is_possible() {
        for how in ["fork", "clone"] {
            assert!(
                end_of("snapshot", &[how], &["closed: 11", "41"]).success(),
                "{how}"
            );
        }
    }
}

/// As `a_second_thread_does_not_return_from_the_nested_call_of_another` (`gate.rs`), confined. Security finding 4.
#[test]
fn a_second_thread_does_not_return_from_a_nested_call_of_a_confined_domain() {
    if is_possible() {
        for at in ["out", "in"] {
            let end = end_of("forged return", &[at], &["waiting"]);
            assert_eq!(end.signal(), Some(libc::SIGILL), "{at}: {end}");
        }
    }
}

fn entry(number: u16, base: usize) -> Forged {
    Forged {
        row_at: row_at(KEY),
        rights: rights(KEY),
        control: u64::from(number) * ENTRY,
        hint: HINT,
        base: base as u64,
    }
}

/// Where the thread's own memory is.
fn base_of_fs() -> usize {
    let base: usize;
    // SAFETY: reads a register.
    unsafe { asm!("rdfsbase {}", out(reg) base) };
    base
}

/// How far below that the word lies in which deadlines note what may be ended.
fn place_of_deadlines() -> usize {
    const MARK: usize = 0x4d61_726b_4d61_726b;
    handfast_sys::deadline::set_place(MARK);
    let base = base_of_fs();
    let found = (1..4096).map(|word| 8 * word).find(|below| {
        let at: *const usize = std::ptr::with_exposed_provenance(base - below);
        // SAFETY: the thread's own memory, which is longer.
        unsafe { at.read_volatile() == MARK }
    });
    handfast_sys::deadline::set_place(0);
    found.expect("the word with the mark")
}

fn secret() -> (Domain, usize) {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(SECRET)).unwrap();
    let at = domain.call(super::common::PLACE, first(0)).unwrap()[0] as usize;
    (domain, at)
}

pub(super) fn bounded() {
    let (domain, at) = secret();
    let below = place_of_deadlines();
    confine_now();
    // The control word says that there is a deadline, and the register that the word for it lies in the domain.
    // Code that is not optimised finds the place of its own memory in the first word there.
    let own = [at + below];
    let base = match cfg!(debug_assertions) {
        true => own.as_ptr().expose_provenance(),
        false => own[0],
    };
    let mut forged = entry(ADD, base);
    forged.control |= BOUNDED;
    let mut words = first(0);
    let status = enter_by_hand(&raw mut words, &raw const forged);
    say(match (is_done(status), words[0]) {
        (true, SECRET) => "no effect",
        (true, _) => "written",
        (false, _) => "refused",
    });
    assert_eq!(domain.call(ADD, first(0)).unwrap()[0], SECRET);
}

fn nothing() {}

pub(super) fn no_bases() {
    const TRIM: u16 = u16::MAX - 1;
    const INIT: u16 = u16::MAX;
    let (domain, _) = secret();
    confine_now();
    let nowhere = super::ways::map(0).unwrap() as usize + PAGE / 2;
    let run =
        |forged: Forged, words: &mut [u64; 8]| is_done(enter_by_hand(words, &raw const forged));
    // Words, on the first stack of a pool and on others, which are built by the way.
    for hint in 0..16 {
        let mut words = first(0);
        let mut forged = entry(ADD, nowhere);
        forged.hint = hint;
        assert!(run(forged, &mut words));
        assert_eq!(words[0], SECRET);
    }
    // A number that is no entry, the first call of all, upkeep, and a function that does nothing.
    assert!(!run(entry(9, nowhere), &mut first(0)));
    assert!(run(entry(INIT, nowhere), &mut first(0)));
    assert!(run(entry(TRIM, nowhere), &mut first(0)));
    let mut words = first(nothing as fn() as usize as u64);
    assert!(run(entry(RUN, nowhere), &mut words));
    // The upkeep that each so many calls do, which in a confined process fails.
    for _ in 0..5_000 {
        assert!(run(entry(ADD, nowhere), &mut first(0)));
    }
    // Bytes, good and bad buffers.
    let (request, mut reply) = ([7u8; 64], [0u8; 64]);
    let buffers = [
        request.as_ptr().addr(),
        64,
        reply.as_mut_ptr().addr(),
        64,
        0,
        0,
    ];
    let mut forged = entry(ADD, nowhere);
    forged.control |= (&raw const buffers).expose_provenance() as u64;
    assert!(run(forged, &mut first(0)));
    let buffers = [request.as_ptr().addr(), usize::MAX, 0, 0, 0, 0];
    let mut forged = entry(ADD, nowhere);
    forged.control |= (&raw const buffers).expose_provenance() as u64;
    assert!(!run(forged, &mut first(0)));
    let mut forged = entry(ADD, nowhere);
    forged.control |= BOUNDED;
    assert!(!run(forged, &mut first(0)));
    assert_eq!(domain.call(ADD, first(0)).unwrap()[0], SECRET);
    say("done");
}

/// A child asks for the secret, not by a handle, which says that it is another process's, but by the gate.
pub(super) fn snapshot(how: &str) {
    let (domain, _) = secret();
    confine_now();
    let child = match how {
        // SAFETY: one thread.
        "fork" => unsafe { libc::fork() },
        // SAFETY: as `fork`, without what the C library does around it.
        _ => unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 },
    };
    if child == 0 {
        let (forged, mut words) = (entry(ADD, 0), first(0));
        let status = enter_by_hand(&raw mut words, &raw const forged);
        let is_open = is_done(status) && words[0] == SECRET;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_open { 1 } else { 2 }) }
    }
    let mut status = 0;
    // SAFETY: waits for that child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let status = std::process::ExitStatus::from_raw(status);
    say(&match (status.signal(), status.code()) {
        (Some(signal), _) => format!("closed: {signal}"),
        (None, code) => format!("open: {code:?}"),
    });
    say(&domain.call(ADD, first(0)).unwrap()[0].to_string());
}
