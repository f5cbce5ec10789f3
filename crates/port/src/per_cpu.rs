//! Serving a port on every CPU, each with a receiver and a worker of its own (paper 002, section 2: for each processor
//! its own workers and the resources of a call, created as needed, reached by no other).
//!
//! A receiver without a worker rests like a port at which a task waits: the first post rings through its link's socket, and the
//! control thread, which looks whether something is there, starts a worker, pinned to the receiver's CPU. A worker that had nothing to do
//! for [`IDLE`] ends. The port's own receiver has a worker as well, on any CPU: for notices, for senders on CPUs that the server
//! may not use, and for senders that do not know of the other receivers yet.

use crate::error::{Exhausted, Resource, ServeError};
use crate::guest;
use crate::link::spread::{CPUS, Entry, message};
use crate::link::{Link, backlog};
use crate::options::Options;
use crate::poller::{clearing, pinned};
use crate::polling::{self, waits};
use crate::port::Port;
use crate::port::own::OwnRight;
use crate::process::Process;
use crate::receive_right::ReceiveRight;
use crate::request::{Holder, Received, Request};
use crate::tables::{Table, Which};
use crate::{binding, links, rank};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::control::Encoded;
use handfast_sys::futex::PrivateWord;
use handfast_sys::sync::{Condvar, Mutex, MutexGuard};
use handfast_sys::{cpu, signal};
use handfast_wait::Strategy;
use std::cell::Cell;
use std::sync::{Arc, Weak};

mod spare;
#[cfg(test)]
mod tests;
pub(crate) mod worker;

use spare::{OF_CPU_MAX, Workers};
use worker::WORKS_FOR;

/// How long a worker waits for a message before it ends: long compared with making a thread, some 100 us.
const IDLE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// A port that is served on every CPU: [`ReceiveRight::serve_per_cpu`].
///
/// Dropping the server unbinds the name and ends the workers. The drop waits for busy workers, and at most 100 ms for idle
/// ones. Calls that no worker has received end with [`Gone::Port`](crate::error::Gone::Port) at their callers.
///
/// A `PerCpu` is no receive right: no other receiver takes from the port, and the port does not move.
///
/// ```compile_fail,E0599
/// # fn received(server: handfast_port::PerCpu) {
/// server.receive();
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn sent(server: handfast_port::PerCpu) {
/// let part = handfast_port::Right::from(server);
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # fn waited(server: handfast_port::PerCpu, set: &mut handfast_port::WaitSet) {
/// set.add(server);
/// # }
/// ```
pub struct PerCpu {
    server: Arc<Server>,
    epoch: u32,
}

/// A receiver of a port that is served on every CPU: [`PerCpu::places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPU whose messages come to this receiver; `None` for the port's own receiver.
    pub cpu: Option<u32>,
    /// Number of workers started so far, spare ones included.
    pub started: u64,
    /// Whether a worker runs now.
    pub is_served: bool,
    /// The workers there are: one that takes messages, those whose handlers sleep, and spare ones.
    pub workers: u32,
    /// The limit that keeps messages waiting for handlers that sleep: there are too many workers.
    pub exhausted: Option<Exhausted>,
}

const WORKERS_EXHAUSTED: Exhausted = Exhausted {
    what: "workers of a CPU whose handlers sleep",
    advice: Some("have handlers wait elsewhere, and answer by their reply rights"),
    limit: OF_CPU_MAX as u64,
};

const RECEIVERS_EXHAUSTED: Exhausted = Exhausted {
    what: "ports of this process (serving on every CPU takes one more for each)",
    advice: Some("drop some"),
    limit: RECEIVERS as u64,
};

/// A port without a name needs nothing else.
fn none_left(resource: Resource) -> ServeError {
    ServeError::Exhausted(match resource {
        Resource::Exhausted(_) => RECEIVERS_EXHAUSTED,
        other => other.into(),
    })
}

/// The handler's access to its worker, a thread on the CPU where the request was made.
pub struct Worker<'a> {
    desk: &'a Desk,
    /// The box of an answered call, for the next call of its lane.
    answered: Cell<Option<Box<Received>>>,
}

