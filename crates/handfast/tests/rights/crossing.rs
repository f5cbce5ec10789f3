//! Processes that are client and server of each other at once, rights that go while calls are under
//! way, and sets that change while they are used.

use crate::common;
use crate::common::{Child, Random, content};
use handfast::error::{ConnectError, Gone, SendError};
use handfast::{Counters, Event, Options, ReceiveRight, SendRight, Token, WaitSet};
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TWIN_THREADS: usize = 3;

/// Connects as soon as the other has bound its name.
fn connect_soon(name: &str) -> SendRight {
    let mut right = None;
    assert!(common::within_patience(|| {
        match handfast::connect_timeout(name, common::PATIENCE) {
            Ok(made) => right = Some(made),
            Err(ConnectError::NoSuchName { .. } | ConnectError::ServerDead { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        right.is_some()
    }));
    right.unwrap()
}

/// Serves `own` and calls `other` on several threads each. Says when the other's end was seen by
/// all callers, then connects anew to the next.
pub(crate) fn twin(own: &str, other: &str) {
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::bind(own).unwrap()));
    for _ in 0..TWIN_THREADS {
        std::thread::spawn(|| {
            let mut request = port.receive().unwrap();
            loop {
                let bytes = request.bytes().to_vec();
                request = port.reply_and_receive(request, &bytes).unwrap();
            }
        });
    }
    common::say("bound");
    // The word to begin.
    while common::told().is_some() {
        let right = connect_soon(other);
        let calls = AtomicU64::new(0);
        let said = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for key in 0..TWIN_THREADS as u64 {
                let (right, calls, said) = (&right, &calls, &said);
                scope.spawn(move || {
                    for number in 0.. {
                        let sent = content((number * 131 % 5000) as usize, key ^ number);
                        match right.call_timeout(&sent, common::PATIENCE) {
                            Ok(reply) => assert!(*reply == *sent, "another's bytes"),
                            Err(SendError::Gone(Gone::Process)) => return,
                            Err(error) => panic!("{error}"),
                        }
                        let made = calls.fetch_add(1, Ordering::Relaxed);
                        if made > 100 && !said.swap(true, Ordering::Relaxed) {
                            common::say("calling");
                        }
                    }
                });
            }
        });
        common::say("the other is gone");
    }
}

#[test]
fn twins_that_serve_and_call_each_other_survive_the_death_of_either() {
    let _alone = common::alone();
    let mut random = Random::seeded("twins");
    let names = [common::name("twin-a"), common::name("twin-b")];
    let begin = |number: usize| {
        let twin = common::start("twin", &[&names[number], &names[1 - number]]);
        twin.expect("bound");
        twin
    };
    let mut twins: [Child; 2] = [begin(0), begin(1)];
    let end = Instant::now() + common::campaign(3);
    let mut kills = 0;
    while Instant::now() < end || kills < 4 {
        for twin in &mut twins {
            twin.tell("call");
        }
        for twin in &twins {
            twin.expect("calling");
        }
        // A random instant is what is wanted here.
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(5000)));
        let victim = random.below(2) as usize;
        twins[victim].kill();
        twins[1 - victim].expect("the other is gone");
        twins[victim] = begin(victim);
        kills += 1;
    }
    println!("{kills} kills");
    for twin in &mut twins {
        twin.finish();
    }
}

#[test]
fn two_processes_that_connect_to_each_other_at_the_same_moment_share_one_link() {
    const ROUNDS: usize = 150;
    let _alone = common::alone();
    let mut random = Random::seeded("crossings");
    let mut single = 0;
    for round in 0..ROUNDS {
        let names = ["a", "b"].map(|which| common::name(&format!("cross-{round}-{which}")));
        let mut pair = [
            common::start("crosser", &[&names[0], &names[1]]),
            common::start("crosser", &[&names[1], &names[0]]),
        ];
        pair.iter().for_each(|child| child.expect("bound"));
        let start_ns = handfast_sys::clock::now_ns() + 1_000_000;
        for child in &mut pair {
            // Not always quite the same moment.
            child.tell(&(start_ns + random.below(200_000)).to_string());
        }
        pair.iter().for_each(|child| child.expect("connected"));
        pair.iter_mut().for_each(|child| child.tell("count"));
        single += usize::from(pair.iter().all(|child| child.line() == "1 links"));
        pair.iter_mut().for_each(Child::finish);
    }
    assert_eq!(single, ROUNDS, "pairs with one link");
}

const NAMES: usize = 6;

fn names_of(name: &str) -> [String; NAMES] {
    std::array::from_fn(|port| format!("{name}-{port}"))
}

