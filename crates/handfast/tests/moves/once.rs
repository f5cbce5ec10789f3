//! Receive rights that travel: a port moves from process to process, and all who send to it follow.

use crate::common;
use crate::common::within_patience;
use crate::followed::take;
use crate::homes::{Homes, Seen, call, seen};
use handfast::error::{Gone, SendError};
use handfast::{Identity, Notice, Right};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

#[test]
fn a_port_moves_with_its_badges_and_its_senders_go_straight_to_it() {
    let homes = Homes::new("moves", 2);
    let port = homes.make(0);
    assert_eq!(call(&port, 1, 1), ("7".into(), homes.pid(0)));
    homes.move_to(&port, 1);
    assert_eq!(call(&port, 1, 2), ("7".into(), homes.pid(1)));
    assert!(within_patience(
        || port.peer().pid == homes.children[1].pid()
    ));
    assert_eq!(call(&port, 1, 3), ("7".into(), homes.pid(1)));
    assert_eq!(seen(&port).1, 0);
    // A copy made before it was used, and one of it.
    assert_eq!(call(&port.clone(), 1, 4).1, homes.pid(1));
}

#[test]
fn the_old_home_may_end_once_its_senders_have_left() {
    let mut homes = Homes::new("ends", 2);
    let ports = [homes.make(0), homes.make(0)];
    let idle = ports[1].clone();
    homes.move_to(&ports[0], 1);
    homes.move_to(&ports[1], 1);
    assert!(within_patience(|| homes.rests(0)));
    homes.children[0].kill();
    for port in [&ports[0], &ports[1]] {
        assert_eq!(call(port, 1, 1).1, homes.pid(1));
    }
    // It has not been used since.
    assert_eq!(call(&idle, 1, 2).1, homes.pid(1));
}

#[test]
fn messages_keep_their_order_while_a_port_goes_round() {
    const SENDERS: u64 = 4;
    let homes = Homes::new("round", 3);
    let port = homes.make(0);
    let done = AtomicBool::new(false);
    let sent: Vec<u64> = std::thread::scope(|scope| {
        let senders = (1..=SENDERS).map(|sender| {
            let (port, done, names) = (&port, &done, &homes.names);
            scope.spawn(move || {
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    match number % 5 {
                        0 => drop(call(port, sender, number)),
                        1 => {
                            // With a right: the slow path.
                            let own = handfast::connect(&names[0]).unwrap();
                            let text = format!("{sender}:{number}");
                            port.with([own.into()]).send(text.as_bytes()).unwrap();
                        }
                        _ => port.send(format!("{sender}:{number}").as_bytes()).unwrap(),
                    }
                }
                number
            })
        });
        let senders: Vec<_> = senders.collect();
        for turn in 1..=12 {
            homes.move_to(&port, turn % 3);
        }
        done.store(true, Ordering::Relaxed);
        let sent = senders.into_iter().map(|sender| sender.join().unwrap());
        sent.collect()
    });
    let mut arrived = Seen::default();
    assert!(within_patience(|| {
        arrived = seen(&port);
        arrived.0.values().copied().collect::<Vec<_>>() == sent
    }));
    assert_eq!(arrived.1, 0, "came out of order: {:?}", arrived.0);
}

#[test]
fn batches_keep_their_order_while_a_port_moves() {
    let homes = Homes::new("batch", 2);
    let port = homes.make(0);
    let mut number = 0;
    for place in [1, 0, 1, 0, 1] {
        homes.move_to(&port, place);
        for _ in 0..20 {
            let batch = (1..=30).map(|step| format!("1:{}", number + step));
            port.send_many(&batch.collect::<Vec<_>>()).unwrap();
            number += 30;
        }
    }
    let mut arrived = Seen::default();
    assert!(within_patience(|| {
        arrived = seen(&port);
        arrived.0.get(&1) == Some(&number)
    }));
    assert_eq!(arrived.1, 0);
}

#[test]
fn a_name_moves_with_its_port() {
    let mut homes = Homes::new("named", 2);
    let name = common::name("named-port");
    let _ = homes.controls[0]
        .call(format!("bind {name}").as_bytes())
        .unwrap();
    let port = handfast::connect(&name).unwrap();
    homes.move_to(&port, 1);
    assert!(within_patience(|| homes.rests(0)));
    let again = handfast::connect(&name).unwrap();
    assert_eq!(again.peer().pid, homes.children[1].pid());
    assert_eq!(call(&again, 1, 1), ("0".into(), homes.pid(1)));
    let taken = handfast::bind(&name).map(drop).unwrap_err();
    let by = homes.children[1].pid();
    assert!(
        matches!(taken, handfast::error::BindError::NameTaken { pid, .. } if pid == by),
        "{taken:?}"
    );
    homes.children[0].kill();
    let third = handfast::connect(&name).unwrap();
    assert_eq!(call(&third, 1, 2).1, homes.pid(1));
}

