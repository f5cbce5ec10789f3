//! Signals without `SA_RESTART` that hit a thread while it sleeps: it sleeps on, to what it waits
//! for or to its deadline.

use crate::common::{self, Child};
use handfast::{Interest, MESSAGE_BYTES_MAX, Options, Strategy, WaitSet};
use handfast_sys::socket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn take_signals() {
    let handler = on_signal as extern "C" fn(libc::c_int);
    // SAFETY: all-zero bytes are a valid sigaction: no flags, so no SA_RESTART.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler is async-signal-safe and lives for ever.
    let installed =
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(installed, 0);
}

/// Says that this thread goes to sleep in `wait`, and what came of it.
fn sleep_in<T, E: std::fmt::Debug>(wait: impl FnOnce() -> Result<T, E>) {
    common::say(&rustix::thread::gettid().as_raw_nonzero().to_string());
    let start = Instant::now();
    let outcome = wait().map(|_| ());
    common::say(&format!("{outcome:?}"));
    assert!(start.elapsed() < common::PATIENCE);
    common::say(&format!("{}", SIGNALS.load(Ordering::Relaxed)));
}

/// Waits in one way, at the longest for [`common::PATIENCE`].
pub(crate) fn sleeper(way: &str, name: &str, strategy: Strategy) {
    take_signals();
    if strategy.notifies() {
        handfast::notify::notify(|| {}).unwrap();
    }
    let options = Options::new().strategy(strategy);
    let patience = common::PATIENCE;
    let own = format!("{name}-own");
    match way {
        "receive" => {
            let port = handfast::bind_with(&own, options).unwrap();
            sleep_in(|| port.receive_timeout(patience));
        }
        "follow" => {
            let port = handfast::bind_with(&own, options).unwrap();
            std::thread::scope(|scope| {
                let (sender, spinner) = std::sync::mpsc::channel();
                let port = &port;
                let first = scope.spawn(move || {
                    sender.send(rustix::thread::gettid()).unwrap();
                    drop(port.receive_timeout(patience).unwrap());
                });
                // It has the poller and does not give it up.
                let spinner = spinner.recv().unwrap();
                assert!(common::within_patience(|| common::used_ticks(spinner) > 2));
                sleep_in(|| port.receive_timeout(patience));
                first.join().unwrap();
            });
        }
        "call" => {
            let right = handfast::connect_with(name, options).unwrap();
            sleep_in(|| right.call_timeout(b"slowly", patience));
        }
        "send" => {
            let right = handfast::connect_with(name, options).unwrap();
            let long = vec![0; MESSAGE_BYTES_MAX];
            while right.try_send(&long).is_ok() {}
            sleep_in(|| right.send_timeout(&long, patience));
        }
        "set" | "set and descriptor" => {
            let mut set = WaitSet::with(options).unwrap();
            set.add(handfast::bind(&own).unwrap());
            set.add(handfast::bind(&format!("{own}-2")).unwrap());
            if way != "set" {
                set.add_descriptor(std::io::stdin(), Interest::Read)
                    .unwrap();
            }
            sleep_in(|| set.receive_timeout(patience));
        }
        "connect" => sleep_in(|| match handfast::connect_timeout(name, patience) {
            // The error that the other side's end gives.
            Err(handfast::error::ConnectError::ServerDead { .. }) => Ok(()),
            other => Err(other.map(|_| ())),
        }),
        _ => unreachable!(),
    }
    while common::told().is_some() {}
}

/// Sleeps that are interrupted.
const SIGNALS_SENT: u32 = 25;

