//! The old path of a right to a third process's port: where the receiver has no link with that process,
//! its messages go through this one, which passes them on.
//!
//! One hidden port stands for all such rights; the badge tells which one a message came through. A
//! thread, started when the first such right is sent, receives there.

use crate::describe::wait_for_word;
use crate::error::{ReceiveError, RightError, SendError};
use crate::link::Link;
use crate::message::Message;
use crate::notice::{self, Notice};
use crate::options::Options;
use crate::passing::NotForwarded;
use crate::port::Port;
use crate::process::Process;
use crate::rank;
use crate::receive::{ReceiveRight, nameless};
use crate::request::Request;
use crate::right::{Returned, Right};
use crate::room::Waiting;
use crate::send::SendRight;
use crate::tables::{Table, Which};
use crate::users::Foreign;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_layout::link::SLOTS;
use handfast_proto::rights::{Handle, Map, Use};
use handfast_region::Memory;
use handfast_ring::lane::Place;
use handfast_sys::clock;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::thread;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How long a message waits for room at the port it goes on to before it is dropped: others for that
/// port wait behind it.
const PASS_TIMEOUT_NS: u64 = 1_000_000_000;
/// How soon those that wait are tried again.
const PASS_AGAIN: Duration = Duration::from_millis(1);
/// Messages that wait for one port, as many as a lane holds, and for all. Further ones are dropped.
const WAITING_MAX: usize = SLOTS as usize;
const WAITING_ALL_MAX: usize = 4 * WAITING_MAX;

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
    /// Up to where the port's process has to have taken what the introducer sent there itself.
    after: Option<Use>,
}

/// The vine of a process.
pub(crate) fn of(process: &Process) -> &Vines {
    process.tables.get()
}

/// Whether the vine of a process has this port.
pub(crate) fn is_at(process: &Process, port: u32) -> bool {
    of(process).get().is_some_and(|vine| vine.port.id == port)
}

/// A process's vine, made when it is first needed.
#[derive(Default)]
pub(crate) struct Vines(Mutex<Option<Arc<Vine>>, rank::Vines>);

impl Table for Vines {
    const WHICH: Which = Which::Vines;
}

impl Vines {
    /// The vine, if there is one.
    pub(crate) fn get(&self) -> Option<Arc<Vine>> {
        self.0.lock().clone()
    }

    /// Its node was shut down: the thread ends by that.
    pub(crate) fn end(&self) {
        let vine = self.0.lock().take();
        drop(vine);
    }

