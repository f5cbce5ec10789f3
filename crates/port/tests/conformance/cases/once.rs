//! Send-once rights: one message, or one notice.

use super::api::{Notice, ReceiveRight, Right, SendOnceRight};
use super::sides::{Case, PATIENCE, call, echo_until, expect};

fn once(right: Option<Right>) -> SendOnceRight {
    match right {
        Some(Right::SendOnce(right)) => right,
        other => panic!("{other:?}"),
    }
}

/// The next message came through a send-once right with this badge.
fn expect_once(port: &ReceiveRight, bytes: &[u8], badge: u64) -> Vec<Right> {
    let mut request = expect(port, bytes);
    assert!(request.is_send_once());
    assert_eq!((request.badge(), request.member()), (badge, None));
    request.take_rights()
}

fn expect_notice(port: &ReceiveRight, notice: Notice) {
    let told = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(told.notice(), Some(notice));
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a send-once right brings one message, or a notice, and is no sender",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let mut rights = request.take_rights().into_iter();
            let (one, back) = (once(rights.next()), once(rights.next()));
            one.send_with(b"the one", [back.into()]).unwrap();
            drop(once(rights.next()));
            request.reply(b"").unwrap();
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            port.notify_no_senders();
            drop(port.mint(0));
            let rights = [1, 2, 3].map(|badge| port.mint_once(badge).unwrap().into());
            expect_notice(&port, Notice::NoSenders);
            let taken = right.with(rights).try_call(b"take").unwrap();
            let rights = expect_once(&port, b"the one", 1);
            expect_notice(&port, Notice::SendOnceUnused(3));
            drop(rights);
            expect_notice(&port, Notice::SendOnceUnused(2));
            taken.wait_timeout(PATIENCE).unwrap();
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "send-once rights with one badge are several, and come home",
        serve: |_, port| {
            for _ in 0..5 {
                let mut request = expect(&port, b"take");
                let rights = request.take_rights();
                assert!(
                    rights
                        .iter()
                        .all(|right| matches!(right, Right::SendOnce(_)))
                );
                request.reply_with(b"", rights).unwrap();
            }
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            for _ in 0..5 {
                let rights = [7; 4].map(|badge| port.mint_once(badge).unwrap().into());
                let mut back = right.with(rights).call_timeout(b"take", PATIENCE).unwrap();
                let rights = back.take_rights();
                assert_eq!(rights.len(), 4);
                for right in rights {
                    once(Some(right)).send(b"home").unwrap();
                }
                (0..4).for_each(|_| drop(expect_once(&port, b"home", 7)));
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "send-once rights follow a port that moves",
        serve: |node, port| {
            let moves = node.anonymous().unwrap();
            let used = moves.mint_once(9).unwrap();
            used.send(b"used").unwrap();
            expect_once(&moves, b"used", 9);
            let rights = [1, 2, 3].map(|badge| moves.mint_once(badge).unwrap().into());
            expect(&port, b"give").reply_with(b"", rights).unwrap();
            let (own, dropped) = (moves.mint_once(4).unwrap(), moves.mint_once(5).unwrap());
            let request = expect(&port, b"move");
            request.reply_with(b"", [moves.into()]).unwrap();
            expect(&port, b"send").reply(b"").unwrap();
            own.send(b"own").unwrap();
            expect(&port, b"drop").reply(b"").unwrap();
            drop(dropped);
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let mut given = right.call_timeout(b"give", PATIENCE).unwrap();
            let mut rights = given.take_rights().into_iter();
            let [before, after, dropped] = [(); 3].map(|()| once(rights.next()));
            before.send(b"before").unwrap();
            let mut moved = right.call_timeout(b"move", PATIENCE).unwrap();
            let Right::Receive(port) = moved.take_rights().remove(0) else {
                panic!("a right to receive");
            };
            expect_once(&port, b"before", 1);
            after.send(b"after").unwrap();
            expect_once(&port, b"after", 2);
            call(&right, b"send", b"");
            expect_once(&port, b"own", 4);
            drop(dropped);
            expect_notice(&port, Notice::SendOnceUnused(3));
            call(&right, b"drop", b"");
            expect_notice(&port, Notice::SendOnceUnused(5));
            call(&right, b"end", b"end");
        },
    },
];
