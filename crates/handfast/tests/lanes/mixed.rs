//! All kinds of ports of some processes, more than there are lanes to each, and all that goes in messages to them.

use crate::common::Random;
use crate::crowd::{MOVING, OF_SET, OF_THREADS, Sender};
use crate::{common, crowd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const THREADS: u64 = 6;

#[test]
fn ports_that_move_sets_and_ports_of_every_cpu_share_their_lanes() {
    crowd::cuts_end_it();
    let [set_name, first_name, second_name] =
        ["set", "first", "second"].map(|of| common::name(&format!("mixed-{of}")));
    let children = [
        common::start("set", &[&set_name]),
        common::start("home", &[&first_name, &OF_THREADS.to_string()]),
        common::start("home", &[&second_name, "0"]),
    ];
    children.iter().for_each(|child| child.expect("ready"));
    let mut rights = crowd::rights_of(&first_name, OF_THREADS);
    rights.extend(crowd::rights_of(&set_name, OF_SET));
    let homes = [&first_name, &second_name].map(|name| handfast::connect(name).unwrap());
    let random = Mutex::new(Random::seeded("lanes-mixed"));
    let draws = |below| random.lock().unwrap().below(below);
    let (started, lasts) = (Instant::now(), common::campaign(3));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (rights, is_over, draws, homes) = (&rights, &is_over, &draws, &homes);
        let names = [&first_name, &second_name];
        let begin = |sender| {
            let seed = random.lock().unwrap().next();
            let mut sender = Sender::new(rights, sender, Random::of(seed));
            scope.spawn(move || {
                let mut steps = 0;
                while started.elapsed() < lasts && !is_over.load(Ordering::Relaxed) {
                    let _ends = Ends(is_over);
                    sender.step().unwrap();
                    core::mem::forget(_ends);
                    steps += 1;
                }
                steps
            })
        };
        let senders: Vec<_> = (1..=THREADS).map(begin).collect();
        let mover = scope.spawn(move || {
            let mut sender = Sender::new(rights, THREADS + 1, Random::of(0));
            let (mut at, mut count) = ([0; MOVING], 0);
            while !is_over.load(Ordering::Relaxed) {
                let port = draws(MOVING as u64) as usize;
                at[port] = 1 - at[port];
                // A right from here may go by the vine: then the port comes here and goes on.
                let home = (draws(2) == 0).then(|| homes[at[port]].clone());
                sender.move_to(port, names[at[port]], home);
                sender.call(port, crowd::PLAIN).unwrap();
                count += 1;
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_millis(draws(30)));
            }
            count
        });
        let pids = children
            .each_ref()
            .map(|child| rustix::process::Pid::from_child(&child.process));
        let stops = scope.spawn(move || {
            let signal = |of: usize, signal| {
                rustix::process::kill_process(pids[of], signal).unwrap();
            };
            while !is_over.load(Ordering::Relaxed) {
                let child = draws(3) as usize;
                signal(child, rustix::process::Signal::STOP);
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_millis(draws(3)));
                signal(child, rustix::process::Signal::CONT);
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_millis(draws(60)));
            }
        });
        let steps: Vec<_> = senders.into_iter().map(|one| one.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        stops.join().unwrap();
        println!("{steps:?} {:?}", mover.join());
        steps.into_iter().for_each(|steps| assert!(steps.is_ok()));
    });
}

/// Ends what goes on beside it, where it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
