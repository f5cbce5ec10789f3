//! Kills and forks at any moment while lanes go round.

use crate::common::{PATIENCE, Random};
use crate::crowd::{OF_SET, OF_THREADS, PLAIN, Sender};
use crate::{common, crowd};
use handfast::SendRight;
use handfast::error::{Misuse, SendError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CALLERS: u64 = 3;
const THREADS: u64 = 3;

/// Does everything at once with the ports of a process, by several threads, until its input ends. Says `calls` for each line it is
/// told, when it has called all ports once more; `gone` when the process has died.
pub(crate) fn caller(arguments: &[&str]) {
    crowd::cuts_end_it();
    let [name, count, seed] = arguments else {
        unreachable!("{arguments:?}")
    };
    let (name, count): (&str, usize) = (name, count.parse().unwrap());
    let rights: &'static [SendRight] = Vec::leak(crowd::rights_of(name, count));
    let seed: u64 = seed.parse().unwrap();
    let sender_of = |number: u64| {
        let number = number + 1;
        let sender = u64::from(std::process::id()) << 8 | number;
        Sender::new(rights, sender, Random::of(seed ^ number << 32))
    };
    for number in 0..THREADS {
        let mut sender = sender_of(number);
        std::thread::spawn(move || {
            loop {
                sender.step().unwrap_or_else(ends);
            }
        });
    }
    {
        let (name, mut random) = (name.to_owned(), Random::of(!seed));
        std::thread::spawn(move || {
            loop {
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_millis(random.below(20)));
                fork(|| child(&name, rights));
            }
        });
    }
    let mut sender = sender_of(THREADS);
    sender.call_all().unwrap_or_else(ends);
    common::say("calls");
    while common::told().is_some() {
        sender.call_all().unwrap_or_else(ends);
        common::say("calls");
    }
}

fn ends<T>(error: SendError) -> T {
    static ENDS: AtomicU64 = AtomicU64::new(0);
    if ENDS.fetch_add(1, Ordering::Relaxed) == 0 {
        match error {
            SendError::Gone(_) => common::say("gone"),
            error => common::say(&format!("{error:?}")),
        }
    }
    loop {
        std::thread::park();
    }
}

/// A forked child has none of its parent's lanes, and gets its own.
fn child(name: &str, rights: &[SendRight]) -> i32 {
    for right in rights {
        if right.try_send(b"") != Err(SendError::Misuse(Misuse::Forked)) {
            return 1;
        }
    }
    let called = handfast::connect(name).map(|control| {
        let rights = (0..rights.len()).map(|number| crowd::ask(&control, number));
        let rights: Result<Vec<_>, _> = rights.collect();
        let sender = u64::from(std::process::id()) << 8;
        rights.and_then(|rights| Sender::new(&rights, sender, Random::of(0)).call_all())
    });
    match called {
        Err(_) | Ok(Ok(()) | Err(SendError::Gone(_))) => 0,
        Ok(Err(error)) => {
            // Another thread may have had the lock of the standard output as this process was forked.
            let said = format!("@@of a child: {error:?}\n");
            let _ = rustix::io::write(std::io::stdout(), said.as_bytes());
            2
        }
    }
}

/// Forks, has the child do its work, and waits for its end.
fn fork(work: impl FnOnce() -> i32) {
    // SAFETY: the child runs ordinary code after a fork of a process with threads; that is what
    // this test is about.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: takes no pointers. A child that hangs is ended by it.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(99);
        // SAFETY: ends the process without its parent's exit handlers.
        unsafe { libc::_exit(status) }
    }
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if status != 0 {
        common::say(&format!("a child ended with {status:#x}"));
    }
}

#[test]
fn whoever_is_killed_while_lanes_go_round_the_others_go_on() {
    let mut random = Random::seeded("lanes under kills");
    let (started, lasts) = (Instant::now(), common::campaign(4));
    let mut round = 0;
    while started.elapsed() < lasts {
        one_dies(round, &mut random);
        round += 1;
    }
    println!("{round} rounds");
}

fn one_dies(round: u64, random: &mut Random) {
    let name = common::name(&format!("kills{round}"));
    let (mut server, count) = match random.below(2) {
        0 => (common::start("set", &[&name]), OF_SET),
        _ => (
            common::start("home", &[&name, &OF_THREADS.to_string()]),
            OF_THREADS,
        ),
    };
    server.expect("ready");
    let callers = (0..CALLERS).map(|_| {
        let seed = random.next().to_string();
        common::start("caller", &[&name, &count.to_string(), &seed])
    });
    let mut callers: Vec<_> = callers.collect();
    callers.iter().for_each(|caller| caller.expect("calls"));
    // A random instant is what is wanted here.
    let mut some_time =
        // Sleep: a moment chosen at random.
        |ms: u64| std::thread::sleep(Duration::from_micros(random.below(ms * 1000)));
    for _ in 1..CALLERS {
        some_time(20);
        let mut victim = callers.pop().unwrap();
        victim.kill();
        for caller in &mut callers {
            caller.tell("");
            caller.expect("calls");
        }
        let rights = crowd::rights_of(&name, count);
        let mut sender = Sender::new(&rights, 1 + callers.len() as u64, Random::of(0));
        sender.call_all().unwrap();
        sender.call(0, PLAIN).unwrap();
    }
    some_time(20);
    server.kill();
    for caller in &callers {
        caller.expect("gone");
    }
}
