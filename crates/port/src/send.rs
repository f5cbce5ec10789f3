//! Send rights: where one leads, how its callers wait, and when it ends. `sending` sends by it.

use crate::error::RightError;
use crate::link::{Link, Outgoing, lanes};
use crate::options::{Options, WaitBy};
use crate::port::local::Shortcut;
use crate::process::Process;
use crate::rank;
use crate::slots::Ticket;
use aside::Aside;
pub(crate) use claimed::Claimed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use going_home::{GoingHome, SETTLE_NS};
use handfast_layout::hello::Welcome;
use handfast_layout::part::receiver_of;
use handfast_proto::rights::Handle;
use handfast_ring::lane::Refused;
use handfast_sys::lock::OwnedGuard as Guard;
pub use identity::Identity;
pub(crate) use origin::{Origin, going};
pub(crate) use room::LaneWait;
pub(crate) use route::moved;
use std::sync::{Arc, OnceLock};
pub(crate) use upgrade::Upgrade;

pub(crate) mod aside;
pub(crate) mod claimed;
pub(crate) mod ended;
pub(crate) mod going_home;
pub(crate) mod identity;
pub(crate) mod life;
pub(crate) mod origin;
pub(crate) mod room;
pub(crate) mod route;
pub(crate) mod spread;
pub(crate) mod upgrade;
pub(crate) mod waiting;

/// The right to send to a port. Any number of threads may use it at once, and messages of one thread
/// to one port arrive in order.
///
/// Each thread gets its own lane to a port, up to 12 of them; further threads share lanes. A link has 16 lanes,
/// of which the last quarter is kept for ports without a lane. A lane carries 16 calls at once; a thread with a 17th gets another lane, where one is
/// free or has room, once the port's process has received those.
///
/// A clone is the same right. It costs a short lock, two where the right has options of its own, and no system call. A right that came
/// in a message waits by the environment's [`Options`], until [`Self::set_options`].
///
/// Dropping the process's last right to another process ends their link, unless the other process uses the link: once all messages sent
/// before the drop have been received, or after one second. Messages that wait then are still received, like those of
/// a process that has ended, except that messages of more than 64 KiB are lost. Blocks that this process has lent come
/// back when the link ends ([`LoanError::Gone`](crate::error::LoanError::Gone)), and rights to its ports end.
pub struct SendRight {
    link: Arc<Link>,
    receiver: u32,
    /// The receiver whose lanes it posts to at once; none once there is one for each CPU, and before a right on the word of another user
    /// is confirmed.
    posts_to: AtomicU32,
    /// CPU on which the receiver last answered; a hint.
    peer_cpu: AtomicU32,
    port: u32,
    /// The handle by which messages name the port.
    handle: Handle,
    origin: Origin,
    /// Lanes through which messages with the handle have gone, a bit each.
    used: AtomicU32,
    epoch: u32,
    /// The link's count of troubles when a thread last checked for trouble.
    calm: AtomicU32,
    /// Changes with the options, so that each thread makes a new waiter. Zero until the first wait.
    version: AtomicU64,
    /// The value of [`Waiter::is_eager`](handfast_wait::Waiter::is_eager) for the waiters of this right.
    eager: AtomicBool,
    /// State that few rights have.
    aside: OnceLock<Box<Aside>>,
    /// The way to the server of the port in this process.
    shortcut: Option<Box<Shortcut>>,
}

const _: () = assert!(
    size_of::<SendRight>() <= 104,
    "moved with a few instructions"
);

/// The result of a post through a right, which may have become another: its ticket, the link's count of
/// troubles, and whether it made a wake-up call.
pub(crate) type Posted<'a> = (&'a SendRight, (Ticket, u32, bool));

static VERSIONS: AtomicU64 = AtomicU64::new(1);

impl SendRight {
    pub(crate) const fn port(&self) -> u32 {
        self.port
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn new(
        process: &Arc<Process>,
        link: Arc<Link>,
        welcome: &Welcome,
        options: Options,
    ) -> Self {
        let (port, handle) = (welcome.port, welcome.handle);
        let waiting = process.configuration.resolve(options);
        of_handle(process, link, port, handle, waiting)
    }

    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The process that holds the receive right, as the kernel vouched for it when the link was made. For a right that
    /// goes through another process, the process in between.
    #[must_use]
    pub fn peer(&self) -> handfast_sys::socket::Peer {
        route::best(self).link.peer
    }

    #[inline(always)]
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.link.process
    }

