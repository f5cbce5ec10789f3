//! Rights: given, minted, attenuated, revoked, introduced, under way.

#[path = "../common/mod.rs"]
mod common;
#[path = "../forger/mod.rs"]
mod forger;
#[path = "../trio/mod.rs"]
mod trio;

mod again;
mod attenuation;
mod badges;
mod crossing;
mod doors;
mod given;
mod introductions;
mod members;
mod overload;
mod own;
mod polled;
mod revocation;
mod revoked_under_way;
mod send_once;
mod under_way;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "directory" => given::directory(arguments[0]),
        "keeper" => common::keeper(arguments[0]),
        "keeper of send-once rights" => send_once::keeper(arguments[0]),
        "holder" => badges::holder(arguments[0]),
        "server" => attenuation::server(arguments[0]),
        "user" => attenuation::user(arguments[0]),
        "home" => attenuation::home(arguments[0]),
        "honest" => forger::honest(arguments[0], None),
        "holder of revoked rights" => revocation::holder(arguments[0]),
        "twin" => crossing::twin(arguments[0], arguments[1]),
        "crosser" => common::crosser(arguments[0], arguments[1]),
        "many" => crossing::many(arguments[0]),
        "caller back" => crossing::caller_back(arguments[0]),
        "sender" => crossing::sender(arguments[0], arguments[1].parse().unwrap()),
        "persistent caller" => {
            crossing::persistent_caller(arguments[0], arguments[1].parse().unwrap())
        }
        "server of rights under way" => under_way::server(arguments[0]),
        "stale" => under_way::stale(arguments[0]),
        "stale server" => under_way::stale_server(arguments[0]),
        "mortal" => under_way::mortal(arguments[0]),
        "polling exporter" => polled::exporter(arguments[0]),
        "introducer to all" => polled::introducer(arguments[0], arguments[1]),
        "server of objects" => members::server(arguments[0]),
        "holder of objects" => members::holder(arguments[0]),
        "sender to objects" => members::sender(arguments[0]),
        "user of objects" => members::user(arguments[0]),
        "fickle" => introductions::fickle(arguments[0], arguments[1]),
        "exporter of the same right" => again::exporter(arguments[0]),
        "recipient of the same right" => again::recipient(arguments[0], arguments[1]),
        "introducer of the same right" => again::introducer(arguments[0], arguments[1]),
        "caller until it is dead" => own::caller(arguments[0]),
        "comes and goes" => own::comes_and_goes(),
        "forker" => own::forker(),
        _ => trio::play(role, arguments),
    });
}
