//! Calls that are passed on, called back on, awaited by tasks, and given up.

#[path = "../common/mod.rs"]
mod common;

mod cancelling;
mod coroutines;
mod forwarding;
mod nested;
mod review;
mod tasks;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "last" => review::last(arguments[0]),
        "middle" => review::middle(arguments[0], arguments[1]),
        "two ports" => review::two_ports(arguments[0], arguments[1]),
        "middle that lets go" => review::middle_that_lets_go(arguments[0], arguments[1]),
        "slow exporter" => review::slow_exporter(arguments[0]),
        "silent exporter" => review::silent_exporter(arguments[0], arguments[1]),
        "recipient" => review::recipient(arguments[0], arguments[1], arguments.get(2).copied()),
        "caller that forks" => review::caller_that_forks(arguments[0], arguments[1]),
        "borrower" => review::borrower(arguments[0], arguments[1]),
        "caller that rests" => review::caller_that_rests(arguments[0], arguments[1]),
        "one caller" => review::one_caller(arguments[0], arguments[1]),
        "generator" => coroutines::generator(arguments[0]),
        "caller of turns" => coroutines::caller_of_turns(arguments[0]),
        "caller" => coroutines::caller(arguments[0], arguments[1]),
        "echo" => common::echo(arguments[0], 1, handfast::Options::new()),
        "holder" => tasks::holder(arguments[0]),
        "passer" => tasks::passer(arguments[0], arguments[1]),
        "client" => cancelling::client(arguments[0]),
        "plain middle" => common::middle(arguments[0], arguments[1]),
        "nests" => nested::nests(arguments[0], arguments[1]),
        "waits" => cancelling::waits(arguments[0]),
        "races" => cancelling::races(arguments[0], arguments[1].parse().unwrap()),
        "last of a chain" => forwarding::last(arguments[0]),
        "middle of a chain" => forwarding::middle(arguments[0], arguments[1]),
        "middle that leaves" => forwarding::middle_that_leaves(arguments[0], arguments[1]),
        "phoenix" => forwarding::ends::phoenix(arguments[0]),
        "late last" => forwarding::ends::late_last(arguments[0]),
        "impatient" => forwarding::ends::impatient(arguments[0], arguments[1]),
        "patient middle" => forwarding::ends::patient_middle(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}
