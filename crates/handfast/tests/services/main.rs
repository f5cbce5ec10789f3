//! Typed services: calls, futures, wrong answers, and signatures of methods.

#[path = "../common/mod.rs"]
mod common;

mod futures;
mod hostile;
mod members;
mod server;
mod signatures;
mod typed;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "server" => server::server(arguments[0]),
        "tasks" => server::tasks(arguments[0]),
        "chain" => server::chain(arguments[0]),
        "liar" => hostile::liar(arguments[0]),
        "gate" => futures::server(arguments[0], false),
        "spawner" => futures::server(arguments[0], true),
        _ => unreachable!(),
    });
}
