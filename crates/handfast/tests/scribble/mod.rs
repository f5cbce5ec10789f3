//! A process that writes whatever it can reach.

use crate::common::{self, Random, content};
use handfast::SendRight;
use handfast::error::SendError;
use std::sync::atomic::Ordering;
use std::time::Duration;

const STRETCH_BYTES: usize = 16 << 20;

/// Writes random values over every word this process shares, control words more often, for as
/// long as it lives.
pub(crate) fn scribble(seed: u64) -> ! {
    let mut random = Random::of(seed);
    let shared = [
        common::shared_words("handfast link"),
        common::shared_words("handfast bells"),
    ]
    .concat();
    assert!(shared.len() >= 2);
    for round in 0u64.. {
        for region in &shared {
            if round.is_multiple_of(64) {
                // A stretch, since all of it would take longer than a scribbler lives.
                let start = random.below(region.len_bytes as u64 / 4) as usize * 4;
                let end = region.len_bytes.min(start + STRETCH_BYTES);
                for at in (start..end).step_by(4 * (1 + random.below(7) as usize)) {
                    region
                        .word(at)
                        .store(random.meddlesome(), Ordering::Relaxed);
                }
            }
            // Where the control words of lanes, slots, bells and replies are.
            for _ in 0..4096 {
                let side = handfast_layout::link::Side::Connector;
                let other = handfast_layout::link::Side::Acceptor;
                let side = if random.below(2) == 0 { side } else { other };
                let lane = random.below(16) as u32;
                let answers = match random.below(2) {
                    0 => 16,
                    _ => handfast_layout::link::ANSWERS.into(),
                };
                let answer = random.below(answers) as u32;
                let base = match random.below(4) {
                    0 => side.ready(0),
                    1 => side.lane(lane),
                    2 => side.reply(answer),
                    _ => 0,
                };
                let at = base + random.below(1024) as usize * 4;
                if at < region.len_bytes {
                    region
                        .word(at)
                        .store(random.meddlesome(), Ordering::Relaxed);
                }
            }
        }
    }
    unreachable!()
}

pub(crate) fn scribbler(name: &str, seed: u64) {
    let right: &'static SendRight = Box::leak(Box::new(handfast::connect(name).unwrap()));
    right.call(b"looks honest").unwrap();
    std::thread::spawn(move || scribble(seed));
    // Real messages between the scribbles, so that the server looks.
    std::thread::spawn(move || {
        let mut random = Random::of(!seed);
        loop {
            let bytes = content(random.below(5000) as usize, seed);
            let short = Duration::from_micros(200);
            match right.call_timeout(&bytes, short) {
                Ok(_) | Err(SendError::TimedOut | SendError::Full) => {}
                // Cut: the memory is still mapped, and scribbled on.
                Err(_) => break,
            }
        }
    });
    common::say("scribbling");
    while common::told().is_some() {}
}
