//! Rights that are revoked on their way: out, home, by introduction, and in messages of the dead.

use crate::common;
use crate::common::PATIENCE;
use crate::revocation::{Holder, calls, no_senders, refused, start};
use handfast::error::{Gone, RightError, SendError};
use handfast::{ReceiveRight, Right};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

#[test]
fn rights_on_their_way_are_revoked_out_and_home() {
    let holder = start("on-its-way");
    let port = handfast::bind(&common::name("on-the-way")).unwrap();
    // Out: it is there before the holder looks, or after, as it comes.
    for round in 0..200 {
        let call = holder.root.with([port.mint(round).into()]).try_call(b"");
        let call = call.unwrap();
        port.revoke(round);
        call.wait().unwrap();
        refused(&holder, 0, &port);
        holder.does("drop 0", "dropped");
    }
    // Home.
    for round in 0..200 {
        holder.give([port.mint(7).into()]);
        let call = holder.root.try_call(&[0]).unwrap();
        if round % 2 == 0 {
            // Sleep: the server has the call by then, in half of the rounds.
            std::thread::sleep(Duration::from_micros(100));
        }
        port.revoke(7);
        match call.wait() {
            Ok(mut reply) => {
                let rights = reply.take_rights();
                assert!(matches!(rights[..], [Right::Dead]), "{rights:?}");
            }
            Err(error) => assert_eq!(error, SendError::Gone(Gone::Reply)),
        }
        holder.does("drop 0", "dropped");
    }
    no_senders_but_by_name(&port);
}

/// Nobody has a right to it, and so it says when one that there was for a moment is gone.
fn no_senders_but_by_name(port: &ReceiveRight) {
    drop(port.mint(1));
    no_senders(port);
}

#[test]
fn rights_that_came_by_introduction_are_revoked_and_their_holders_told() {
    let (introducer, recipient) = (start("introducer"), start("recipient"));
    let port = handfast::bind(&common::name("introduced")).unwrap();
    introducer.give([handfast::connect(&recipient.name).unwrap().into()]);
    for _ in 0..3 {
        introducer.give([port.mint(7).into()]);
        introducer.does("pass 1 0", "Ok(())");
        calls(&recipient, 0, &port, 7);
        recipient.does("watch 0", "watched");
        port.revoke(7);
        recipient.expect("Dead(0)");
        refused(&recipient, 0, &port);
        refused(&introducer, 1, &port);
        recipient.does("drop 0", "dropped");
        introducer.does("drop 1", "dropped");
    }
    no_senders_but_by_name(&port);
}

#[test]
fn a_right_that_is_revoked_before_it_is_claimed_is_told_of_when_it_is() {
    let (introducer, recipient) = (start("provider"), start("claimer"));
    let port = handfast::bind(&common::name("provided")).unwrap();
    // The two have links with this process and with each other.
    recipient.give([port.mint(8).into()]);
    introducer.give([handfast::connect(&recipient.name).unwrap().into()]);
    let mut told = 0;
    for round in 0..50 {
        introducer.give([port.mint(7).into()]);
        introducer.does("pass 1 0", "Ok(())");
        recipient.does("watch 1", "watched");
        // The right that was provided lies in a lane of the introducer's, and the claim in one of the recipient's.
        if round % 2 == 0 {
            assert!(port.try_receive().is_err());
        }
        port.revoke(7);
        assert!(port.try_receive().is_err());
        recipient.expect("Dead(1)");
        told += 1;
        refused(&recipient, 1, &port);
        recipient.does("drop 1", "dropped");
        introducer.does("drop 1", "dropped");
    }
    assert_eq!(told, 50);
    recipient.does("drop 0", "dropped");
    no_senders_but_by_name(&port);
}

#[test]
fn what_the_dead_have_sent_by_a_revoked_right_is_refused() {
    let holder = start("dead");
    let port = handfast::bind(&common::name("of-the-dead")).unwrap();
    holder.give([port.mint(7).into(), port.mint(8).into()]);
    // So that its lane is known.
    calls(&holder, 0, &port, 7);
    holder.does("send 0", "Ok(())");
    holder.does("send 1", "Ok(())");
    let Holder { child, root, .. } = holder;
    child.borrow_mut().kill();
    assert!(common::within_patience(|| root.call(b"").is_err()));
    port.revoke(7);
    let left = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!((left.badge(), left.bytes()), (8, &b"sent"[..]));
    assert!(port.try_receive().is_err());
    let gone = root.call(b"").unwrap_err();
    assert_eq!(gone, SendError::Gone(Gone::Process));
}

#[test]
fn rights_that_are_sent_and_come_home_meanwhile_are_revoked_all_the_same() {
    let holder = start("meanwhile");
    let port = handfast::anonymous().unwrap();
    let mut home = 0;
    for round in 0..200 {
        let own = port.mint(7);
        holder.give([own.clone().into()]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Out, and a copy of what is there home, as fast as it goes.
            let sender = scope.spawn(|| {
                let mut came = Vec::new();
                while !stop.load(SeqCst) {
                    let sent = holder
                        .root
                        .with([own.clone().into()])
                        .call_timeout(&[0], PATIENCE);
                    match sent.map(|mut reply| reply.take_rights().pop()) {
                        Ok(Some(Right::Own(own))) => came.push(own),
                        Ok(Some(Right::Dead)) => {}
                        Ok(other) => panic!("{other:?}"),
                        Err(failed) if failed.error == SendError::Gone(Gone::Reply) => {}
                        Err(failed) => {
                            assert_eq!(failed.error, SendError::Right(RightError::Dead));
                            break;
                        }
                    }
                }
                came
            });
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            port.revoke(7);
            stop.store(true, SeqCst);
            for dead in sender.join().unwrap() {
                home += 1;
                let sent = holder.root.with([dead.into()]).send(b"").unwrap_err();
                assert_eq!(sent.error, SendError::Right(RightError::Dead));
            }
        });
        drop(own);
        no_senders(&port);
        holder.root.call_timeout(b"\xff", PATIENCE).unwrap();
    }
    println!("{home} came home");
}