    #[inline(always)]
    pub(crate) const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    #[inline(always)]
    pub(crate) const fn receiver(&self) -> u32 {
        self.receiver
    }
}

/// A right that has been counted in the link's imports.
pub(crate) fn of_handle(
    process: &Arc<Process>,
    link: Arc<Link>,
    port: u32,
    handle: Handle,
    waiting: WaitBy,
) -> SendRight {
    let mut right = usual(process, link, (handle, port));
    if waiting != process.defaults.waiting {
        *right.eager.get_mut() = waiting.0.is_eager();
        aside::set_waiting(&right, waiting);
    }
    right
}

/// The same right once more, as it is; its callers wait like that.
fn again(right: &SendRight, waiting: WaitBy) -> SendRight {
    if !is_forked(right) {
        right.link.imports().copied(right.handle);
    }
    let link = right.link.clone();
    with_origin(
        of_handle(right.process(), link, right.port, right.handle, waiting),
        right.origin.clone(),
    )
}

/// As [`of_handle`]; its callers wait as the environment says.
#[inline]
pub(crate) fn usual(
    process: &Arc<Process>,
    link: Arc<Link>,
    (handle, port): (Handle, u32),
) -> SendRight {
    let epoch = process.epoch;
    let eager = AtomicBool::new(process.defaults.eager);
    SendRight {
        link,
        receiver: receiver_of(port),
        posts_to: AtomicU32::new(receiver_of(port)),
        peer_cpu: AtomicU32::new(u32::MAX),
        port,
        handle,
        origin: Origin::default(),
        used: AtomicU32::new(0),
        epoch,
        calm: AtomicU32::new(u32::MAX),
        version: AtomicU64::new(0),
        eager,
        aside: OnceLock::new(),
        shortcut: None,
    }
}

/// The claim that a right has come by, if that is so.
pub(crate) fn claim(right: &SendRight) -> Option<&Arc<Claimed>> {
    match &right.origin {
        Origin::Claimed(claimed) => Some(claimed),
        _ => None,
    }
}

/// The same right, with this origin.
pub(crate) fn with_origin(mut right: SendRight, origin: Origin) -> SendRight {
    right.origin = origin;
    right
}

/// A call through this right has been answered.
#[inline(always)]
pub(crate) fn arrived(right: &SendRight) {
    if let Origin::Vine(Some(upgrade)) = &right.origin {
        upgrade.arrived();
    }
}

/// This thread's lane, locked, if nothing is known to be wrong with the link; and the link's
/// count of troubles.
#[inline(always)]
pub(crate) fn lane_now(right: &SendRight) -> Option<(u32, Guard<'_, Outgoing, rank::Lane>, u32)> {
    if is_forked(right) {
        return None;
    }
    // Relaxed: a number; the lanes themselves are behind locks.
    let receiver = right.posts_to.load(Ordering::Relaxed);
    let lane = lanes::to(&right.link, receiver)?;
    #[cfg(test)]
    lanes::tests::between();
    let outgoing = right.link.lanes[lane as usize].try_lock()?;
    // Acquire: pairs with the addition in `disturb`; earlier trouble has been checked. Under the lock: a
    // switch to a port's new home changes the count while it holds all lanes.
    let trouble = right.link.trouble.load(Ordering::Acquire);
    // Relaxed: the count is all that is said.
    let is_calm = trouble == right.calm.load(Ordering::Relaxed);
    // The lane may have been given to another receiver since the look.
    (is_calm && outgoing.receiver == receiver).then_some((lane, outgoing, trouble))
}

#[inline]
pub(crate) fn is_forked(right: &SendRight) -> bool {
    right.epoch != handfast_sys::process::fork_epoch()
}

pub(crate) fn lock(right: &SendRight, lane: u32) -> Guard<'_, Outgoing, rank::Lane> {
    right.link.lanes[lane as usize].lock()
}

/// Why a message was not posted at once.
pub(crate) enum Blocked {
    /// No reply slot is free, or the control socket has no room for descriptors: no wake-up comes when that
    /// changes.
    Slots,
    Lane(Refused),
    Right(RightError),
}
