//! Notices that no sender is left, and of death, in random schedules with kills: each comes once, and soon.
//!
//! `HANDFAST_SCHEDULES` says how many; `HANDFAST_SEED` which.

use crate::common::{self, Random};
use handfast::{Notice, ReceiveRight, Right, SendRight};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SCHEDULES: u32 = 300;
const KEEPERS: usize = 3;
/// Ports of earlier schedules that are looked at for notices that come twice.
const OLD: usize = 6;
/// How soon a notice comes.
const SOON: Duration = Duration::from_millis(10);
/// A right that was provided by a process that has ended, and was not claimed, ends after that.
const GRACE: Duration = Duration::from_secs(10);

/// A process that holds rights.
struct Keeper {
    process: common::Child,
    name: String,
    order: SendRight,
    number: u64,
    /// Rights that it has for sure, and whether it may have more: those that came by others.
    rights: usize,
    may_have: bool,
}

/// Tells of deaths: which, and when.
struct Deaths {
    port: ReceiveRight,
    told: Mutex<BTreeMap<u64, Vec<Instant>>>,
}

impl Deaths {
    fn watch(&self) -> ! {
        loop {
            match self.port.receive().unwrap().notice() {
                Some(Notice::Dead(number)) => {
                    let mut told = self.told.lock().unwrap();
                    told.entry(number).or_default().push(Instant::now());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

struct World {
    random: Random,
    deaths: &'static Deaths,
    keepers: Vec<Keeper>,
    started: u64,
    killed: Vec<(u64, Instant)>,
    /// Of the last ones that were killed: a process without a right to another is not told of its death.
    dead: VecDeque<Keeper>,
    old: VecDeque<ReceiveRight>,
    late: Delays,
    pace: common::Pace,
    /// The steps of this schedule, and of the one with the latest notice.
    steps: Vec<String>,
    slowest: (Duration, Vec<String>),
}

/// Delays of one kind of end.
type Delays = BTreeMap<&'static str, Vec<Duration>>;

/// How a keeper comes to have no right any more.
const ENDS: [&str; 3] = ["drop", "use", "kill"];

impl World {
    fn start(&mut self) -> Keeper {
        self.started += 1;
        let (number, name) = (
            self.started,
            common::name(&format!("keeper-{}", self.started)),
        );
        let process = common::start("keeper", &[&name]);
        process.expect("ready");
        let order = handfast::connect(&name).unwrap();
        order.notify_death(&self.deaths.port, number);
        Keeper {
            process,
            name,
            order,
            number,
            rights: 0,
            may_have: false,
        }
    }

    /// Another in the place of one that was killed.
    fn replace(&mut self, of: usize) {
        let next = self.start();
        let dead = core::mem::replace(&mut self.keepers[of], next);
        self.dead.push_back(dead);
        if self.dead.len() > OLD {
            self.dead.pop_front();
        }
    }

    fn any(&mut self) -> usize {
        self.random.below(KEEPERS as u64) as usize
    }

    fn give(&mut self, port: &ReceiveRight, to: usize) {
        let count = 1 + self.random.below(3);
        let rights = (0..count).map(|_| Right::from(port.mint(self.random.below(3))));
        let rights: Vec<_> = rights.collect();
        let keeper = &mut self.keepers[to];
        keeper.rights += rights.len();
        self.steps
            .push(format!("give {} to {}", rights.len(), keeper.number));
        let given = keeper.order.with(rights);
        // Without an answer the next step may come before it has got them.
        match self.random.below(2) {
            0 => given.send(b"keep").unwrap(),
            _ => drop(given.call_timeout(b"keep", common::PATIENCE).unwrap()),
        }
    }

    /// A keeper's rights go, as `end` says. Killed, it has to be started again.
    fn end(&mut self, of: usize, end: &str) {
        let keeper = &mut self.keepers[of];
        (keeper.rights, keeper.may_have) = (0, false);
        self.steps.push(format!("{end} {}", keeper.number));
        if end == "kill" {
            self.killed.push((keeper.number, Instant::now()));
            keeper.process.kill();
        } else {
            keeper.order.send(end.as_bytes()).unwrap();
        }
    }

    /// Returns whether rights went from one keeper to another.
    fn step(&mut self, port: &ReceiveRight) -> bool {
        let of = self.any();
        match self.random.below(10) {
            0..3 => self.give(port, of),
            3 => self.end(of, "drop"),
            4 => self.end(of, "use"),
            5 => self.keepers[of].order.send(b"copy").unwrap(),
            6 => {
                self.end(of, "kill");
                self.replace(of);
            }
            _ if self.keepers[of].rights > 0 => {
                let to = (of + 1 + self.random.below(KEEPERS as u64 - 1) as usize) % KEEPERS;
                let (how, dies) = match self.random.below(4) {
                    0 => ("pass", Some(of)),
                    // A right that comes there is in no order with what this process says to it.
                    1 => ("throw", Some(to)),
                    _ => ("pass", None),
                };
                let pass = format!("{how} {}", self.keepers[to].name);
                self.steps
                    .push(format!("{}: {pass}", self.keepers[of].number));
                let order = &self.keepers[of].order;
                order
                    .call_timeout(pass.as_bytes(), common::PATIENCE)
                    .unwrap();
                // It may go by a vine, and end with who has passed it on.
                self.keepers[to].may_have = true;
                if let Some(dies) = dies {
                    self.end(dies, "kill");
                    self.replace(dies);
                }
                return true;
            }
            _ => {}
        }
        false
    }

    /// Takes the messages that are at the port by now. Returns whether it has told that there is no sender.
    fn is_told(&self, port: &ReceiveRight) -> bool {
        let sure: usize = self.keepers.iter().map(|keeper| keeper.rights).sum();
        let mut is_told = false;
        while let Ok(request) = port.try_receive() {
            match request.notice() {
                None => assert_eq!(request.bytes(), b"used"),
                Some(notice) => {
                    assert_eq!((notice, sure), (Notice::NoSenders, 0), "too early");
                    assert!(!is_told, "twice");
                    is_told = true;
                }
            }
        }
        is_told
    }

    /// Some steps with the rights to a port of their own, until the last of them is gone and told of.
    fn schedule(&mut self) {
        self.steps.clear();
        self.pace.look();
        let port = handfast::anonymous().unwrap();
        let (mut asks, mut is_passed) = (false, false);
        for _ in 0..self.random.below(7) {
            is_passed |= self.step(&port);
            if !asks && self.random.below(3) == 0 {
                port.notify_no_senders();
                asks = true;
            }
            let is_told = self.is_told(&port);
            assert!(asks || !is_told, "not asked for, or twice");
            asks &= !is_told;
        }
        let of = self.any();
        self.give(&port, of);
        port.notify_no_senders();
        // The others' first, then those of the one that has some for sure.
        let mut last = ("", Instant::now());
        let mut dead = Vec::new();
        for of in (of + 1..=of + KEEPERS).map(|of| of % KEEPERS) {
            if self.keepers[of].rights == 0 && !self.keepers[of].may_have {
                continue;
            }
            let end = ENDS[self.random.below(3) as usize];
            assert!(!self.is_told(&port), "too early");
            last = (end, Instant::now());
            self.end(of, end);
            if end == "kill" {
                dead.push(of);
            }
        }
        let (end, since) = last;
        loop {
            let told = port.receive_timeout(GRACE + common::PATIENCE);
            let told = told.unwrap_or_else(|_| panic!("nothing is told: {:?}", self.steps));
            if told.notice() == Some(Notice::NoSenders) {
                break;
            }
            assert_eq!(told.bytes(), b"used");
        }
        let kind = match (end, is_passed) {
            ("drop", false) => "dropped",
            ("use", false) => "used and dropped",
            ("kill", false) => "killed",
            _ => "passed on before",
        };
        let delay = since.elapsed();
        self.late.entry(kind).or_default().push(delay);
        if delay > self.slowest.0 {
            self.slowest = (delay, self.steps.clone());
        }
        for of in dead {
            self.replace(of);
        }
        self.old.push_back(port);
        if self.old.len() > OLD {
            self.old
                .pop_front()
                .iter()
                .for_each(|old| self.nothing_more(old));
        }
    }

    fn nothing_more(&self, port: &ReceiveRight) {
        assert!(!self.is_told(port), "twice");
    }
}

/// Prints how they are spread.
fn median_of(kind: &str, delays: &mut [Duration]) -> Duration {
    let (median, most, worst) = common::spread(delays);
    let late = delays.iter().filter(|delay| **delay > SOON).count();
    let count = delays.len();
    println!("{kind}: {count}, median {median:?}, 99 % {most:?}, worst {worst:?}, {late} late");
    median
}

#[test]
fn every_notice_comes_once_and_soon_in_random_schedules_with_kills() {
    let _alone = common::alone();
    let asked = std::env::var("HANDFAST_SCHEDULES").ok();
    let schedules = asked.map_or(SCHEDULES, |count| count.parse().unwrap());
    let deaths: &'static Deaths = Box::leak(Box::new(Deaths {
        port: handfast::anonymous().unwrap(),
        told: Mutex::default(),
    }));
    std::thread::spawn(|| deaths.watch());
    let mut world = World {
        random: Random::seeded("notices"),
        deaths,
        keepers: Vec::new(),
        started: 0,
        killed: Vec::new(),
        dead: VecDeque::new(),
        old: VecDeque::new(),
        late: Delays::new(),
        pace: common::Pace::new(),
        steps: Vec::new(),
        slowest: Default::default(),
    };
    for _ in 0..KEEPERS {
        let keeper = world.start();
        world.keepers.push(keeper);
    }
    for _ in 0..schedules {
        world.schedule();
    }
    for of in 0..KEEPERS {
        world.end(of, "kill");
    }
    println!("the slowest: {:?}", world.slowest);
    let World {
        old,
        killed,
        late,
        pace,
        ..
    } = &mut world;
    assert!(old.iter().all(|port| port.try_receive().is_err()), "twice");
    assert!(common::within_patience(|| {
        let told = deaths.told.lock().unwrap();
        killed.iter().all(|(number, _)| told.contains_key(number))
    }));
    let told = deaths.told.lock().unwrap();
    assert_eq!(told.len(), killed.len(), "deaths of the living");
    assert!(told.values().all(|times| times.len() == 1), "twice");
    let died = killed
        .iter()
        .map(|(number, since)| told[number][0] - *since);
    late.insert("deaths", died.collect());
    // Others may have the processors meanwhile, for longer than that.
    let soon = pace.allows(SOON);
    for (kind, delays) in late {
        assert!(median_of(kind, delays) <= soon, "{kind}, {soon:?}");
    }
}

/// A keeper whose library's control thread looks for something less and less often: the answer of a call that
/// was given up.
pub(crate) fn busy_keeper(name: &str) {
    let own = format!("{name}-silent");
    let _silent = handfast::bind(&own).unwrap();
    let unanswered = handfast::connect(&own).unwrap();
    let short = Duration::from_millis(1);
    assert!(unanswered.call_timeout(b"", short).is_err());
    // Sleep: what a call that was given up leaves to do is done by then; the check that follows holds either way.
    std::thread::sleep(Duration::from_millis(300));
    common::keeper(name);
}

#[test]
fn a_right_is_given_back_soon_though_there_is_something_to_look_at_later() {
    let _alone = common::alone();
    let name = common::name("busy");
    let keeper = common::start("busy keeper", &[&name]);
    keeper.expect("ready");
    let order = handfast::connect(&name).unwrap();
    let port = handfast::anonymous().unwrap();
    let mut pace = common::Pace::new();
    let delays = (0..15).map(|badge| {
        pace.look();
        order.with([port.mint(badge).into()]).send(b"keep").unwrap();
        port.notify_no_senders();
        let since = Instant::now();
        order.send(b"drop").unwrap();
        let told = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(told.notice(), Some(Notice::NoSenders));
        since.elapsed()
    });
    let mut delays: Vec<_> = delays.collect();
    let (median, ..) = common::spread(&mut delays);
    println!("{delays:?}");
    let soon = pace.allows(2 * SOON);
    assert!(median < soon, "{median:?}, {soon:?}");
}
