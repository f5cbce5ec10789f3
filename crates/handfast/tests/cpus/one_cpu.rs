//! A server and its clients that have one CPU between them.

use crate::common;
use handfast::{Counters, Options, SendRight, Strategy};
use handfast_sys::cpu;

const CLIENTS: usize = 8;

pub(crate) fn server(name: &str) {
    cpu::pin(&cpu::allowed()[..1]).unwrap();
    let port = handfast::bind_with(name, Options::new().strategy(Strategy::Block)).unwrap();
    common::say("ready");
    let mut request = port.receive().unwrap();
    loop {
        let bytes = request.bytes().to_vec();
        request = port.reply_and_receive(request, &bytes).unwrap();
    }
}

/// Calls all the time; says each time it has made a thousand calls.
pub(crate) fn client(name: &str, place: usize) {
    let cpus = cpu::allowed();
    cpu::pin(&[cpus[place]]).unwrap();
    let right = handfast::connect_with(name, Options::new().strategy(Strategy::Block)).unwrap();
    for turn in 0_u64.. {
        let bytes = turn.to_le_bytes();
        assert_eq!(
            *right.call_timeout(&bytes, common::PATIENCE).unwrap(),
            bytes
        );
        if turn % 1_000 == 999 {
            common::say("a thousand");
        }
    }
}

/// How often the server of that name has slept so far.
fn sleeps(right: &SendRight, name: &str) -> u64 {
    let counters = right.counters().unwrap();
    let (_, row) = counters.ports.iter().find(|(of, _)| of == name).unwrap();
    Counters::value(row, "parks")
}

#[test]
fn nobody_waits_for_a_turn_where_nobody_could_run_meanwhile() {
    let _alone = common::alone();
    let name = common::name("one");
    let mut server = common::start("server on one CPU", &[&name]);
    server.expect("ready");
    let mut clients = [(); CLIENTS].map(|()| common::start("client on one CPU", &[&name, "0"]));
    // Until the server has seen where its clients are.
    for client in &clients {
        for _ in 0..5 {
            client.expect("a thousand");
        }
    }
    let right = handfast::connect(&name).unwrap();
    // A server that lets clients wait for their turns does not sleep, and each that it wakes takes the CPU from it. One that
    // wakes all sleeps until they have called again, however often somebody else has the CPU.
    let before = sleeps(&right, &name);
    assert!(common::within_patience(
        || sleeps(&right, &name) > before + 200
    ));
    for client in &mut clients {
        client.kill();
    }
    server.kill();
}
