//! Deadlines that cannot be kept.

use super::LONG;
use super::signals::stay_in_handler;
use crate::common::{ADD, add, end_of, first, load, run_function, value};
use handfast_domain::{CallError, Domain, DomainOptions, NoDeadline, Table};
use handfast_testing as testing;

pub(crate) fn handled_by_the_program() {
    let domain = load(DomainOptions::new()).unwrap();
    let number = handfast_sys::signal::deadline_number();
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(number, stay_in_handler as extern "C" fn(i32) as usize) };
    let got = domain.call_timeout(ADD, first(1), LONG);
    let is_busy = matches!(
        got,
        Err(CallError::NoDeadline(NoDeadline::Os { errno, .. })) if errno.raw_os_error() == libc::EBUSY
    );
    testing::say(if is_busy { "refused" } else { "not refused" });
    assert!(domain.call(ADD, first(1)).is_ok());
}

pub(crate) fn no_timers() {
    let domain = load(DomainOptions::new()).unwrap();
    let limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is valid.
    unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const limit) };
    let got = domain.call_timeout(ADD, first(1), LONG);
    let is_refused = matches!(got, Err(CallError::NoDeadline(NoDeadline::Os { .. })));
    testing::say(if is_refused { "refused" } else { "not refused" });
    assert!(domain.call(ADD, first(1)).is_ok());
}

#[test]
fn a_deadline_that_cannot_be_kept_is_refused() {
    let _alone = testing::alone();
    let table = Table::new(value).entry(add).entry(run_function);
    // SAFETY: as in `load`.
    let plain = unsafe { Domain::new(&table, DomainOptions::new().unprotected()) }.unwrap();
    assert_eq!(
        plain.call_timeout(0, first(1), LONG),
        Err(CallError::NoDeadline(NoDeadline::Unprotected))
    );
    if super::common::has_keys() {
        assert!(end_of("handled", &[], &["refused"]).success());
        assert!(end_of("pending", &[], &["refused"]).success());
    }
}
