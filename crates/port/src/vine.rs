//! The old path of a right to a third process's port: where the receiver has no link with that process,
//! its messages go through this one, which passes them on.
//!
//! One hidden port stands for all such rights; the badge tells which one a message came through. A
//! thread, started when the first such right is sent, receives there.

use crate::error::RightError;
use crate::link::Link;
use crate::port::Port;
use crate::process::Process;
use crate::receive::{ReceiveRight, anonymous};
use crate::right::Right;
use crate::room::Waiting;
use crate::send::SendRight;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_proto::rights::{Handle, Map, Use};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::clock;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How long a message waits for room at the port it goes on to before it is dropped: others wait
/// behind it.
const PASS_TIMEOUT: Duration = Duration::from_secs(1);

/// The rights that stand behind the hidden port.
pub(crate) struct Vine {
    pub(crate) port: Arc<Port>,
    targets: Mutex<Targets>,
}

#[derive(Default)]
struct Targets {
    by_badge: Map<u64, Target>,
    /// By link and handle: the same right goes on under the same badge.
    by_right: Map<(u32, Handle), u64>,
    last: u64,
}

struct Target {
    right: Arc<SendRight>,
    /// Entries of export tables with this badge, and those about to be made.
    uses: u64,
    /// Up to where the port's process has to have taken what the introducer sent there itself.
    after: Option<Use>,
}

/// This process's vine, made when it is first needed.
#[derive(Default)]
pub(crate) struct Vines(OnceLock<Arc<Vine>>, Mutex<()>);

impl Vines {
    /// The vine, if there is one.
    pub(crate) fn get(&self) -> Option<&Arc<Vine>> {
        self.0.get()
    }

    pub(crate) fn get_or_start(&self) -> Result<&Arc<Vine>, RightError> {
        let _one = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(vine) = self.0.get() {
            return Ok(vine);
        }
        let receive = anonymous().map_err(|_| RightError::Third)?;
        let vine = Arc::new(Vine {
            port: receive.port().clone(),
            targets: Mutex::default(),
        });
        let served = vine.clone();
        std::thread::Builder::new()
            .name("handfast-vine".into())
            .stack_size(256 * 1024)
            .spawn(move || served.serve(&receive))
            .map_err(|_| RightError::Third)?;
        Ok(self.0.get_or_init(|| vine))
    }
}

impl Vine {
    fn targets(&self) -> MutexGuard<'_, Targets> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A badge that stands for `right`, in use until [`Self::ended`].
    pub(crate) fn add(&self, right: &SendRight) -> u64 {
        let link = right.link();
        let after = link.map.lane(right.receiver()).map(|lane| Use {
            lane,
            tail: link.lanes[lane as usize].lock().producer.position(),
        });
        let mut targets = self.targets();
        let of = Self::of(right);
        if let Some(badge) = targets.by_right.get(&of).copied()
            && let Some(target) = targets.by_badge.get_mut(&badge)
        {
            target.uses += 1;
            target.after = after;
            return badge;
        }
        targets.last += 1;
        let (badge, right) = (targets.last, Arc::new(right.clone()));
        targets.by_right.insert(of, badge);
        let target = Target {
            right,
            uses: 1,
            after,
        };
        targets.by_badge.insert(badge, target);
        badge
    }

    fn of(right: &SendRight) -> (u32, Handle) {
        (right.link().serial, right.handle())
    }

    /// A peer has got a right with this badge.
    pub(crate) fn exported(&self, badge: u64) {
        if let Some(target) = self.targets().by_badge.get_mut(&badge) {
            target.uses += 1;
        }
    }

    /// A use of a badge has ended.
    pub(crate) fn ended(&self, badge: u64) {
        let ended = {
            let mut targets = self.targets();
            let Some(target) = targets.by_badge.get_mut(&badge) else {
                return;
            };
            target.uses -= 1;
            if target.uses > 0 {
                return;
            }
            let ended = targets.by_badge.remove(&badge);
            if let Some(target) = &ended {
                targets.by_right.remove(&Self::of(&target.right));
            }
            ended
        };
        // Outside of the lock: the last right may end a link.
        drop(ended);
    }

    /// What a badge stands for.
    pub(crate) fn target(&self, badge: u64) -> Option<Arc<SendRight>> {
        let targets = self.targets();
        targets
            .by_badge
            .get(&badge)
            .map(|target| target.right.clone())
    }

    /// What the introducer sent before arrives before: it went through another lane.
    fn wait_for_introducer(&self, badge: u64, link: &Link) {
        let after = {
            let mut targets = self.targets();
            let target = targets.by_badge.get_mut(&badge);
            target.and_then(|target| target.after.take())
        };
        let Some(Use { lane, tail }) = after else {
            return;
        };
        let until_ns = clock::deadline_ns(PASS_TIMEOUT);
        let head = Place::of(link.calls, lane).head();
        loop {
            // Acquire: pairs with the Release of the consumer, who has taken what came before.
            let taken = link.region.load(head, Ordering::Acquire);
            let is_taken = taken.wrapping_sub(tail).cast_signed() >= 0;
            if is_taken || link.is_down() || clock::now_ns() >= until_ns {
                return;
            }
            clock::nap();
        }
    }

    /// Passes on what comes, one after the other: their order is kept. What cannot be passed on is
    /// dropped, which ends a call at its caller.
    fn serve(&self, receive: &ReceiveRight) {
        handfast_sys::signal::block_all();
        while let Ok(mut request) = receive.receive() {
            let Some(target) = self.target(request.badge()) else {
                continue;
            };
            self.wait_for_introducer(request.badge(), target.link());
            let rights: Vec<Right> = request.take_rights();
            let message = request.take_message();
            let waiting = Waiting::Until(clock::deadline_ns(PASS_TIMEOUT));
            if request.is_call() {
                let _ = request.forward_by(&target, &message, rights, waiting);
            } else {
                let _ = target.with(rights).send_until(&message, PASS_TIMEOUT);
            }
        }
    }
}

impl Process {
    /// The peer of some link has no right to `port` with `badge` any more.
    pub(crate) fn vine_ended(&self, port: u32, badge: u64) {
        if let Some(vine) = self.vines.get()
            && vine.port.id == port
        {
            vine.ended(badge);
        }
    }
}
