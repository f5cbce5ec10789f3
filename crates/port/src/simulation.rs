//! Whole nodes on a simulated machine: the nodes and their protocols are the real ones, their threads take turns by a seed, and
//! time is virtual ([`handfast_sys::simulation`]).
//!
//! Up to eight nodes call each other, give each other rights to the ports of all, pass calls on, and move ports; in some runs one
//! of them is killed between two steps of its threads. Then what they say is compared with what may be so ([`Scene::expect`]),
//! and once all rights are gone, no node may hold a link.

use crate::Node;
use crate::error::{RightError, SendError};
use crate::options::Options;
use crate::send::{SendRight, route};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use handfast_sys::simulation::{self, World, random};
use handfast_sys::thread::{self, Thread};
use handfast_sys::{clock, process};
use handfast_wait::Strategy;
use home::{Home, Wish};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

mod conformance;
mod home;
mod hub;
mod left;
mod server;

/// A run that takes more turns has a thread that never gets on.
const TURNS_MAX: u64 = 200_000;
/// Until links that nobody uses have ended, and what else is done late.
const SETTLED: Duration = Duration::from_secs(100);
const SETTLES: Duration = Duration::from_millis(500);

/// One run, by its seed.
struct Scene {
    world: World,
    seed: u64,
    is_told: bool,
    homes: Vec<Arc<Home>>,
    /// The ports there have been.
    ports: Mutex<Vec<Fate>>,
    /// Ports move, and end.
    is_lively: bool,
    is_over: AtomicBool,
    /// The node that is killed, from then on.
    victim: AtomicU32,
    threads: Mutex<Vec<(u32, Thread)>>,
    /// Calls that may end without an answer, by their numbers: if another port has ended, or anyway.
    depends: Mutex<HashMap<u32, Option<u32>>>,
    /// Operations that went well, and that did not.
    done: AtomicU32,
    failed: AtomicU32,
}

/// A port's life so far.
#[derive(Default)]
struct Fate {
    may_have_ended: bool,
    /// It is under way, or has been.
    has_moved: bool,
    /// Rights to it end by being revoked, or with a port of its own, while its receiver stays.
    is_minted: bool,
    /// The port in whose queue it may be.
    lies_in: Option<u32>,
}

/// In the place of a victim.
const NOBODY: u32 = 0;

impl Scene {
    /// Tells what happens, where one run is looked at.
    fn tell(&self, number: u32, what: core::fmt::Arguments<'_>) {
        if self.is_told {
            eprintln!("{:>12} node {number}: {what}", simulation::time_ns());
        }
    }

    /// Starts a thread of a node.
    fn spawn(&self, number: u32, work: impl FnOnce() + Send + 'static) {
        let started = (self.world).as_process(number, || thread::spawn("actor", 1 << 18, work));
        self.threads
            .lock()
            .unwrap()
            .push((number, started.unwrap()));
    }

    /// A number for a port.
    fn new_port(&self) -> u32 {
        let mut ports = self.ports.lock().unwrap();
        ports.push(Fate::default());
        ports.len() as u32 - 1
    }

    /// This port may have ended from now on, and with it all that lie in its queue.
    fn ends(&self, port: u32) {
        let mut ports = self.ports.lock().unwrap();
        let mut ended = vec![port];
        while let Some(port) = ended.pop() {
            let fate = &mut ports[port as usize];
            if !core::mem::replace(&mut fate.may_have_ended, true) {
                let lie_there = |(_, fate): &(u32, &Fate)| fate.lies_in == Some(port);
                ended.extend((0..).zip(&*ports).filter(lie_there).map(|(port, _)| port));
            }
        }
    }

    /// This port moves, in a message to another one.
    fn moves(&self, port: u32, to: u32) {
        let mut ports = self.ports.lock().unwrap();
        let may_end = ports[to as usize].may_have_ended;
        let fate = &mut ports[port as usize];
        (fate.has_moved, fate.lies_in) = (true, Some(to));
        drop(ports);
        if may_end {
            self.ends(port);
        }
    }

