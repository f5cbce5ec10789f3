//! Messages: sent one way, in batches, to new ports and queues, and received.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod messages;
mod new_ports;
mod notify;
mod queues;
mod receiving;
mod sent;
mod signals;

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
        "echo by strategy" => messages::server(arguments[0], arguments[1], arguments[2]),
        "caller by strategy" => {
            messages::waiting::caller(arguments[0], arguments[1].parse().unwrap())
        }
        "notified caller" => messages::waiting::notified_caller(arguments[0]),
        "collector of numbers" => messages::collector(arguments[0]),
        "holder" => messages::holder(arguments[0]),
        "long caller" => messages::long_caller(arguments[0]),
        "stalling collector" => messages::stalling_collector(arguments[0]),
        "alarmed client" => {
            messages::waiting::alarmed_client(arguments[0], arguments[1].parse().unwrap())
        }
        "alarmed server" => {
            messages::waiting::alarmed_server(arguments[0], arguments[1].parse().unwrap())
        }
        "disturbed sleeper" => {
            signals::sleeper(arguments[0], arguments[1], arguments[2].parse().unwrap())
        }
        "refused first" => signals::refused_first(arguments[0]),
        "without a queue" => signals::without_a_queue(arguments[0]),
        _ => unreachable!(),
    });
}
