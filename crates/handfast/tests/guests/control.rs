//! Code of the application in the library's control thread: wakers and subscribers that panic, wait, and use the library.
//! Soundness finding 3.

use crate::common::{self, PATIENCE, within_patience};
use crate::deeds;
use handfast::error::{ConnectError, Gone, Misuse, ReceiveError, SendError};
use handfast::{Node, Right, SendRight};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Holds calls, and answers them all when it gets a message.
pub(crate) fn holder(name: &str) {
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
        assert_eq!(name.as_deref(), Some("handfast-ctl"));
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

/// Calls a function at each event of the library.
struct AtEvents(fn());

impl tracing::Subscriber for AtEvents {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        (self.0)();
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

fn panics_in_the_control_thread() {
    let thread = std::thread::current();
    assert_ne!(
        thread.name(),
        Some("handfast-ctl"),
        "this subscriber panics"
    );
}

/// Work that only the control thread does still happens: links with this process's own name, wakers, the end of a peer.
fn works(name: &str, holder: &SendRight) {
    let own = handfast::bind(name).unwrap();
    let since = Instant::now();
    let right = handfast::connect(name).unwrap();
    assert!(since.elapsed() < Duration::from_secs(4));
    right.send(b"here").unwrap();
    assert_eq!(own.receive_timeout(PATIENCE).unwrap().bytes(), b"here");
    by_waker(holder, || {});
    std::thread::scope(|scope| {
        let call = scope.spawn(|| holder.call_timeout(b"held", PATIENCE).map(drop));
        common::say("calls");
        assert_eq!(
            call.join().unwrap(),
            Err(SendError::Gone(Gone::Process)),
            "nobody says that it has died"
        );
    });
    common::say("works");
}

pub(crate) fn guest(what: &str, name: &str, holder: &str) {
    // Of the others each ends the process.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.to_string().contains("panics") {
            usual(panic);
        }
    }));
    if what == "subscriber" {
        tracing::subscriber::set_global_default(AtEvents(panics_in_the_control_thread)).unwrap();
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
        "subscriber-uses" => {
            tracing::subscriber::set_global_default(AtEvents(uses)).unwrap();
            let port = handfast::anonymous().unwrap();
            (0..5).for_each(|_| drop(port.mint(1).connect().unwrap()));
            assert!(USED.load(Ordering::Relaxed) > 0, "nothing was told of");
        }
        "quotas-use" => {
            handfast::set_quotas_by(|_| {
                uses();
                handfast::Quotas::default()
            })
            .unwrap();
            assert!(USED.load(Ordering::Relaxed) > 0, "not asked");
        }
        "messages" => messages(holder),
        "rights" => rights(holder),
        "lines" => lines(holder),
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
        let called = holder.call_timeout(b"held by a waker", PATIENCE).map(drop);
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

/// How often code of the application has used the library to its end.
static USED: AtomicU32 = AtomicU32::new(0);

/// Uses the library, wherever that has called.
fn uses() {
    if deeds::uses(&Node::global().unwrap()) {
        USED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A message that uses the right it is sent by, and the last of which panics.
struct Message<'a>(&'a SendRight, bool);

impl AsRef<[u8]> for Message<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0.send(b"from within").unwrap();
        uses();
        assert!(!self.1, "this message panics");
        b"from a batch"
    }
}

fn panicked(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Messages, and what yields rights, are the application's code.
fn messages(holder: &SendRight) {
    let messages = [false, false, true].map(|panics| Message(holder, panics));
    assert!(panicked(|| holder.send_many(&messages).unwrap()));
    holder.send_many(&messages[..2]).unwrap();
}

fn rights(holder: &SendRight) {
    let port = handfast::anonymous().unwrap();
    let yields = |panics: bool| {
        let port = &port;
        (1..=3).map(move |badge| {
            holder.send(b"from within").unwrap();
            uses();
            assert!(!panics || badge < 3, "this iterator panics");
            Right::from(port.mint(badge))
        })
    };
    assert!(panicked(|| holder.with(yields(true)).send(b"x").unwrap()));
    holder.with(yields(false)).send(b"x").unwrap();
}

/// Closures that read a loan are called while the lender keeps it lent.
fn lines(holder: &SendRight) {
    let port = handfast::anonymous().unwrap();
    let right = port.mint(1).connect().unwrap();
    let arena = handfast::SharedArena::create(4096, 4).unwrap();
    let block = arena.try_take(4096).unwrap();
    right.with([block.into()]).send(b"").unwrap();
    let Some(Right::Loan(loan)) = port.receive().unwrap().take_rights().pop() else {
        panic!("no loan came");
    };
    let each = |panics: bool| {
        loan.for_each_line(|_| {
            holder.send(b"from within").unwrap();
            uses();
            assert!(!panics, "this closure panics");
        })
    };
    assert!(panicked(|| each(true).unwrap()));
    each(false).unwrap();
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

#[test]
fn a_subscriber_that_uses_the_library_stands_in_no_lock() {
    scenario("subscriber-uses");
}

#[test]
fn a_closure_of_quotas_that_uses_the_library_stands_in_no_lock() {
    scenario("quotas-use");
}

#[test]
fn messages_that_use_the_right_they_are_sent_by_or_panic_stand_in_no_lock() {
    scenario("messages");
}

#[test]
fn rights_that_are_yielded_by_what_panics_or_sends_stand_in_no_lock() {
    scenario("rights");
}

#[test]
fn a_loan_is_read_by_what_panics_or_sends_in_no_lock() {
    scenario("lines");
}