    /// It has come to its new home, or back.
    fn arrives(&self, port: u32) {
        self.ports.lock().unwrap()[port as usize].lies_in = None;
    }

    /// This is a port whose receiver stays as long as its node.
    fn is_minted(&self, port: u32) {
        self.ports.lock().unwrap()[port as usize].is_minted = true;
    }

    /// Whether rights to this port have not ended when all ports have that go.
    fn stays(&self, port: u32) -> bool {
        let ports = self.ports.lock().unwrap();
        let fate = &ports[port as usize];
        fate.is_minted && !fate.may_have_ended
    }

    fn has_moved(&self, port: u32) -> bool {
        self.ports.lock().unwrap()[port as usize].has_moved
    }

    /// Whether something that concerns this port may fail.
    fn may_fail(&self, port: u32) -> bool {
        self.victim.load(Ordering::Relaxed) != NOBODY
            || self.is_over.load(Ordering::Relaxed)
            || self.ports.lock().unwrap()[port as usize].may_have_ended
    }

    fn kill(&self, home: &Home) {
        self.victim.store(home.number, Ordering::Relaxed);
        self.world.kill(home.number);
    }

    /// Waits for the threads of all nodes, or all but this one.
    fn join(&self, but: u32) {
        loop {
            let next = {
                let mut threads = self.threads.lock().unwrap();
                let next = threads.iter().position(|(number, _)| *number != but);
                next.map(|next| threads.swap_remove(next))
            };
            let Some((number, thread)) = next else { return };
            assert!(thread.join(), "a thread of node {number} has panicked");
        }
    }

    /// Whether a right leads to a process that only passes messages on: attenuated, it is good for nothing.
    fn is_indirect(&self, right: &SendRight) -> bool {
        let best = route::best(right);
        let peer = best.link().peer.pid & 0xff;
        let home = self.homes.iter().find(|home| home.number == peer);
        home.is_none_or(|home| crate::port::ports::is_vine(home.node.process(), best.port()))
    }

    /// That something has gone well, or has failed as it may.
    fn expect<T>(
        &self,
        home: &Home,
        (wish, port, about): (Wish, u32, Option<u32>),
        outcome: Result<T, SendError>,
    ) -> Result<T, SendError> {
        match &outcome {
            Ok(_) => self.done.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
        if self.victim.load(Ordering::Relaxed) == home.number {
            return outcome;
        }
        let failed = outcome.as_ref().err();
        self.tell(
            home.number,
            format_args!("{wish:?} to {port}, about {about:?}: {failed:?}"),
        );
        if let Err(error) = &outcome {
            let may_fail = self.may_fail(port) || about.is_some_and(|about| self.may_fail(about));
            // A right comes home while its port is received from.
            if matches!(error, SendError::Right(RightError::Unsettled)) {
                return outcome;
            }
            let is_typed = !matches!(error, SendError::TimedOut | SendError::Fault(_));
            assert!(
                may_fail && is_typed,
                "HANDFAST_SEED={}: {wish:?} of node {} to {port}, about {about:?}: {error:?}",
                self.seed,
                home.number
            );
        }
        outcome
    }
}

fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("handfast-simulated-{}", std::process::id()))
}

/// A machine for one run.
fn enter(seed: u64) -> World {
    // Lanes and paths are chosen by them: alike for the same seed.
    handfast_sys::lock::restart_numbers();
    crate::links::restart_serials();
    World::enter(seed, TURNS_MAX)
}

/// The node of a process.
fn node(world: &World, number: u32) -> Node {
    world.as_process(number, || {
        Node::builder()
            .directory(directory())
            .options(Options::new().strategy(Strategy::Block))
            .start()
            .unwrap()
    })
}