type Handler = dyn Fn(&Worker<'_>, Request) + Send + Sync;

struct Server {
    process: Arc<Process>,
    handler: guest::Value<Box<Handler>>,
    /// The first desk is the port's own.
    desks: Box<[Desk]>,
    /// CPUs and signals of the thread that began to serve.
    cpus: Vec<u32>,
    signals: signal::Mask,
    is_over: AtomicBool,
    running: Arc<Running>,
}

/// The count of running workers.
#[derive(Default)]
struct Running {
    count: Mutex<u32, rank::Running>,
    ended: Condvar,
}

/// A receiver and its worker.
struct Desk {
    right: ReceiveRight,
    cpu: Option<u32>,
    started: AtomicU64,
    /// Counts the calls of spare workers.
    calls: PrivateWord,
    state: Mutex<State, rank::Desk>,
}

#[derive(Default)]
struct State {
    is_served: bool,
    /// Its number among the port's takers, from the end of a worker until a thread looks; `None` while it is
    /// served.
    number: Option<u64>,
    /// Requests for which no thread could be started, and whether each would have been that thread's last.
    owed: Vec<(Request, bool)>,
    workers: Workers,
}

/// Wakes a receiver's takers.
struct Bell {
    server: Arc<Server>,
    desk: usize,
}

/// The ports of a process that are served on every CPU.
#[derive(Default)]
pub(crate) struct Servers(Mutex<Vec<Known>, rank::Servers>);

impl Table for Servers {
    const WHICH: Which = Which::Servers;
}

struct Known {
    /// The announcement to peers.
    message: Encoded,
    server: Weak<Server>,
}

impl Servers {
    fn known(&self) -> MutexGuard<'_, Vec<Known>, rank::Servers> {
        self.0.lock()
    }

    pub(crate) fn messages(&self) -> Vec<Encoded> {
        let known = self.known();
        known.iter().map(|known| known.message.clone()).collect()
    }
}

