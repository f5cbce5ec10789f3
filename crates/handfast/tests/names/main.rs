//! Names and ports: bound, found, taken over, in wait sets.

#[path = "../common/mod.rs"]
mod common;

mod binders;
mod callers;
mod names;
mod ports;
mod refusing;
mod set_calls;
mod sets;
mod smoke;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "echo" => common::echo(arguments[0], 1, handfast::Options::new()),
        "binder" => names::binder(arguments[0]),
        "unconnected" => names::unconnected(arguments[0]),
        "homeless" => names::homeless(),
        "rebinder" => binders::rebinder(arguments[0]),
        "flicker" => binders::flicker(arguments[0]),
        "visitor" => ports::visitor(arguments[0]),
        "callers" => callers::callers(arguments[0], arguments[1]),
        "told late" => ports::told_late(arguments[0]),
        "impatient" => callers::impatient(arguments[0]),
        "last words" => callers::last_words(arguments[0]),
        "grants nothing" => refusing::grants_nothing(arguments[0]),
        "set server" => sets::set_server(arguments[0], arguments[1].parse().unwrap()),
        "caller" => sets::caller(arguments[0]),
        "keeper" => set_calls::keeper(arguments[0]),
        "forker" => sets::forker(arguments[0]),
        _ => unreachable!(),
    });
}
