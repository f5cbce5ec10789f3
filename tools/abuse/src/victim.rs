//! Clients and servers of the library that end badly, or are a burden to others.

use crate::caller::{Caller, Failure, Slowest};
use crate::child::{self, Spec};
use crate::server::Server;
use crate::talk::{self, Op};
use handfast::SharedArena;
use handfast::error::{Misuse, SendError};
use handfast_cli::Outcome;
use handfast_testing::Random;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// The point at which a victim is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Making its link, and dropping it.
    Connect,
    /// Binding a name, and dropping it.
    Bind,
    /// A call.
    Call(Op),
    /// One-way messages, until there is no room.
    Send,
    /// Anything.
    Any,
}

impl Stage {
    /// As many as there are numbers below [`Self::COUNT`].
    pub(crate) const COUNT: u64 = 17;
    /// The number of using rights.
    pub(crate) const USE: u64 = 13;

    pub(crate) const fn of(number: u64) -> Self {
        match number {
            0 => Self::Connect,
            1 => Self::Bind,
            2 => Self::Send,
            3 => Self::Call(Op::Hold),
            4 => Self::Call(Op::Descriptors),
            5..16 => Self::Call(Op::CHECKED[number as usize - 5]),
            _ => Self::Any,
        }
    }
}

impl Stage {
    /// In the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Bind => "bind",
            Self::Send => "send",
            Self::Any => "any",
            Self::Call(op) => op.name(),
        }
    }
}

const _: () = assert!(matches!(Stage::of(Stage::USE), Stage::Call(Op::Use)));

/// How long a call of a victim's may take.
const LIMIT: Duration = Duration::from_secs(2);

/// The role of a client. Words: whom it calls, who else there is, the number of the stage to stay at, how many calls before that, its own name.
pub(crate) fn client(spec: &Spec) -> Outcome {
    let mut random = Random::of(spec.seed);
    let (name, other, own_name) = (spec.word(0)?, spec.word(1)?, spec.word(4)?);
    let stage = Stage::of(spec.number(2)?);
    if let Stage::Bind = stage {
        child::say("here");
        loop {
            drop(handfast::bind(own_name)?);
        }
    }
    let right = handfast::connect(name)?;
    let other = handfast::connect(other)?;
    let own = handfast::anonymous()?;
    let arena = SharedArena::create(16 << 10, 4)?;
    let stop = AtomicBool::new(false);
    let server = Server {
        port: &own,
        next: Some(right.clone()),
        held: Mutex::default(),
        stop: &stop,
        lost_next: AtomicBool::new(false),
    };
    let mut caller = Caller {
        right,
        own: &own,
        third: None,
        arena: &arena,
        random: Random::of(random.next()),
        limit: LIMIT,
        slowest: Slowest::default(),
    };
    std::thread::scope(|scope| {
        let (jobs, _unused) = sync_channel(0);
        let server = &server;
        std::thread::Builder::new().spawn_scoped(scope, move || server.serve(&jobs))?;
        let mut said = false;
        for number in 0.. {
            let now = number >= spec.number(3)?;
            if now && !said {
                said = true;
                child::say("here");
            }
            match stage {
                Stage::Connect if now => {
                    caller.right = other.clone();
                    caller.right = handfast::connect(name)?;
                }
                Stage::Send if now => {
                    let _ = caller.right.try_send(&[1; 200]);
                }
                _ => {
                    let op = match stage {
                        Stage::Call(op) if now => op,
                        _ => Op::any(&mut caller.random),
                    };
                    caller.third = (random.below(2) == 0).then(|| other.clone());
                    if let Err(Failure::Wrong(what)) = caller.perform(op) {
                        child::say(&format!("wrong {what}"));
                    }
                }
            }
        }
        Ok(())
    })
}

/// The role of a server that takes calls and never answers one.
pub(crate) fn mute(spec: &Spec) -> Outcome {
    let port = handfast::bind(spec.word(0)?)?;
    child::say("here");
    let mut held = Vec::new();
    loop {
        held.push(port.receive()?);
    }
}