impl ReceiveRight {
    /// Serves the port on every CPU that this thread may run on: a request is handled on the CPU where it was made, by a
    /// worker pinned there. No two CPUs write to the same cache line for a request or take a common lock. The first message on
    /// a CPU starts a worker there, in some 100 us; the worker ends after 100 ms without one.
    ///
    /// `handler` is called for each message and notice, on several CPUs at once; it answers by [`Worker::reply`], or as
    /// any receiver does. A handler that panics ends its call as [`Gone::Reply`](crate::error::Gone::Reply), and nothing else.
    ///
    /// While a handler computes, other messages of its CPU wait. While the handler of a call sleeps, another worker of the CPU takes the
    /// next messages, at most 2 ms later: up to 64 workers on each CPU, of which one is spare ([`Place::exhausted`] says where
    /// these are too few). One-way messages of a CPU are handled one after the other.
    ///
    /// Both sides sleep while they wait, whatever their strategies, since they share a CPU. A call takes a
    /// wake-up and two switches, some 5 us: as long as one client keeps a server busy, a [single thread](Self::receive)
    /// that spins on its own CPU answers sooner.
    ///
    /// Messages of one thread stay in order while the thread moves between CPUs: it keeps sending to its old receiver
    /// until all it has sent has been taken. A call for which no reply slot is left at the receiver of its CPU goes to another
    /// one. Senders learn of the receivers a little after they have their right; until then, and on CPUs that this process may not use, one worker on any CPU serves them. Such a port is no longer a
    /// receive right: it cannot move, be received from by other threads or be in a wait set. Takes one of the 64
    /// receivers of the process for each CPU. A [shutdown](crate::Node::shutdown) of the node drops the messages that no worker has taken: their calls
    /// end as those of a process that has died.
    ///
    /// ```
    /// # let name = format!("doc-per-cpu-{}", std::process::id());
    /// let server = handfast_port::bind(&name)?.serve_per_cpu(|worker, request| {
    ///     let shout = request.bytes().to_ascii_uppercase();
    ///     let _ = worker.reply(request, &shout);
    /// })?;
    /// assert_eq!(&*handfast_port::connect(&name)?.call(b"hello")?, b"HELLO");
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ServeError::Exhausted`] when the process has too few receivers left, and [`ServeError::Misuse`] in a
    /// forked child and once the node was shut down; the port is gone then.
    pub fn serve_per_cpu(
        self,
        handler: impl Fn(&Worker<'_>, Request) + Send + Sync + 'static,
    ) -> Result<PerCpu, ServeError> {
        let process = self.port().process.clone();
        process.check().map_err(ServeError::Misuse)?;
        let mut cpus = cpu::allowed();
        cpus.retain(|cpu| *cpu < CPUS);
        if cpus.len() >= RECEIVERS as usize {
            return Err(ServeError::Exhausted(RECEIVERS_EXHAUSTED));
        }
        let main = self.port().id;
        // Spinning keeps clients from the CPU that they share.
        let options = Options::new().strategy(Strategy::Block);
        self.set_options(options);
        let mut desks = vec![Desk::new(self, None)];
        for cpu in &cpus {
            let right = binding::nameless(&process, options).map_err(none_left)?;
            pinned::works_for(&mut polling::lock(&right.port().at), main);
            desks.push(Desk::new(right, Some(*cpu)));
        }
        let entry = |desk: &Desk| Some((desk.cpu?, desk.right.port().receiver));
        let entries: Vec<Entry> = desks.iter().filter_map(entry).collect();
        let server = Arc::new(Server {
            process: process.clone(),
            handler: guest::Value::new(Box::new(handler)),
            desks: desks.into(),
            cpus,
            signals: signal::mask(),
            is_over: AtomicBool::new(false),
            running: Arc::default(),
        });
        for desk in 0..server.desks.len() {
            // Messages already at the port find no worker.
            server.answer(desk);
        }
        let message = message(main, &entries);
        process.tables.get::<Servers>().known().push(Known {
            message: message.clone(),
            server: Arc::downgrade(&server),
        });
        for link in links::live(&process) {
            backlog::say_encoded(&link, &message);
        }
        let epoch = process.epoch;
        Ok(PerCpu { server, epoch })
    }
}

/// Tells a new peer of the ports that are served on each CPU. After its welcome.
pub(crate) fn tell_spread(process: &Process, link: &Link) {
    // Servers that come later are announced to all links there are.
    for message in process.tables.get::<Servers>().messages() {
        backlog::say_encoded(link, &message);
    }
}

impl PerCpu {
    /// The bound name; empty for a port without one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.server.desks[0].right.name()
    }

    /// The receivers, the port's own first, and their workers, as they are at this moment. A short lock each.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let place = |desk: &Desk| {
            let state = desk.state();
            Place {
                cpu: desk.cpu,
                // Relaxed: a count.
                started: desk.started.load(Ordering::Relaxed),
                is_served: state.is_served || state.workers.is_handling(),
                workers: state.workers.count(),
                exhausted: state.workers.is_full().then_some(WORKERS_EXHAUSTED),
            }
        };
        self.server.desks.iter().map(place).collect()
    }

    /// Like [`ReceiveRight::mint`].
    #[must_use]
    pub fn mint(&self, badge: u64) -> OwnRight {
        self.server.desks[0].right.mint(badge)
    }

    /// Like [`ReceiveRight::mint_with`].
    #[must_use]
    pub fn mint_with(&self, badge: u64, permissions: u16) -> OwnRight {
        self.server.desks[0].right.mint_with(badge, permissions)
    }

    /// Like [`ReceiveRight::revoke`].
    pub fn revoke(&self, badge: u64) {
        self.server.desks[0].right.revoke(badge);
    }

    /// Like [`ReceiveRight::revoke_from`].
    pub fn revoke_from(&self, holder: Holder, badge: u64) {
        self.server.desks[0].right.revoke_from(holder, badge);
    }

    /// Like [`ReceiveRight::notify_no_senders`]. Messages that the last senders left on other CPUs may be handled after
    /// the notice.
    pub fn notify_no_senders(&self) {
        self.server.desks[0].right.notify_no_senders();
    }

    /// Like [`ReceiveRight::notify_no_senders_of`], with the same caveat.
    pub fn notify_no_senders_of(&self, badge: u64) {
        self.server.desks[0].right.notify_no_senders_of(badge);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The first of its ports tells the callers of all: those whose requests were received wait on.
        for desk in self.desks.iter().filter(|desk| desk.right.check().is_ok()) {
            guest::later(|| clearing::publish_heads(&mut polling::lock(&desk.port().at), None));
        }
    }
}

impl Drop for PerCpu {
    fn drop(&mut self) {
        if self.epoch != handfast_sys::process::fork_epoch() {
            return;
        }
        let server = &self.server;
        // Release: pairs with the load in `Server::is_over`.
        server.is_over.store(true, Ordering::Release);
        let is_this = |known: &Known| core::ptr::eq(known.server.as_ptr(), Arc::as_ptr(server));
        server
            .process
            .tables
            .get::<Servers>()
            .known()
            .retain(|known| !is_this(known));
        for desk in &server.desks {
            let mut state = desk.state();
            // A started worker takes the number itself.
            let (number, owed) = (state.number.take(), core::mem::take(&mut state.owed));
            drop((state, owed));
            drop(number.map(|number| waits::leave_takers(&desk.port().at, number)));
            desk.calls.add_and_wake();
        }
        // A handler that drops its own server does not wait for itself.
        if WORKS_FOR.get() != Arc::as_ptr(server) {
            server.running.wait();
        }
    }
}

impl core::fmt::Debug for PerCpu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PerCpu")
            .field("name", &self.name())
            .field("places", &self.server.desks.len())
            .finish_non_exhaustive()
    }
}

impl Desk {
    fn new(right: ReceiveRight, cpu: Option<u32>) -> Self {
        Self {
            right,
            cpu,
            started: AtomicU64::new(0),
            calls: PrivateWord::new(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State, rank::Desk> {
        self.state.lock()
    }

    fn port(&self) -> &Port {
        self.right.port()
    }
}
