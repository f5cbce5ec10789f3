//! Lanes: given, wanted, waited for, left, under load and kills.

#[path = "../common/mod.rs"]
mod common;

mod chaos;
mod crowd;
mod given;
mod late;
mod mixed;
mod overtaking;
mod under_kills;
mod wanted;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "busy" => given::busy(arguments[0]),
        "slow" => given::slow(arguments[0]),
        "giver" => given::giver(arguments[0], arguments[1]),
        "idle" => given::idle(arguments[0]),
        "end" => chaos::ports(arguments[0], None),
        "middle" => chaos::ports(arguments[0], Some(arguments[1])),
        "ordering" => late::ordering(arguments[0]),
        "gathering per cpu" => late::gathering_per_cpu(arguments[0]),
        "gathering" => late::gathering(arguments[0]),
        "set" => crowd::set(arguments[0]),
        "home" => crowd::home(arguments[0], arguments[1]),
        "caller" => under_kills::caller(arguments),
        "ports" => wanted::ports(arguments[0], arguments[1].parse().unwrap()),
        "caller of many" => wanted::caller(arguments[0]),
        "old home" => overtaking::old_home(arguments[0], arguments[1]),
        "new home" => overtaking::new_home(arguments[0]),
        "recipient" => overtaking::recipient(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}