/// One run. The turns it took, and what it must have in common with another one of its seed.
fn run(seed: u64) -> (u64, u64) {
    if process::variable("HANDFAST_TELL").is_some() {
        eprintln!("HANDFAST_SEED={seed}");
    }
    let world = enter(seed);
    let lost = |name| number(name).unwrap_or_default();
    world.lose(lost("HANDFAST_LOSE_WAKES"), lost("HANDFAST_LOSE_MESSAGES"));
    // Mostly few: a run of eight takes as long as three of those.
    let nodes = 2 + random(match random(8) {
        0 => 7,
        _ => 4,
    }) as u32;
    let homes = (1..=nodes)
        .map(|number| Arc::new(Home::new(number, node(&world, number))))
        .collect();
    let scene = Arc::new(Scene {
        world: world.clone(),
        seed,
        is_told: process::variable("HANDFAST_TELL").is_some(),
        homes,
        ports: Mutex::default(),
        is_lively: random(2) == 0,
        is_over: AtomicBool::new(false),
        victim: AtomicU32::new(NOBODY),
        threads: Mutex::default(),
        depends: Mutex::default(),
        done: AtomicU32::new(0),
        failed: AtomicU32::new(0),
    });
    // The ports of the names are the first.
    let bind = |home: &Arc<Home>| world.as_process(home.number, || home.bind());
    let ports: Vec<_> = scene.homes.iter().map(bind).collect();
    for (home, port) in scene.homes.iter().zip(ports) {
        home.serve(&scene, port, scene.new_port());
    }
    for home in &scene.homes {
        home.open_hub(&scene);
    }
    for home in &scene.homes {
        home.begin(&scene);
    }
    let victim = &scene.homes[random(nodes.into()) as usize];
    if random(3) == 0 {
        clock::sleep(Duration::from_micros(random(3_000)));
        scene.kill(victim);
    }
    let victim = scene.victim.load(Ordering::Relaxed);
    while (scene.homes.iter()).any(|home| home.number != victim && home.is_busy()) {
        clock::sleep(Duration::from_millis(1));
    }
    scene.is_over.store(true, Ordering::Relaxed);
    scene.join(victim);
    for home in &scene.homes {
        if home.number != victim {
            world.as_process(home.number, || home.forget());
        }
    }
    let living = || scene.homes.iter().filter(|home| home.number != victim);
    let heard = |home: &Arc<Home>| {
        world.as_process(home.number, || {
            // A thread receives there, by which those hear whose ports have shared that receiver.
            home.left_to_hear(&scene);
            home.hear(&scene)
        })
    };
    settle(&scene, || match living().map(heard).sum::<usize>() {
        0 => Ok(()),
        unheard => Err(format!("{unheard} ends of ports are not told of")),
    });
    settle(&scene, || {
        let notices =
            living().map(|home| world.as_process(home.number, || home.left_to_hear(&scene)));
        match notices.sum::<usize>() {
            0 => Ok(()),
            unheard => {
                let left: Vec<_> = living().flat_map(|home| home.left()).collect();
                Err(format!(
                    "{unheard} ends of rights are not told of, {victim} was killed: {left:#?}"
                ))
            }
        }
    });
    for home in living() {
        world.as_process(home.number, || home.close_hub());
    }
    settle(&scene, || {
        let left: Vec<_> = living().flat_map(|home| home.left()).collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{left:#?}, {victim} was killed")),
        }
    });
    for home in living() {
        world.as_process(home.number, || home.shut_down());
    }
    // Nobody is left that could see what the dead do.
    world.revive();
    for home in &scene.homes {
        world.as_process(home.number, || home.node.shutdown());
    }
    scene.join(NOBODY);
    for home in &scene.homes {
        world.as_process(home.number, || home.end());
    }
    // Until threads of users that have nothing to close have ended.
    clock::sleep(Duration::from_secs(2));
    let trace = world.trace();
    if scene.is_told {
        eprintln!("turns {}", trace.0);
    }
    world.leave();
    trace
}