/// Interrupts thread `task` of `child` in so many sleeps.
fn disturb(child: &Child, task: &str, what: &str) {
    let file = format!("/proc/{}/task/{task}", child.pid());
    let read = |name| std::fs::read_to_string(format!("{file}/{name}")).unwrap();
    let sleeps = || -> u64 {
        let status = read("status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    let mut seen = 0;
    for _ in 0..SIGNALS_SENT {
        // It sleeps, and not since before the last signal.
        let is_asleep = || read("stat").contains(") S ") && sleeps() > seen;
        assert!(common::within_patience(is_asleep), "{what} does not sleep");
        seen = sleeps();
        let (process, task) = (child.pid().cast_signed(), task.parse::<i32>().unwrap());
        // SAFETY: the call takes no pointers.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, task, libc::SIGUSR1) };
        assert_eq!(sent, 0);
    }
}

/// A sleeper, disturbed, until `end` ends its wait: as if nothing had been.
fn is_not_disturbed(way: &str, strategy: &str, end: impl FnOnce(&mut Child, &str)) {
    let name = common::name(&format!("{}-{strategy}", way.replace(' ', "-")));
    let server = handfast::bind(&name).unwrap();
    let mut child = common::start("disturbed sleeper", &[way, &name, strategy]);
    let task = child.line();
    disturb(&child, &task, way);
    assert_eq!(child.said(), None, "{way} {strategy} ended early");
    if matches!(way, "call" | "send") {
        serve_one(&server);
    } else {
        end(&mut child, &name);
    }
    assert_eq!(child.line(), "Ok(())", "{way} {strategy}");
    // Of two that come before the thread runs, one is seen.
    let seen: u32 = child.line().parse().unwrap();
    assert!(seen > SIGNALS_SENT / 2, "{way} {strategy}: {seen} signals");
    child.finish();
}

fn serve_one(server: &handfast::ReceiveRight) {
    let request = server.receive_timeout(common::PATIENCE).unwrap();
    if request.is_call() {
        request.reply(b"at last").unwrap();
    }
}

/// Sends so many messages to the child.
fn send_to(name: &str, messages: u32) {
    let right = handfast::connect(&format!("{name}-own")).unwrap();
    for _ in 0..messages {
        right.send(b"wake").unwrap();
    }
}

#[test]
fn a_signal_ends_no_wait_for_a_message_a_reply_or_room() {
    let _alone = common::alone();
    for strategy in ["block", "notify"] {
        is_not_disturbed("receive", strategy, |_, name| send_to(name, 1));
        is_not_disturbed("call", strategy, |_, _| {});
        is_not_disturbed("send", strategy, |_, _| {});
        is_not_disturbed("set", strategy, |_, name| send_to(name, 1));
        is_not_disturbed("set and descriptor", strategy, |child, _| {
            child.tell("wake");
        });
    }
    // The first message is the spinner's.
    is_not_disturbed("follow", "spin", |_, name| {
        send_to(name, 2);
    });
}

#[test]
fn a_signal_ends_no_connection_that_waits_for_its_server() {
    let _alone = common::alone();
    for full in [false, true] {
        let name = common::name(&format!("connect-{full}"));
        let path = common::directory().join(&name);
        let listener = socket::listen(&path, 0).unwrap();
        // The kernel takes one more than asked for.
        let first = full.then(|| socket::connect(&path, Duration::from_secs(1)).unwrap());
        let mut child = common::start("disturbed sleeper", &["connect", &name, "block"]);
        let task = child.line();
        disturb(&child, &task, "connect");
        assert_eq!(child.said(), None, "{full}");
        drop((listener, first));
        assert_eq!(child.line(), "Ok(())", "{full}");
        child.line();
        child.finish();
    }
}

/// Receives three messages, asleep by *notify*, where no real-time signal can be queued.
pub(crate) fn without_a_queue(name: &str) {
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(rustix::process::Resource::Sigpending, none).unwrap();
    handfast::notify::notify(|| {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    let options = Options::new().strategy(Strategy::Notify);
    let port = handfast::bind_with(name, options).unwrap();
    for _ in 0..3 {
        common::say(&rustix::thread::gettid().as_raw_nonzero().to_string());
        drop(port.receive_timeout(common::PATIENCE).unwrap());
    }
    // The control thread may have been faster than the signal.
    let has_come = || SIGNALS.load(Ordering::Relaxed) > 0;
    assert!(common::within_patience(has_come));
    common::say("received");
    while common::told().is_some() {}
}

#[test]
fn a_sleeper_is_woken_and_not_killed_when_its_signal_cannot_be_queued() {
    let _alone = common::alone();
    let name = common::name("no-queue");
    let mut child = common::start("without a queue", &[&name]);
    let mut right = None;
    for _ in 0..3 {
        let task = child.line();
        let stat = format!("/proc/{}/task/{task}/stat", child.pid());
        let is_asleep = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
        assert!(common::within_patience(is_asleep));
        let right = right.get_or_insert_with(|| handfast::connect(&name).unwrap());
        right.send(b"wake").unwrap();
    }
    child.expect("received");
    child.finish();
}

/// Gives a handler while the process handles the signal otherwise, and one when it no longer does.
pub(crate) fn refused_first(name: &str) {
    static RAN: AtomicU32 = AtomicU32::new(0);
    let act = |action| {
        // SAFETY: the action is the default or a handler that is async-signal-safe and lives for ever.
        unsafe { libc::signal(handfast_sys::signal::number(), action) }
    };
    act(on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t);
    let refused = handfast::notify::notify(|| RAN.store(1, Ordering::Relaxed));
    let errno = refused.unwrap_err().errno;
    assert_eq!(errno.raw_os_error(), rustix::io::Errno::BUSY.raw_os_error());
    act(libc::SIG_DFL);
    handfast::notify::notify(|| RAN.store(2, Ordering::Relaxed)).unwrap();
    let options = Options::new().strategy(Strategy::Notify);
    let port = handfast::bind_with(name, options).unwrap();
    common::say("ready");
    drop(port.receive_timeout(common::PATIENCE).unwrap());
    // SAFETY: takes no pointers; this very process.
    unsafe { libc::raise(handfast_sys::signal::number()) };
    common::say(&format!("handler {}", RAN.load(Ordering::Relaxed)));
    while common::told().is_some() {}
}

#[test]
fn a_handler_that_was_refused_does_not_run_later() {
    let name = common::name("refused");
    let mut child = common::start("refused first", &[&name]);
    child.expect("ready");
    handfast::connect(&name).unwrap().send(b"wake").unwrap();
    child.expect("handler 2");
    child.finish();
}
