//! The start and the end of nodes, and the node of the free functions.

use crate::bound;
use crate::configuration::Configuration;
use crate::control_thread;
use crate::door;
use crate::error::{Exhausted, Resource};
use crate::forwarder;
use crate::link::Link;
use crate::link::group;
use crate::link_end;
use crate::links;
use crate::moving;
use crate::paths;
use crate::poller;
use crate::port::ports;
use crate::process::Process;
use crate::protocols;
use crate::rank;
use crate::redirect;
use crate::relay;
use crate::vine;
use core::time::Duration;
use handfast_sys::sync::Mutex;
use handfast_sys::{clock, process, socket};
use std::sync::{Arc, OnceLock, Weak};

/// How long a shutdown waits for threads that wait on its links, at most.
const LEAVE_MS_MAX: u32 = 100;

/// The locks of a process. A forked child has its own: its parent's may have been held by a thread
/// that the child does not have.
pub(crate) struct Locks {
    epoch: u32,
    current: Mutex<Option<Arc<Process>>, rank::Current>,
    /// The nodes of this process, and those that have ended lately.
    nodes: Mutex<Vec<Weak<Process>>, rank::Nodes>,
    next: OnceLock<&'static Self>,
}

impl Locks {
    const fn new(epoch: u32) -> Self {
        Self {
            epoch,
            current: Mutex::new(None),
            nodes: Mutex::new(Vec::new()),
            next: OnceLock::new(),
        }
    }

    /// The locks of this process. One step for each fork between it and the process that first asked; a child
    /// leaks its parent's.
    pub(crate) fn own() -> &'static Self {
        static FIRST: Locks = Locks::new(0);
        let epoch = process::fork_epoch();
        let mut locks = &FIRST;
        while locks.epoch != epoch {
            locks = locks
                .next
                .get_or_init(|| Box::leak(Box::new(Self::new(locks.epoch + 1))));
        }
        locks
    }
}

impl Locks {
    /// The next use of the global node starts another, if this is the one.
    fn forget(&self, process: &Arc<Process>) {
        let mut current = self.current.lock();
        let is_it = current
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, process));
        let own = is_it.then(|| current.take()).flatten();
        drop(current);
        drop(own);
    }
}

/// This process's state, made with its control thread on first use (and again in a forked child,
/// which shares nothing with its parent).
pub(crate) fn current() -> Result<Arc<Process>, Resource> {
    process::watch_forks();
    // A parent's state stays with the parent's locks, so that none of it is undone.
    let current = &Locks::own().current;
    if let Some(process) = &*current.lock() {
        return Ok(process.clone());
    }
    // Made before the lock is taken, and dropped after: a node that does not begin ends with application code.
    let node = Arc::new(Process::new(Configuration::of_environment())?);
    let mut current = current.lock();
    if let Some(process) = &*current {
        return Ok(process.clone());
    }
    begin(&node)?;
    *current = Some(node.clone());
    Ok(node)
}

/// The state of a new node, with its control thread.
pub(crate) fn start(configuration: Configuration) -> Result<Arc<Process>, Resource> {
    process::watch_forks();
    let node = Arc::new(Process::new(configuration)?);
    begin(&node)?;
    Ok(node)
}

/// Gives a new node its groups and its control thread.
fn begin(node: &Arc<Process>) -> Result<(), Resource> {
    group::begin(node)?;
    // Lower modules call these of higher ones.
    vine::of(node).serve_by(forwarder::serve);
    poller::serve_by(node, &protocols::All);
    ports::end_by(node, &protocols::All);
    links::end_by(node, link_end::end_link);
    {
        let mut nodes = Locks::own().nodes.lock();
        nodes.retain(|node| node.strong_count() > 0);
        nodes.push(Arc::downgrade(node));
    }
    let control_thread = control_thread::start(node.clone()).map_err(|_| {
        Resource::Exhausted(Exhausted {
            what: "threads",
            advice: Some("raise RLIMIT_NPROC or the control group's limit"),
            limit: 0,
        })
    })?;
    node.set_control_thread(Some(control_thread));
    Ok(())
}

/// The nodes of this process.
pub(crate) fn nodes() -> Vec<Arc<Process>> {
    let nodes = Locks::own().nodes.lock();
    nodes.iter().filter_map(Weak::upgrade).collect()
}

/// See [`Node::shutdown`](crate::Node::shutdown).
pub(crate) fn shutdown(node: &Arc<Process>) {
    if node.begins_shutdown() {
        end_node(node);
    }
}

/// Ends a node that is being shut down: its links, and the control thread.
pub(crate) fn end_node(node: &Arc<Process>) {
    Locks::own().forget(node);
    moving::lose_moves(node);
    let listeners = core::mem::take(&mut *node.listeners.lock());
    for (_, listener) in &listeners {
        node.poll.remove(&**listener);
        socket::shutdown(&**listener);
    }
    let accepted = core::mem::take(&mut *bound::accepted(node));
    drop((listeners, accepted));
    for port in ports::all(node) {
        if let Some(listener) = port.taken_up.get() {
            socket::shutdown(&**listener);
        }
    }
    node.attention.raise();
    let control_thread = node.set_control_thread(None);
    // Otherwise this thread is the control thread: a waker, which it runs.
    if let Some(control_thread) = control_thread.filter(|_| !crate::guest::is_control()) {
        // A panic has been told of by then.
        let _ = control_thread.join();
    }
    let links = links::live(node);
    // All before the tables of one: a peer hears by its own link of nothing that the end of another brings about.
    for link in &links {
        link.take_down();
    }
    links.iter().for_each(|link| link_end::end_link(node, link));
    let_go(node);
    ports::rouse_all(node);
    // Peers may have put waiters back to sleep.
    let has_left = |link: &Arc<Link>| {
        link.disturb();
        !link.waiters.parked.any()
    };
    for _ in 0..LEAVE_MS_MAX {
        if links.iter().all(has_left) {
            break;
        }
        clock::sleep(Duration::from_millis(1));
    }
}

/// Drops what the control thread would have dropped later, and what refers to links: those refer to the node.
fn let_go(node: &Process) {
    vine::of(node).end();
    paths::end_all_paths(node);
    moving::end_all_moves(node);
    door::end_all(node);
    relay::end_all(node);
    redirect::end_all(node);
}
