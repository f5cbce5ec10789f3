//! The processes that are struck, and measured: a server, a client of it, one that comes later.

use super::fails;
use crate::child::{self, Spec};
use handfast::{Notice, Request, Right};
use handfast_cli::Outcome;
use handfast_sys::clock;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

/// How long a call may take until it counts as lost.
const CALL: Duration = Duration::from_secs(3);
/// How long a connection may take, or a name.
const CONNECT: Duration = Duration::from_secs(5);
/// A call begins so often, like calls of many clients. One that could not begin since the one before took longer has waited from then on.
const TURN_NS: u64 = 500_000;
/// So long at most. Where there is less of a processor than all calls take, waits would add up without an end, whatever the server does.
const BEHIND_NS_MAX: u64 = 100_000_000;
/// A client that has seen so many calls fail stops.
const FAILURES_MAX: usize = 10;
/// Of these, the last that are used.
const USED: usize = 4;
/// Rights that the server keeps; of more, the oldest is dropped.
const KEPT_MAX: usize = 256;

/// The time that the server works for a call.
const WORK_NS: u64 = 50_000;
/// Ports that a newcomer has the server open.
const OPENED: usize = 5;
/// How long the server may take until it is told that nobody has a right to such a port any more.
const NOTICE: Duration = Duration::from_secs(1);

/// The role of a server: one thread that echoes, keeps what comes with messages to be kept, reads it all when it is asked to, sends
/// by rights that it is to use, works, and opens ports for its clients, until nobody has a right to them. Words: its name, and that of
/// a server to which it passes on what it would have echoed.
pub(crate) fn server(spec: &Spec) -> Outcome {
    // SAFETY: takes a number. Clients of all users may connect.
    unsafe { libc::umask(0) };
    let port = handfast::bind(spec.word(0)?)?;
    let behind = match spec.word(1) {
        Ok(name) => Some(handfast::connect(name)?),
        Err(_) => None,
    };
    child::say("ready");
    let mut kept = std::collections::VecDeque::new();
    let mut all = Vec::new();
    // Calls that are never answered.
    let mut held = Vec::new();
    // Ports that it has opened.
    let mut opened = HashMap::new();
    let mut next: Option<(Request, Vec<u8>)> = None;
    loop {
        let received = match next.take() {
            Some((request, bytes)) => port.reply_and_receive(request, &bytes),
            None => port.receive(),
        };
        let mut request = received?;
        if let (Some(Notice::NoSenders), Some(key)) = (request.notice(), request.member()) {
            opened.remove(&key);
            continue;
        }
        let bytes = match request.bytes() {
            b"keep" | b"take" => {
                let rights = request.take_rights();
                let answer = rights.first().map_or(&b"nothing"[..], called).to_vec();
                kept.extend(rights);
                while kept.len() > KEPT_MAX {
                    kept.pop_front();
                }
                answer
            }
            b"keep all" => {
                all.extend(request.take_rights());
                b"kept".to_vec()
            }
            b"read" => {
                kept.iter().for_each(read);
                b"read".to_vec()
            }
            b"take up" => {
                for right in request.take_rights() {
                    if let Right::Receive(mut port) = right {
                        port.take_up_name()?;
                        kept.push_back(Right::Receive(port));
                    }
                }
                b"taken up".to_vec()
            }
            b"use" => {
                let first = kept.len().saturating_sub(USED);
                let rights = request.take_rights();
                rights.iter().chain(kept.range(first..)).for_each(uses);
                kept.extend(rights);
                while kept.len() > KEPT_MAX {
                    kept.pop_front();
                }
                b"used".to_vec()
            }
            b"thin" => {
                let thinned = kept.back().map(thinner);
                kept.extend(thinned.flatten());
                b"thin".to_vec()
            }
            b"pass" => {
                if let Some(Right::Send(right)) = kept.back() {
                    // The asking process does not read it.
                    let _ = request.reply_with(b"passed", [right.clone().into()]);
                }
                continue;
            }
            b"open" => {
                let member = port.member()?;
                let right = member.mint(1);
                member.notify_no_senders();
                let key = member.key();
                opened.insert(key, member);
                // One that cannot be told has no right.
                let _ = request.reply_with(&key.to_le_bytes(), [right.into()]);
                continue;
            }
            [b'?', key @ ..] => {
                let is_open = key_of(key).is_some_and(|key| opened.contains_key(&key));
                if is_open { &b"open"[..] } else { b"gone" }.to_vec()
            }
            [b'!', key @ ..] => {
                key_of(key).and_then(|key| opened.remove(&key));
                b"closed".to_vec()
            }
            b"receive" => {
                let rights = request.take_rights().into_iter();
                rights.for_each(receives);
                b"received".to_vec()
            }
            b"works" => {
                let end = clock::now_ns() + WORK_NS;
                while clock::now_ns() < end {
                    std::hint::spin_loop();
                }
                b"worked".to_vec()
            }
            b"hold" if behind.is_none() => {
                held.push(request);
                continue;
            }
            bytes => bytes.to_vec(),
        };
        if let Some(behind) = &behind
            && request.is_call()
        {
            // A caller whose call cannot be passed on is told so.
            let _ = request.forward_timeout(behind, &bytes, CALL);
            continue;
        }
        if request.is_call() {
            next = Some((request, bytes));
        }
    }
}

