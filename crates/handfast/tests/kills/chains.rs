//! Calls that are passed on by one to five processes, any of which is killed at any moment: each caller gets one outcome,
//! and soon, its own answer or a typed error; and afterwards nothing is left of what there was.
//!
//! `HANDFAST_KILLS` says how many in each chain; `HANDFAST_SEED` which.

use crate::common::{self, Child, PATIENCE, Random, within_patience};
use handfast::error::{Gone, SendError};
use handfast::{Counters, SendRight};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Passes every call on, and looks for its next one again when that has gone; a call it answers itself, as `lost`, when it
/// finds none.
pub(crate) fn hop(name: &str, next: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut to = None;
    loop {
        let mut request = port.receive().unwrap();
        let message = request.take_message();
        let mut request = Some(request);
        for _ in 0..2 {
            if to.is_none() {
                to = handfast::connect(next).ok();
            }
            let Some(right) = &to else {
                break;
            };
            match request.take().unwrap().forward(right, &message) {
                Ok(()) => break,
                Err(failed) => {
                    request = Some(failed.request);
                    to = None;
                }
            }
        }
        if let Some(request) = request {
            // The caller may be gone.
            let _ = request.reply(b"lost");
        }
    }
}

/// Answers with what it was sent: at once, or by another thread a moment later; drops what begins with 0xff.
pub(crate) fn end(name: &str) {
    let port = handfast::bind(name).unwrap();
    let (sender, later) = std::sync::mpsc::channel::<handfast::Request>();
    std::thread::spawn(move || {
        for request in later {
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_micros(300));
            let bytes = request.bytes().to_vec();
            let _ = request.reply(&bytes);
        }
    });
    common::say("ready");
    loop {
        let request = port.receive().unwrap();
        match request.bytes()[0] {
            0xff => drop(request),
            first if first % 4 == 0 => sender.send(request).unwrap(),
            _ => {
                let bytes = request.bytes().to_vec();
                let _ = request.reply(&bytes);
            }
        }
    }
}

/// So many processes that pass calls on, and one that answers.
struct Chain {
    children: Vec<Child>,
    names: Vec<String>,
}

impl Chain {
    fn new(what: &str, hops: usize) -> Self {
        let names = (0..=hops).map(|place| common::name(&format!("{what}{hops}-{place}")));
        let mut chain = Self {
            children: Vec::new(),
            names: names.collect(),
        };
        for place in 0..=hops {
            let child = chain.start(place);
            chain.children.push(child);
        }
        chain
    }

    fn start(&self, place: usize) -> Child {
        let name = &self.names[place];
        let child = match self.names.get(place + 1) {
            Some(next) => common::start("hop", &[name, next]),
            None => common::start("end", &[name]),
        };
        child.expect("ready");
        child
    }
}

/// A right to the first of a chain, again when that was killed.
fn connected(name: &str) -> SendRight {
    let mut right = None;
    assert!(within_patience(|| {
        let since = Instant::now();
        let connected = handfast::connect(name);
        if since.elapsed() > Duration::from_secs(1) {
            println!(
                "connecting took {:?}: {:?}",
                since.elapsed(),
                connected.as_ref().map(|_| ())
            );
        }
        right = connected.ok();
        right.is_some()
    }));
    right.unwrap()
}

/// How calls have ended, and after how long at the most.
#[derive(Default)]
struct Outcomes {
    counts: BTreeMap<String, u64>,
    longest: Duration,
}

impl Outcomes {
    fn add(&mut self, what: String, took: Duration) {
        *self.counts.entry(what).or_default() += 1;
        self.longest = self.longest.max(took);
    }
}

/// Calls until it is done, with what nobody else says.
fn caller(name: &str, mut random: Random, done: &AtomicBool, outcomes: &Mutex<Outcomes>) {
    let mut right = connected(name);
    while !done.load(Ordering::Relaxed) {
        let len_bytes = match random.below(20) {
            0 => 8 + random.below(60_000),
            _ => 8 + random.below(100),
        };
        let bytes = common::content(len_bytes as usize, random.next());
        let since = Instant::now();
        let brief = random.below(10) == 0;
        let timeout = match brief {
            true => Duration::from_nanos(random.below(400_000)),
            false => PATIENCE,
        };
        let ended = right.call_timeout(&bytes, timeout);
        let took = since.elapsed();
        if took > Duration::from_secs(2) {
            println!(
                "{took:?}: {:?} of {len_bytes} B, brief {brief}",
                ended.as_ref().map(|reply| reply.len())
            );
        }
        let said = match ended {
            Ok(reply) if *reply == *bytes => "answered".to_owned(),
            Ok(reply) => {
                assert_eq!(&*reply, b"lost", "another's answer");
                "not passed on".to_owned()
            }
            Err(SendError::TimedOut) if brief => "given up".to_owned(),
            Err(error) => {
                let is_end = matches!(error, SendError::Gone(Gone::Process | Gone::Reply));
                assert!(is_end, "{error:?} after {took:?}");
                if error == SendError::Gone(Gone::Process) {
                    right = connected(name);
                }
                format!("{error:?}")
            }
        };
        outcomes.lock().unwrap().add(said, took);
    }
}

