//! Faults that `handfast abuse` and the fuzzers have found.

use crate::common;
use crate::forger;
use handfast_layout::control::ControlMessage;
use handfast_layout::part::Part;

/// Nobody takes up what comes for a port that has just been dropped; a port that comes is not made one of this process's
/// either, while the control thread sees to it that none is.
#[test]
fn a_port_that_comes_to_one_that_is_gone_is_refused_and_the_control_thread_goes_on() {
    if common::ran_in_own_process(
        a_port_that_comes_to_one_that_is_gone_is_refused_and_the_control_thread_goes_on,
    ) {
        return;
    }
    let _directory = common::directory();
    let name = common::name("arrives-late");
    let port = handfast::bind(&name).unwrap();
    let mut hand = forger::Hand::new(&name, 1);
    drop(port);
    let token = 5;
    let moves = Part::Receive {
        token,
        number: 0,
        name_bytes: 0,
        asks: false,
    };
    hand.send(b"", &[moves]);
    while hand.hear() != (ControlMessage::NotArrived { token }) {}
    hand.said_meanwhile();
    // Ports are made as before.
    let port = handfast::bind(&name).unwrap();
    drop(port);
}
