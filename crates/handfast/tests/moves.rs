//! Receive rights that travel: a port moves from process to process, and all who send to it follow.

mod common;

use common::{Child, within_patience};
use handfast::error::{Gone, RightError, SendError};
use handfast::{Notice, ReceiveRight, Right, SendRight};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "home" => home(arguments[0]),
        "friend" => friend(arguments[0]),
        _ => unreachable!(),
    });
}

/// A place where ports live. Its own port takes `bind NAME`, `make` (a port without a name, a right to
/// which with badge 7 comes back), `take STATE` with a receive right, and `rest`: whether nothing goes through here
/// any more.
fn home(name: &str) {
    let control = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = control.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let mut rights = request.take_rights();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("bind", name) => {
                let port = handfast::bind(name).unwrap();
                std::thread::spawn(move || serve(port, Seen::default()));
                request.reply(b"").unwrap();
            }
            ("make", _) => {
                let port = handfast::anonymous().unwrap();
                let right = port.mint(7);
                std::thread::spawn(move || serve(port, Seen::default()));
                request.reply_with(b"", [right.into()]).unwrap();
            }
            ("take", state) => {
                // Nothing, where the old home has died since.
                let Some(Right::Receive(port)) = rights.pop() else {
                    let _ = request.reply(b"");
                    continue;
                };
                let state = Seen::parse(state);
                std::thread::spawn(move || serve(port, state));
                request.reply(b"").unwrap();
            }
            ("keep", _) => {
                // For ever: the ports in it are not received from.
                request.reply(b"").unwrap();
                std::mem::forget(rights);
            }
            ("spray", _) => {
                let Some(Right::Send(port)) = rights.pop() else {
                    panic!("no right came");
                };
                std::thread::spawn(move || {
                    let mut number = 0;
                    while port.call(format!("99:{number}").as_bytes()).is_ok() {
                        number += 1;
                    }
                });
                request.reply(b"").unwrap();
            }
            ("direct", pid) => {
                let Some(Right::Send(port)) = rights.pop() else {
                    panic!("no right came");
                };
                let _ = port.call(b"98:1").unwrap();
                let pid = pid.parse().unwrap();
                std::thread::spawn(move || {
                    assert!(within_patience(|| port.peer().pid == pid));
                    common::say("direct");
                    let answer = port.call(b"98:2").map(drop);
                    common::say(&format!("{answer:?}"));
                });
                request.reply(b"").unwrap();
            }
            ("know", name) => {
                // A link that stays.
                let _ = link(name);
                request.reply(b"").unwrap();
            }
            ("rest", _) => {
                let rests = handfast::wait_moved(Duration::from_millis(1));
                request.reply(rests.to_string().as_bytes()).unwrap();
            }
            _ => unreachable!("{text}"),
        }
    }
}

/// Calls with the text through the right it is given, and answers with what it was answered.
fn friend(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let answer = match request.take_rights().pop() {
            Some(Right::Send(right)) => right.call(request.bytes()).unwrap(),
            other => panic!("{other:?}"),
        };
        request.reply(&answer).unwrap();
    }
}

/// The last number of each sender, and how many came out of order.
#[derive(Default)]
struct Seen(BTreeMap<u64, u64>, u64);

impl Seen {
    fn take(&mut self, text: &str) {
        let (sender, number) = text.split_once(':').unwrap();
        let (sender, number) = (sender.parse().unwrap(), number.parse().unwrap());
        let last = self.0.insert(sender, number).unwrap_or_default();
        self.1 += u64::from(number != last + 1);
    }

    fn to_text(&self) -> String {
        let pairs = self
            .0
            .iter()
            .map(|(sender, number)| format!("{sender}:{number}"));
        let pairs: Vec<_> = pairs.collect();
        format!("{};{}", pairs.join(","), self.1)
    }

    fn parse(text: &str) -> Self {
        let (pairs, wrong) = text.split_once(';').unwrap();
        let pairs = pairs
            .split(',')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (sender, number) = pair.split_once(':').unwrap();
                (sender.parse().unwrap(), number.parse().unwrap())
            });
        Self(pairs.collect(), wrong.parse().unwrap())
    }
}

