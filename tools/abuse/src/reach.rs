//! Processes that write random words over all the memory they share with others.

use crate::child::{self, Spec};
use crate::talk::{self, Op};
use handfast::error::SendError;
use handfast_cli::Outcome;
use handfast_layout::link::{ANSWERS, Side};
use handfast_testing::Random;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A mapping of this process that others have, too.
#[derive(Clone)]
pub(crate) struct Reach {
    base: usize,
    len_bytes: usize,
}

/// The memory that may be written: of links, bells, arenas, streams.
pub(crate) fn reach() -> Vec<Reach> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let shared = maps.lines().filter(|line| line.contains("memfd:"));
    let writable = shared.filter(|line| line.contains(" rw-s "));
    let found = writable.filter_map(|line| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let base = usize::from_str_radix(from, 16).ok()?;
        let end = usize::from_str_radix(to, 16).ok()?;
        let len_bytes = end.checked_sub(base)?;
        Some(Reach { base, len_bytes })
    });
    found.collect()
}

impl Reach {
    /// Writes the word at offset `at`, if it is one of this mapping.
    pub(crate) fn write(&self, at: usize, value: u32) -> bool {
        if !at.is_multiple_of(4) || at + 4 > self.len_bytes {
            return false;
        }
        let word = std::ptr::with_exposed_provenance_mut::<u32>(self.base + at);
        // SAFETY: `at` lies in a mapping that lasts as long as the process, since a process that scribbles keeps every right
        // of its for ever; it is aligned, and nobody has references to it: it is accessed by atomics and copies.
        unsafe { AtomicU32::from_ptr(word) }.store(value, Relaxed);
        true
    }
}

/// The longest stretch that is written at once: all of a link takes longer than a scribbler lives.
const STRETCH_BYTES: usize = 16 << 20;
/// Writes near control words between two stretches, and rounds of such writes.
const NEAR: usize = 4096;
const ROUNDS: u64 = 64;

/// Scribbles for as long as it lives, and says how many words.
fn scribble(seed: u64) -> ! {
    let mut random = Random::of(seed);
    let shared = reach();
    loop {
        let mut words = 0u64;
        for region in &shared {
            let start = random.below(region.len_bytes as u64 / 4) as usize * 4;
            let end = region.len_bytes.min(start + STRETCH_BYTES);
            for at in (start..end).step_by(4 * (1 + random.below(7) as usize)) {
                words += u64::from(region.write(at, random.meddlesome()));
            }
            for _ in 0..ROUNDS {
                words += near(region, &mut random);
            }
            child::say(&format!("words {words}"));
            words = 0;
        }
    }
}

/// Where the control words of lanes, slots, bells and replies are.
fn near(region: &Reach, random: &mut Random) -> u64 {
    let mut words = 0;
    for _ in 0..NEAR / ROUNDS as usize {
        let side = match random.below(2) {
            0 => Side::Connector,
            _ => Side::Acceptor,
        };
        let answers = match random.below(2) {
            0 => 16,
            _ => u64::from(ANSWERS),
        };
        let base = match random.below(4) {
            0 => side.ready(0),
            1 => side.lane(random.below(16) as u32),
            2 => side.reply(random.below(answers) as u32),
            _ => 0,
        };
        let at = base + random.below(1024) as usize * 4;
        words += u64::from(region.write(at, random.meddlesome()));
    }
    words
}

/// The role of a client that scribbles: on its links with the servers it is told.
pub(crate) fn client(spec: &Spec) -> Outcome {
    let arena = handfast::SharedArena::create(4096, 16)?;
    for (number, name) in (0u64..).zip(&spec.words) {
        let right = handfast::connect(name)?;
        // One that has been lent, so that it is shared.
        let mut block = arena.try_take(100)?;
        block.fill(1);
        let _ = right.with([block.into()]).call(&Op::Loan.message(0, &[]))?;
        let seed = !spec.seed.wrapping_add(number);
        // Real messages between the scribbles, so that the server looks.
        std::thread::Builder::new().spawn(move || {
            let mut random = Random::of(seed);
            loop {
                let payload = talk::content(random.below(5000) as usize, seed);
                let message = Op::any(&mut random).message(seed, &payload);
                match right.call_timeout(&message, Duration::from_micros(200)) {
                    Ok(_) | Err(SendError::TimedOut | SendError::Full) => {}
                    // Cut: the memory is still mapped, and scribbled on.
                    Err(_) => std::thread::park(),
                }
            }
        })?;
    }
    // It lasts as long as the process.
    std::mem::forget(arena);
    child::say("here");
    scribble(spec.seed)
}

/// The role of a server that scribbles: on the links of all who have called it.
pub(crate) fn server(spec: &Spec) -> Outcome {
    let port = handfast::bind(spec.word(0)?)?;
    let seed = spec.seed;
    child::say("here");
    let mut request = port.receive()?;
    std::thread::Builder::new().spawn(move || scribble(seed))?;
    loop {
        let bytes = talk::content(request.bytes().len() * 7 % 3000, seed);
        request = port.reply_and_receive(request, &bytes)?;
    }
}
