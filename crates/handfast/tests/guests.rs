//! Code of the application in the library's control thread: wakers and subscribers that panic, wait, and use the library.
//! Soundness finding 3.

mod common;

use common::{PATIENCE, within_patience};
use handfast::error::{ConnectError, Gone, Misuse, ReceiveError, SendError};
use handfast::{Right, SendRight};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "holder" => holder(arguments[0]),
        "guest" => guest(arguments[0], arguments[1], arguments[2]),
        _ => unreachable!(),
    });
}

/// Holds calls, and answers them all when it gets a message.
fn holder(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut held = Vec::new();
    loop {
        let request = port.receive().unwrap();
        match request.is_call() {
            true => held.push(request),
            false => held.drain(..).for_each(|call: handfast::Request| {
                let _ = call.reply(b"late");
            }),
        }
    }
}

/// Does something when it is woken, once.
struct Guest<F>(AtomicU32, Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Guest<F> {
    fn new(work: F) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(0), Mutex::new(Some(work))))
    }

    fn woken(&self) -> bool {
        within_patience(|| self.0.load(Ordering::Relaxed) > 0)
    }
}

impl<F: FnOnce() + Send + 'static> Wake for Guest<F> {
    fn wake(self: Arc<Self>) {
        let work = self.1.lock().unwrap().take();
        let name = std::thread::current().name().map(str::to_owned);
        assert_eq!(name.as_deref(), Some("handfast-keeper"));
        // Counted also where it panics.
        struct Counts<'a>(&'a AtomicU32);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let _counts = Counts(&self.0);
        work.map(|work| work()).unwrap_or_default();
    }
}

/// Has `work` run by a waker of a call to `holder`; the call is answered then.
fn by_waker(holder: &SendRight, work: impl FnOnce() + Send + 'static) {
    let guest = Guest::new(work);
    let waker = Waker::from(guest.clone());
    let mut call = pin!(holder.call_async(b"held"));
    let mut context = Context::from_waker(&waker);
    assert!(call.as_mut().poll(&mut context).is_pending());
    holder.send(b"answer").unwrap();
    assert!(guest.woken(), "nobody wakes it");
    let Poll::Ready(answer) = call.poll(&mut context) else {
        panic!("woken for nothing");
    };
    assert_eq!(*answer.unwrap(), *b"late");
}

fn panics() {
    panic!("this waker panics");
}

/// Events of the library make it panic, in its control thread.
struct Panics;

impl tracing::Subscriber for Panics {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        let name = std::thread::current().name().map(str::to_owned);
        assert_ne!(
            name.as_deref(),
            Some("handfast-keeper"),
            "this subscriber panics"
        );
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// What only the control thread brings about still happens: links with this process's own name, wakers, the end of a peer.
fn works(name: &str, holder: &SendRight) {
    let own = handfast::bind(name).unwrap();
    let since = Instant::now();
    let right = handfast::connect(name).unwrap();
    assert!(since.elapsed() < Duration::from_secs(4));
    right.send(b"here").unwrap();
    assert_eq!(own.receive_until(PATIENCE).unwrap().bytes(), b"here");
    by_waker(holder, || {});
    std::thread::scope(|scope| {
        let call = scope.spawn(|| holder.call_until(b"held", PATIENCE).map(drop));
        common::say("calls");
        assert_eq!(
            call.join().unwrap(),
            Err(SendError::Gone(Gone::Process)),
            "nobody says that it has died"
        );
    });
    common::say("works");
}

fn guest(what: &str, name: &str, holder: &str) {
    // Of the others each ends the process.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.to_string().contains("panics") {
            usual(panic);
        }
    }));
    if what == "subscriber" {
        tracing::subscriber::set_global_default(Panics).unwrap();
    }
    let holder: &'static SendRight = Box::leak(Box::new(handfast::connect(holder).unwrap()));
    match what {
        "waker" => by_waker(holder, panics),
        "subscriber" => {
            // Links come and go.
            let port = handfast::anonymous().unwrap();
            (0..5).for_each(|_| drop(port.mint(1).connect().unwrap()));
        }
        "quotas" => {
            handfast::set_quotas_by(|_| panic!("this closure panics")).unwrap();
            (0..5).for_each(|_| drop(handfast::connect("nobody's")));
        }
        "waits" => waits(name, holder),
        "drops" => drops(holder),
        _ => unreachable!("{what}"),
    }
    works(name, holder);
    common::told();
}

/// A waker that waits is told at once that it must not.
fn waits(name: &str, holder: &'static SendRight) {
    let own_name = format!("{name}-own");
    let own = Arc::new(handfast::bind(&own_name).unwrap());
    let told: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let port = own.clone();
    let since = Instant::now();
    by_waker(holder, move || {
        let mut told = told.lock().unwrap();
        let connected = handfast::connect(&own_name).map(drop);
        assert!(
            matches!(connected, Err(ConnectError::Misuse(Misuse::ControlThread))),
            "{connected:?}"
        );
        let called = holder.call(b"held by a waker").map(drop);
        assert_eq!(called, Err(SendError::Misuse(Misuse::ControlThread)));
        let called = holder.call_until(b"held by a waker", PATIENCE).map(drop);
        assert_eq!(called, Err(SendError::Misuse(Misuse::ControlThread)));
        let received = port.receive().map(drop);
        assert_eq!(received, Err(ReceiveError::Misuse(Misuse::ControlThread)));
        told.push("told".to_owned());
    });
    assert!(since.elapsed() < Duration::from_secs(20));
    assert_eq!(told.lock().unwrap().len(), 1, "it panicked on its way");
}

/// A waker that drops all it has, binds and sends, while the library ends what it had.
fn drops(holder: &'static SendRight) {
    let port = handfast::anonymous().unwrap();
    let to_port = port.mint(1).connect().unwrap();
    let done: &'static AtomicBool = Box::leak(Box::default());
    let own = port.mint(2);
    let rights: Vec<Right> = vec![own.into(), to_port.clone().into()];
    by_waker(holder, move || {
        to_port.send(b"by a waker").unwrap();
        assert_eq!(port.try_receive().unwrap().bytes(), b"by a waker");
        drop(rights);
        drop(port);
        drop(to_port);
        let new = handfast::anonymous().unwrap();
        let right = new.mint(1).connect().unwrap();
        right.send(b"new").unwrap();
        assert_eq!(new.try_receive().unwrap().bytes(), b"new");
        done.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed), "it panicked on its way");
}

fn scenario(what: &str) {
    let name = common::name(what);
    let holder_name = format!("{name}-holder");
    let mut holder = common::start("holder", &[&holder_name]);
    holder.expect("ready");
    let mut guest = common::start("guest", &[what, &name, &holder_name]);
    guest.expect("calls");
    // The call may not have got there yet: it ends all the same.
    holder.kill();
    guest.expect("works");
    guest.tell("");
    guest.finish();
}

#[test]
fn a_waker_that_panics_ends_nothing_but_itself() {
    scenario("waker");
}

#[test]
fn a_subscriber_that_panics_ends_nothing_but_itself() {
    scenario("subscriber");
}

#[test]
fn a_closure_of_quotas_that_panics_leaves_the_usual_ones() {
    scenario("quotas");
}

#[test]
fn a_waker_that_waits_is_told_at_once_that_it_must_not() {
    scenario("waits");
}

#[test]
fn a_waker_that_drops_rights_and_ports_and_binds_others_stands_in_no_lock() {
    scenario("drops");
}
