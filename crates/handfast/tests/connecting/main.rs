//! Connections that are made, refused, put off and given up, where there is room and where there is none.

#[path = "../common/mod.rs"]
mod common;

mod handshakes;
mod limits;
mod sandbox;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "echo" => common::echo(arguments[0], 1, handfast::Options::new()),
        "unlucky" => handshakes::unlucky(arguments),
        "silent" => handshakes::waiting::silent(arguments),
        "connector that gives way" => handshakes::connector(arguments[0]),
        "stranger that answers" => handshakes::stranger(arguments[0]),
        "many ports" => limits::many_ports(arguments[0]),
        "visitor" => limits::visitor(arguments[0]),
        "newcomer without descriptors" => limits::newcomer_without_descriptors(),
        "client without descriptors" => limits::client_without_descriptors(arguments[0]),
        "server without descriptors" => limits::server_without_descriptors(arguments[0]),
        "server without a spare" => limits::server_without_a_spare(arguments[0]),
        "connector" => limits::connector(arguments[0]),
        "stranger" => limits::stranger(arguments[0]),
        "boxed" => sandbox::boxed(arguments[0]),
        _ => unreachable!(),
    });
}
