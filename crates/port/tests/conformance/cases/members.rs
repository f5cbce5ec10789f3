//! Ports that share a receiver.

use super::api::error::{Gone, SendError};
use super::api::{MemberPort, Notice, ReceiveRight, Request, Right, SendRight};
use super::sides::{Case, PATIENCE, call, echo_until, expect, next, own, right_of, sender};

/// The next message, which says this and has come to this port.
fn expect_at(port: &ReceiveRight, member: &MemberPort, bytes: &[u8]) -> Request {
    let request = expect(port, bytes);
    assert_eq!(request.member(), Some(member.key()));
    request
}

/// The rights to two ports that the server gives.
fn two_of(right: &SendRight) -> [SendRight; 2] {
    let mut given = right.call_timeout(b"give", PATIENCE).unwrap();
    let rights = given.take_rights().into_iter().map(sender);
    rights.collect::<Vec<_>>().try_into().unwrap()
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "ports that share a receiver are told apart, and each ends alone",
        serve: |_, port| {
            let [one, other] = [(); 2].map(|()| port.member().unwrap());
            let rights = [Right::from(one.mint(5)), Right::from(other.mint(5))];
            expect(&port, b"give").reply_with(b"", rights).unwrap();
            for member in [&one, &other] {
                let request = expect_at(&port, member, b"hello");
                assert_eq!(request.badge(), 5);
                request.reply(b"welcome").unwrap();
            }
            let request = expect(&port, b"end one");
            assert_eq!(request.member(), None);
            drop(one);
            request.reply(b"").unwrap();
            expect_at(&port, &other, b"other").reply(b"").unwrap();
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let [one, other] = two_of(&right);
            call(&one, b"hello", b"welcome");
            call(&other, b"hello", b"welcome");
            call(&right, b"end one", b"");
            let gone = SendError::Gone(Gone::Right);
            assert_eq!(one.call_timeout(b"late", PATIENCE).unwrap_err(), gone);
            call(&other, b"other", b"");
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "the last right to a port that shares a receiver is told of there",
        serve: |_, port| {
            let [one, other] = [(); 2].map(|()| port.member().unwrap());
            one.notify_no_senders();
            other.notify_no_senders();
            let rights = [Right::from(one.mint(0)), Right::from(other.mint(0))];
            expect(&port, b"give").reply_with(b"", rights).unwrap();
            let mut asked = None;
            let told = loop {
                let request = port.receive_timeout(PATIENCE).unwrap();
                match request.notice() {
                    Some(notice) => break (notice, request.member()),
                    None => asked = Some(request),
                }
            };
            assert_eq!(told, (Notice::NoSenders, Some(one.key())));
            let asked = asked.unwrap_or_else(|| next(&port));
            asked.reply(b"one").unwrap();
            expect_at(&port, &other, b"other").reply(b"").unwrap();
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let [one, other] = two_of(&right);
            drop(one);
            call(&right, b"which", b"one");
            call(&other, b"other", b"");
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a port that shares a receiver moves to another, and what its senders send follows",
        serve: |_, port| {
            let mut request = expect(&port, b"desk");
            let desk = sender(right_of(&mut request));
            let member = port.member().unwrap();
            let given = own(&member.mint(5));
            request.reply_with(b"", given).unwrap();
            expect_at(&port, &member, b"before").reply(b"").unwrap();
            desk.with([member.into()]).send(b"take").unwrap();
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let desk = node.anonymous().unwrap();
            MemberPort::accept_at(&desk);
            let asked = right.with(own(&desk.mint(0))).try_call(b"desk").unwrap();
            let mut given = asked.wait_timeout(PATIENCE).unwrap();
            let given = given.take_rights().remove(0);
            // Within its process it stays at its receiver.
            let stays = matches!(given, Right::Own(_));
            let to = sender(given);
            call(&to, b"before", b"");
            let mut request = expect(&desk, b"take");
            let Right::Member(member) = right_of(&mut request) else {
                panic!("another right");
            };
            let sent = to.try_call(b"after").unwrap();
            if !stays {
                let request = expect_at(&desk, &member, b"after");
                assert_eq!(request.badge(), 5);
                request.reply(b"after").unwrap();
            }
            assert_eq!(&*sent.wait_timeout(PATIENCE).unwrap(), b"after");

            call(&right, b"end", b"end");
        },
    },
];
