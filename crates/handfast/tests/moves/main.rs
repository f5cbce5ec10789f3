//! Ports that move: from process to process, briefly, round and home, unread and under kills.

#[path = "../common/mod.rs"]
mod common;

mod briefly;
mod fast;
mod followed;
mod home;
mod homes;
mod late;
mod members;
mod once;
mod passed_round;
mod revoked;
mod ring;
mod round_once;
mod to_and_fro;
mod under_kills;
mod unread;
mod waiting_task;
mod within;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "home" => homes::home(arguments[0]),
        "home of members" => members::home(arguments[0]),
        "friend" => homes::friend(arguments[0]),
        "keeper of ports" => waiting_task::keeper_of_ports(arguments[0], arguments[1]),
        "heir" => unread::heir(arguments[0]),
        "heir that revokes" => revoked::heir_that_revokes(arguments[0], arguments[1]),
        "middle" => home::middle(arguments),
        "holder" => home::holder(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}
