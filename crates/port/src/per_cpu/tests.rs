use super::*;
use crate::port::ports;
use handfast_testing::{PATIENCE, Random};
use std::thread;

/// Here workers end after a millisecond: they are about to end, gone, or just beginning when messages come, and bells
/// ring for nothing meanwhile.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_message_is_handled_whenever_its_worker_ends() {
    let name = format!("ends-{}", std::process::id());
    let port = crate::bind(&name).unwrap();
    let process = port.port().process.clone();
    let server = port.serve_per_cpu(|worker, request| {
        let _ = worker.reply(request, b"");
    });
    let server = server.unwrap();
    let right = crate::connect(&name).unwrap();
    let seed = Random::seeded("ends").next();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let rings = scope.spawn(|| {
            let mut random = Random::of(seed);
            while !is_over.load(Ordering::Relaxed) {
                ports::rouse_all(&process);
                // Sleep: a moment chosen at random.
                thread::sleep(Duration::from_micros(random.below(300)));
            }
        });
        let callers: Vec<_> = (1..=3)
            .map(|caller| {
                let right = &right;
                let mut random = Random::of(seed.wrapping_add(caller));
                scope.spawn(move || {
                    for _ in 0..500 {
                        // Sleep: a moment chosen at random.
                        thread::sleep(Duration::from_micros(random.below(2_000)));
                        right.call_timeout(b"", PATIENCE).unwrap();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        rings.join().unwrap();
        assert!(ended.iter().all(Result::is_ok), "{:?}", server.places());
    });
    let started: u64 = server.places().iter().map(|place| place.started).sum();
    // As often as they have no work for that long: on a busy machine not often.
    assert!(started > 10, "{:?}", server.places());
}