/// Waits until something is well.
fn settle(scene: &Scene, look: impl Fn() -> Result<(), String>) {
    let until_ns = clock::deadline_ns(SETTLED);
    while let Err(left) = look() {
        let is_late = clock::now_ns() > until_ns;
        assert!(!is_late, "HANDFAST_SEED={}: {left}", scene.seed);
        clock::sleep(SETTLES);
    }
}

fn number(name: &str) -> Option<u64> {
    process::variable(name)?.to_str()?.parse().ok()
}

/// The seeds of a test: a number of them from a random one, or the one that is given.
fn seeds() -> core::ops::Range<u64> {
    let first = number("HANDFAST_SEED");
    let count = number("HANDFAST_SCHEDULES").unwrap_or(match first {
        Some(_) => 1,
        None => 200,
    });
    let first = first.unwrap_or_else(|| {
        let bytes = process::random_bytes().unwrap();
        u64::from_le_bytes(bytes[..8].try_into().unwrap()) >> 24
    });
    first..first + count
}

#[test]
fn whole_nodes_keep_their_promises() {
    let seeds = seeds();
    println!("HANDFAST_SEED={} and the next", seeds.start);
    let began = Instant::now();
    let count = seeds.end - seeds.start;
    // A process for each processor: the threads of one run take turns.
    let parts = match process::variable(PART) {
        Some(_) => 1,
        None => u64::from(handfast_sys::cpu::available()).min(count / PART_MIN),
    };
    if parts > 1 {
        let each = count.div_ceil(parts);
        let parts = (0..parts).map(|part| {
            let first = seeds.start + part * each;
            start_part(first, each.min(seeds.end.saturating_sub(first)))
        });
        let parts: Vec<_> = parts.collect();
        for mut part in parts {
            assert!(part.wait().unwrap().success(), "see above");
        }
    } else {
        run_all(seeds);
    }
    println!("{count} schedules, {:?}", began.elapsed());
}

/// This process runs a part of the schedules.
const PART: &str = "HANDFAST_SIMULATION_PART";
/// The schedules that are worth a process.
const PART_MIN: u64 = 16;

fn start_part(first: u64, count: u64) -> std::process::Child {
    let mut part = whole_nodes();
    part.env("HANDFAST_SEED", first.to_string());
    part.env("HANDFAST_SCHEDULES", count.to_string());
    part.env(PART, "1")
        .arg("--nocapture")
        .stdout(std::process::Stdio::null());
    part.spawn().unwrap()
}

/// The scene, in a process of its own.
fn whole_nodes() -> std::process::Command {
    let program = std::env::current_exe().unwrap();
    let mut tests = std::process::Command::new(program);
    tests.args(["--exact", "simulation::whole_nodes_keep_their_promises"]);
    tests
}

fn run_all(seeds: core::ops::Range<u64>) {
    // Measures the machine, once.
    Node::builder().start().unwrap().shutdown();
    for seed in seeds {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            eprintln!("failed: HANDFAST_SEED={seed}");
            // Its threads do not end.
            std::process::exit(1);
        }
    }
    let _ = std::fs::remove_dir_all(directory());
}

#[test]
fn the_same_seed_is_the_same_run() {
    Node::builder().start().unwrap().shutdown();
    for seed in seeds().take(20) {
        assert_eq!(run(seed), run(seed), "HANDFAST_SEED={seed}");
    }
}

/// Runs schedules on a machine that loses something, in a process of its own: a run that fails leaves threads behind.
fn must_fail(what: &str, one_in: &str) {
    let mut tests = whole_nodes();
    tests.env(what, one_in).env("HANDFAST_SCHEDULES", "200");
    let ended = tests.output().unwrap();
    assert!(!ended.status.success(), "{what}");
}

#[test]
fn a_machine_that_loses_wake_ups_is_found_out() {
    // Some are noticed only by being late: sleepers look again now and then.
    must_fail("HANDFAST_LOSE_WAKES", "2");
}

#[test]
fn a_machine_that_loses_control_messages_is_found_out() {
    must_fail("HANDFAST_LOSE_MESSAGES", "50");
}