    pub(crate) fn get_or_start(&self, process: &Arc<Process>) -> Result<Arc<Vine>, RightError> {
        if let Some(vine) = self.get() {
            return Ok(vine);
        }
        let receive = nameless(process, Options::new()).map_err(|_| RightError::Third)?;
        let vine = Arc::new(Vine {
            port: receive.port().clone(),
            targets: Mutex::default(),
        });
        let (receive, served) = (Arc::new(receive), vine.clone());
        let received = receive.clone();
        // Ends before what is above does: no lock is held where the port may end, which the application is told.
        let mut known = self.0.lock();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        // The thread is there before the vine is known.
        thread::spawn("handfast-vine", 256 * 1024, move || served.serve(&received))
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
    pub(crate) fn add(&self, right: &SendRight) -> u64 {
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
        targets.by_badge.insert(badge, Target { right, after });
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
    fn ended(&self, badge: u64) {
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

    /// The right that a badge stands for.
    pub(crate) fn target(&self, badge: u64) -> Option<Arc<SendRight>> {
        let targets = self.targets();
        targets
            .by_badge
            .get(&badge)
            .map(|target| target.right.clone())
    }

    /// Whether what the introducer sent before has arrived: it went through another lane.
    fn is_next(&self, badge: u64, link: &Link) -> bool {
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

    /// Passes on messages as they come. Messages to one port stay in order; a message that has to wait there holds
    /// up no other. A message that cannot be passed on is dropped, which ends a call at its caller.
    fn serve(&self, receive: &ReceiveRight) {
        handfast_sys::signal::block_all();
        let mut waiting = Waits::default();
        loop {
            let received = match waiting.is_empty() {
                true => receive.receive(),
                false => receive.receive_timeout(PASS_AGAIN),
            };
            match received {
                Ok(request) => match request.notice() {
                    Some(Notice::NoSendersOf(badge)) => self.ended(badge),
                    Some(_) => {}
                    None => {
                        if let Some(target) = self.target(request.badge()) {
                            waiting.add(self, OnItsWay::new(target, request));
                        }
                    }
                },
                Err(ReceiveError::TimedOut) => {}
                Err(_) => return,
            }
            waiting.pass_on(self);
        }
    }
}

/// A message that is to go on.
struct OnItsWay {
    target: Arc<SendRight>,
    badge: u64,
    /// A call's, without what it says.
    request: Option<Request>,
    message: Message,
    rights: Vec<Right>,
    /// So that this thread, which serves all, closes none of them last. Dropped after them.
    _held: Vec<Foreign>,
    until_ns: u64,
}

impl OnItsWay {
    fn new(target: Arc<SendRight>, mut request: Request) -> Self {
        Self {
            target,
            badge: request.badge(),
            // First: they are in the message.
            _held: request.hold_descriptors(),
            rights: request.take_rights(),
            message: request.take_message(),
            request: request.is_call().then_some(request),
            until_ns: clock::now_ns() + PASS_TIMEOUT_NS,
        }
    }

    /// The key of messages that have to arrive in order: a lane.
    fn port(&self) -> (u32, u32) {
        (self.target.link().serial, self.target.receiver())
    }

    /// Passes it on, or drops it. Returns it when there is no room yet.
    fn pass_on(mut self, vine: &Vine) -> Option<Self> {
        let is_late = clock::now_ns() >= self.until_ns;
        // Waiting for a word holds up the messages of all others.
        let goes = || {
            vine.is_next(self.badge, self.target.link())
                && !wait_for_word(&self.rights, &self.target)
        };
        if !is_late && !goes() {
            return Some(self);
        }
        let rights = core::mem::take(&mut self.rights);
        let (error, rights) = match self.request.take() {
            Some(request) => {
                let passed =
                    request.forward_by(&self.target, &self.message, rights, Waiting::Never);
                let Err(NotForwarded {
                    error,
                    request,
                    rights,
                }) = passed
                else {
                    return None;
                };
                self.request = Some(request);
                (error, rights)
            }
            None => match self.target.with(rights).try_send(&self.message) {
                Ok(()) => return None,
                Err(Returned { error, rights }) => (error, rights),
            },
        };
        self.rights = rights;
        (error == SendError::Full && !is_late).then_some(self)
    }
}

/// Messages that wait for room, by port, in the order in which they came.
#[derive(Default)]
struct Waits(Vec<((u32, u32), VecDeque<OnItsWay>)>);

impl Waits {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes a message on, if none waits before it; else it waits.
    fn add(&mut self, vine: &Vine, passed: OnItsWay) {
        let port = passed.port();
        let all: usize = self.0.iter().map(|(_, queue)| queue.len()).sum();
        if let Some((_, queue)) = self.0.iter_mut().find(|(of, _)| *of == port) {
            if queue.len() < WAITING_MAX && all < WAITING_ALL_MAX {
                queue.push_back(passed);
            }
            return;
        }
        if let Some(passed) = passed.pass_on(vine)
            && all < WAITING_ALL_MAX
        {
            self.0.push((port, VecDeque::from([passed])));
        }
    }

    /// Passes on the messages that there is room for by now.
    fn pass_on(&mut self, vine: &Vine) {
        self.0.retain_mut(|(_, queue)| {
            while let Some(passed) = queue.pop_front() {
                if let Some(passed) = passed.pass_on(vine) {
                    queue.push_front(passed);
                    return true;
                }
            }
            false
        });
    }
}