#[test]
fn connections_made_during_a_move_reach_one_home_or_the_other() {
    let homes = Homes::new("joins", 2);
    let name = common::name("joins-port");
    let _ = homes.controls[0]
        .call(format!("bind {name}").as_bytes())
        .unwrap();
    let port = handfast::connect(&name).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for sender in 1..=2 {
            let (name, done) = (&name, &done);
            scope.spawn(move || {
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    let port = handfast::connect(name).unwrap();
                    number += 1;
                    let _ = call(&port, sender, number);
                }
            });
        }
        for turn in 1..=10 {
            homes.move_to(&port, turn % 2);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(seen(&port).1, 0);
    // Nobody takes connections at a home that the port has left.
    let accept = |home: usize| common::threads_named(homes.children[home].pid(), "handfast-accept");
    assert!(within_patience(|| accept(0) == 1 && accept(1) == 0));
}

#[test]
fn a_port_moves_to_the_process_that_holds_the_only_send_right() {
    let mut homes = Homes::new("holder", 1);
    let port = homes.make(0);
    let own = handfast::bind(&common::name("holder-own")).unwrap();
    let text = format!("lose {}", own.name());
    // The process that is asked to take it answers here.
    let moved = std::thread::scope(|scope| {
        scope.spawn(|| port.call(text.as_bytes()).unwrap());
        let mut request = own.receive().unwrap();
        let right = request.take_rights().pop();
        request.reply(b"").unwrap();
        right
    });
    let Some(Right::Receive(moved)) = moved else {
        panic!("{moved:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = moved.receive().unwrap();
            assert_eq!((request.bytes(), request.badge()), (&b"to myself"[..], 7));
            request.reply(b"well").unwrap();
        });
        assert_eq!(&*port.call(b"to myself").unwrap(), b"well");
    });
    // It has followed as any other sender: the old home is not needed, and the order is kept.
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut last = 0;
            loop {
                let request = moved.receive().unwrap();
                let text = String::from_utf8_lossy(request.bytes()).into_owned();
                match text.parse::<u64>() {
                    Ok(number) => assert_eq!((number, request.badge()), (last + 1, 7)),
                    Err(_) => return request.reply(b"").unwrap(),
                }
                last += 1;
                if request.is_call() {
                    request.reply(b"").unwrap();
                }
            }
        });
        let mut number = 0;
        assert!(within_patience(|| {
            for _ in 0..10 {
                number += 2;
                port.send((number - 1).to_string().as_bytes()).unwrap();
                let _ = port.call(number.to_string().as_bytes()).unwrap();
            }
            port.peer().pid == std::process::id()
        }));
        assert!(within_patience(|| homes.rests(0)));
        let _ = port.call((number + 1).to_string().as_bytes()).unwrap();
        let _ = port.call(b"stop").unwrap();
        serving.join().unwrap();
    });
    assert_eq!(port.identity(&port.clone()), Identity::Same);
    let same = moved.mint(7).connect().unwrap();
    assert_eq!(port.identity(&same), Identity::Same);
    drop(same);
    // And back, with a right to it that its own process holds.
    let right = moved.mint(9);
    let state = format!("take {}", Seen::default().to_text());
    let _ = homes.controls[0]
        .with([moved.into()])
        .call(state.as_bytes())
        .unwrap();
    assert_eq!(call(&port, 1, 1).1, homes.pid(0));
    let _ = homes.controls[0]
        .with([right.into()])
        .call(b"keep")
        .unwrap();
    // The way through this process is not needed any more either.
    assert!(within_patience(
        || port.peer().pid == homes.children[0].pid()
    ));
    assert!(within_patience(|| handfast::wait_moved_timeout(
        Duration::from_millis(1)
    )));
    assert_eq!(call(&port, 1, 2).1, homes.pid(0));
    homes.children[0].kill();
}

#[test]
fn no_senders_is_told_at_the_new_home() {
    let homes = Homes::new("senders", 2);
    let port = homes.make(0);
    let _ = port.call(b"tell").unwrap();
    homes.move_to(&port, 1);
    let copy = port.clone();
    assert_eq!(call(&port, 1, 1).1, homes.pid(1));
    drop(port);
    assert_eq!(call(&copy, 1, 2).1, homes.pid(1));
    drop(copy);
    homes.children[1].expect("no senders");
    assert!(within_patience(|| homes.rests(0)));
}

#[test]
fn the_death_of_the_new_home_is_told_and_that_of_the_old_one_is_not() {
    let mut homes = Homes::new("deaths", 2);
    let port = homes.make(0);
    let own = handfast::anonymous().unwrap();
    port.notify_death(&own, 5);
    homes.move_to(&port, 1);
    assert!(within_patience(|| homes.rests(0)));
    homes.children[0].kill();
    assert_eq!(call(&port, 1, 1).1, homes.pid(1));
    assert!(own.try_receive().is_err());
    homes.children[1].kill();
    assert_eq!(own.receive().unwrap().notice(), Some(Notice::Dead(5)));
    assert!(matches!(port.call(b"1:2"), Err(SendError::Gone(_))));
}

