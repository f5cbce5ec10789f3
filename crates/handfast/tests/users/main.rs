//! Processes of several users: what goes on between them, what they cannot do to one another, and set-user-id programs.

#[path = "../common/mod.rs"]
mod common;
#[path = "../forger/mod.rs"]
mod forger;

mod between;
mod hostile;
#[cfg(feature = "domain")]
mod set_user_id;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        #[cfg(feature = "domain")]
        "homeless" => set_user_id::homeless(),
        "replier" | "forwarder" | "caller" | "server of lengths" | "client of lengths" => {
            between::play(role, arguments);
        }
        _ => hostile::play(role, arguments),
    });
}
