//! Ports that move on before their senders have followed, while long messages wait at every home.

use crate::common;
use crate::ring::{self, Home};
use handfast::{MemberPort, Node, Right, SendRight};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longer than a lane takes.
const LONG_BYTES: usize = 100_000;

/// With two numbers.
fn message(number: u64, port: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&port.to_le_bytes());
    bytes
}

fn words(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (word(0), word(8))
}

/// Each home waits for the blocks in which its messages go on, and the messages in those wait at later homes.
#[test]
fn long_messages_follow_a_port_that_goes_to_and_fro_at_once() {
    const MESSAGES: u64 = 300;
    const HOPS: usize = 16;
    let homes = ring::homes("to-and-fro", 2);
    let sender = ring::node();
    let name = common::name("to-and-fro");
    let mut port = homes[0].node.bind(&name).unwrap();
    let right = sender.connect(&name).unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..MESSAGES {
                right.send(&message(number, 0, LONG_BYTES)).unwrap();
            }
        });
        for hop in 0..HOPS {
            let [from, to] = [hop % 2, (hop + 1) % 2];
            homes[from].next.with([port.into()]).send(b"").unwrap();
            let rights = homes[to].mail.receive().unwrap().take_rights();
            port = match <[Right; 1]>::try_from(rights) {
                Ok([Right::Receive(port)]) => port,
                other => panic!("{other:?}"),
            };
        }
        for number in 0..MESSAGES {
            let request = port.receive_timeout(common::PATIENCE).unwrap();
            assert_eq!(words(request.bytes()).0, number);
        }
    });
    drop(right);
    for node in homes.iter().map(|home| &home.node).chain([&sender]) {
        node.shutdown();
    }
}

/// Ports that share receivers, as they go round.
struct Round {
    homes: Vec<Home>,
    at: HashMap<u64, (usize, MemberPort)>,
    /// The number of the next message to each port.
    next: HashMap<u64, u64>,
}

impl Round {
    const PORTS: u64 = 4;

    /// All ports at the first place, and rights to them, which come by the ports of these names.
    fn new(sender: &Node) -> (Self, Vec<SendRight>) {
        let homes = ring::homes("round", 3);
        let accepts = |home: &Home| MemberPort::accept_at(&home.mail);
        homes.iter().for_each(accepts);
        let (mut at, mut rights) = (HashMap::new(), Vec::new());
        for port in 0..Self::PORTS {
            let member = homes[0].mail.member().unwrap();
            let name = common::name(&format!("round-port-{port}"));
            let giver = homes[0].node.bind(&name).unwrap();
            let asker = sender.connect(&name).unwrap();
            let answer = std::thread::scope(|threads| {
                threads.spawn(|| {
                    let request = giver.receive().unwrap();
                    let right = member.mint(1);
                    request.reply_with(b"", [right.into()]).unwrap();
                });
                asker.call(b"").unwrap().take_rights().pop()
            });
            match answer {
                Some(Right::Send(right)) => rights.push(right),
                other => panic!("{other:?}"),
            }
            at.insert(port, (0, member));
        }
        let next = (0..Self::PORTS).map(|port| (port, 0)).collect();
        (Self { homes, at, next }, rights)
    }

    /// Receives what is at every place.
    fn look(&mut self) {
        for (place, mail) in self.homes.iter().map(|home| &home.mail).enumerate() {
            while let Ok(mut request) = mail.try_receive() {
                let (number, port) = words(request.bytes());
                match request.take_rights().pop() {
                    Some(Right::Member(member)) => drop(self.at.insert(port, (place, member))),
                    Some(other) => panic!("{other:?}"),
                    None => {
                        let next = self.next.entry(port).or_default();
                        assert_eq!(number, *next, "of {port}");
                        *next += 1;
                    }
                }
            }
        }
    }

    fn move_on(&mut self, port: u64) {
        let (place, member) = loop {
            match self.at.remove(&port) {
                Some(known) => break known,
                None => self.look(),
            }
        };
        let next = self.homes[place].next.with([member.into()]);
        next.send(&message(0, port, 16)).unwrap();
    }
}

/// Sends until it is told to end. Returns how many.
fn spray(port: u64, right: &SendRight, done: &AtomicBool) -> u64 {
    let mut number = 0;
    while !done.load(Ordering::Relaxed) {
        let len_bytes = if number % 10 == 0 { LONG_BYTES } else { 16 };
        right.send(&message(number, port, len_bytes)).unwrap();
        number += 1;
    }
    number
}

/// The receivers are shared, and so are the lanes from one old home to the next.
#[test]
fn ports_that_share_receivers_go_round_at_once_with_long_messages_and_lose_none() {
    const HOPS: u64 = 60;
    let sender = ring::node();
    let (mut round, rights) = Round::new(&sender);
    let done = AtomicBool::new(false);
    let sent: HashMap<u64, u64> = std::thread::scope(|threads| {
        let start = |(port, right)| {
            let done = &done;
            (port, threads.spawn(move || spray(port, right, done)))
        };
        let senders: Vec<_> = (0..).zip(&rights).map(start).collect();
        // All have begun.
        while round.next.values().any(|next| *next == 0) {
            round.look();
        }
        (0..HOPS).for_each(|hop| round.move_on(hop % Round::PORTS));
        done.store(true, Ordering::Relaxed);
        let ends = senders.into_iter().map(|(port, sender)| {
            while !sender.is_finished() {
                round.look();
            }
            (port, sender.join().unwrap())
        });
        ends.collect()
    });
    let all_came = common::within_patience(|| {
        round.look();
        round.next == sent
    });
    assert!(all_came, "{:?} of {sent:?} came", round.next);
    drop(rights);
    for node in round.homes.iter().map(|home| &home.node).chain([&sender]) {
        node.shutdown();
    }
}
