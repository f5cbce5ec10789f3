//! Calls and messages: bytes, order, room, deadlines.

use super::api::error::{Gone, ReceiveError, ReplyError, SendError};
use super::api::{Batch, Event, LONG_BYTES_MAX, MESSAGE_BYTES_MAX, Node, Options, ReceiveRight};
use super::sides::{
    Case, PATIENCE, call, echo_until, expect, give, next, other_of, own, right_of, sender,
};
use core::time::Duration;
use std::io::IoSlice;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "bytes of any length come back",
        serve: |_, port| echo_until(&port, b"end"),
        call: |_, right| {
            let long = MESSAGE_BYTES_MAX + 1;
            for len in [
                0,
                1,
                40,
                41,
                4096,
                MESSAGE_BYTES_MAX,
                long,
                1 << 20,
                1,
                long,
            ] {
                let bytes: Vec<_> = (0..len).map(|place| (place % 251) as u8).collect();
                call(&right, &bytes, &bytes);
                // A thread uses buffers again.
                call(&right, b"abc", b"abc");
                let mut reply = vec![0; len];
                assert_eq!(right.call_into(&bytes, &mut reply), Ok(len));
                assert_eq!(reply, bytes);
                right.send_timeout(&bytes, PATIENCE).unwrap();
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "too long is an error that names the length, and harms nothing else",
        serve: |_, port| {
            let len_bytes = LONG_BYTES_MAX + 1;
            let refused = next(&port).reply(&vec![0; len_bytes]);
            assert_eq!(refused, Err(ReplyError::TooLong { len_bytes }));
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let len_bytes = LONG_BYTES_MAX + 1;
            let long = vec![0; len_bytes];
            let too_long = SendError::TooLong { len_bytes };
            assert_eq!(right.call(&long).unwrap_err(), too_long);
            assert_eq!(right.send(&long).unwrap_err(), too_long);
            let ended = right.call_timeout(b"x", PATIENCE).unwrap_err();
            assert_eq!(ended, SendError::Gone(Gone::Reply));
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "messages arrive once, in order, before a later call",
        serve: |_, port| {
            for number in 0..300_u32 {
                let request = expect(&port, number.to_string().as_bytes());
                assert!(!request.is_call());
                assert_eq!(request.reply(b""), Err(ReplyError::NotACall));
            }
            expect(&port, b"end").reply(b"end").unwrap();
        },
        call: |_, right| {
            for number in 0..300_u32 {
                let bytes = number.to_string();
                right.send_timeout(bytes.as_bytes(), PATIENCE).unwrap();
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a queue without room says so, and loses nothing",
        serve: |node, port| {
            let apart = node.anonymous().unwrap();
            give(&port, &apart, 0);
            expect(&apart, b"go").reply(b"").unwrap();
            let sent: u32 = (0..)
                .map_while(|number: u32| {
                    let request = next(&port);
                    match request.is_call() {
                        true => {
                            request.reply(number.to_string().as_bytes()).unwrap();
                            None
                        }
                        false => Some(1),
                    }
                })
                .sum();
            assert!(sent > 0);
        },
        call: |_, right| {
            let apart = other_of(&right);
            let mut sent = 0;
            let full = loop {
                match right.try_send(b"one more") {
                    Ok(()) => sent += 1,
                    Err(error) => break error,
                }
            };
            assert_eq!(full, SendError::Full);
            call(&apart, b"go", b"");
            let count = sent.to_string();
            call(&right, b"how many?", count.as_bytes());
        },
    },
    Case {
        name: "long messages come whole and in order, and a sender without room is told so",
        serve: |node, port| {
            let apart = node.anonymous().unwrap();
            give(&port, &apart, 0);
            expect(&apart, b"go").reply(b"").unwrap();
            let mut number = 0;
            let mut request = loop {
                let request = next(&port);
                if request.is_call() {
                    break request;
                }
                assert_eq!(request.bytes().len(), 200_000 + usize::from(number));
                assert!(request.bytes().iter().all(|byte| *byte == number));
                number += 1;
            };
            // Replies, too.
            for _ in 0..20 {
                let reply = vec![number; 300_000];
                request = (port.reply_and_receive_timeout(request, &reply, PATIENCE)).unwrap();
            }
            request.reply(b"end").unwrap();
        },
        call: |_, right| {
            let apart = other_of(&right);
            let message = |number: u8| vec![number; 200_000 + usize::from(number)];
            let mut sent = 0;
            while right.try_send(&message(sent)).is_ok() {
                sent += 1;
            }
            assert!(sent > 0);
            call(&apart, b"go", b"");
            for _ in 0..20 {
                right.send_timeout(&message(sent), PATIENCE).unwrap();
                sent += 1;
            }
            for _ in 0..20 {
                call(&right, b"more", &vec![sent; 300_000]);
            }
            call(&right, b"", b"end");
        },
    },
    Case {
        name: "batches are as many messages",
        serve: |_, port| {
            let (mut batch, mut sent) = (Batch::new(), 0);
            let end = loop {
                let other = port.receive_many_timeout(&mut batch, PATIENCE).unwrap();
                for message in batch.messages() {
                    assert_eq!(message.bytes(), [sent as u8; 100]);
                    sent += 1;
                }
                if let Some(request) = other {
                    break request;
                }
            };
            assert_eq!((sent, end.bytes()), (200, &b"end"[..]));
            end.reply(b"end").unwrap();
        },
        call: |_, right| {
            let messages: Vec<_> = (0..200_u8).map(|number| [number; 100]).collect();
            right.send_many_timeout(&messages, PATIENCE).unwrap();
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "replying and receiving is one operation",
        serve: |_, port| {
            let mut request = next(&port);
            for number in 0..100_u32 {
                assert_eq!(request.bytes(), number.to_le_bytes());
                let reply = (number + 1).to_le_bytes();
                request = (port.reply_and_receive_timeout(request, &reply, PATIENCE)).unwrap();
            }
            request.reply(b"end").unwrap();
        },
        call: |_, right| {
            for number in 0..100_u32 {
                call(&right, &number.to_le_bytes(), &(number + 1).to_le_bytes());
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "bytes in several pieces are one message",
        serve: |_, port| {
            loop {
                let mut request = next(&port);
                if request.bytes() == b"end" {
                    return request.reply(b"end").unwrap();
                }
                let bytes = request.take_message();
                let (first, last) = bytes.split_at(bytes.len() / 3);
                let pieces = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(last)];
                request.reply_vectored(&pieces).unwrap();
            }
        },
        call: |node, right| {
            let port = node.anonymous().unwrap();
            for len_bytes in [0, 1, 40, 41, 4096, 65_536, 65_537, 200_000] {
                let bytes: Vec<u8> = (0..len_bytes).map(|at: u32| at as u8).collect();
                let pieces: Vec<_> = bytes.chunks(1000).map(IoSlice::new).collect();
                assert_eq!(*right.call_vectored(&pieces).unwrap(), *bytes);
                let to = port.mint(1).connect().unwrap();
                to.send_vectored(&pieces).unwrap();
                expect(&port, &bytes);
                let with = to.with([port.mint(2).into()]);
                with.send_vectored(&pieces).unwrap();
                assert_eq!(expect(&port, &bytes).take_rights().len(), 1);
            }
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a reply carries rights, or a call is passed on, and the next is received",
        serve: |node, port| {
            let apart = node.anonymous().unwrap();
            let to = apart.mint(1).connect().unwrap();
            let mut request = next(&port);
            for number in 0..20_u8 {
                let right = apart.mint(number.into()).into();
                request = (port.reply_with_and_receive(request, &[number], [right])).unwrap();
                request = (port.forward_and_receive(request, &to, b"on", [])).unwrap();
                expect(&apart, b"on").reply(b"answered").unwrap();
            }
            // The same in a wait set.
            let mut set = node.wait_set(Options::new()).unwrap();
            set.add(port);
            for number in 20..40_u8 {
                let right = apart.mint(number.into()).into();
                let event = set.reply_with_and_receive(request, &[number], [right]);
                let Ok(Event::Message(_, on)) = event else {
                    panic!("{event:?}");
                };
                on.forward(&to, b"on").unwrap();
                let event = set.receive();
                let Ok(Event::Message(_, give)) = event else {
                    panic!("{event:?}");
                };
                request = give;
                expect(&apart, b"on").reply(b"answered").unwrap();
            }
            request.reply(b"end").unwrap();
        },
        call: |_, right| {
            let mut give = right.try_call(b"give").unwrap();
            for number in 0..40_u8 {
                let on = right.try_call(b"go on").unwrap();
                let mut reply = give.wait_timeout(PATIENCE).unwrap();
                assert_eq!(*reply, [number]);
                assert_eq!(reply.take_rights().len(), 1);
                // Comes while the one before it waits for its answer.
                give = right.try_call(b"give").unwrap();
                assert_eq!(&*on.wait_timeout(PATIENCE).unwrap(), b"answered");
            }
            assert_eq!(&*give.wait_timeout(PATIENCE).unwrap(), b"end");
        },
    },
    Case {
        name: "calls that are under way at once are answered each by its own",
        serve: |_, port| {
            let requests: Vec<_> = (0..8).map(|_| next(&port)).collect();
            for request in requests.into_iter().rev() {
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
        },
        call: |_, right| {
            let begin = |number: u8| right.try_call(&[number]).unwrap();
            let calls: Vec<_> = (0..8).map(begin).collect();
            for (call, number) in calls.into_iter().zip(0..) {
                assert_eq!(&*call.wait_timeout(PATIENCE).unwrap(), [number]);
            }
        },
    },
    Case {
        name: "a deadline ends one call, whose server hears of that",
        serve: |_, port| {
            let late = expect(&port, b"late");
            assert!(late.time_left().is_some());
            let request = expect(&port, b"next");
            assert!(late.is_cancelled());
            assert!(!request.is_cancelled());
            // Nobody waits for it.
            let _ = late.reply(b"too late");
            request.reply(b"in time").unwrap();
            echo_until(&port, b"end");
        },
        call: |_, right| {
            let late = right.call_timeout(b"late", Duration::from_millis(20));
            assert_eq!(late.unwrap_err(), SendError::TimedOut);
            call(&right, b"next", b"in time");
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "a port without messages times out",
        serve: |_, port| {
            let begun = expect(&port, b"begin");
            let short = Duration::from_millis(5);
            assert!(matches!(port.try_receive(), Err(ReceiveError::Empty)));
            assert!(matches!(
                port.receive_timeout(short),
                Err(ReceiveError::TimedOut)
            ));
            begun.reply(b"begun").unwrap();
            echo_until(&port, b"end");
        },
        call: |_, right| {
            call(&right, b"begin", b"begun");
            call(&right, b"end", b"end");
        },
    },
    Case {
        name: "one sleep for several ports",
        serve: serve_set,
        call: |_, right| {
            let other = other_of(&right);
            for _ in 0..10 {
                call(&right, b"x", b"first");
                call(&other, b"x", b"second");
            }
            call(&other, b"end", b"second");
        },
    },
    Case {
        name: "a call on behalf of another ends with that",
        serve: |_, port| {
            let mut request = expect(&port, b"begin");
            let back = sender(right_of(&mut request));
            let ended = request.call_through(&back, b"nested").unwrap_err();
            assert_eq!(ended, SendError::Cancelled);
            drop(request);
            echo_until(&port, b"end");
        },
        call: |node, right| {
            let back = node.anonymous().unwrap();
            let begun = right.with(own(&back.mint(0))).try_call(b"begin").unwrap();
            let nested = expect(&back, b"nested");
            drop(begun);
            call(&right, b"end", b"end");
            assert!(nested.is_cancelled());
        },
    },
];

fn serve_set(node: &Node, port: ReceiveRight) {
    let other = node.anonymous().unwrap();
    give(&port, &other, 0);
    let mut set = node.wait_set(Options::new()).unwrap();
    let (first, second) = (set.add(port), set.add(other));
    loop {
        let Event::Message(token, request) = set.receive_timeout(PATIENCE).unwrap() else {
            panic!("no descriptor is there");
        };
        let is_end = request.bytes() == b"end";
        assert!(token == first || token == second);
        let name = if token == first { "first" } else { "second" };
        request.reply(name.as_bytes()).unwrap();
        if is_end {
            return;
        }
    }
}