fn key_of(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().map(u32::from_le_bytes).ok()
}

/// Receives at a port that has come, and does nothing with what comes there.
fn receives(right: Right) {
    if let Right::Receive(port) = right {
        std::thread::spawn(move || while port.receive().is_ok() {});
    }
}

/// A right that may do less.
fn thinner(right: &Right) -> Option<Right> {
    match right {
        Right::Send(right) => right.attenuate(1).ok().map(Right::Send),
        _ => None,
    }
}

/// Sends by a right, if there is room.
fn uses(right: &Right) {
    if let Right::Send(right) = right {
        let _ = right.try_send(b"used");
    }
}

fn called(right: &Right) -> &'static [u8] {
    match right {
        Right::Memory(_) => b"memory",
        Right::Loan(_) => b"loan",
        Right::Receive(_) => b"port",
        Right::Descriptor(_) => b"descriptor",
        Right::Lost(_) => b"lost",
        _ => b"other",
    }
}

/// Looks at each page.
fn read(right: &Right) {
    match right {
        Right::Memory(memory) => {
            let sum = memory
                .bytes()
                .iter()
                .step_by(4096)
                .map(|byte| u64::from(*byte));
            std::hint::black_box(sum.sum::<u64>());
        }
        Right::Loan(loan) => drop(loan.to_vec()),
        _ => {}
    }
}

/// A client's report on its calls.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) took_us: Vec<f64>,
    pub(super) failures: Vec<String>,
}

/// The role of a client: calls from when it is told to until it is told again, and says how long each took.
pub(crate) fn victim(spec: &Spec) -> Outcome {
    let right = match handfast::connect_timeout(spec.word(0)?, CONNECT) {
        Ok(right) => right,
        Err(error) => return fails(&error.to_string()),
    };
    right.call_timeout(b"hello", CALL)?;
    child::say("ready");
    child::told();
    let told = Mutex::new(false);
    let calls = std::thread::scope(|scope| {
        scope.spawn(|| {
            child::told();
            *told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        });
        let mut calls = Calls::default();
        let message = [7; 100];
        let is_over = || *told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut begun = clock::now_ns();
        while !is_over() && calls.failures.len() <= FAILURES_MAX {
            let outcome = right.call_timeout(&message, CALL);
            let ended = clock::now_ns();
            calls.took_us.push((ended - begun) as f64 / 1000.0);
            match outcome {
                Ok(answer) if *answer == message => {}
                Ok(_) => calls.failures.push("another answer".to_owned()),
                Err(error) => {
                    calls.failures.push(error.to_string());
                    // That has been counted.
                    begun = ended;
                }
            }
            begun = (begun + TURN_NS).max(ended.saturating_sub(BEHIND_NS_MAX));
            if begun > ended {
                std::thread::sleep(Duration::from_nanos(begun - ended));
                // Its own awakening is not the server's to answer for.
                begun = clock::now_ns();
            }
        }
        calls
    });
    child::say(&serde_json::to_string(&calls)?);
    Ok(())
}

/// The role of one that comes when it is told to, and says how long it took until its first answer. Words: the server's name, its
/// action, its own name.
pub(crate) fn newcomer(spec: &Spec) -> Outcome {
    let (name, does, own) = (spec.word(0)?, spec.word(1)?, spec.word(2)?);
    // SAFETY: takes a number. The attacker may connect to it.
    unsafe { libc::umask(0) };
    let port = match does {
        "IsKnown" => Some(handfast::bind(own)?),
        _ => None,
    };
    child::say("ready");
    child::told();
    let begun = clock::now_ns();
    let outcome = match does {
        "Binds" => handfast::bind(own)
            .map(drop)
            .map_err(|error| error.to_string()),
        "Opens" => opens(name),
        _ => calls_once(name),
    };
    let took_us = (clock::now_ns() - begun) / 1000;
    match outcome {
        Ok(()) => child::say(&format!("took {took_us}")),
        Err(why) => fails(&why)?,
    }
    drop(port);
    Ok(())
}

fn calls_once(name: &str) -> Result<(), String> {
    let right = handfast::connect_timeout(name, CONNECT).map_err(|error| error.to_string())?;
    match right.call_timeout(b"first", CALL) {
        Ok(answer) if &*answer == b"first" => Ok(()),
        Ok(_) => Err("another answer".to_owned()),
        Err(error) => Err(format!("connected; then {error}")),
    }
}

/// Has the server open ports, one after the other, and drops its right to each: the server is to be told so.
fn opens(name: &str) -> Result<(), String> {
    let right = handfast::connect_timeout(name, CONNECT).map_err(|error| error.to_string())?;
    let call = |bytes: &[u8]| {
        let answer = right.call_timeout(bytes, CALL);
        answer.map_err(|error| error.to_string())
    };
    for _ in 0..OPENED {
        let mut answer = call(b"open")?;
        let asked = [b"?", &answer[..]].concat();
        drop(answer.take_rights());
        let end = clock::now_ns() + NOTICE.as_nanos() as u64;
        while &*call(&asked)? != b"gone" {
            if clock::now_ns() > end {
                return Err(format!(
                    "nobody has a right to its port, of which the server was not told in {NOTICE:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
