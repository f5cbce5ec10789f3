//! The old path of a right to a third process's port: where the receiver has no link with that process,
//! its messages go through this one, which passes them on.
//!
//! One hidden port stands for all such rights; the badge tells which one a message came through. A
//! thread, started when the first such right is sent, receives there (`forwarder`).

use crate::binding;
use crate::error::RightError;
use crate::link::Link;
use crate::options::Options;
use crate::port::Port;
use crate::port::notice;
use crate::process::Process;
use crate::rank;
use crate::receive_right::ReceiveRight;
use crate::send::SendRight;
use crate::tables::{Table, Which};
use core::sync::atomic::Ordering;
use handfast_proto::rights::{Handle, Map, Use};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::thread;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Passes on the messages that come to the hidden port, until its node ends.
type Serve = fn(&Vine, &ReceiveRight);

/// The rights that stand behind the hidden port.
pub(crate) struct Vine {
    pub(crate) port: Arc<Port>,
    targets: Mutex<Targets, rank::VineTargets>,
}

#[derive(Default)]
struct Targets {
    by_badge: Map<u64, Target>,
    /// By link and handle: the same right goes on under the same badge.
    by_right: BTreeMap<(u32, Handle), u64>,
    last: u64,
}

struct Target {
    right: Arc<SendRight>,
    /// It is a send-once right.
    is_once: bool,
    /// Up to where the port's process has to have taken what the introducer sent there itself.
    after: Option<Use>,
}

/// The vine of a process.
pub(crate) fn of(process: &Process) -> &Vines {
    process.tables.get()
}

/// A process's vine, made when it is first needed.
#[derive(Default)]
pub(crate) struct Vines {
    vine: Mutex<Option<Arc<Vine>>, rank::Vines>,
    /// The function of its thread.
    serve: OnceLock<Serve>,
}

impl Table for Vines {
    const WHICH: Which = Which::Vines;
}

impl Vines {
    /// A node starts: the function of its vine's thread.
    pub(crate) fn serve_by(&self, serve: Serve) {
        let _ = self.serve.set(serve);
    }

    /// The vine, if there is one.
    pub(crate) fn get(&self) -> Option<Arc<Vine>> {
        self.vine.lock().clone()
    }

    /// Its node was shut down: the thread ends by that.
    pub(crate) fn end(&self) {
        let vine = self.vine.lock().take();
        drop(vine);
    }

    pub(crate) fn get_or_start(&self, process: &Arc<Process>) -> Result<Arc<Vine>, RightError> {
        if let Some(vine) = self.get() {
            return Ok(vine);
        }
        let serve = *self.serve.get().ok_or(RightError::Third)?;
        let receive = binding::nameless(process, Options::new()).map_err(|_| RightError::Third)?;
        // Relaxed: no other process knows of the port yet.
        (receive.port().is_vine).store(true, Ordering::Relaxed);
        let vine = Arc::new(Vine {
            port: receive.port().clone(),
            targets: Mutex::default(),
        });
        let (receive, served) = (Arc::new(receive), vine.clone());
        let received = receive.clone();
        // Ends before what is above does: no lock is held where the port may end, which the application is told.
        let mut known = self.vine.lock();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        // The thread is there before the vine is known.
        thread::spawn("handfast-vine", 256 * 1024, move || {
            serve(&served, &received)
        })
        .map_err(|_| RightError::Third)?;
        *known = Some(vine.clone());
        Ok(vine)
    }
}

impl Vine {
    fn targets(&self) -> MutexGuard<'_, Targets, rank::VineTargets> {
        self.targets.lock()
    }

    /// A badge that stands for `right`: until [`Self::given`], and then as long as there is a right with it.
    pub(crate) fn add(&self, right: &SendRight, is_once: bool) -> u64 {
        let link = right.link();
        let after = link.map.known(right.receiver()).map(|lane| Use {
            lane,
            tail: link.lanes[lane as usize].lock().producer.position(),
        });
        let mut targets = self.targets();
        let of = Self::of(right);
        if let Some(badge) = targets.by_right.get(&of).copied()
            && let Some(target) = targets.by_badge.get_mut(&badge)
            && self.port.notices.begin(badge, || 1)
        {
            target.after = after;
            return badge;
        }
        targets.last += 1;
        let (badge, right) = (targets.last, Arc::new(right.clone()));
        self.port.notices.watch(badge);
        targets.by_right.insert(of, badge);
        let target = Target {
            right,
            is_once,
            after,
        };
        targets.by_badge.insert(badge, target);
        badge
    }

    /// A right with a badge from [`Self::add`] has been given, or could not be.
    pub(crate) fn given(&self, badge: u64) {
        notice::watched_ended(&self.port, [(badge, 1)]);
    }

    fn of(right: &SendRight) -> (u32, Handle) {
        (right.link().serial, right.handle())
    }

    /// No right with this badge is left, and what was sent by the last ones has been received.
    pub(crate) fn ended(&self, badge: u64) {
        let ended = {
            let mut targets = self.targets();
            let ended = targets.by_badge.remove(&badge);
            // The same right may stand behind another badge by now.
            if let Some(of) = ended.as_ref().map(|target| Self::of(&target.right))
                && targets.by_right.get(&of) == Some(&badge)
            {
                targets.by_right.remove(&of);
            }
            ended
        };
        // Outside of the lock: the last right may end a link.
        drop(ended);
    }

    /// The right that a badge stands for, and whether that is a send-once right.
    pub(crate) fn target(&self, badge: u64) -> Option<(Arc<SendRight>, bool)> {
        let targets = self.targets();
        let target = targets.by_badge.get(&badge)?;
        Some((target.right.clone(), target.is_once))
    }

    /// Whether what the introducer sent before has arrived: it went through another lane.
    pub(crate) fn is_next(&self, badge: u64, link: &Link) -> bool {
        let mut targets = self.targets();
        let Some(target) = targets.by_badge.get_mut(&badge) else {
            return true;
        };
        let Some(Use { lane, tail }) = target.after else {
            return true;
        };
        // Acquire: pairs with the Release of the consumer, which has taken the messages before.
        let head = Place::of(link.calls, lane).head();
        let taken = link.region.load(head, Ordering::Acquire);
        let is_next = taken.wrapping_sub(tail).cast_signed() >= 0 || link.is_down();
        if is_next {
            target.after = None;
        }
        is_next
    }
}
