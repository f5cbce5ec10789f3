//! An old home: its trail passes on what still comes there.

use super::WithOnce;
use super::once::{self, OnceRights};
use super::source::TrailSource;
use crate::error::{Gone, ReceiveError, SendError};
use crate::introduce::{self, OF_MOVED, Provided, mint, provide};
use crate::link::introductions::Named;
use crate::link::{Link, lanes};
use crate::onward::Onward;
use crate::options::Waiting;
use crate::port::notices::Notice;
use crate::port::{NewHome, NoRight, Port, notice, ports};
use crate::process::Process;
use crate::request::{Mark, Request, take_mark};
use crate::right::{Right, is_word_awaited};
use crate::seal::Seal;
use crate::send::{SendRight, claimed, ended, life, origin};
use crate::{asked, closing, links, rank};
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use handfast_layout::control::ControlMessage;
use handfast_layout::lane_control::LaneControl;
use handfast_layout::part::{is_member, receiver_of};
use handfast_proto::moves::{Marked, Trail};
use handfast_proto::rights::Handle;
use handfast_proto::timers::Timer;
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{clock, lock};
use std::collections::HashMap;
use std::sync::Arc;

/// Old home: where a port has moved to.
pub(crate) struct Home {
    process: Arc<Process>,
    /// The right that the new home has given to the old one.
    to: SendRight,
    /// Rights with the badges of the senders here.
    by_seal: Mutex<BySeal, rank::TrailRights>,
    trail: Mutex<Trail, rank::Trail>,
    /// There are rights whose holders have not been told.
    pub(super) has_new: AtomicBool,
}

/// The rights by which a trail passes on are asked for in its own lanes, those of the application's threads in theirs, where messages wait for
/// what trails say: so there may be two with one badge.
type BySeal = HashMap<(Seal, AskedIn), Arc<SendRight>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AskedIn {
    /// The lanes that only trails use (`handfast_sys::lock::number_apart`).
    TrailLane,
    UsualLane,
}

impl AskedIn {
    fn of_this_thread() -> Self {
        match lock::is_apart() {
            true => Self::TrailLane,
            false => Self::UsualLane,
        }
    }
}

/// How long a thread waits for a right there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Not,
    /// As for another process's word on a right.
    AsForWord,
    /// This trail is all that waits.
    Always,
}

/// Rights by badge that a trail keeps before it lets go of the ones it can have again.
const BADGES_MAX: usize = 4096;

