//! Whole nodes on a simulated machine: the nodes and their protocols are the real ones, their threads take turns by a seed, and
//! time is virtual ([`handfast_sys::simulation`]).
//!
//! Up to five nodes call each other, give each other rights to the ports of all, pass calls on, and move ports; in some runs one
//! of them is killed between two steps of its threads. Then what they say is compared with what may be so ([`Scene::expect`]),
//! and once all rights are gone, no node may hold a link.

use crate::Node;
use crate::options::Options;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use handfast_sys::simulation::{self, World, random};
use handfast_sys::thread::{self, Thread};
use handfast_sys::{clock, process};
use handfast_wait::Strategy;
use home::Home;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

mod home;

/// A run that takes more turns has a thread that never gets on.
const TURNS_MAX: u64 = 200_000;
/// Until links that nobody uses have ended, and what else is done late.
const SETTLED: Duration = Duration::from_secs(40);

/// One run, by its seed.
struct Scene {
    world: World,
    seed: u64,
    is_told: bool,
    homes: Vec<Arc<Home>>,
    /// The number of the next port, and for each whether it may have ended.
    ports: Mutex<Vec<bool>>,
    /// Ports move, and end.
    is_lively: bool,
    is_over: AtomicBool,
    /// The node that is killed, from then on.
    victim: AtomicU32,
    threads: Mutex<Vec<(u32, Thread)>>,
    /// Operations that went well, and that did not.
    done: AtomicU32,
    failed: AtomicU32,
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
        ports.push(false);
        ports.len() as u32 - 1
    }

    /// This port may have ended from now on.
    fn ends(&self, port: u32) {
        self.ports.lock().unwrap()[port as usize] = true;
    }

    /// Whether something that concerns this port may fail.
    fn may_fail(&self, port: u32) -> bool {
        self.victim.load(Ordering::Relaxed) != NOBODY
            || self.is_over.load(Ordering::Relaxed)
            || self.ports.lock().unwrap()[port as usize]
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
}

fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("handfast-simulated-{}", std::process::id()))
}

/// One run. The turns it took, and what it must have in common with another one of its seed.
fn run(seed: u64) -> (u64, u64) {
    let world = World::enter(seed, TURNS_MAX);
    let nodes = 2 + random(4) as u32;
    let node = |number| {
        world.as_process(number, || {
            Node::builder()
                .directory(directory())
                .options(Options::new().strategy(Strategy::Block))
                .start()
                .unwrap()
        })
    };
    let homes = (1..=nodes)
        .map(|number| Arc::new(Home::new(number, node(number))))
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
        done: AtomicU32::new(0),
        failed: AtomicU32::new(0),
    });
    for home in &scene.homes {
        world.as_process(home.number, || home.begin(&scene));
    }
    for home in &scene.homes {
        let (home, scene) = (home.clone(), scene.clone());
        scene.clone().spawn(home.number, move || home.act(&scene));
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
    clock::sleep(SETTLED);
    let living = scene.homes.iter().filter(|home| home.number != victim);
    let left: Vec<_> = living.flat_map(|home| home.left()).collect();
    assert!(
        left.is_empty(),
        "HANDFAST_SEED={seed}: {left:#?}, {victim} was killed"
    );
    for home in &scene.homes {
        if home.number != victim {
            world.as_process(home.number, || home.node.shutdown());
        }
    }
    // Nobody is left that could see what the dead do.
    world.revive();
    for home in &scene.homes {
        world.as_process(home.number, || home.node.shutdown());
    }
    scene.join(NOBODY);
    for home in &scene.homes {
        world.as_process(home.number, || home.forget());
    }
    let trace = world.trace();
    world.leave();
    trace
}

/// The seeds of a test: a number of them from a random one, or the one that is given.
fn seeds() -> core::ops::Range<u64> {
    let number = |name| process::variable(name)?.to_str()?.parse::<u64>().ok();
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
    // Measures the machine, once.
    Node::builder().start().unwrap().shutdown();
    let seeds = seeds();
    println!("HANDFAST_SEED={} and the next", seeds.start);
    let _ = std::fs::remove_dir_all(directory());
    let began = Instant::now();
    let mut turns = 0;
    for seed in seeds.clone() {
        let outcome = std::panic::catch_unwind(|| run(seed));
        match outcome {
            Ok((took, _)) => turns += took,
            Err(_) => {
                eprintln!("failed: HANDFAST_SEED={seed}");
                // Its threads do not end.
                std::process::exit(1);
            }
        }
    }
    println!(
        "{} schedules, {turns} turns, {:?}",
        seeds.count(),
        began.elapsed()
    );
}

#[test]
fn the_same_seed_is_the_same_run() {
    Node::builder().start().unwrap().shutdown();
    for seed in seeds().take(20) {
        assert_eq!(run(seed), run(seed), "HANDFAST_SEED={seed}");
    }
}