/// Serves many names.
pub(crate) fn many(name: &str) {
    for name in names_of(name) {
        let port = handfast::bind(&name).unwrap();
        std::thread::spawn(move || {
            loop {
                let request = port.receive().unwrap();
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
        });
    }
    common::say("ready");
    while common::told().is_some() {}
}

#[test]
fn threads_that_connect_to_the_names_of_one_process_at_once_share_one_link() {
    let _alone = common::alone();
    let name = common::name("many");
    let mut server = common::start("many", &[&name]);
    server.expect("ready");
    let names = names_of(&name);
    let start = Barrier::new(2 * NAMES);
    let visit = |name: &str| {
        start.wait();
        let right = handfast::connect_timeout(name, common::PATIENCE).unwrap();
        // All ask at once through the one link.
        assert_eq!(right.counters().unwrap().ports.len(), NAMES);
        assert_eq!(&*right.call_timeout(b"x", common::PATIENCE).unwrap(), b"x");
        right
    };
    let own_pid = u64::from(std::process::id());
    let is_own = |row: &&Vec<u64>| Counters::value(row, "peer_pid") == own_pid;
    for round in 0..50 {
        let rights: Vec<_> = std::thread::scope(|scope| {
            let visit = &visit;
            let visitors = names.iter().chain(&names);
            let visitors: Vec<_> = visitors
                .map(|name| scope.spawn(move || visit(name)))
                .collect();
            let rights = visitors.into_iter().map(|visitor| visitor.join().unwrap());
            rights.collect()
        });
        let counters = || rights[0].counters().unwrap();
        let links = || counters().links.iter().filter(is_own).count();
        // The server may not have heard yet that the one of the last round has ended.
        let shared = common::within_patience(|| links() == 1);
        assert!(shared, "round {round}: {} links", links());
    }
    server.finish();
}

/// Serves `name`: each request names a port, which is connected to, called and let go.
pub(crate) fn caller_back(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        let back = std::str::from_utf8(request.bytes()).unwrap().to_owned();
        let right = handfast::connect(&back).unwrap();
        right.send(b"back").unwrap();
        drop(right);
        request.reply(b"called back").unwrap();
    }
}

