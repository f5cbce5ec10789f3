//! Messages: sent one way, in batches, to new ports and queues, and received.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod new_ports;
mod notify;
mod queues;
mod receiving;
mod sent;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "gate" => sent::gate(arguments[0]),
        "collector" => batches::collector(arguments[0], arguments[1].parse().unwrap()),
        "signer" => batches::signer(arguments[0]),
        "feeder" => batches::feeder(arguments[0], arguments[1].parse().unwrap()),
        "caller" => receiving::caller(arguments[0], arguments[1].parse().unwrap()),
        "sender" => receiving::sender(arguments[0], arguments[1].parse().unwrap()),
        "holds" => receiving::holds(arguments[0]),
        "rings" => receiving::rings(arguments[0]),
        "scene" => receiving::scenes::scene(arguments[0]),
        "sleeper" => receiving::sleeper(arguments[0], arguments[1]),
        "producer" => queues::producer(arguments),
        "number" => queues::number(arguments),
        "renewer" => new_ports::renewer(arguments[0]),
        "sender that rings" => notify::sender(arguments[0]),
        "late" => notify::late(arguments[0]),
        _ => unreachable!(),
    });
}
