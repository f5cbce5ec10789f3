//! Code of the application that the library calls: it may panic, use the library, and drop what it has of the library. The
//! library holds no lock meanwhile, and goes on.

#[path = "../common/mod.rs"]
mod common;

mod closures;
mod control;
mod deeds;
mod hooks;
mod iterators;
#[cfg(feature = "service")]
mod services;
mod wakers;
mod workers;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "holder" => control::holder(arguments[0]),
        "guest" => control::guest(arguments[0], arguments[1], arguments[2]),
        _ => unreachable!(),
    });
}
