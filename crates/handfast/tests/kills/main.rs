//! Processes that are killed at any moment: whatever was under way has one outcome, everybody else goes on, and nothing is left of
//! the dead.
//!
//! The tests take turns: some measure how soon something happens.

#[path = "../common/mod.rs"]
mod common;
#[path = "../forger/mod.rs"]
mod forger;
#[path = "../scribble/mod.rs"]
mod scribble;
#[path = "../trio/mod.rs"]
mod trio;

mod chains;
mod churn;
mod death;
mod notices;
mod traps;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "echo" => common::echo(arguments[0], 1, handfast::Options::new()),
        "middle" => common::middle(arguments[0], arguments[1]),
        "keeper" => common::keeper(arguments[0]),
        "crosser" => common::crosser(arguments[0], arguments[1]),
        "waker that dies" => common::waker_that_dies(arguments[0]),
        "scribbler" => scribble::scribbler(arguments[0], arguments[1].parse().unwrap()),
        "honest" => forger::honest(arguments[0], None),
        "hop" => chains::hop(arguments[0], arguments[1]),
        "end" => chains::end(arguments[0]),
        "member" => churn::member(&arguments[1..], arguments[0].parse().unwrap()),
        "echo by strategy" => death::server(arguments[0], arguments[1], arguments[2]),
        "passer-by" => death::passer_by(arguments[0], arguments[1]),
        "mortal client" => death::mortal_client(arguments[0]),
        "server that dies waking" => death::server_that_dies_waking(arguments[0]),
        "busy keeper" => notices::busy_keeper(arguments[0]),
        "saturated" => traps::saturated(arguments[0], arguments[1]),
        "introducer by steps" => traps::introducer_by_steps(arguments[0], arguments[1]),
        "in order" => traps::in_order(arguments[0]),
        _ => trio::play(role, arguments),
    });
}