/// The role of a client that asks for as much as it can be sent, and takes none of it.
pub(crate) fn slow(spec: &Spec) -> Outcome {
    let right = handfast::connect(spec.word(0)?)?;
    let mut calls = Vec::new();
    let long = talk::content(60_000, spec.seed);
    for number in 0.. {
        let message = match number % 2 {
            0 => Op::Descriptors.message(0, &[15]),
            _ => Op::Echo.message(0, &long),
        };
        match right.try_call(&message) {
            Ok(call) => calls.push(call),
            Err(_) => break,
        }
    }
    child::say("here");
    // The queue has no room.
    loop {
        if right.send_timeout(&long, Duration::from_secs(1)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The role of a client that calls well and comes when others are a burden: so many calls, all right, and it ends.
pub(crate) fn visitor(spec: &Spec) -> Outcome {
    let limit = Duration::from_millis(spec.number(1)?);
    let own = handfast::anonymous()?;
    let arena = SharedArena::create(16 << 10, 4)?;
    child::say("here");
    let right = match handfast::connect_timeout(spec.word(0)?, limit) {
        Ok(right) => right,
        Err(error) => {
            child::say(&format!("refused {error}"));
            return Ok(());
        }
    };
    let mut caller = Caller {
        right,
        own: &own,
        third: None,
        arena: &arena,
        random: Random::of(spec.seed),
        limit,
        slowest: Slowest::default(),
    };
    let mut calls = 0;
    for _ in 0..100 {
        let op = match Op::any(&mut caller.random) {
            // Nobody serves its own port.
            Op::Use | Op::Bounce | Op::Travel => Op::Echo,
            op => op,
        };
        match caller.perform(op) {
            Ok(()) => calls += 1,
            Err(Failure::Wrong(what)) => child::say(&format!("wrong {what}")),
            Err(failure) => child::say(&format!("lost {op:?}: {failure:?}")),
        }
    }
    child::say(&format!("calls {calls}"));
    Ok(())
}

/// How many children a fork storm has at once.
const FORKS: usize = 8;

/// The role of a client and server that forks, on and on, while its threads call; the children use what is not theirs.
pub(crate) fn forks(spec: &Spec) -> Outcome {
    let (name, own_name) = (spec.word(0)?, spec.word(1)?);
    let right = handfast::connect(name)?;
    let port = handfast::bind(own_name)?;
    std::thread::scope(|scope| {
        for number in 0..2 {
            let right = right.clone();
            let calls = move || {
                loop {
                    let message = Op::Echo.message(number, &talk::content(300, number));
                    let _ = right.call_timeout(&message, LIMIT);
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, calls)?;
        }
        child::say("here");
        loop {
            let children: Vec<_> = (0..FORKS)
                .map(|_| fork(|| forked(&right, &port, name)))
                .collect();
            for (number, pid) in children.into_iter().enumerate() {
                let Some(pid) = rustix::process::Pid::from_raw(pid) else {
                    continue;
                };
                let waited =
                    rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                let status = waited
                    .ok()
                    .flatten()
                    .and_then(|(_, status)| status.exit_status());
                child::say(&format!("forked {number} {}", status.unwrap_or(-1)));
            }
        }
    })
}

/// Forks. The child ends with what `work` says.
fn fork(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs ordinary code after a fork of a process with threads; that is what is abused here.
    let pid = unsafe { libc::fork() };
    if pid != 0 {
        return pid;
    }
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // SAFETY: takes no pointers. A child that hangs is ended by it.
    unsafe { libc::alarm(2) };
    let status = work();
    // SAFETY: ends the process without its parent's exit handlers.
    unsafe { libc::_exit(status) }
}

/// Status of a forked child that could use a handle of its parent's.
pub(crate) const FORKED_HANDLE: i32 = 77;

fn forked(right: &handfast::SendRight, port: &handfast::ReceiveRight, name: &str) -> i32 {
    let message = Op::Echo.message(0, b"x");
    let refused = right.call_timeout(&message, LIMIT);
    let is_refused = matches!(refused, Err(SendError::Misuse(Misuse::Forked)));
    if !is_refused || port.try_receive().is_ok() {
        return FORKED_HANDLE;
    }
    // A link of its own it may have.
    let Ok(own) = handfast::connect_timeout(name, LIMIT) else {
        return 0;
    };
    match own.call_timeout(&message, LIMIT) {
        Ok(reply) if *reply != *talk::answer(b"x") => FORKED_HANDLE,
        _ => 0,
    }
}