/// Whether all of a chain answer for themselves, and what they have is no more than `before`.
fn has(chain: &Chain) -> Vec<(usize, usize)> {
    let pids = chain.children.iter().map(Child::pid);
    pids.map(|pid| (common::at_rest(pid), common::holdings(pid).1))
        .collect()
}

/// In a process of its own, whose descriptors and mappings are counted.
fn kills<T: Fn()>(test: T, hops: usize) {
    let _alone = common::alone();
    if !common::ran_in_own_process(test) {
        kill_many(hops, asked(15));
    }
}

fn kill_many(hops: usize, count: u64) {
    let mut chain = Chain::new("kills", hops);
    // The resources of processes that do nothing but pass on.
    let used = |chain: &Chain| {
        let first = connected(&chain.names[0]);
        assert!(within_patience(|| first
            .call(b"x")
            .is_ok_and(|reply| *reply == *b"x")));
        // Until answers take no way round any more.
        common::warm(&first);
    };
    used(&chain);
    let before = has(&chain);
    let own = common::holdings(std::process::id());
    let mut random = Random::seeded(&format!("{hops} hops"));
    let (done, outcomes) = (AtomicBool::new(false), Mutex::new(Outcomes::default()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (random, name) = (Random::of(random.next()), chain.names[0].clone());
            let (done, outcomes) = (&done, &outcomes);
            scope.spawn(move || caller(&name, random, done, outcomes));
        }
        let ends = End(&done);
        let answered = || outcomes.lock().unwrap().counts.get("answered").copied();
        for kill in 0..count {
            if kill % 3 == 0 {
                // Others come while the chain is not whole again.
                let before = answered();
                assert!(within_patience(|| answered() > before));
            }
            // Sleep: a moment chosen at random.
            std::thread::sleep(Duration::from_nanos(random.below(4_000_000)));
            let place = random.below(hops as u64 + 1) as usize;
            chain.children[place].kill();
            chain.children[place] = chain.start(place);
        }
        drop(ends);
    });
    let outcomes = outcomes.into_inner().unwrap();
    println!(
        "{hops} hops, {count} kills: {:?}, longest {:?}",
        outcomes.counts, outcomes.longest
    );
    assert!(outcomes.counts["answered"] > 0);
    // All find one another again, and each has what it had.
    used(&chain);
    let mut after = Vec::new();
    // Two of them may have come to have a link that they had not before: two descriptors and two mappings.
    let more = 2 * chain.children.len();
    assert!(
        (more as u64) < count,
        "too few kills to see what each leaves"
    );
    let same = within_patience(|| {
        after = has(&chain);
        let mut both = after.iter().zip(&before);
        both.all(|(after, before)| after.0 <= before.0 + more && after.1 <= before.1 + more)
    });
    println!("descriptors and mappings {before:?} -> {after:?}");
    if !same {
        println!(
            "{:?}",
            chain.children.iter().map(Child::pid).collect::<Vec<_>>()
        );
        for name in &chain.names {
            let rows = connected(name).counters().unwrap().links;
            let peers = rows.iter().map(|row| Counters::value(row, "peer_pid"));
            println!("{name}: {:?}", peers.collect::<Vec<_>>());
        }
    }
    assert!(same);
    // The links with the last ones may be ending still.
    let now = || common::holdings(std::process::id());
    assert!(
        within_patience(|| now().0 <= own.0 && now().1 <= own.1),
        "{own:?} -> {:?}",
        now()
    );
}

/// Says that it is done, also when this thread panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn asked(default: u64) -> u64 {
    let asked = std::env::var("HANDFAST_KILLS").ok();
    asked.map_or(default, |count| count.parse().unwrap())
}

#[test]
fn every_call_through_one_process_that_may_be_killed_has_one_outcome() {
    kills(
        every_call_through_one_process_that_may_be_killed_has_one_outcome,
        1,
    );
}

#[test]
fn every_call_through_two_processes_that_may_be_killed_has_one_outcome() {
    kills(
        every_call_through_two_processes_that_may_be_killed_has_one_outcome,
        2,
    );
}

#[test]
fn every_call_through_three_processes_that_may_be_killed_has_one_outcome() {
    kills(
        every_call_through_three_processes_that_may_be_killed_has_one_outcome,
        3,
    );
}

#[test]
fn every_call_through_four_processes_that_may_be_killed_has_one_outcome() {
    kills(
        every_call_through_four_processes_that_may_be_killed_has_one_outcome,
        4,
    );
}

#[test]
fn every_call_through_five_processes_that_may_be_killed_has_one_outcome() {
    kills(
        every_call_through_five_processes_that_may_be_killed_has_one_outcome,
        5,
    );
}
