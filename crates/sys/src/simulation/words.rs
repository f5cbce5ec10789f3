//! Words that threads of a simulated machine sleep on.

use super::turns::{Place, Waits};
use super::{lock, member};
use core::ptr::NonNull;
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Sleeps until one of these words is [woken](wake). `Some(true)`: the deadline has passed before. `None`: this is no thread of a
/// world.
pub(crate) fn sleep_on(
    words: impl Iterator<Item = NonNull<u32>>,
    until_ns: Option<u64>,
) -> Option<bool> {
    Some(member()?.hand_on(Some(Waits::on(words.map(place_of).collect(), until_ns))))
}

/// As [`futex::wake`](crate::futex::wake).
pub(crate) fn wake(word: NonNull<u32>, count: u32) -> Option<u32> {
    let member = member()?;
    let place = place_of(word);
    let mut state = lock(&member.world.0.state);
    let mut woken = 0;
    let state = &mut *state;
    if state.is_lost(state.loses_wakes) {
        return Some(0);
    }
    for thread in &mut state.threads {
        // Nobody wakes the dead, as long as they have no locks to give back.
        if state.killed.contains(&thread.process) && !thread.has_lock {
            continue;
        }
        if let Some(waits) = &mut thread.waits
            && woken < count
            && !thread.has_ended
            && !waits.is_woken
            && waits.words.contains(&place)
        {
            waits.is_woken = true;
            woken += 1;
        }
    }
    Some(woken)
}

/// Files that are mapped, by their first addresses: bytes, and the file's number.
static MAPPED: Mutex<BTreeMap<usize, (usize, u64)>> = Mutex::new(BTreeMap::new());

pub(crate) fn mapped(at: NonNull<u8>, len_bytes: usize, fd: impl AsFd) {
    if let Ok(stat) = rustix::fs::fstat(fd) {
        lock(&MAPPED).insert(at.as_ptr() as usize, (len_bytes, stat.st_ino));
    }
}

pub(crate) fn unmapped(at: NonNull<u8>) {
    lock(&MAPPED).remove(&(at.as_ptr() as usize));
}

fn place_of(word: NonNull<u32>) -> Place {
    let at = word.as_ptr() as usize;
    let mapped = lock(&MAPPED);
    match mapped.range(..=at).next_back() {
        Some((first, (len_bytes, file))) if at - first < *len_bytes => (*file, at - first),
        _ => (0, at),
    }
}
