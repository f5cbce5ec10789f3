//! The attachments of messages: descriptors, memory and loans.

#[path = "../common/mod.rs"]
mod common;

mod descriptors;
mod loans;
mod memory;
mod passed_round;
mod under_way;

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "server of descriptors" => descriptors::server(arguments[0]),
        "sender" => descriptors::sender(arguments[0]),
        "middle" => common::middle(arguments[0], arguments[1]),
        "server of descriptors under way" => under_way::server(arguments[0]),
        "mortal" => under_way::mortal(arguments[0]),
        "client" => under_way::client(arguments[0], arguments[1].parse().unwrap()),
        "server of memory" => memory::server(arguments[0]),
        "layer" => passed_round::layer(arguments[0], arguments[1]),
        "last" => passed_round::last(arguments[0]),
        "echo" => loans::echo(arguments[0]),
        "holder" => loans::holder(arguments[0]),
        "recipient" => loans::recipient(arguments[0]),
        "lender" => loans::lender(arguments[0], arguments[1]),
        _ => unreachable!(),
    });
}
