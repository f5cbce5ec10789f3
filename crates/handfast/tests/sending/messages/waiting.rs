//! How each side waits: strategies by name, and signals that come meanwhile.

use crate::common::{self, call, content};
use handfast::error::{ReceiveError, SendError};
use handfast::{Options, Strategy};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const NAMED: [&str; 12] = [
    "adaptive",
    "spin",
    "sched",
    "block",
    "notify",
    "spin-sched",
    "spin-block",
    "spin-notify",
    "bss",
    "bsw",
    "bswy",
    "bsls",
];

/// The strategies that never sleep.
const BURN: [&str; 4] = ["spin", "sched", "spin-sched", "bss"];

/// How often threads of a process have let others run and wanted to go on.
fn turns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: std::fs::DirEntry| -> Option<u64> {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        count?.trim().parse().ok()
    };
    tasks.filter_map(|task| of(task.unwrap())).sum()
}

/// Whether a thread of `child` runs all the time, or all of them sleep in the end.
fn burns(child: &common::Child) -> bool {
    let stats = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.pid())).unwrap();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
            .collect()
    };
    let used_ticks = || -> u64 {
        let used = stats().into_iter().map(|stat| -> u64 {
            let after_name = stat.rsplit(") ").next().unwrap();
            let fields: Vec<_> = after_name.split(' ').collect();
            let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
            ticks(11) + ticks(12)
        });
        used.sum()
    };
    let start = (used_ticks(), turns(child.pid()));
    let mut asleep = false;
    assert!(common::within_patience(|| {
        asleep = stats().iter().all(|stat| stat.contains(") S "));
        // Longer than any spin that is followed by a sleep. A thread that yields uses next to nothing, and has many turns.
        asleep || used_ticks() > start.0 + 5 || turns(child.pid()) > start.1 + 300
    }));
    !asleep
}

pub(crate) fn caller(name: &str, strategy: Strategy) {
    let right = handfast::connect_with(name, Options::new().strategy(strategy)).unwrap();
    let right = &right;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for number in 0..100 {
                    call(right, &content(number * 11 % 200, thread));
                }
            });
        }
    });
    let mut messages = 200;
    common::say("200 calls");
    // And one to a server that takes its time.
    while let Some(slow) = common::told() {
        let right = handfast::connect_with(&slow, Options::new().strategy(strategy)).unwrap();
        let reply = right.call_timeout(b"late", common::PATIENCE).unwrap();
        messages += reply.len();
        common::say(&format!("{messages}"));
    }
}

#[test]
fn every_strategy_by_name_serves_calls_on_both_sides() {
    let _alone = common::alone();
    for (number, server_waits) in NAMED.iter().enumerate() {
        let name = common::name(server_waits);
        let server = common::start("echo by strategy", &[&name, "2", server_waits]);
        server.expect("ready");
        // The same on the other side, and one that sleeps otherwise.
        for client_waits in [server_waits, NAMED[(number + 3) % NAMED.len()]] {
            let start = Instant::now();
            let mut client = common::start("caller by strategy", &[&name, client_waits]);
            client.expect("200 calls");
            let served = BURN.contains(server_waits);
            assert_eq!(burns(&server), served, "{server_waits} with nothing to do");
            let slow = common::name(&format!("slow-{server_waits}-{client_waits}"));
            let port = handfast::bind(&slow).unwrap();
            client.tell(&slow);
            let request = port.receive_timeout(common::PATIENCE).unwrap();
            let calls = BURN.contains(&client_waits);
            assert_eq!(burns(&client), calls, "{client_waits} in a call");
            request.reply(b"here").unwrap();
            client.expect("204");
            client.finish();
            println!(
                "{server_waits} serves {client_waits}: {:?}",
                start.elapsed()
            );
        }
    }
}

static ARRIVALS: AtomicU32 = AtomicU32::new(0);

