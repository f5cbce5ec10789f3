//! The rights of a link whose ports have moved, and what they have become.

use super::Link;
use crate::rank;
use crate::users::Charge;
use core::any::Any;
use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use handfast_layout::part::receiver_of;
use handfast_proto::rights::{Early, Handle};
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The right by another link that a right has become: a `SendRight`, which holds a link itself.
pub(crate) type Direct = Box<dyn Any + Send + Sync>;

/// A link's rights whose ports have moved.
#[derive(Default)]
pub(crate) struct Redirects {
    table: Mutex<RedirectTable, rank::Redirects>,
    /// Whether there are any.
    pub(crate) has_any: AtomicBool,
    /// Whether any are others now.
    pub(crate) has_moved: AtomicBool,
}

impl Redirects {
    /// Whether there may be any: they are looked for under the lock then.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // Relaxed: set before rights with other names are there.
        self.has_any.load(Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, RedirectTable, rank::Redirects> {
        self.table.lock()
    }

    /// Locks the table, which will have one.
    pub(crate) fn lock_to_add(&self) -> MutexGuard<'_, RedirectTable, rank::Redirects> {
        let table = self.table.lock();
        // Relaxed, and before the look for its owners: a thread to which it comes after that look has passed
        // the lock of that table, too, and looks here.
        self.has_any.store(true, Ordering::Relaxed);
        table
    }

    /// Whether any right is another now.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        // Acquire: pairs with the Release of the switch.
        self.has_moved.load(Ordering::Acquire)
    }
}

/// The present state of a link's rights whose ports have moved, by the names that they have there.
#[derive(Default)]
pub(crate) struct RedirectTable {
    pub(crate) of: HashMap<Handle, Redirect>,
    /// By names that no thread here has, or has yet.
    pub(crate) early: Early<Moved>,
    /// By receiver: the last port that has moved from there, and whether its old home has said since that it is gone. No
    /// other comes there before the old home is done with it.
    gone: HashMap<u32, (u32, Arc<AtomicBool>)>,
}

impl RedirectTable {
    /// The right with this name, to that port of the old home, becomes another.
    pub(crate) fn insert(&mut self, (name, old_port): (Handle, u32), mut moved: Moved) {
        let gone = self.gone.entry(receiver_of(old_port)).or_default();
        if gone.0 != old_port {
            *gone = (old_port, Arc::default());
        }
        moved.is_gone = gone.1.clone();
        self.of.insert(name, Redirect::To(Arc::new(moved)));
    }
}

pub(crate) enum Redirect {
    /// The right stays where it is: it is a trail's, behind which others keep their order.
    Stays,
    To(Arc<Moved>),
}

/// Where the port of a right is now.
pub(crate) struct Moved {
    pub(crate) exporter: [u8; 20],
    pub(crate) port: u32,
    pub(crate) number: u64,
    /// Set once nothing more goes the old way.
    pub(crate) direct: OnceLock<Direct>,
    /// The old home has said that the port is gone, not another one at its receiver.
    is_gone: Arc<AtomicBool>,
    /// To the user on whose word the port has moved, if that is another than this process's.
    _charge: Option<Charge>,
}

impl Moved {
    pub(crate) fn new((exporter, port): ([u8; 20], u32), number: u64) -> Self {
        Self {
            exporter,
            port,
            number,
            direct: OnceLock::new(),
            is_gone: Arc::default(),
            _charge: None,
        }
    }

    pub(crate) fn charged(self, charge: Option<Charge>) -> Self {
        Self {
            _charge: charge,
            ..self
        }
    }

    /// The redirect as it was heard, if no mark with the number has been said.
    fn unused(&self) -> Option<Self> {
        let is_unused = self.direct.get().is_none();
        is_unused.then(|| Self::new((self.exporter, self.port), self.number))
    }
}

/// A right of this process that stays where it is.
pub(crate) fn stays(link: &Link, name: Handle) {
    let mut redirects = link.rights.redirects.lock_to_add();
    redirects.of.insert(name, Redirect::Stays);
}

/// The right that a right of this process has become since its port moved.
pub(crate) fn direct(link: &Link, name: Handle) -> Option<Arc<Moved>> {
    match link.rights.redirects.lock().of.get(&name)? {
        Redirect::To(moved) if moved.direct.get().is_some() => Some(moved.clone()),
        _ => None,
    }
}

/// The peer has said that its `port` is gone: also calls end that were made there before it moved.
pub(crate) fn end_moved(link: &Link, port: u32) {
    if !link.rights.redirects.has_any() {
        return;
    }
    if let Some((of, is_gone)) = link.rights.redirects.lock().gone.get(&receiver_of(port))
        && *of == port
    {
        // Relaxed: under the lock.
        is_gone.store(true, Ordering::Relaxed);
        link.map.passes_no_more(receiver_of(port));
    }
}

/// Whether calls by this name, to a port that has moved, may be answered still although another port at that receiver
/// is gone.
#[cold]
pub(crate) fn outlives(link: &Link, name: Handle) -> bool {
    match link.rights.redirects.lock().of.get(&name) {
        // Relaxed: under the lock.
        Some(Redirect::To(moved)) => !moved.is_gone.load(Ordering::Relaxed),
        _ => false,
    }
}

/// Rights with these names were dropped or given back: nothing is kept for names without owners.
#[inline]
pub(crate) fn drop_moved(link: &Link, names: impl Iterator<Item = Handle>) {
    if link.rights.redirects.has_any() {
        drop_redirects(link, names);
    }
}

#[cold]
fn drop_redirects(link: &Link, names: impl Iterator<Item = Handle>) {
    let mut redirects = link.rights.redirects.lock();
    let is_over = |name: &Handle| link.imports().port_of(*name).is_none();
    let mut over = Vec::new();
    for name in names.filter(is_over) {
        match redirects.of.remove(&name) {
            // The right may be under way once more.
            Some(Redirect::To(moved)) if let Some(moved) = moved.unused() => {
                redirects.early.hear(name, moved);
            }
            redirect => over.extend(redirect),
        }
    }
    drop(redirects);
    // Outside of the lock: a right of another link may be the last one there.
    drop_all(over);
}

/// Drops these and what becomes of no use by that, one after the other and not one within the other: others say how often
/// a port moves.
fn drop_all(over: Vec<Redirect>) {
    thread_local! {
        /// The redirects to drop; `None` while no thread drops.
        static OVER: RefCell<Option<Vec<Redirect>>> = const { RefCell::new(None) };
    }
    if over.is_empty() {
        return;
    }
    let is_one_of_others = OVER.with_borrow_mut(|queue| {
        let is_there = queue.is_some();
        queue.get_or_insert_default().extend(over);
        is_there
    });
    if is_one_of_others {
        return;
    }
    while let Some(next) = OVER.with_borrow_mut(|queue| queue.as_mut().and_then(Vec::pop)) {
        drop(next);
    }
    OVER.set(None);
}
