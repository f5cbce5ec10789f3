//! Two ports that go round among three homes, of which each sends to both by rights of its own and by rights that others give it.

use crate::common::Random;
use crate::ring::{self, Home};
use handfast::error::{Gone, ReceiveError, SendError};
use handfast::{OwnRight, ReceiveRight, Right, SendRight};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

const HOMES: usize = 3;
const PORTS: usize = 2;
const RUN: Duration = Duration::from_secs(6);
/// A third of the time that a message waits for an old home which says nothing.
const LIMIT: Duration = Duration::from_secs(20);

/// The rights of one home to one port.
#[derive(Default)]
struct Known {
    rights: Mutex<Vec<SendRight>>,
    own: Mutex<Option<OwnRight>>,
}

struct World {
    homes: Vec<Home>,
    known: [[Known; PORTS]; HOMES],
    /// From then on nothing is sent or moved.
    until: Instant,
    /// Nothing is served any more.
    is_over: AtomicBool,
}

impl World {
    fn is_done(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Sends a right to the next home, or returns it.
    fn give(&self, from: usize, port: usize, right: Right) -> Option<Right> {
        let sending = self.homes[from].next.with([right]);
        let sent = sending.send(&[port as u8]);
        sent.err()?.rights.pop()
    }

    /// Takes up what others give to a home.
    fn take<'s>(&'s self, threads: &'s Scope<'s, '_>, home: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mail = &self.homes[home].mail;
            let Ok(mut request) = mail.receive_timeout(Duration::from_millis(10)) else {
                continue;
            };
            let port = usize::from(request.bytes()[0]);
            match request.take_rights().pop() {
                Some(Right::Receive(receive)) => {
                    let _ = threads.spawn(move || self.serve(home, port, receive));
                }
                Some(Right::Send(right)) => self.known[home][port].keep(right),
                // To a port that is here.
                Some(Right::Own(own)) => own
                    .connect()
                    .map_or((), |right| self.known[home][port].keep(right)),
                _ => {}
            }
        }
    }

    /// Receives, until the port moves on.
    fn serve(&self, home: usize, port: usize, receive: ReceiveRight) {
        let mut random = Random::seeded(&format!("server of {port} at {home}"));
        *self.known[home][port].own.lock().unwrap() = Some(receive.mint(home as u64));
        let mut receive = receive;
        loop {
            for _ in 0..20 + random.below(200) {
                match receive.receive_timeout(Duration::from_millis(10)) {
                    Ok(request) if request.is_call() => drop(request.reply(b"")),
                    Ok(_) | Err(ReceiveError::TimedOut) => {}
                    Err(error) => panic!("{error}"),
                }
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
            if self.is_done() {
                continue;
            }
            // Too many senders are still on their way to where it has been.
            match self.give(home, port, receive.into()) {
                Some(Right::Receive(stays)) => receive = stays,
                _ => return,
            }
        }
    }

    /// Sends to a port by one right after the other, and gives some to the next home.
    fn send(&self, home: usize, port: usize) {
        let mut random = Random::seeded(&format!("sender to {port} at {home}"));
        let known = &self.known[home][port];
        while !self.is_done() {
            let own = known.own.lock().unwrap().clone();
            let by_own = own.as_ref().filter(|_| random.below(3) == 0);
            let right = match by_own {
                Some(own) => own.connect().ok(),
                None => known.one(&mut random),
            };
            let Some(right) = right else {
                std::thread::yield_now();
                continue;
            };
            for _ in 0..random.below(40) {
                let _ = right.send(b"one way");
            }
            match right.call_timeout(b"call", LIMIT) {
                // Documented: rights that go through a home which they have left.
                Ok(_) | Err(SendError::Gone(Gone::Reply)) => {}
                Err(error) => panic!("home {home}, port {port}: {error}"),
            }
            match own.filter(|_| random.below(4) == 0) {
                Some(own) => drop(self.give(home, port, own.into())),
                None if random.below(2) == 0 => drop(self.give(home, port, right.into())),
                None => {}
            }
        }
    }
}

impl Known {
    fn keep(&self, right: SendRight) {
        let mut rights = self.rights.lock().unwrap();
        let oldest = (rights.len() > 8).then(|| rights.remove(0));
        rights.push(right);
        drop(rights);
        drop(oldest);
    }

    fn one(&self, random: &mut Random) -> Option<SendRight> {
        let rights = self.rights.lock().unwrap();
        let count = rights.len() as u64;
        (count > 0).then(|| rights[random.below(count) as usize].clone())
    }
}

/// An old home passed messages on by rights that its application had asked for, behind messages that waited for old homes: two homes
/// waited for each other, a minute long, and lost the ports then.
#[test]
fn senders_to_two_ports_that_go_round_do_not_wait_for_each_other() {
    let world = World {
        homes: ring::homes("passed-round", HOMES),
        known: Default::default(),
        until: Instant::now() + RUN,
        is_over: AtomicBool::new(false),
    };
    let world = &world;
    std::thread::scope(|threads| {
        for home in 0..HOMES {
            threads.spawn(move || world.take(threads, home));
        }
        for port in 0..PORTS {
            let receive = world.homes[port].node.anonymous().unwrap();
            threads.spawn(move || world.serve(port, port, receive));
        }
        let places = (0..HOMES).flat_map(|home| (0..PORTS).map(move |port| (home, port)));
        let send = |(home, port)| threads.spawn(move || world.send(home, port));
        let senders: Vec<_> = places.map(send).collect();
        let ends: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
        world.is_over.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    world.homes.iter().for_each(|home| home.node.shutdown());
}
