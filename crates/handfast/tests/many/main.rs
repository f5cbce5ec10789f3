//! Operations repeated many times, and a great many things at once: afterwards nothing is left of them.

#[path = "../common/mod.rs"]
mod common;

mod million;
mod rounds;
mod thousand;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "peer" => rounds::peer::peer(arguments[0]),
        "driver" => rounds::driver(arguments[0], arguments[1], arguments[2]),
        "lazy" => thousand::lazy(arguments[0]),
        "gate" => thousand::gate(arguments[0]),
        "source" => thousand::source(arguments[0]),
        "hoarder" => million::hoarder(arguments[0]),
        _ => unreachable!(),
    });
}

/// How often something is repeated: `HANDFAST_ROUNDS`, or the default.
fn rounds_asked(default: u64) -> u64 {
    let asked = std::env::var("HANDFAST_ROUNDS").ok();
    asked.map_or(default, |count| count.parse().unwrap())
}
