//! Operations that are done over and over.

use super::peer::send_right;
use super::{Stage, ask, door, got};
use crate::common::{self, PATIENCE};
use handfast::error::{Gone, SendError};
use handfast::{Memory, Notice, Right, TryWait};
use std::io::Write;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// An operation that is done over and over.
pub(crate) type Scene = fn(&Stage, u64);

pub(crate) const SCENES: [(&str, Scene); 33] = [
    ("mint, call and drop", |stage, number| {
        let rights = [number % 3, 7].map(|badge| stage.port.mint(badge).into());
        ask(&stage.first, "keep", rights);
        ask(&stage.first, "drop", []);
    }),
    ("mint and send", |stage, number| {
        let right = stage.port.mint(number).into();
        stage.first.with([right]).send(b"away").unwrap();
        if number % 50 == 0 {
            ask(&stage.first, "drop", []);
        }
    }),
    ("a right there and back", |stage, number| {
        let back = got(ask(&stage.first, "echo", [stage.port.mint(number).into()]));
        assert!(matches!(back, Right::Own(own) if own.badge() == number));
    }),
    ("a peer's right home", |stage, _| {
        let back = got(ask(&stage.first, "echo", [door(&stage.first).into()]));
        assert!(matches!(back, Right::Send(_)), "{back:?}");
    }),
    ("a reply right that another answers", |stage, _| {
        let own = stage.port.mint(3).connect().unwrap();
        let call = own.try_call(b"outer").unwrap();
        let (_, reply) = stage.port.receive_timeout(PATIENCE).unwrap().split();
        ask(&stage.first, "answer", [reply.unwrap().into()]);
        assert_eq!(&*call.wait_timeout(PATIENCE).unwrap(), b"by another");
        stage.nothing_comes();
    }),
    ("a reply right that is dropped elsewhere", |stage, _| {
        let own = stage.port.mint(3).connect().unwrap();
        let call = own.try_call(b"outer").unwrap();
        let (_, reply) = stage.port.receive_timeout(PATIENCE).unwrap().split();
        stage
            .first
            .with([reply.unwrap().into()])
            .send(b"away")
            .unwrap();
        let end = call.wait_timeout(PATIENCE).unwrap_err();
        assert_eq!(end, SendError::Gone(Gone::Reply));
        stage.nothing_comes();
    }),
    ("coroutines", |stage, _| {
        let mut answer = ask(&stage.first, "turns", []);
        while let Some(turn) = answer.take_reply_right() {
            answer = turn.call_timeout(b"more", PATIENCE).unwrap();
        }
        assert_eq!(&*answer, b"last");
    }),
    ("coroutines that are left", |stage, number| {
        let mut answer = ask(&stage.first, "turns", []);
        let turn = answer.take_reply_right().unwrap();
        if number % 2 == 0 {
            drop(turn);
        } else {
            drop(turn.call_timeout(b"more", Duration::ZERO));
        }
    }),
    ("calls that are passed on", |stage, _| {
        let to = door(&stage.second).into();
        assert_eq!(&*ask(&stage.first, "pass on", [to]), b"inner");
    }),
    ("introductions by call", |stage, _| {
        let end = ask(&stage.first, "call", [door(&stage.second).into()]);
        assert_eq!(&*end, b"Ok(())");
    }),
    ("introductions that nobody takes up", |stage, number| {
        let right = door(&stage.second).into();
        stage.first.with([right]).send(b"away").unwrap();
        if number % 20 == 0 {
            ask(&stage.first, "drop", []);
        }
    }),
    ("introductions that are kept", |stage, _| {
        ask(&stage.first, "keep", [door(&stage.second).into()]);
        assert_eq!(&*ask(&stage.first, "call kept", []), b"Ok(())");
        ask(&stage.first, "drop", []);
    }),
    ("notices of no senders", |stage, number| {
        let port = handfast::anonymous().unwrap();
        let right = port.mint(number);
        port.notify_no_senders_of(number);
        port.notify_no_senders();
        ask(&stage.first, "keep", [right.into()]);
        ask(&stage.first, "drop", []);
        let mut told = 0;
        while told < 2 {
            let told_now = port.receive_timeout(PATIENCE).unwrap();
            assert!(told_now.notice().is_some());
            told += 1;
            if told == 1 && port.try_receive().is_ok() {
                told += 1;
            }
        }
    }),
    ("notices of death", |stage, number| {
        let right = send_right(got(ask(&stage.first, "make", [])));
        right.notify_death(&stage.port, number);
        ask(&stage.first, "drop", []);
        let told = stage.port.receive_timeout(PATIENCE).unwrap();
        assert_eq!(told.notice(), Some(Notice::Dead(number)));
    }),
    ("memory", |stage, _| {
        let memory = Memory::from_bytes(&[1; 3000]).unwrap();
        let rights = [Right::Memory(memory)];
        assert_eq!(&*ask(&stage.first, "look", rights), b"3000");
        let Right::Memory(memory) = got(ask(&stage.first, "memory", [])) else {
            panic!("no memory");
        };
        assert_eq!(memory.bytes().len(), 5000);
    }),
    ("memory that nobody takes", |stage, number| {
        let memory = Memory::from_bytes(&[1; 3000]).unwrap();
        let sent = stage.first.with([Right::Memory(memory)]).send(b"away");
        if sent.is_err() || number % 20 == 0 {
            ask(&stage.first, "drop", []);
        }
    }),
    ("descriptors", |stage, _| {
        let (reader, writer) = common::pipe();
        std::fs::File::from(writer).write_all(b"four").unwrap();
        let rights = [Right::Descriptor(reader.into())];
        assert_eq!(&*ask(&stage.first, "look", rights), b"4");
    }),
    ("descriptors there and back", |stage, _| {
        let (reader, writer) = common::pipe();
        let rights = [Right::Descriptor(reader.into()), Right::Descriptor(writer)];
        assert_eq!(ask(&stage.first, "echo", rights).take_rights().len(), 2);
    }),
    ("loans", |stage, _| {
        let mut block = stage.other.try_take(1000).unwrap();
        block.fill(4);
        assert_eq!(&*ask(&stage.first, "look", [Right::Block(block)]), b"1000");
        let Right::Loan(loan) = got(ask(&stage.first, "lend", [])) else {
            panic!("no loan");
        };
        assert_eq!(loan.to_vec().unwrap().len(), 100);
    }),
    ("arenas", |stage, _| {
        let arena = handfast::SharedArena::create(4096, 2).unwrap();
        let block = arena.try_take(1000).unwrap();
        drop(arena);
        let sent = stage
            .first
            .with([Right::Block(block)])
            .call_timeout(b"look", PATIENCE);
        assert_eq!(&*sent.unwrap(), b"1000");
    }),
    ("a port there and back", |stage, number| {
        let port = handfast::anonymous().unwrap();
        let right = port.mint(number);
        ask(&stage.second, "keep", [right.into()]);
        let Right::Receive(port) = got(ask(&stage.first, "echo", [port.into()])) else {
            panic!("no port");
        };
        let asked = stage.second.try_call(b"call kept").unwrap();
        let request = port.receive_timeout(PATIENCE).unwrap();
        assert_eq!(request.badge(), number);
        request.reply(b"").unwrap();
        assert_eq!(&*asked.wait_timeout(PATIENCE).unwrap(), b"Ok(())");
        ask(&stage.second, "drop", []);
        // A right is given back once everything has been taken that was sent with it, also what the port still has.
        let is_over = || {
            let _ = port.try_receive();
            handfast::wait_moved_timeout(Duration::from_millis(10))
        };
        assert!(common::within_patience(is_over));
    }),
    ("a port away", |stage, number| {
        let port = handfast::anonymous().unwrap();
        ask(&stage.second, "keep", [port.mint(number).into()]);
        ask(&stage.first, "keep", [port.into()]);
        ask(&stage.first, "drop", []);
        ask(&stage.second, "drop", []);
        assert!(handfast::wait_moved_timeout(PATIENCE));
    }),
    ("revoked rights", |stage, number| {
        let port = &stage.port;
        ask(&stage.first, "keep", [port.mint(number).into()]);
        if number % 2 == 0 {
            port.revoke(number);
        } else {
            port.revoke_from(stage.first.holder(), number);
        }
        // The call may be made before its caller has heard of it.
        let mut asked = stage.first.try_call(b"call kept").unwrap();
        let end = loop {
            stage.nothing_comes();
            match asked.try_wait() {
                TryWait::Ready(end) => break end.unwrap(),
                TryWait::Pending(not_yet) => asked = not_yet,
            }
        };
        assert_eq!(&*end, b"Err(Gone(Right))");
        ask(&stage.first, "drop", []);
    }),
    ("revoked on their way", |stage, number| {
        stage
            .first
            .with([stage.port.mint(number).into()])
            .send(b"away")
            .unwrap();
        stage.port.revoke(number);
        if number % 50 == 0 {
            ask(&stage.first, "drop", []);
        }
    }),
    ("attenuated rights", |stage, number| {
        let right = door(&stage.first);
        let less = right.attenuate(number as u16).unwrap();
        assert_eq!(&*ask(&less, "inner", []), b"inner");
        let Right::Own(own) = got(ask(
            &stage.first,
            "echo",
            [stage.port.mint(3).attenuate(number as u16).into()],
        )) else {
            panic!("not mine");
        };
        assert_eq!(own.permissions(), number as u16);
    }),
    ("calls that are given up", |stage, number| {
        let times = [0, 1, 10_000];
        let time = Duration::from_nanos(times[number as usize % 3]);
        let end = stage.first.call_timeout(b"hold", time);
        assert_eq!(end.unwrap_err(), SendError::TimedOut);
        drop(stage.first.try_call(b"hold").unwrap());
        ask(&stage.first, "go", []);
    }),
    ("calls with rights that are given up", |stage, number| {
        let right = stage.port.mint(number).into();
        let end = stage
            .first
            .with([right])
            .call_timeout(b"echo", Duration::ZERO);
        drop(end);
        // There is none while the calls that were given up before have no answer.
        let room = stage
            .first
            .with([stage.port.mint(4).into()])
            .try_call(b"echo");
        drop(room);
        ask(&stage.first, "go", []);
    }),
    ("futures that are dropped", |stage, _| {
        let mut context = Context::from_waker(Waker::noop());
        let mut calls: Vec<_> = (0..12)
            .map(|_| Box::pin(stage.first.call_async(b"hold")))
            .collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
        drop(calls);
        assert!(
            pin!(stage.port.receive_async())
                .poll(&mut context)
                .is_pending()
        );
        ask(&stage.first, "go", []);
    }),
    ("nested calls that end with their caller's", |stage, _| {
        let right = stage.port.mint(1).into();
        let brief = Duration::from_micros(300);
        let end = stage.first.with([right]).call_timeout(b"through", brief);
        drop(end);
        // It may not have been made.
        if let Ok(request) = stage.port.receive_timeout(Duration::from_millis(2)) {
            let _ = request.wait_cancelled_timeout(PATIENCE);
        }
        ask(&stage.first, "inner", []);
        while stage.port.receive_timeout(Duration::from_millis(1)).is_ok() {}
    }),
    ("names", |stage, _| {
        let port = handfast::bind(&stage.name).unwrap();
        let right = handfast::connect(&stage.name).unwrap();
        let call = right.try_call(b"here").unwrap();
        port.receive_timeout(PATIENCE)
            .unwrap()
            .reply(b"yes")
            .unwrap();
        assert_eq!(&*call.wait_timeout(PATIENCE).unwrap(), b"yes");
    }),
    ("ports of one's own", |stage, _| {
        let port = handfast::anonymous().unwrap();
        let own = port.mint(1).connect().unwrap();
        own.send(b"x").unwrap();
        own.with([stage.port.mint(2).into()]).send(b"y").unwrap();
        if own.try_call(b"z").is_ok() {
            drop(port);
        }
    }),
    ("sends to ports that are gone", |stage, number| {
        let right = send_right(got(ask(&stage.first, "make", [])));
        ask(&stage.first, "drop", []);
        assert!(common::within_patience(|| {
            let sent = right.with([stage.port.mint(number).into()]).try_send(b"x");
            sent.is_err()
        }));
    }),
    ("wait sets", |stage, _| {
        let mut set = handfast::WaitSet::new().unwrap();
        let port = handfast::anonymous().unwrap();
        let right = port.mint(1).into();
        let token = set.add(port);
        let asked = stage.first.with([right]).try_call(b"call").unwrap();
        match set.receive_timeout(PATIENCE).unwrap() {
            handfast::Event::Message(_, request) => request.reply(b"").unwrap(),
            other => panic!("{other:?}"),
        }
        assert_eq!(&*asked.wait_timeout(PATIENCE).unwrap(), b"Ok(())");
        assert!(set.remove(token).is_some());
    }),
];