/// How long a message waits for the new home's word on a right in it: until a thread there receives at that right's port. Two homes may
/// wait for each other.
const WORD_NS: u64 = 2_000_000_000;
/// At first it is looked for often.
const OFTEN_NS: u64 = 10_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Home {
    pub(super) fn new(process: Arc<Process>, to: SendRight) -> Self {
        Self {
            process,
            to,
            by_seal: Mutex::default(),
            trail: Mutex::default(),
            has_new: AtomicBool::new(false),
        }
    }

    pub(super) fn trail(&self) -> MutexGuard<'_, Trail, rank::Trail> {
        self.trail.lock()
    }

    fn by_seal(&self) -> MutexGuard<'_, BySeal, rank::TrailRights> {
        self.by_seal.lock()
    }

    /// Passes on messages as they come, one after the other, until no peer can send here any more or no
    /// receiver is there. A message that cannot be passed on is dropped, which ends a call at its caller.
    pub(super) fn serve(&self, source: TrailSource, with_once: Option<WithOnce>) {
        let port = source.port().clone();
        source.passes_on();
        // A sender until the others have been told: of a port that never had one, too, it is said that it has lost the last.
        let _ = port.notices.added();
        notice::ask_no_senders(&port);
        // The resulting notice has no right to tell of: the thread finds that it is of no use any more.
        asked::ask_death(&self.to, &port, 0);
        self.tell_holders(&port);
        notice::rights_ended(&port, 1);
        let (mut once, mut is_left) = (OnceRights::of(source.unused_once(), with_once), false);
        let mut patience = Patience::new();
        loop {
            let pause = once.make(|seal| mint(&self.process, &self.to, seal));
            let mut request = match source.next(pause) {
                Ok(request) => request,
                Err(ReceiveError::TimedOut) => continue,
                Err(_) => break,
            };
            let goes_on = match (take_mark(&mut request), request.notice()) {
                (Some(mark), _) => self.provide(&mark),
                (None, None) => self.pass_on(request, &mut once, &mut patience),
                (None, Some(Notice::NoSenders)) => {
                    is_left = true;
                    true
                }
                (None, Some(Notice::Dead(number))) => self.told(number),
                // The new home is told so by the end of the right there.
                (None, Some(Notice::SendOnceUnused(badge))) => {
                    let id = request.seal().once().unwrap_or_default();
                    let right = once.take(id);
                    right
                        .or_else(|| self.minted(once::seal(id, badge), Wait::Always).ok())
                        .is_some()
                }
                // A notice asked for a badge here is not asked for there.
                (None, Some(Notice::NoSendersOf(_))) => true,
            };
            if !goes_on {
                break;
            }
            // No peer is left to be told; calls that came here before may be answered still.
            if is_left && once.is_empty() && source.unused_once().is_empty() {
                if closing::leaves_nobody(&self.process, &port) {
                    return source.drop_quietly();
                }
                is_left = false;
                notice::ask_no_senders(&port);
            }
        }
        // Before the rights there: senders here are told first.
        drop(source);
    }

    /// Tells the peers that have rights here where the port is now.
    pub(super) fn tell_holders(&self, port: &Port) {
        let new = self.to.link();
        for link in links::live(&self.process) {
            let mut names: Vec<_> = link.exports().handles_of(port.id).collect();
            let handles: HashMap<_, _> = names.iter().copied().collect();
            let introductions = link.introductions();
            let claimed = introductions.claims.granted();
            names.extend(claimed.filter_map(|(word, handle)| Some((word, *handles.get(&handle)?))));
            drop(introductions);
            for (name, _) in names {
                let number = self.process.next_provision() | OF_MOVED;
                if !self.trail().tell((link.serial, name), number) {
                    continue;
                }
                let moved = ControlMessage::Moved {
                    name,
                    port: self.to.port(),
                    number,
                    home: new.identity(),
                };
                link.say(moved);
            }
        }
    }

    fn pass_on(&self, request: Request, once: &mut OnceRights, patience: &mut Patience) -> bool {
        let seal = request.seal();
        let right = match seal.once() {
            None => self.right_on(seal.alone(), Wait::Always),
            Some(id) => {
                let right = once.take(id).map(Ok);
                let right = right.unwrap_or_else(|| self.minted(seal, Wait::Always));
                right.map(Arc::new)
            }
        };
        let Ok(to) = right else {
            return false;
        };
        let mut onward = Onward::of(request);
        patience.settle(onward.rights(), &to);
        let passed = onward.send(&to, Waiting::Always);
        // Other errors concern the message alone, or its right.
        match passed {
            Err(SendError::Gone(gone)) => gone == Gone::Right,
            Err(SendError::Fault(_)) => false,
            _ => true,
        }
    }

    /// Once its last mark has come, all messages that a sender sent here by a right have been passed on: the
    /// right it has claimed at the new home is its own from now on.
    fn provide(&self, mark: &Mark) -> bool {
        let right = (mark.link.serial, mark.right);
        let marked = self.trail().mark(right, mark.number, mark.lanes);
        match marked {
            Marked::More => return true,
            // The trail has forgotten a peer that has ended.
            Marked::Unknown if mark.link.is_down() => return true,
            Marked::Unknown => {
                mark.link.poison(Rule::Introduction.broken());
                self.process.attention.raise();
                return true;
            }
            Marked::All { again: false } => {}
            Marked::All { again: true } => self.exported(),
        }
        let Ok(to) = self.right_on(mark.seal, Wait::Always) else {
            return false;
        };
        while ended::failure(&to).is_none() {
            if Provided::say_as(mark.number, &to, &mark.link).is_some() {
                return true;
            }
            clock::nap();
        }
        false
    }

    /// The port was to be told this.
    fn told(&self, number: u64) -> bool {
        let to = &self.to;
        while !is_over(to) {
            let words = (to.handle(), 0, 0);
            let said = LaneControl::Told { number };
            let lane = lanes::to(to.link(), to.receiver());
            let said_in = |lane: &u32| {
                let at = (*lane, to.receiver());
                provide::say_in_lane(to.link(), at, words, said, || true).is_some()
            };
            if let Some(lane) = lane.filter(said_in) {
                life::uses(to, lane);
                return true;
            }
            clock::nap();
        }
        false
    }

    /// See [`NewHome::right`].
    fn right_on(&self, seal: Seal, wait: Wait) -> Result<Arc<SendRight>, NoRight> {
        let key = (seal, AskedIn::of_this_thread());
        if let Some(right) = self.by_seal().get(&key) {
            return Ok(right.clone());
        }
        let right = Arc::new(self.minted(seal, wait)?);
        let mut by_seal = self.by_seal();
        let mut unused = Vec::new();
        if by_seal.len() >= BADGES_MAX {
            let is_unused =
                |_: &(Seal, AskedIn), right: &mut Arc<SendRight>| Arc::strong_count(right) == 1;
            unused.extend(by_seal.extract_if(is_unused));
        }
        let right = by_seal.entry(key).or_insert(right).clone();
        drop(by_seal);
        drop(unused);
        Ok(right)
    }

    /// A right that the new home makes for this.
    fn minted(&self, seal: Seal, wait: Wait) -> Result<SendRight, NoRight> {
        let link = self.to.link();
        let (user, of) = (link.peer.uid, link.identity());
        let since_ns = clock::ticks_ns();
        let limit_ns = match wait {
            Wait::Not => 0,
            Wait::AsForWord => origin::word_ns(link.users(), (user, of), false),
            Wait::Always => u64::MAX,
        };
        loop {
            if is_over(&self.to) {
                return Err(NoRight::Over);
            }
            if lanes::to(link, self.to.receiver()).is_none() && !link.map.go_round(since_ns) {
                crate::guest::tell!(
                    warn,
                    "no lane to where a port has moved: its senders lose it"
                );
                return Err(NoRight::Over);
            }
            if let Some(right) = mint(&self.process, &self.to, seal) {
                return Ok(right);
            }
            // A lane, and an answer, come by the control thread, which would wait here.
            if wait == Wait::Not || crate::guest::is_control() {
                return Err(NoRight::NotYet);
            }
            if clock::ticks_ns().saturating_sub(since_ns) >= limit_ns {
                link.users().lose_patience(user, of);
                return Err(NoRight::NotYet);
            }
            // Each holds a return slot until its answer has been taken.
            self.by_seal()
                .values()
                .for_each(|right| claimed::settle(right));
            clock::nap();
        }
    }
}

