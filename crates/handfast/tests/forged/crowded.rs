//! Clients that are too many for the processors: what their server asks of them.

use crate::common;
use crate::forger::{Hand, honest};
use handfast_layout::bell::{OVERLOADED, bell};
use handfast_layout::link::Kind;
use handfast_layout::part::receiver_of;
use handfast_region::Memory;
use handfast_sys::cpu;
use std::sync::atomic::Ordering::SeqCst;

/// Calls of each client while the server must not ask.
const CALLS: u32 = 2_000;

/// An honest process that has two processors.
pub(crate) fn on_two_cpus(name: &str) {
    cpu::pin(&cpu::allowed()[..2]).unwrap();
    honest(name, None);
}

/// Makes a call of each at once.
fn call_by(hands: &mut [Hand], generation: u32) {
    for hand in &mut *hands {
        let port = hand.welcome.handle;
        hand.post(Kind::Call, (port, 0, generation), (b"x", &[]));
    }
    for hand in hands {
        hand.outcome(0, generation).expect("an answer");
    }
}

/// Two clients that call at once again, and their server, are more than two processors: the server asks them to leave its own
/// (`docs/decisions/0044`), for as long as they are two.
#[test]
fn two_clients_on_two_processors_are_asked_to_leave_the_servers() {
    if cpu::allowed().len() < 2 {
        return handfast_testing::not_exercised("one processor");
    }
    let name = common::name("crowded");
    let mut server = common::start("honest on two CPUs", &[&name]);
    server.expect("ready");
    let mut hands = [Hand::new(&name, 1), Hand::new(&name, 2)];
    let at = bell(receiver_of(hands[0].welcome.port)) + OVERLOADED;
    let is_asked = |hands: &[Hand]| hands[0].bells.load(at, SeqCst) != 0;
    let mut generation = 0;
    let mut call = |hands: &mut [Hand]| {
        generation += 1;
        call_by(hands, generation);
    };
    for _ in 0..CALLS {
        call(&mut hands[..1]);
        assert!(!is_asked(&hands), "one client has a processor");
    }
    assert!(common::within_patience(|| {
        call(&mut hands);
        is_asked(&hands)
    }));
    assert!(common::within_patience(|| {
        call(&mut hands[..1]);
        !is_asked(&hands)
    }));
    server.finish();
}
