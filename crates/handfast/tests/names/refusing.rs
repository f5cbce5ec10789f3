//! Servers that end connections without an answer.

use crate::common;
use handfast::error::ConnectError;
use handfast_sys::socket;
use std::time::{Duration, Instant};

/// Accepts connections at `name` and ends them, until this process ends.
fn hang_up(name: &str) {
    let listener = socket::listen(&common::directory().join(name), 128).unwrap();
    socket::set_nonblocking(&listener, false).unwrap();
    std::thread::spawn(move || while socket::accept(&listener).is_ok() {});
}

/// A server whose peers may have no rights.
pub(crate) fn grants_nothing(name: &str) {
    handfast::set_quotas(handfast::Quotas::new().rights(0)).unwrap();
    common::echo(name, 1, handfast::Options::new());
}

/// The server was said to have ended.
fn expect_alive(name: &str) {
    let error = handfast::connect_timeout(name, common::PATIENCE).unwrap_err();
    let is_clear = matches!(error, ConnectError::Handshake { .. });
    assert!(
        is_clear && error.to_string().contains("alive"),
        "{name}: {error:?}"
    );
    // A caller with less time hears of that.
    let short = Duration::from_millis(20);
    for outcome in [
        handfast::connect_timeout(name, short),
        handfast::connect_deadline(name, Instant::now() + short),
    ] {
        let is_in_time = matches!(outcome, Err(ConnectError::TimedOut { .. }));
        assert!(is_in_time, "{name}: {outcome:?}");
    }
}

#[test]
fn a_server_that_ends_connections_without_an_answer_is_not_said_to_be_dead() {
    let hangs_up = common::name("hangs-up");
    hang_up(&hangs_up);
    expect_alive(&hangs_up);
    let name = common::name("grants-nothing");
    let mut server = common::start("grants nothing", &[&name]);
    server.expect("ready");
    expect_alive(&name);
    server.kill();
}

/// Each of the threads kept its turn until it gave up.
#[test]
fn threads_that_connect_to_a_server_that_hangs_up_give_up_together() {
    const THREADS: usize = 8;
    let _alone = common::alone();
    let name = common::name("hangs-up-on-all");
    hang_up(&name);
    let gives_up = || {
        let error = handfast::connect(&name).unwrap_err();
        let is_clear = matches!(
            error,
            ConnectError::Handshake { .. } | ConnectError::TimedOut { .. }
        );
        assert!(is_clear, "{error:?}");
    };
    let start = Instant::now();
    gives_up();
    let alone = start.elapsed();
    assert!(common::within_at_best(3 * alone, || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(gives_up);
            }
        });
        start.elapsed()
    }));
}
