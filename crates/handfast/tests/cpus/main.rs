//! Servers on every CPU, and on one.

#[path = "../common/mod.rs"]
mod common;
#[path = "../served/mod.rs"]
mod served;

mod one_cpu;
mod percpu;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "server" => served::server(arguments[0], arguments[1]),
        "client" => percpu::client(arguments[0]),
        "fickle client" => percpu::fickle_client(arguments[0]),
        "holder" => percpu::rights::holder(arguments[0]),
        "before" => percpu::before(arguments[0]),
        "server on one CPU" => one_cpu::server(arguments[0]),
        "client on one CPU" => one_cpu::client(arguments[0], arguments[1].parse().unwrap()),
        _ => unreachable!(),
    });
}