impl NewHome for Home {
    fn exported(&self) {
        // Release: a thread that takes it away finds the right.
        self.has_new.store(true, Ordering::Release);
        self.process.schedule(Timer::MovedPorts);
    }

    fn tell_new_holders(&self, port: &Port) {
        // Acquire: pairs with the Release in `exported`.
        if self.has_new.swap(false, Ordering::Acquire) {
            self.tell_holders(port);
        }
    }

    fn right(&self, seal: Seal, may_wait: bool) -> Result<Arc<dyn Any + Send + Sync>, NoRight> {
        let wait = match may_wait {
            true => Wait::AsForWord,
            false => Wait::Not,
        };
        Ok(self.right_on(seal, wait)?)
    }

    fn link_ended(&self, link: u32) {
        self.trail().end(link);
    }

    fn tell_again(&self, right: (u32, Handle)) -> bool {
        self.trail().tell_again(right)
    }
}

/// Whether the port has ended at its new home, or the link there has. The end of a port that shares a receiver revokes the rights to it.
fn is_over(right: &SendRight) -> bool {
    ended::failure(right).is_some() || ended::is_revoked(right)
}

/// How long a trail waits for the new home's word on the rights in a message. Senders that are to follow wait for all messages before theirs,
/// and lose the port after a minute: so once that was in vain, messages wait for a moment only, until the word on one of them comes.
struct Patience {
    limit_ns: u64,
}

impl Patience {
    const fn new() -> Self {
        Self { limit_ns: WORD_NS }
    }

    /// Waits for the new home's word on its own rights: without it the message is lost. Nobody but the receiver of the message is held up.
    fn settle(&mut self, rights: &[Right], to: &SendRight) {
        let since_ns = clock::now_ns();
        let mut has_waited = false;
        while is_word_awaited(rights, to) {
            has_waited = true;
            match clock::now_ns().saturating_sub(since_ns) {
                waited_ns if waited_ns >= self.limit_ns => {
                    self.limit_ns = OFTEN_NS;
                    return;
                }
                0..OFTEN_NS => clock::nap(),
                _ => clock::sleep(LOOK_EVERY),
            }
        }
        if has_waited {
            self.limit_ns = WORD_NS;
        }
    }
}

/// The contents of a mark that came from the peer for `port`, or `None` if its right was revoked; the rule it
/// broke.
pub(crate) fn marked(
    link: &Arc<Link>,
    process: &Process,
    (header, port): (Header, u32),
    (lanes, number): (u32, u64),
) -> Result<Option<Mark>, Fault> {
    let fault = Rule::Introduction.broken();
    let target = match introduce::named(link, process, header.port, 0) {
        Named::To(target) => target,
        Named::Revoked => return Ok(None),
        _ => return Err(fault),
    };
    let is_beside = is_member(target.port) && receiver_of(target.port) == receiver_of(port);
    if target.port != port && !is_beside {
        // The right's port was at this receiver before, and has gone with its home since.
        return Ok(None);
    }
    match ports::by_id(process, target.port) {
        Some(there) if there.home.get().is_some() => {}
        // Its trail has ended since.
        None if is_beside => return Ok(None),
        _ => return Err(fault),
    }
    Ok(Some(Mark {
        link: link.clone(),
        port: target.port,
        right: header.port,
        seal: Seal::of(target),
        lanes,
        number,
    }))
}
