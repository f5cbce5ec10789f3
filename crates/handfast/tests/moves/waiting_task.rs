//! A task waits for an answer while the port moves to a process with which the caller has no link.

use crate::common;
use handfast::Right;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake};
use std::time::Duration;

const CALLS: usize = 8;
const ROUNDS: usize = 5;

/// Keeps the ports that it makes and that come; gives the last one to `next` when it is told to.
pub(crate) fn keeper_of_ports(name: &str, next: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut held = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        for right in request.take_rights() {
            if let Right::Receive(port) = right {
                held.push(port);
            }
        }
        match request.bytes() {
            b"make" => {
                let made = handfast::anonymous().unwrap();
                let right = made.mint(1);
                held.push(made);
                request.reply_with(b"", [right.into()]).unwrap();
            }
            b"pass" => {
                let to = handfast::connect(next).unwrap();
                let port = held.pop().unwrap();
                to.with([port.into()]).send(b"take").unwrap();
                request.reply(b"").unwrap();
            }
            _ => {}
        }
    }
}

/// Counts its calls.
#[derive(Default)]
struct Woken(Mutex<usize>, Condvar);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
        self.1.notify_all();
    }
}

/// Wakers ran under the lock of the switches to new homes, where a debug build ends the thread: no code of the application runs
/// under a lock.
#[test]
fn wakers_run_under_no_lock_when_a_port_moves() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let thread = std::thread::current();
        if thread
            .name()
            .is_some_and(|name| name.starts_with("handfast"))
        {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        usual(info);
    }));
    for round in 0..ROUNDS {
        let (one, two) = (
            common::name(&format!("one{round}")),
            common::name(&format!("two{round}")),
        );
        let second = common::start("keeper of ports", &[&two, "-"]);
        second.expect("ready");
        let first = common::start("keeper of ports", &[&one, &two]);
        first.expect("ready");
        let to = handfast::connect(&one).unwrap();
        let Some(Right::Send(right)) = to.call(b"make").unwrap().take_rights().pop() else {
            panic!("a right to send");
        };
        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        let mut calls: Vec<_> = (0..CALLS)
            .map(|_| Box::pin(right.call_async(b"x")))
            .collect();
        for call in &mut calls {
            let polled = call.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        to.call(b"pass").unwrap();
        let count = woken.0.lock().unwrap();
        let limit = Duration::from_secs(20);
        let waited = woken
            .1
            .wait_timeout_while(count, limit, |count| *count == 0);
        assert!(
            !waited.unwrap().1.timed_out(),
            "the senders follow the port"
        );
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}