/// Serves a port that moves: `SENDER:NUMBER`, one way or as a call, which is answered with the text, the badge and this process's
/// number; `seen` asks what has come; `move NAME` moves it to the home with that name, `lose NAME` gives it to one
/// that does not receive; `tell` asks for the notice of no senders, which is printed.
fn serve(port: ReceiveRight, mut seen: Seen) {
    loop {
        let mut request = port.receive().unwrap();
        if request.notice() == Some(Notice::NoSenders) {
            common::say("no senders");
            continue;
        }
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let _ = request.take_rights();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("seen", _) => request.reply(seen.to_text().as_bytes()).unwrap(),
            ("tell", _) => {
                port.notify_no_senders();
                request.reply(b"").unwrap();
            }
            ("move" | "lose", to) => {
                let to = link(to);
                let (_, reply) = request.split();
                let what = match text.starts_with("move") {
                    true => format!("take {}", seen.to_text()),
                    false => "keep".to_owned(),
                };
                if let Some(reply) = reply {
                    reply.reply(b"").unwrap();
                }
                // The new home may die meanwhile.
                let _ = to.with([port.into()]).call(what.as_bytes());
                return;
            }
            _ => {
                seen.take(&text);
                if request.is_call() {
                    let answer = format!("{text} {} {}", request.badge(), std::process::id());
                    // Who asked may be gone.
                    let _ = request.reply(answer.as_bytes());
                }
            }
        }
    }
}

/// A right to a home; one that does not answer may have a link already.
fn link(name: &str) -> SendRight {
    static KNOWN: Mutex<Vec<(String, SendRight)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap();
    if let Some((_, right)) = known.iter().find(|(of, _)| of == name) {
        return right.clone();
    }
    let right = handfast::connect(name).unwrap();
    known.push((name.to_owned(), right.clone()));
    right
}

struct Homes {
    children: Vec<Child>,
    names: Vec<String>,
    controls: Vec<SendRight>,
}

impl Homes {
    fn new(what: &str, count: usize) -> Self {
        Self::with(what, count, |_| {})
    }

    fn with(what: &str, count: usize, change: impl Fn(&mut std::process::Command)) -> Self {
        let names = (0..count).map(|place| common::name(&format!("{what}-home{place}")));
        let names: Vec<_> = names.collect();
        let children: Vec<_> = names
            .iter()
            .map(|name| common::start_with("home", &[name], |command| change(command)))
            .collect();
        children.iter().for_each(|child| child.expect("ready"));
        let controls = names.iter().map(|name| handfast::connect(name).unwrap());
        let controls = controls.collect();
        Self {
            children,
            names,
            controls,
        }
    }

    fn make(&self, place: usize) -> SendRight {
        let mut answer = self.controls[place].call(b"make").unwrap();
        match answer.take_rights().pop() {
            Some(Right::Send(right)) => right,
            other => panic!("{other:?}"),
        }
    }

    /// Returns once it is there.
    fn move_to(&self, port: &SendRight, place: usize) {
        self.begin_move(port, place);
        let _ = seen(port);
    }

    fn begin_move(&self, port: &SendRight, place: usize) {
        let text = format!("move {}", self.names[place]);
        let _ = port.call(text.as_bytes()).unwrap();
    }

    fn rests(&self, place: usize) -> bool {
        &*self.controls[place].call(b"rest").unwrap() == b"true"
    }

    fn pid(&self, place: usize) -> String {
        self.children[place].pid().to_string()
    }
}

/// Calls with the next number of a sender: badge and process that have answered.
fn call(port: &SendRight, sender: u64, number: u64) -> (String, String) {
    let text = format!("{sender}:{number}");
    let answer = port.call(text.as_bytes()).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let words: Vec<_> = answer.split(' ').collect();
    assert_eq!(words[0], text);
    (words[1].to_owned(), words[2].to_owned())
}

fn seen(port: &SendRight) -> Seen {
    let answer = port.call(b"seen").unwrap();
    Seen::parse(&String::from_utf8_lossy(&answer))
}

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
}

#[test]
fn a_port_moves_to_the_process_that_holds_the_only_send_right() {
    let homes = Homes::new("holder", 1);
    let port = homes.make(0);
    let own = handfast::bind(&common::name("holder-own")).unwrap();
    let text = format!("lose {}", own.name());
    // Who is asked to take it answers here.
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
}

#[test]
fn a_receive_right_does_not_go_to_where_it_is() {
    let name = common::name("self");
    let port = handfast::bind(&name).unwrap();
    let to = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| handfast::connect(&name).unwrap());
        connecting.join().unwrap()
    });
    let other = handfast::anonymous().unwrap();
    let returned = to.with([other.into()]).send(b"").unwrap_err();
    assert_eq!(returned.error, SendError::Right(RightError::Home));
    assert!(
        matches!(returned.rights[..], [Right::Receive(_)]),
        "it comes back"
    );
    drop(port);
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
            port.call_until(b"1:2", Duration::from_millis(50)),
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
fn without_a_direct_link_messages_go_through_the_old_home() {
    let mut homes = Homes::with("apart", 2, |command| {
        command.env("HANDFAST_INTRODUCTIONS", "vine");
    });
    let port = homes.make(0);
    homes.controls.truncate(1);
    homes.move_to(&port, 1);
    for number in 1..=20 {
        assert_eq!(call(&port, 1, number).1, homes.pid(1));
    }
    assert_eq!(seen(&port).1, 0);
    assert_eq!(port.peer().pid, homes.children[0].pid());
    assert!(!homes.rests(0));
}

