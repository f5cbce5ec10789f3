//! Peers that say and write whatever they like: each is cut for the rule it broke, and nobody else hears of it.

#[path = "../common/mod.rs"]
mod common;
#[path = "../forger/mod.rs"]
mod forger;
#[path = "../scribble/mod.rs"]
mod scribble;
#[path = "../served/mod.rs"]
mod served;

mod abused;
mod claims;
mod crowded;
mod descriptors;
mod diverted;
mod doors;
mod hostile;
mod introductions;
mod lanes;
mod late_claims;
mod loans;
mod moved_away;
mod moves;
mod once;
mod passing;
mod paths;
mod percpu;
mod receive_rights;
mod requests;
mod silence;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "forger" => requests::forger(arguments[0], arguments[1], arguments[2], arguments[3]),
        "honest" => forger::honest(arguments[0], arguments.get(1).copied()),
        "honest on two CPUs" => crowded::on_two_cpus(arguments[0]),
        "many" => claims::many(arguments[0]),
        "set" => claims::set(arguments[0]),
        "tasks" => claims::tasks(arguments[0], false),
        "tasks and a thread" => claims::tasks(arguments[0], true),
        "loop" => claims::event_loop(arguments[0]),
        "threads" => claims::threads_that_receive(arguments[0]),
        "caller" => claims::caller(arguments[0], arguments[1]),
        "server that takes descriptors" => descriptors::server(arguments[0]),
        "forger of descriptors" => descriptors::forger(arguments[0], arguments[1]),
        "liar" => descriptors::liar(arguments[0]),
        "looks" => late_claims::looks(arguments[0]),
        "lender" => loans::lender(arguments[0]),
        "dropper" => loans::dropper(arguments[0]),
        "giver of send-once rights" => once::giver(arguments[0]),
        "two receivers" => moved_away::two_receivers(arguments[0]),
        "sleeper" => moved_away::sleeper(arguments[0], arguments[1]),
        "mover" => moves::mover(arguments[0]),
        "middle" => common::middle(arguments[0], arguments[1]),
        "server" => served::server(arguments[0], arguments[1]),
        "clearer" => percpu::clearer(arguments[0]),
        "keeper" => receive_rights::keeper(arguments[0]),
        "closer" => silence::closer(arguments[0]),
        "echo that says its cuts" => hostile::server(arguments[0]),
        "scribbler" => scribble::scribbler(arguments[0], arguments[1].parse().unwrap()),
        "scribbling server" => {
            hostile::scribbling_server(arguments[0], arguments[1].parse().unwrap())
        }
        _ => unreachable!(),
    });
}