/// Calls a server that takes longer than any spinning.
pub(crate) fn notified_caller(name: &str) {
    handfast::notify::notify(|| {
        ARRIVALS.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    let options = Options::new().strategy(Strategy::Notify);
    let right = handfast::connect_with(name, options).unwrap();
    for number in 0..20u32 {
        call(&right, &number.to_le_bytes());
    }
    common::say(&format!("{}", ARRIVALS.load(Ordering::Relaxed)));
    // Nobody answers this one: the server's end does.
    let gone = right.call(b"never").unwrap_err();
    common::say(&format!("{gone:?}"));
}

#[test]
fn a_caller_that_sleeps_by_notify_has_its_handler_run_when_its_reply_comes() {
    let _alone = common::alone();
    let name = common::name("notified");
    let port = handfast::bind(&name).unwrap();
    let caller = common::start("notified caller", &[&name]);
    for _ in 0..20 {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        assert!(common::within_patience(|| common::sleeps(caller.pid())));
        let bytes = request.bytes().to_vec();
        request.reply(&bytes).unwrap();
    }
    let arrivals: u32 = caller.line().parse().unwrap();
    assert!(arrivals >= 15, "{arrivals} of 20 replies ran the handler");
    let request = port.receive_timeout(common::PATIENCE).unwrap();
    drop(port);
    drop(request);
    assert!(caller.line().starts_with("Gone("));
}

extern "C" fn on_alarm(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

static ALARMS: AtomicU32 = AtomicU32::new(0);

/// SIGALRM every 200 us, on whichever thread, interrupting whatever it does.
fn alarm() {
    let handler = on_alarm as extern "C" fn(libc::c_int);
    // SAFETY: all-zero bytes are a valid sigaction: no flags, so no SA_RESTART.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler is async-signal-safe and lives for ever.
    let installed =
        unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    assert_eq!(installed, 0);
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 200,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: `timer` is valid for reads.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(set, 0);
}

/// The role of a server that is hit by signals all the time.
pub(crate) fn alarmed_server(name: &str, strategy: Strategy) {
    alarm();
    common::echo(name, 2, Options::new().strategy(strategy));
}

pub(crate) fn alarmed_client(name: &str, strategy: Strategy) {
    alarm();
    for _ in 0..20 {
        drop(handfast::connect(name).unwrap());
    }
    let own = format!("{name}-own");
    let options = Options::new().strategy(strategy);
    let right = handfast::connect_with(name, options).unwrap();
    for number in 0..300 {
        call(&right, &content(number * 97, 3));
    }
    // Waits that are long on purpose.
    let port = handfast::bind_with(&own, options).unwrap();
    let (short, start) = (Duration::from_millis(20), Instant::now());
    assert_eq!(
        port.receive_timeout(short).unwrap_err(),
        ReceiveError::TimedOut
    );
    let deaf = handfast::connect_with(&own, options).unwrap();
    assert_eq!(
        deaf.call_timeout(b"x", short).unwrap_err(),
        SendError::TimedOut
    );
    while deaf.try_send(b"fill").is_ok() {}
    assert_eq!(deaf.send_timeout(b"x", short), Err(SendError::TimedOut));
    assert!(start.elapsed() >= 3 * short, "a signal cut a wait short");
    std::thread::scope(|scope| {
        scope.spawn(|| deaf.send(b"last").unwrap());
        while *port.receive_timeout(common::PATIENCE / 2).unwrap().bytes() != *b"last" {}
    });
    assert!(ALARMS.load(Ordering::Relaxed) > 50);
    common::say("undisturbed");
}

#[test]
fn signals_during_every_blocking_form_disturb_nothing() {
    let _alone = common::alone();
    for strategy in ["adaptive", "block", "sched", "notify"] {
        let name = common::name(&format!("alarm-{strategy}"));
        let server = common::start("alarmed server", &[&name, strategy]);
        server.expect("ready");
        let mut client = common::start("alarmed client", &[&name, strategy]);
        client.expect("undisturbed");
        client.finish();
        assert_eq!(server.said(), None);
    }
}
