//! Rights in messages: to send, to receive, to answer; memory.

use super::api::error::{Gone, SendError};
use super::api::{Identity, Memory, Right, SharedArena};
use super::sides::{
    Case, PATIENCE, call, echo_until, expect, give, next, other_of, own, right_of, sender,
};

/// The bytes of one turn; of each third, more than a lane holds.
fn turn(number: u8) -> Vec<u8> {
    let is_long = number.is_multiple_of(3);
    vec![number; if is_long { 200_000 } else { 1 }]
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a right to send arrives with its badge and permissions, and comes home as it was",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let right = sender(right_of(&mut request));
            call(&right, b"hello", b"welcome");
            request.reply_with(b"back", [right.into()]).unwrap();
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let minted = port.mint_with(7, 0b101);
            let taken = right.with(own(&minted)).try_call(b"take").unwrap();
            let request = expect(&port, b"hello");
            assert_eq!((request.badge(), request.permissions()), (7, 0b101));
            request.reply(b"welcome").unwrap();
            let mut back = taken.wait_timeout(PATIENCE).unwrap();
            let home = sender(back.take_rights().remove(0));
            let call = home.try_call(b"home").unwrap();
            let request = expect(&port, b"home");
            assert_eq!((request.badge(), request.permissions()), (7, 0b101));
            request.reply(b"").unwrap();
            call.wait_timeout(PATIENCE).unwrap();
        },
    },
    Case {
        name: "a holder can take permissions away and add none",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let right = sender(right_of(&mut request));
            let less = right.attenuate(0b011).unwrap();
            call(&less, b"less", b"");
            call(&less.attenuate(0b111).unwrap(), b"no more", b"");
            request.reply(b"").unwrap();
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let minted = own(&port.mint_with(1, 0b110));
            let taken = right.with(minted).try_call(b"take").unwrap();
            for bytes in [&b"less"[..], b"no more"] {
                let request = expect(&port, bytes);
                assert_eq!(request.permissions(), 0b010);
                request.reply(b"").unwrap();
            }
            taken.wait_timeout(PATIENCE).unwrap();
        },
    },
    Case {
        name: "rights to one port with one badge are one",
        serve: |node, port| {
            let other = node.anonymous().unwrap();
            let rights = [1, 1, 2].map(|badge| Right::from(other.mint(badge)));
            expect(&port, b"give").reply_with(b"", rights).unwrap();
            echo_until(&other, b"first");
            echo_until(&other, b"second");
            echo_until(&other, b"third");
        },
        call: |_, right| {
            let mut given = right.call_timeout(b"give", PATIENCE).unwrap();
            let rights: Vec<_> = given.take_rights().into_iter().map(sender).collect();
            for (right, bytes) in rights.iter().zip([&b"first"[..], b"second", b"third"]) {
                call(right, bytes, bytes);
            }
            assert_eq!(rights[0].identity(&rights[1]), Identity::Same);
            assert_eq!(rights[0].identity(&rights[2]), Identity::Different);
        },
    },
    Case {
        name: "a revoked right is of no use, and others are",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let mut rights = request.take_rights().into_iter().map(sender);
            let (one, other) = (rights.next().unwrap(), rights.next().unwrap());
            call(&one, b"good", b"good");
            request.reply(b"").unwrap();
            let request = expect(&port, b"revoked");
            let failed = one.call_timeout(b"of no use", PATIENCE).unwrap_err();
            assert_eq!(failed, SendError::Gone(Gone::Right));
            call(&other, b"end", b"end");
            request.reply(b"").unwrap();
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let rights = [1, 2].map(|badge| Right::from(port.mint(badge)));
            let taken = right.with(rights).try_call(b"take").unwrap();
            echo_until(&port, b"good");
            taken.wait_timeout(PATIENCE).unwrap();
            port.revoke(1);
            let told = right.try_call(b"revoked").unwrap();
            echo_until(&port, b"end");
            told.wait_timeout(PATIENCE).unwrap();
        },
    },
    Case {
        name: "a call is passed on, and answered by whom it came to",
        serve: |_, port| {
            let mut request = expect(&port, b"first");
            let to = sender(right_of(&mut request));
            request.forward(&to, b"second").unwrap();
            // Once there is a path, and before.
            for _ in 0..20 {
                expect(&port, b"again").forward(&to, b"second").unwrap();
            }
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let first = right.with(own(&port.mint(0))).try_call(b"first").unwrap();
            expect(&port, b"second").reply(b"answered").unwrap();
            assert_eq!(&*first.wait_timeout(PATIENCE).unwrap(), b"answered");
            for number in 0..20_u8 {
                let again = right.try_call(b"again").unwrap();
                expect(&port, b"second").reply(&[number]).unwrap();
                assert_eq!(&*again.wait_timeout(PATIENCE).unwrap(), [number]);
            }
        },
    },
    Case {
        name: "a long message goes with rights, and is passed on",
        serve: |_, port| {
            let mut request = next(&port);
            assert_eq!(request.bytes(), vec![1; 100_000]);
            let to = sender(right_of(&mut request));
            for number in 1..10_u8 {
                request.forward(&to, &vec![number; 150_000]).unwrap();
                request = next(&port);
            }
            request.reply(b"end").unwrap();
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let given = right.with(own(&port.mint(0)));
            let mut passed = given.try_call(&vec![1; 100_000]).unwrap();
            for number in 1..10_u8 {
                let request = next(&port);
                assert_eq!(request.bytes(), vec![number; 150_000]);
                let rights = own(&port.mint(number.into()));
                request.reply_with(&vec![number; 80_000], rights).unwrap();
                let mut reply = passed.wait_timeout(PATIENCE).unwrap();
                assert_eq!(reply.bytes(), vec![number; 80_000]);
                assert_eq!(reply.take_rights().len(), 1);
                passed = right.try_call(b"again").unwrap();
            }
            assert_eq!(&*passed.wait_timeout(PATIENCE).unwrap(), b"end");
        },
    },
    Case {
        name: "a right to answer travels, and is used once",
        serve: |_, port| {
            let mut request = expect(&port, b"ask");
            let to = sender(right_of(&mut request));
            let (_, reply) = request.split();
            let reply = Right::from(reply.unwrap());
            to.with([reply]).send_timeout(b"answer", PATIENCE).unwrap();
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            let asked = right.with(own(&port.mint(0))).try_call(b"ask").unwrap();
            let mut request = expect(&port, b"answer");
            match right_of(&mut request) {
                Right::Reply(reply) => reply.reply(b"myself").unwrap(),
                other => panic!("{other:?}"),
            }
            assert_eq!(&*asked.wait_timeout(PATIENCE).unwrap(), b"myself");
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "two sides answer each other in turn",
        serve: |_, port| {
            let (_, reply) = next(&port).split();
            let mut reply = reply.unwrap();
            for number in 0..10_u8 {
                let mut answer = reply.call_timeout(&turn(number), PATIENCE).unwrap();
                assert_eq!(answer.bytes(), turn(number + 100));
                reply = answer.take_reply_right().unwrap();
            }
            reply.reply(b"end").unwrap();
        },
        call: |_, right| {
            let mut answer = right.call_timeout(b"begin", PATIENCE).unwrap();
            for number in 0..10_u8 {
                assert_eq!(answer.bytes(), turn(number));
                let reply = answer.take_reply_right().unwrap();
                answer = reply.call_timeout(&turn(number + 100), PATIENCE).unwrap();
            }
            assert_eq!(answer.bytes(), b"end");
        },
    },
    Case {
        name: "a port moves with what waits there, and its senders follow",
        serve: |node, port| {
            let moves = node.anonymous().unwrap();
            give(&port, &moves, 3);
            let request = expect(&port, b"move");
            request.reply_with(b"", [moves.into()]).unwrap();
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let to = other_of(&right);
            let send = |number: u8| to.send_timeout(&[number], PATIENCE).unwrap();
            (0..5).for_each(send);
            let mut moved = right.call_timeout(b"move", PATIENCE).unwrap();
            let Right::Receive(port) = moved.take_rights().remove(0) else {
                panic!("a right to receive");
            };
            (5..10).for_each(send);
            for number in 0..10 {
                let request = expect(&port, &[number]);
                assert_eq!(request.badge(), 3);
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "sealed memory arrives as it was",
        serve: |_, port| {
            let mut request = expect(&port, b"take");
            let Right::Memory(memory) = right_of(&mut request) else {
                panic!("memory");
            };
            assert_eq!(memory.len(), 100_000);
            assert!(
                memory
                    .iter()
                    .zip(0_u64..)
                    .all(|(byte, at)| *byte == (at % 251) as u8)
            );
            request.reply_with(b"", [memory.into()]).unwrap();
        },
        call: |_, right| {
            let bytes: Vec<_> = (0..100_000_u64).map(|at| (at % 251) as u8).collect();
            let memory = Memory::from_bytes(&bytes).unwrap();
            let mut back = right.with([memory.into()]).call(b"take").unwrap();
            let Right::Memory(memory) = back.take_rights().remove(0) else {
                panic!("memory");
            };
            assert_eq!(*memory, bytes);
        },
    },
    Case {
        name: "memory goes with a long message, and comes back with a long reply",
        serve: |_, port| {
            for number in 0..20_u8 {
                let mut request = next(&port);
                assert_eq!(request.bytes(), vec![number; 70_000]);
                let mut rights = request.take_rights();
                assert_eq!(rights.len(), 2);
                let Right::Memory(memory) = rights.remove(1) else {
                    panic!("memory");
                };
                assert_eq!(*memory, [number; 10]);
                let reply = vec![number; 90_000];
                request.reply_with(&reply, [memory.into()]).unwrap();
            }
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            for number in 0..20_u8 {
                let bytes = vec![number; 70_000];
                let five = || (0..5).map(|badge| Right::from(port.mint(badge)));
                let refused = right.with(five()).try_send(&bytes).unwrap_err();
                assert_eq!(refused.rights.len(), 5);
                let memory = Memory::from_bytes(&[number; 10]).unwrap();
                let rights = [port.mint(0).into(), memory.into()];
                let mut reply = right.with(rights).call(&bytes).unwrap();
                assert_eq!(reply.bytes(), vec![number; 90_000]);
                let Right::Memory(memory) = reply.take_rights().remove(0) else {
                    panic!("memory");
                };
                assert_eq!(*memory, [number; 10]);
            }
        },
    },
    Case {
        name: "a block of an arena is lent, and comes back",
        serve: |_, port| {
            for number in 0..10_u8 {
                let mut request = expect(&port, b"look");
                let loan = request.take_loan().unwrap();
                assert_eq!(loan.to_vec().unwrap(), [number; 500]);
                drop(loan);
                request.reply(b"seen").unwrap();
            }
        },
        call: |_, right| {
            let arena = SharedArena::create(4096, 2).unwrap();
            for number in 0..10_u8 {
                let mut block = arena.try_take(500).unwrap();
                block.fill(number);
                let reply = right.with([block.into()]).call(b"look").unwrap();
                assert_eq!(reply.bytes(), b"seen");
            }
        },
    },
];
