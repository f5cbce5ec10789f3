//! Operations repeated over and over leave nothing behind: own memory, descriptors, mappings, threads, links and counted
//! rights of all who take part return to what they were.
//!
//! `HANDFAST_ROUNDS` says how often.

pub(crate) mod peer;
mod scenes;

use crate::common::{self, Child, PATIENCE};
use crate::rounds_asked;
use handfast::{Counters, Message, ReceiveRight, Right, SendRight};
use peer::send_right;
use scenes::SCENES;
use std::time::Duration;

/// Links, and rights that others have, of the process behind a right.
fn counters(right: &SendRight) -> String {
    let links = right.counters().unwrap().links;
    let rights: u64 = links.iter().map(|row| Counters::value(row, "rights")).sum();
    let ports = right.counters().unwrap().ports.len();
    format!("{} links {rights} rights {ports} ports", links.len())
}

/// The things that a scene has in hand.
struct Stage {
    first: SendRight,
    second: SendRight,
    name: String,
    /// Of this process.
    port: ReceiveRight,
    other: handfast::SharedArena,
}

impl Stage {
    /// A look at the port that finds nothing: a receiver keeps the links of the dead until it has found out.
    fn nothing_comes(&self) {
        let came = self.port.receive_timeout(Duration::from_micros(30));
        assert!(came.is_err(), "{came:?}");
    }
}

pub(crate) fn driver(scene: &str, first: &str, second: &str) {
    let name = common::name("driver");
    let stage = Stage {
        first: handfast::connect(first).unwrap(),
        second: handfast::connect(second).unwrap(),
        port: handfast::anonymous().unwrap(),
        other: handfast::SharedArena::create(4096, 4).unwrap(),
        name,
    };
    let friend = handfast::anonymous().unwrap();
    for peer in [&stage.first, &stage.second] {
        let _ = ask(peer, "friend", [friend.mint(9).into()]);
    }
    let (_, run) = SCENES.iter().find(|(name, _)| *name == scene).unwrap();
    common::say("ready");
    while let Some(text) = common::told() {
        if text == "counters" {
            let own = ask(&stage.first, "counters", []);
            let peers = [counters(&stage.first), counters(&stage.second)];
            let own = String::from_utf8_lossy(&own);
            common::say(&format!("{own}, {}", peers.join(", ")));
            continue;
        }
        for number in 0..text.parse::<u64>().unwrap() {
            run(&stage, number);
        }
        common::say("done");
    }
}

pub(crate) fn ask<const N: usize>(peer: &SendRight, text: &str, rights: [Right; N]) -> Message {
    match N {
        0 => peer.call_timeout(text.as_bytes(), PATIENCE).unwrap(),
        _ => peer
            .with(rights)
            .call_timeout(text.as_bytes(), PATIENCE)
            .unwrap(),
    }
}

pub(crate) fn got(mut message: Message) -> Right {
    message.take_rights().pop().unwrap()
}

pub(crate) fn door(peer: &SendRight) -> SendRight {
    send_right(got(ask(peer, "door", [])))
}

/// Own memory in KiB; descriptors, mappings and threads.
fn has(pid: u32) -> (usize, [usize; 3]) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let (descriptors, mappings) = common::holdings(pid);
    (
        value("RssAnon:"),
        [descriptors, mappings, value("Threads:")],
    )
}

struct Scenery {
    driver: Child,
    peers: [Child; 2],
}

impl Scenery {
    fn new(number: usize) -> Self {
        let names = ["first", "second"].map(|which| common::name(&format!("{which}{number}")));
        let peers = [0, 1].map(|which| {
            let peer = common::start("peer", &[&names[which]]);
            peer.expect("ready");
            peer
        });
        let [first, second] = &names;
        let driver = common::start("driver", &[SCENES[number].0, first, second]);
        driver.expect("ready");
        Self { driver, peers }
    }

