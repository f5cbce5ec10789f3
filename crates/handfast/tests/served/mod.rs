//! A server on every CPU that says where it has handled what.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use crate::common::{self, PATIENCE, within_patience};
use handfast::error::SendError;
use handfast::{PerCpu, Request, SendRight, Worker};
use handfast_sys::cpu;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// No CPU.
pub(crate) const NONE: u32 = u32::MAX;

/// Answers with the CPU of the worker and the one it is on; numbers that come one-way have to be in order, each
/// sender's.
pub(crate) fn handler() -> impl Fn(&Worker<'_>, Request) {
    let last = Mutex::new([0u64; 256]);
    let disorder = AtomicU64::new(0);
    move |worker: &Worker<'_>, request: Request| {
        let bytes = request.bytes();
        if !request.is_call() {
            let [sender, number @ ..] = bytes else { return };
            let number = number
                .first_chunk()
                .map_or(0, |number| u64::from_le_bytes(*number));
            let mut last = last.lock().unwrap();
            let last = &mut last[usize::from(*sender)];
            disorder.fetch_add(u64::from(number != *last + 1), Ordering::Relaxed);
            *last = number;
            return;
        }
        match bytes {
            b"panic" => panic!("as it was told"),
            b"hold" => loop {
                std::thread::park();
            },
            b"order" => {
                let disorder = disorder.load(Ordering::Relaxed);
                worker.reply(request, &disorder.to_le_bytes()).unwrap();
            }
            b"badge" => {
                let badge = request.badge();
                worker.reply(request, &badge.to_le_bytes()).unwrap();
            }
            _ => {
                let on = [worker.cpu().unwrap_or(NONE), cpu::current()];
                let _ = worker.reply(request, on.map(u32::to_le_bytes).as_flattened());
            }
        }
    }
}

pub(crate) fn serve(name: &str) -> PerCpu {
    handfast::bind(name)
        .unwrap()
        .serve_per_cpu(handler())
        .unwrap()
}

/// On these CPUs only, if there are any.
pub(crate) fn server(name: &str, cpus: &str) {
    let cpus: Vec<u32> = cpus
        .split_terminator(',')
        .map(|cpu| cpu.parse().unwrap())
        .collect();
    if !cpus.is_empty() {
        cpu::pin(&cpus).unwrap();
    }
    let server = serve(name);
    common::say("ready");
    while let Some(told) = common::told() {
        let started = |place: &handfast::Place| format!("{:?}:{}", place.cpu, place.started);
        let places: Vec<_> = server.places().iter().map(started).collect();
        common::say(&format!("{told} {}", places.join(" ")));
    }
}

/// The CPU of the worker, and the one it was on.
pub(crate) fn where_handled(right: &SendRight) -> Result<[u32; 2], SendError> {
    let reply = right.call_timeout(b"where", PATIENCE)?;
    let (words, []) = reply.as_chunks::<4>() else {
        panic!("{reply:?}");
    };
    Ok([0, 1].map(|word| u32::from_le_bytes(words[word])))
}

/// Until the receivers are known here, and a worker is there.
pub(crate) fn settle(right: &SendRight, on: u32) {
    assert!(
        within_patience(|| where_handled(right).unwrap()[0] == on),
        "CPU {on}"
    );
}

pub(crate) fn pinned<T: Send>(on: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cpu::pin(&[on]).unwrap();
            what()
        });
        thread.join().unwrap()
    })
}
