//! The costs that a peer, a user or a crowd of them may cause, and the counters that show them.

#[path = "../common/mod.rs"]
mod common;
#[path = "../forger/mod.rs"]
mod forger;

mod busy;
mod charged;
mod combined;
#[cfg(feature = "domain")]
mod counters;
mod crowds;
mod quotas;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "honest" => forger::honest(arguments[0], None),
        "server with quotas" => quotas::server(arguments[0], arguments.get(1).copied()),
        "greedy" => quotas::greedy(arguments[0]),
        "server of a user" => crowds::server(arguments[0], arguments[1]),
        "user" => crowds::user(arguments[0], arguments[1]),
        "slow" => crowds::slow(arguments[0]),
        "reader" => charged::reader(arguments[0], arguments[1]),
        "charged server" => charged::server(arguments[0], arguments[1]),
        "combined" => combined::server(arguments[0], arguments[1], arguments[2], arguments[3]),
        "last of combined" => combined::last(arguments[0], arguments[1]),
        "caller of another user" => charged::call_at_length(arguments[0]),
        _ => unreachable!("{role}"),
    });
}