#[test]
fn trap_08_a_port_moves_while_rights_to_it_are_given_to_others() {
    let homes = Homes::new("given", 3);
    let port = homes.make(0);
    let names = [0, 1].map(|place| common::name(&format!("given-friend{place}")));
    let friends = names
        .each_ref()
        .map(|name| common::start("friend", &[name]));
    friends.iter().for_each(|friend| friend.expect("ready"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (name, sender) in names.iter().zip(1..) {
            let (port, done) = (&port, &done);
            scope.spawn(move || {
                let friend = handfast::connect(name).unwrap();
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    number += 1;
                    let text = format!("{sender}:{number}");
                    let right = port.clone().into();
                    let answer = friend.with([right]).call(text.as_bytes()).unwrap();
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    assert!(answer.starts_with(&format!("{text} 7 ")), "{answer}");
                }
            });
        }
        for turn in 1..=15 {
            homes.move_to(&port, turn % 3);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(seen(&port).1, 0);
}

#[test]
fn a_sender_without_a_link_to_the_new_home_is_let_in_there() {
    let mut homes = Homes::new("stranger", 2);
    let port = homes.make(0);
    homes.controls.truncate(1);
    homes.move_to(&port, 1);
    assert!(within_patience(|| homes.rests(0)));
    homes.children[0].kill();
    assert_eq!(call(&port, 1, 1), ("7".into(), homes.pid(1)));
}

#[test]
fn a_right_that_nobody_uses_follows_its_port_along_a_chain() {
    let mut homes = Homes::new("idle", 4);
    let port = homes.make(0);
    // Another process keeps one, and does nothing with it.
    let _ = homes.controls[3]
        .with([port.clone().into()])
        .call(b"keep")
        .unwrap();
    homes.move_to(&port, 1);
    homes.move_to(&port, 2);
    for place in [0, 1] {
        assert!(within_patience(|| homes.rests(place)), "home {place}");
    }
    homes.children[0].kill();
    homes.children[1].kill();
    assert_eq!(call(&port, 1, 1).1, homes.pid(2));
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
    homes.children[0].stop();
    homes.children[2].resume();
    homes.children[2].expect("direct");
    homes.children[0].kill();
    homes.children[2].expect("Err(Gone(Port))");
    assert_eq!(call(&port, 1, 1).1, homes.pid(1));
}

#[test]
fn calls_end_whoever_dies_while_a_port_moves() {
    let mut random = common::Random::seeded("deaths while a port moves");
    let end = Instant::now() + common::campaign(6);
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        one_dies(round, &mut random);
    }
    println!("{round} rounds");
}

/// A port moves between three homes, and one of them or a sender dies; every call ends, with a typed outcome.
fn one_dies(round: u32, random: &mut common::Random) {
    const SENDERS: usize = 3;
    let mut homes = Homes::new(&format!("dies{round}"), 4);
    let port = homes.make(0);
    let _ = homes.controls[3]
        .with([port.clone().into()])
        .call(b"spray")
        .unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (ended, ends) = std::sync::mpsc::channel();
    for sender in 0..SENDERS {
        let (port, done, ended) = (port.clone(), done.clone(), ended.clone());
        std::thread::spawn(move || {
            let mut number = 0;
            let outcome = loop {
                number += 1;
                match port.call(format!("{sender}:{number}").as_bytes()) {
                    Ok(_) if done.load(Ordering::Relaxed) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error),
                }
            };
            ended.send(outcome).unwrap();
        });
    }
    let (turns, victim) = (random.below(4), random.below(3) as usize);
    let mut from = 0;
    for turn in 0..=turns {
        let to = (from + 1 + random.below(2) as usize) % 3;
        let _ = port
            .call_until(
                format!("move {}", homes.names[to]).as_bytes(),
                common::PATIENCE,
            )
            .unwrap();
        if turn == turns {
            // Some way into the move.
            let until = Instant::now() + Duration::from_micros(random.below(4000));
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            homes.children[[from, to, 3][victim]].kill();
        }
        from = to;
    }
    done.store(true, Ordering::Relaxed);
    for _ in 0..SENDERS {
        let outcome = ends.recv_timeout(common::PATIENCE);
        let outcome = outcome.unwrap_or_else(|_| panic!("a call hangs: {turns} {victim}"));
        assert!(
            matches!(outcome, None | Some(SendError::Gone(_))),
            "{turns} {victim}: {outcome:?}"
        );
        assert!(
            victim < 2 || outcome.is_none(),
            "nobody has died but a sender: {outcome:?}"
        );
    }
}
