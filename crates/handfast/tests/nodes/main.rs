//! Nodes: several in one process, and those of forked children.

#[path = "../common/mod.rs"]
mod common;

mod fork;
mod nodes;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "echo" => common::echo(arguments[0], 1, handfast::Options::new()),
        "shut down" => nodes::shutdown::shut_down(),
        "registrations" => nodes::shutdown::registrations(),
        "name taken up" => nodes::shutdown::name_taken_up(),
        "server with a child" => fork::server_with_a_child(arguments[0]),
        "forwarder that forks" => {
            fork::forwarder_that_forks(arguments[0], arguments[1], arguments[2]);
        }
        "forker" => fork::forker(arguments[0]),
        "receiving forker" => fork::receiving_forker(arguments[0]),
        "table" => fork::table::parent(arguments[0]),
        "server of members that forks" => fork::members::server(arguments[0]),
        "forks while calling" => fork::forks_while_calling(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}