#[test]
fn a_server_that_calls_its_client_back_and_lets_go_keeps_the_clients_right() {
    let name = common::name("calls-back");
    let own = format!("{name}-own");
    let port = handfast::bind(&own).unwrap();
    let server = common::start("caller back", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for _ in 0..20 {
        let reply = right.call_timeout(own.as_bytes(), common::PATIENCE);
        assert_eq!(&*reply.unwrap(), b"called back");
        let back = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(back.bytes(), b"back");
    }
}

/// Sends numbered messages to each of four ports in turn, until told to stop; then says how many.
pub(crate) fn sender(name: &str, key: u64) {
    let rights: Vec<_> = (0..PORTS)
        .map(|port| handfast::connect(&format!("{name}-{port}")).unwrap())
        .collect();
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let stop = &stop;
        let sender = scope.spawn(move || {
            let mut random = Random::of(key);
            let mut sent = [0u64; PORTS];
            while !stop.load(Ordering::Relaxed) {
                let port = random.below(PORTS as u64) as usize;
                let bytes = [key.to_le_bytes(), sent[port].to_le_bytes()].concat();
                if random.below(2) == 0 {
                    let reply = rights[port].call_timeout(&bytes, common::PATIENCE).unwrap();
                    assert_eq!(*reply, *bytes);
                } else {
                    rights[port].send_timeout(&bytes, common::PATIENCE).unwrap();
                }
                sent[port] += 1;
            }
            sent
        });
        common::say("sending");
        let _ = common::told();
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    common::say(&sent.map(|sent| sent.to_string()).join(" "));
    while common::told().is_some() {}
}

const PORTS: usize = 4;
const SENDERS: usize = 3;

/// The messages received: per port and sender, the number of the next one.
#[derive(Default)]
struct Book([HashMap<u64, u64>; PORTS]);

impl Book {
    fn count(&self) -> u64 {
        self.0.iter().flat_map(HashMap::values).sum()
    }

    /// Answers a request and notes that it is the next of its sender for this port.
    fn enter(&mut self, port: usize, request: handfast::Request) {
        let bytes = request.bytes().to_vec();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let next = self.0[port].entry(word(0)).or_insert(0);
        assert_eq!(word(8), *next, "lost, doubled or out of order");
        *next += 1;
        if request.is_call() {
            request.reply(&bytes).unwrap();
        }
    }
}

#[test]
fn ports_that_go_in_and_out_of_a_set_under_load_lose_no_message() {
    let _alone = common::alone();
    let mut random = Random::seeded("members");
    for waits in ["block", "adaptive", "spin-block", "notify"] {
        let strategy: handfast::Strategy = waits.parse().unwrap();
        if strategy.notifies() {
            handfast::notify::notify(|| {}).unwrap();
        }
        let name = common::name(&format!("members-{waits}"));
        let mut set = WaitSet::with(Options::new().strategy(strategy)).unwrap();
        let mut outside: Vec<(usize, ReceiveRight)> = (0..PORTS)
            .map(|port| (port, handfast::bind(&format!("{name}-{port}")).unwrap()))
            .collect();
        let mut inside: Vec<(usize, Token)> = Vec::new();
        let mut senders: Vec<_> = (0..SENDERS)
            .map(|key| common::start("sender", &[&name, &key.to_string()]))
            .collect();
        let mut book = Book::default();
        senders.iter().for_each(|sender| sender.expect("sending"));
        let end = Instant::now() + common::campaign(4) / 4;
        let mut changes = 0;
        let mut stopped = false;
        let mut totals: Vec<Option<Vec<u64>>> = vec![None; SENDERS];
        // Until all have stopped and everything has come that they sent.
        let patience = Instant::now() + common::PATIENCE;
        loop {
            assert!(Instant::now() < patience, "{waits}: messages are missing");
            match random.below(4) {
                // At the end every member must be served where it is.
                0 if !stopped && !outside.is_empty() => {
                    let place = random.below(outside.len() as u64) as usize;
                    let (port, right) = outside.swap_remove(place);
                    inside.push((port, set.add(right)));
                    changes += 1;
                }
                1 if !stopped && !inside.is_empty() => {
                    let place = random.below(inside.len() as u64) as usize;
                    let (port, token) = inside.swap_remove(place);
                    outside.push((port, set.remove(token).unwrap()));
                    changes += 1;
                }
                // Messages that wait outside are received there.
                2 if !outside.is_empty() => {
                    let place = random.below(outside.len() as u64) as usize;
                    let (port, right) = &outside[place];
                    if let Ok(request) = right.try_receive() {
                        book.enter(*port, request);
                    }
                }
                _ => {
                    for _ in 0..random.below(40) {
                        let Ok(event) = set.receive_timeout(Duration::from_millis(1)) else {
                            break;
                        };
                        let token = event.token();
                        let (port, _) = inside.iter().find(|(_, of)| *of == token).unwrap();
                        let Event::Message(_, request) = event else {
                            unreachable!("no descriptors are in it")
                        };
                        book.enter(*port, request);
                    }
                }
            }
            if Instant::now() < end || changes <= 100 || book.count() <= 100 {
                continue;
            }
            if !stopped {
                senders.iter_mut().for_each(|sender| sender.tell("stop"));
                stopped = true;
            }
            for (sender, total) in senders.iter().zip(&mut totals) {
                if let Some(line) = sender.said() {
                    let sent = line.split(' ').map(|sent| sent.parse().unwrap());
                    *total = Some(sent.collect());
                }
            }
            let all = (0..SENDERS).all(|key| {
                let Some(sent) = &totals[key] else {
                    return false;
                };
                let got = |port: usize| book.0[port].get(&(key as u64)).copied();
                (0..PORTS).all(|port| got(port).unwrap_or(0) == sent[port])
            });
            if all {
                break;
            }
        }
        let messages: u64 = totals.iter().flatten().flatten().sum();
        println!("{waits}: {messages} messages, {changes} changes");
        senders.iter_mut().for_each(Child::finish);
    }
}

/// Calls on two threads until the port is gone, says so, waits for the next; says what it saw.
pub(crate) fn persistent_caller(name: &str, rounds: usize) {
    for _ in 0..rounds {
        let right = connect_soon(name);
        std::thread::scope(|scope| {
            for key in 0..2u64 {
                let right = &right;
                scope.spawn(move || {
                    for number in 0.. {
                        let sent = content((number * 37 % 3000) as usize, key);
                        match right.call_timeout(&sent, common::PATIENCE) {
                            Ok(reply) => assert!(*reply == *sent, "another's bytes"),
                            // Dropped with the port, or with a request that was being served.
                            Err(SendError::Gone(Gone::Port | Gone::Reply)) => return,
                            Err(error) => panic!("{error}"),
                        }
                        if number == 10 && key == 0 {
                            common::say("calling");
                        }
                    }
                });
            }
        });
        common::say("gone");
        // Until the port is bound again.
        let _ = common::told();
    }
}

#[test]
fn a_port_dropped_while_calls_of_three_processes_are_under_way_ends_each_with_its_error() {
    const ROUNDS: usize = 25;
    let _alone = common::alone();
    let mut random = Random::seeded("drops");
    let name = common::name("dropped");
    let rounds = ROUNDS.to_string();
    let mut callers: Vec<_> = (0..3)
        .map(|_| common::start("persistent caller", &[&name, &rounds]))
        .collect();
    for round in 0..ROUNDS {
        let port = handfast::bind(&name).unwrap();
        if round > 0 {
            callers.iter_mut().for_each(|caller| caller.tell("again"));
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let servers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            let short = Duration::from_millis(1);
                            let Ok(request) = port.receive_timeout(short) else {
                                continue;
                            };
                            let bytes = request.bytes().to_vec();
                            let _ = request.reply(&bytes);
                        }
                    })
                })
                .collect();
            callers.iter().for_each(|caller| caller.expect("calling"));
            // A random instant is what is wanted here.
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_micros(random.below(2000)));
            stop.store(true, Ordering::Relaxed);
            servers
                .into_iter()
                .for_each(|server| server.join().unwrap());
        });
        // Some calls are queued now, and one may be in our hands.
        let held = (round % 2 == 0).then(|| port.receive_timeout(common::PATIENCE).unwrap());
        drop(port);
        drop(held);
        callers.iter().for_each(|caller| caller.expect("gone"));
    }
    for caller in &mut callers {
        caller.tell("end");
        caller.finish();
    }
}
