//! Ends: of requests, of ports, of rights; and who is told.

use super::api::Notice;
use super::api::error::{Gone, SendError};
use super::sides::{
    Case, PATIENCE, call, echo_until, expect, give, next, other_of, own, right_of, sender,
};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a request that is dropped ends its call alone",
        serve: |_, port| {
            drop(expect(&port, b"drop"));
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let ended = right.call_timeout(b"drop", PATIENCE).unwrap_err();
            assert_eq!(ended, SendError::Gone(Gone::Reply));
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a call that is dropped takes nothing from the next",
        serve: |_, port| {
            for _ in 0..10 {
                let _ = expect(&port, b"dropped").reply(b"nobody's");
            }
            echo_until(&port, b"end");
        },
        call: |_, right| {
            for _ in 0..10 {
                drop(right.try_call(b"dropped").unwrap());
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a port that ends answers what it has received, and ends the rest",
        serve: |node, port| {
            let apart = node.anonymous().unwrap();
            give(&port, &apart, 0);
            let held = expect(&port, b"held");
            drop(port);
            held.reply(b"answered").unwrap();
            echo_until(&apart, b"end");
        },
        call: |_, right| {
            let apart = other_of(&right);
            let held = right.try_call(b"held").unwrap();
            assert_eq!(&*held.wait_timeout(PATIENCE).unwrap(), b"answered");
            let gone = SendError::Gone(Gone::Port);
            assert_eq!(right.call_timeout(b"late", PATIENCE).unwrap_err(), gone);
            assert_eq!(right.try_send(b"late").unwrap_err(), gone);
            call(&apart, b"end", b"end");
        },
    },
    Case {
        name: "the end of a port is told to those that ask",
        serve: |node, port| {
            let ends = node.anonymous().unwrap();
            give(&port, &ends, 0);
            let request = expect(&port, b"end it");
            drop(ends);
            request.reply(b"").unwrap();
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let to = other_of(&right);
            to.notify_death(&port, 42);
            call(&right, b"end it", b"");
            let told = port.receive_timeout(PATIENCE).unwrap();
            assert_eq!(told.notice(), Some(Notice::Dead(42)));
            assert_eq!(
                to.call_timeout(b"", PATIENCE).unwrap_err(),
                SendError::Gone(Gone::Port)
            );
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "the last right to a port that ends is told of, after what was sent by it",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let mut rights = request.take_rights().into_iter().map(sender);
            let (one, other) = (rights.next().unwrap(), rights.next().unwrap());
            one.send_timeout(b"the last", PATIENCE).unwrap();
            drop(one);
            request.reply(b"").unwrap();
            expect(&port, b"the other").reply(b"").unwrap();
            drop((other, rights));
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            port.notify_no_senders();
            port.notify_no_senders_of(1);
            let rights = [port.mint(1).into(), port.mint(2).into()];
            right.with(rights).call_timeout(b"take", PATIENCE).unwrap();
            expect(&port, b"the last");
            let told = port.receive_timeout(PATIENCE).unwrap();
            assert_eq!(told.notice(), Some(Notice::NoSendersOf(1)));
            call(&right, b"the other", b"");
            let told = port.receive_timeout(PATIENCE).unwrap();
            assert_eq!(told.notice(), Some(Notice::NoSenders));
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "rights of a message that nobody takes end with it",
        serve: |_, port| {
            drop(next(&port));
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            port.notify_no_senders();
            let given = own(&port.mint(0));
            let sent = right.with(given).send_timeout(b"dropped", PATIENCE);
            sent.unwrap();
            let told = port.receive_timeout(PATIENCE).unwrap();
            assert_eq!(told.notice(), Some(Notice::NoSenders));
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a right fails once its port has ended",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let right = sender(right_of(&mut request));
            request.reply(b"").unwrap();
            let request = expect(&port, b"it has ended");
            let failed = right.call_timeout(b"", PATIENCE).unwrap_err();
            assert_eq!(failed, SendError::Gone(Gone::Port));
            request.reply(b"").unwrap();
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let given = own(&port.mint(0));
            right.with(given).call_timeout(b"take", PATIENCE).unwrap();
            drop(port);
            call(&right, b"it has ended", b"");
        },
    },
];
