//! Services whose methods are async: many calls at once by one task, and methods that are dropped when nobody waits.

use crate::common;
use handfast::service::{CallError, Refusal};
use handfast::{OwnRight, ReceiveRight, SendRight};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

#[handfast::service]
trait Gate {
    /// Until it is opened so many times, by others.
    async fn pass(&self, name: String, note: &str) -> String;
    fn open(&self, count: u32) -> usize;
    #[oneway]
    async fn pass_and_forget(&self, name: String);
    async fn call_back(&self, to: SendRight) -> OwnRight;
    fn waiting(&self) -> usize;
    fn given_up(&self) -> usize;
    fn forgotten(&self) -> usize;
    /// Until as many are at work at once, and then so many milliseconds.
    async fn rest(&self, count: u32, ms: u64);
    /// How many have waited at once.
    fn most(&self) -> usize;
}

#[handfast::service]
trait Caller {
    fn called(&self) -> u64;
}

struct MyGate {
    port: &'static ReceiveRight,
    open: Notify,
    waiting: AtomicUsize,
    given_up: AtomicUsize,
    forgotten: AtomicUsize,
    most: AtomicUsize,
}

/// Counts those that were dropped while they waited.
struct Waiting<'a>(&'a MyGate, bool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
        if !self.1 {
            self.0.given_up.fetch_add(1, SeqCst);
        }
    }
}

impl MyGate {
    async fn wait(&self) {
        self.waiting.fetch_add(1, SeqCst);
        let mut waiting = Waiting(self, false);
        self.open.notified().await;
        waiting.1 = true;
    }
}

impl Gate for MyGate {
    async fn pass(&self, name: String, note: &str) -> String {
        self.wait().await;
        format!("{name} {note}")
    }

    fn open(&self, count: u32) -> usize {
        let waiting = self.waiting.load(SeqCst);
        (0..count).for_each(|_| self.open.notify_one());
        waiting
    }

    async fn pass_and_forget(&self, _: String) {
        self.wait().await;
        self.forgotten.fetch_add(1, SeqCst);
    }

    async fn call_back(&self, to: SendRight) -> OwnRight {
        let number = CallerAsyncClient::new(to).called().await.unwrap();
        self.port.mint(number)
    }

    fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    fn given_up(&self) -> usize {
        self.given_up.load(SeqCst)
    }

    fn forgotten(&self) -> usize {
        self.forgotten.load(SeqCst)
    }

    async fn rest(&self, count: u32, ms: u64) {
        let waiting = self.waiting.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(waiting, SeqCst);
        let end = tokio::time::Instant::now() + common::PATIENCE / 2;
        while self.most.load(SeqCst) < count as usize && tokio::time::Instant::now() < end {
            // Sleep: the interval of a poll with an end.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Sleep: stands for work.
        tokio::time::sleep(Duration::from_millis(ms)).await;
        self.waiting.fetch_sub(1, SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

struct Seven;

impl Caller for Seven {
    fn called(&self) -> u64 {
        7
    }
}

/// One task answers all, or one each.
pub(crate) fn server(name: &str, spawns: bool) {
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::bind(name).unwrap()));
    port.notify_no_senders();
    let gate: &'static MyGate = Box::leak(Box::new(MyGate {
        port,
        open: Notify::new(),
        waiting: AtomicUsize::new(0),
        given_up: AtomicUsize::new(0),
        forgotten: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    }));
    common::say("ready");
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        if !spawns {
            // Such a future can be spawned.
            let served = tokio::spawn(GateServer::serve_async(port, gate)).await;
            return served.unwrap().unwrap();
        }
        loop {
            let request = port.receive_async().await.unwrap();
            if request.notice().is_some() {
                return;
            }
            tokio::spawn(GateServer::dispatch_async(request, gate));
        }
    });
    common::say("no senders");
}

fn start(what: &str, role: &'static str) -> (common::Child, GateClient) {
    let name = common::name(&format!("async-{what}-{role}"));
    let server = common::start(role, &[&name]);
    server.expect("ready");
    let client = GateClient::new(handfast::connect(&name).unwrap());
    (server, client.with_timeout(common::PATIENCE))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    runtime.block_on(work)
}