#[test]
fn a_home_that_dies_before_it_takes_the_port_up_takes_it_along() {
    let mut homes = Homes::new("midway", 2);
    let port = homes.make(0);
    let text = format!("know {}", homes.names[1]);
    let _ = homes.controls[0].call(text.as_bytes()).unwrap();
    homes.children[1].stop();
    homes.begin_move(&port, 1);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| port.call(b"1:1"));
        assert!(matches!(
            port.call_timeout(b"1:2", Duration::from_millis(50)),
            Err(SendError::TimedOut)
        ));
        homes.children[1].kill();
        let failed = waits.join().unwrap().unwrap_err();
        assert!(
            matches!(
                failed,
                SendError::Gone(Gone::Port | Gone::Process | Gone::Reply)
            ),
            "{failed:?}"
        );
    });
    assert!(within_patience(|| matches!(
        port.call(b"1:3"),
        Err(SendError::Gone(Gone::Port))
    )));
}

#[test]
fn who_waits_for_what_an_old_home_took_along_is_told() {
    let mut homes = Homes::new("unprovided", 3);
    let port = homes.make(0);
    for place in [0, 1] {
        let text = format!("know {}", homes.names[place]);
        let _ = homes.controls[2].call(text.as_bytes()).unwrap();
    }
    let text = format!("direct {}", homes.pid(1));
    let right = port.clone().into();
    let _ = homes.controls[2]
        .with([right])
        .call(text.as_bytes())
        .unwrap();
    // It is told when the old home cannot hear any more what it says to that.
    homes.children[2].stop();
    homes.move_to(&port, 1);
    assert!(within_patience(
        || port.peer().pid == homes.children[1].pid()
    ));
    // This one has been provided for.
    assert_eq!(call(&port, 1, 1).1, homes.pid(1));
    homes.children[0].stop();
    homes.children[2].resume();
    homes.children[2].expect("direct");
    homes.children[0].kill();
    homes.children[2].expect("Err(Gone(Port))");
    assert_eq!(call(&port, 1, 2).1, homes.pid(1));
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_task_that_waits_for_room_waits_for_it_at_the_new_home() {
    let mut homes = Homes::new("room", 2);
    let own = handfast::bind(&common::name("room-own")).unwrap();
    let old = homes.make(0);
    homes.move_to(&old, 1);
    assert!(within_patience(|| homes.rests(0)));
    let _ = old.call(format!("give {}", own.name()).as_bytes()).unwrap();
    let new = take(&own);
    homes.children[0].kill();
    // All that the lanes to a port carry.
    let mut held = Vec::new();
    assert!(within_patience(|| {
        while let Ok(call) = new.try_call(b"hold") {
            held.push(call);
        }
        held.len() == 12 * 16
    }));
    let mut waits = pin!(old.call_async(b"1:1"));
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    let mut poll = || waits.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    woken.0.store(false, Ordering::Release);
    assert!(within_patience(|| {
        // The calls that have arrived.
        let _ = homes.controls[1].call(b"answer").unwrap();
        let left = held.drain(..).filter_map(|call| call.try_wait().pending());
        held = left.collect();
        held.is_empty()
    }));
    let is_answered = || woken.0.swap(false, Ordering::AcqRel) && poll().is_ready();
    assert!(within_patience(is_answered), "nobody tells it of the room");
}

#[test]
fn calls_that_were_taken_before_a_move_outlive_another_port_at_their_receiver() {
    let homes = Homes::new("outlive", 2);
    let port = homes.make(0);
    let held = port.try_call(b"hold").unwrap();
    homes.move_to(&port, 1);
    assert!(within_patience(|| homes.rests(0)));
    // It gets the receiver that was left.
    let brief = homes.controls[0].call(b"brief").unwrap().take_rights();
    let Some(Right::Send(brief)) = brief.into_iter().next() else {
        panic!("no right came");
    };
    let _ = homes.controls[0].call(b"end brief").unwrap();
    assert!(within_patience(|| {
        brief.try_send(b"") == Err(SendError::Gone(Gone::Port))
    }));
    let held = held.try_wait().pending().expect("it is not answered yet");
    let _ = homes.controls[0].call(b"answer").unwrap();
    assert_eq!(&*held.wait().unwrap(), b"after all");
}

#[test]
fn calls_that_were_taken_before_a_move_outlive_the_port_that_others_go_through() {
    let mut homes = Homes::new("through", 2);
    let late = handfast::bind(&common::name("through-late")).unwrap();
    let port = homes.make(0);
    let held = port.try_call(b"hold").unwrap();
    // On its way for as long as this takes.
    let _ = port
        .call(format!("give {}", late.name()).as_bytes())
        .unwrap();
    homes.move_to(&port, 1);
    homes.children[1].kill();
    assert!(within_patience(|| port.try_send(b"").is_err_and(|error| {
        matches!(error, SendError::Gone(Gone::Port | Gone::Process))
    })));
    let held = held.try_wait().pending().expect("it is not answered yet");
    let _ = homes.controls[0].call(b"answer").unwrap();
    assert_eq!(&*held.wait().unwrap(), b"after all");
}