    fn run(&mut self, rounds: u64) {
        self.driver.tell(&rounds.to_string());
        let end = std::time::Instant::now() + PATIENCE + Duration::from_millis(rounds * 20);
        loop {
            if let Some(line) = self.driver.said() {
                assert_eq!(line, "done");
                return;
            }
            let status = self.driver.process.try_wait().unwrap();
            assert!(status.is_none(), "the driver has ended");
            assert!(std::time::Instant::now() < end, "the driver hangs");
            // Sleep: the interval of a poll with an end.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all(&mut self) -> ([(usize, [usize; 3]); 3], String) {
        self.driver.tell("counters");
        let counters = self.driver.line();
        let pids = [self.driver.pid(), self.peers[0].pid(), self.peers[1].pid()];
        (pids.map(has), counters)
    }

    /// Once nothing changes any more.
    fn at_rest(&mut self) -> ([(usize, [usize; 3]); 3], String) {
        let (mut last, mut looks) = (self.all(), 0);
        assert!(common::within_patience(|| {
            let now = self.all();
            let is_same = now.1 == last.1 && (0..3).all(|of| now.0[of].1 == last.0[of].1);
            looks = if is_same { looks + 1 } else { 0 };
            last = now;
            looks == 10
        }));
        last
    }
}

/// Fewer show that a scene runs; what stays behind is told from what comes and goes after so many.
const MANY: u64 = 1_000;

/// Runs a scene; what there is more of afterwards.
fn leaks(number: usize, rounds: u64) -> Option<String> {
    let mut scenery = Scenery::new(number);
    scenery.run(rounds / 5 + 5);
    let before = scenery.at_rest();
    let since = std::time::Instant::now();
    scenery.run(rounds);
    let took = since.elapsed();
    let mut after = scenery.at_rest();
    // A link of the driver with itself by which a right has gone stays until it ends: two descriptors and two mappings each.
    let own_links = match SCENES[number].0.starts_with("a reply right") {
        true => [2 * 16, 2 * 16, 0],
        false => [0; 3],
    };
    let same = |after: &([(usize, [usize; 3]); 3], String)| {
        let most = |of: usize, kind: usize| {
            let own = if of == 0 { own_links[kind] } else { 0 };
            before.0[of].1[kind] + own
        };
        let more = (0..3).any(|of| (0..3).any(|kind| after.0[of].1[kind] > most(of, kind)));
        let numbers = |text: &str| {
            let words = text.split(|letter: char| !letter.is_ascii_digit());
            let numbers = words.filter_map(|word| word.parse::<u64>().ok());
            numbers.collect::<Vec<_>>()
        };
        let counted = numbers(&before.1).into_iter().zip(numbers(&after.1));
        !more && counted.into_iter().all(|(before, after)| after <= before)
    };
    for _ in 0..500 {
        if same(&after) || rounds < MANY {
            break;
        }
        // Sleep: the interval of a poll with an end.
        std::thread::sleep(Duration::from_millis(10));
        after = scenery.all();
    }
    let grown = [0, 1, 2].map(|of| after.0[of].0 as i64 - before.0[of].0 as i64);
    // Half a pointer a round, and what an allocator likes.
    let most = 256 + rounds as i64 * 8 / 1024;
    let line = format!(
        "{}: {rounds} rounds in {took:?}, KiB {grown:?}, {:?} [{}] -> {:?} [{}]",
        SCENES[number].0,
        before.0.map(|of| of.1),
        before.1,
        after.0.map(|of| of.1),
        after.1
    );
    println!("{line}");
    let is_more = !same(&after) || grown.iter().any(|grown| *grown > most);
    (rounds >= MANY && is_more).then_some(line)
}

/// Every fourth scene, from this one on; or the one that is asked for.
fn every_fourth(from: usize) {
    let rounds = rounds_asked(20);
    let only = std::env::var("HANDFAST_SCENE").ok();
    let is_asked = |number: &usize| match &only {
        Some(only) => only == SCENES[*number].0,
        None => true,
    };
    let numbers = (from..SCENES.len()).step_by(4).filter(is_asked);
    let found: Vec<_> = numbers.filter_map(|number| leaks(number, rounds)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_is_done_over_and_over_again_leaves_nothing_behind() {
    every_fourth(0);
}

#[test]
fn what_is_done_over_and_over_again_leaves_nothing_behind_second_part() {
    every_fourth(1);
}

#[test]
fn what_is_done_over_and_over_again_leaves_nothing_behind_third_part() {
    every_fourth(2);
}

#[test]
fn what_is_done_over_and_over_again_leaves_nothing_behind_fourth_part() {
    every_fourth(3);
}