/// Until as many wait there.
fn until_waiting(gate: &GateClient, count: usize) {
    assert!(common::within_patience(|| gate.waiting().unwrap() == count));
}

#[test]
fn calls_that_wait_are_at_work_at_once_and_hold_up_nobody() {
    for role in ["gate", "spawner"] {
        let (server, gate) = start("at-once", role);
        let right = gate.right();
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..6)
                .map(|number| {
                    scope.spawn(move || {
                        let gate = GateClient::new(right.clone());
                        gate.pass(number.to_string(), "through").unwrap()
                    })
                })
                .collect();
            until_waiting(&gate, 6);
            assert_eq!(gate.open(6).unwrap(), 6);
            for (number, caller) in callers.into_iter().enumerate() {
                assert_eq!(caller.join().unwrap(), format!("{number} through"));
            }
        });
        assert_eq!(gate.waiting().unwrap(), 0, "{role}");
        drop(gate);
        server.expect("no senders");
    }
}

#[test]
fn a_method_whose_caller_gives_up_is_dropped_where_it_waits() {
    for role in ["gate", "spawner"] {
        let (_server, gate) = start("given-up", role);
        let brief = GateClient::new(gate.right().clone());
        let brief = brief.with_timeout(Duration::from_millis(50));
        // Its time may have passed before it is at work.
        assert!(common::within_patience(|| {
            let late = brief.pass("late".to_owned(), "");
            assert!(matches!(late, Err(CallError::Send(_))), "{late:?}");
            gate.given_up().unwrap() > 0
        }));
        until_waiting(&gate, 0);
        let before = gate.given_up().unwrap();
        // As by dropping a future.
        let tasks = GateAsyncClient::new(gate.right().clone());
        assert!(common::within_patience(|| {
            block_on(async {
                let pass = tasks.pass("dropped".to_owned(), "");
                let passed = tokio::time::timeout(Duration::from_millis(50), pass).await;
                assert!(passed.is_err(), "{passed:?}");
            });
            gate.given_up().unwrap() > before
        }));
        until_waiting(&gate, 0);
    }
}

#[test]
fn one_way_methods_wait_and_rights_go_both_ways() {
    let (server, gate) = start("one-way", "gate");
    gate.pass_and_forget("somebody".to_owned()).unwrap();
    until_waiting(&gate, 1);
    assert_eq!(gate.forgotten().unwrap(), 0);
    gate.open(1).unwrap();
    assert!(common::within_patience(|| gate.forgotten().unwrap() == 1));
    let port = handfast::anonymous().unwrap();
    let own = port.mint(0);
    port.notify_no_senders();
    std::thread::scope(|scope| {
        scope.spawn(|| CallerServer::serve(&port, &Seven).unwrap());
        let there = GateClient::new(gate.call_back(own).unwrap());
        assert_eq!(there.waiting().unwrap(), 0);
    });
    drop(gate);
    server.expect("no senders");
}

#[test]
fn of_very_many_callers_sixty_four_are_at_work_and_all_are_answered() {
    let (server, gate) = start("many", "gate");
    let right = gate.right();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                let gate = GateAsyncClient::new(right.clone());
                let rests = || futures(12, || gate.rest(64, 300));
                block_on(rests()).into_iter().for_each(|rest| rest.unwrap());
            });
        }
    });
    assert_eq!(gate.most().unwrap(), 64);
    drop(gate);
    server.expect("no senders");
}

/// The outputs of so many futures, all at once.
async fn futures<F: Future>(count: usize, make: impl Fn() -> F) -> Vec<F::Output> {
    let mut open: Vec<_> = (0..count).map(|_| Box::pin(make())).collect();
    let mut made = Vec::new();
    std::future::poll_fn(|context| {
        open.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Ready(value) => {
                made.push(value);
                false
            }
            Poll::Pending => true,
        });
        match open.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    made
}

#[test]
fn a_client_of_another_service_is_refused() {
    let (_server, gate) = start("other", "gate");
    let other = CallerClient::new(gate.right().clone());
    let refused = other.called();
    let why = Refusal::OtherService { serves: 0 };
    assert!(
        matches!(&refused, Err(CallError::Refused { why: other, .. })
            if std::mem::discriminant(other) == std::mem::discriminant(&why)),
        "{refused:?}"
    );
}
