//! The control thread: the one quiet thread of a process with links.
//!
//! It sleeps in one poll set of listeners, link sockets and process descriptors. It makes the accepting half of
//! handshakes, turns the end of a peer into typed failures, and passes on messages that come through control
//! sockets. The data path never needs it.

use crate::bound;
use crate::door::DOOR;
use crate::guest;
use crate::link::Link;
use crate::link_end;
use crate::links;
use crate::port::Port;
use crate::port::ports;
use crate::process::{Process, WATCH_NS, token};
use crate::relay;
use crate::users::{Charge, Foreign};
use core::time::Duration;
use handfast_layout::hello::{Status, Welcome, ready};
use handfast_proto::timers::{Backoff, Left, Timer};
use handfast_proto::users::Quota;
use handfast_sys::poll::{Event, Trigger};
use handfast_sys::socket::Peer;
use handfast_sys::thread::{self, Thread};
use handfast_sys::{Errno, OwnedFd, clock, socket};
use std::collections::HashMap;
use std::sync::Arc;

mod greet;
mod messages;
mod rings;
mod upkeep;

/// A handshake under way.
struct Pending {
    socket: Foreign,
    peer: Peer,
    /// `None` for a connection by a door.
    port: Option<Arc<Port>>,
    deadline_ns: u64,
    /// The charge for the handshake.
    _charge: Charge,
    /// The offer it has been answered with; next it is to say that the region is sealed.
    offer: Option<Box<greet::Offer>>,
}

/// A part of a round.
#[derive(Clone, Copy)]
struct Turn {
    since_ns: u64,
    until_ns: u64,
}

/// Connections taken from one listener before others get their turn.
const ACCEPT_BUDGET: usize = 64;
/// How long one user's processes may keep this thread busy before others get their turn.
const TURN_NS: u64 = 200_000;
/// Connectors that have said nothing for so long give way to others.
const SILENT_NS: u64 = 100_000_000;
/// Links that end before others get their turn.
const ENDS_MAX: u32 = 8;

/// How long it rests after a panic.
const AFTER_PANIC: Duration = Duration::from_millis(1);

struct ControlThread {
    process: Arc<Process>,
    pending: Vec<Option<Pending>>,
    /// How long until sleeping callers are looked at again.
    watch_ns: u64,
    /// How long work that could not be finished waits.
    backoff: Backoff,
    /// Dead links whose waiters have not all left.
    leaving: Vec<Arc<Link>>,
    /// Closed and reopened to refuse a connection when descriptors have run out.
    spare: Option<OwnedFd>,
    /// How long users' processes have kept this thread busy in this round, in nanoseconds.
    spent_ns: HashMap<u32, u64>,
    /// Rounds so far.
    rounds: usize,
    /// Links out of the poll set, by serial, and until when: their peers have said too much.
    muted: Vec<(u64, u32)>,
}

/// Starts the control thread. It ends with the node.
pub(crate) fn start(process: Arc<Process>) -> std::io::Result<Thread> {
    let mut control_thread = ControlThread {
        process,
        pending: Vec::new(),
        watch_ns: WATCH_NS,
        backoff: Backoff::default(),
        leaving: Vec::new(),
        spare: spare(),
        spent_ns: HashMap::new(),
        rounds: 0,
        muted: Vec::new(),
    };
    thread::spawn("handfast-ctl", 256 * 1024, move || control_thread.run())
}

/// Runs one piece of work. Others go on without this thread's calls, or for ever: a panic here ends only that piece.
fn turn(work: impl FnOnce()) {
    // Wakers run once it has let go of all locks.
    if guest::guarded(|| guest::later(work)).is_none() {
        // The event may be reported again at once.
        clock::sleep(AFTER_PANIC);
    }
}

/// Whether it tells of the end of a link.
const fn is_end(event: Event) -> bool {
    match event.token & token::KIND {
        token::PROCESS => true,
        token::LINK => event.hung_up,
        _ => false,
    }
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

impl ControlThread {
    fn run(&mut self) {
        handfast_sys::signal::block_all();
        guest::becomes_control();
        let mut events = Vec::new();
        while !self.process.is_over() {
            events.clear();
            self.spent_ns.clear();
            if self.process.users.lacks_thread() {
                self.process.schedule(Timer::ClosingThreads);
            }
            self.process.poll.wait(None, &mut events);
            // Another begins each time: where one link has its user's whole turn, the next has it in the next round.
            let first = self.rounds % events.len().max(1);
            events.rotate_left(first);
            self.rounds = self.rounds.wrapping_add(1);
            // Connectors first: the end of a link takes time for each link that there is.
            events.sort_by_key(|event| is_end(*event));
            let mut ends = 0;
            for event in &events {
                ends += u32::from(is_end(*event));
                // The rest is reported again, behind events that have come meanwhile.
                if ends <= ENDS_MAX {
                    turn(|| self.handle(*event));
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let index = (event.token & !token::KIND) as usize;
        match event.token & token::KIND {
            token::ATTENTION => {
                self.process.attention.lower();
                links::tell_cuts(&self.process);
                ports::rouse_those(&self.process);
                self.collect_dead();
                self.listen_to_unheard();
                self.take_accepted();
                relay::relay(&self.process);
            }
            token::UPKEEP => self.keep_up(),
            token::LISTENER => self.accept(index as u32),
            token::PENDING => self.greet_in_turn(index),
            token::PROCESS => self.end(index as u32),
            _ => self.listen(index as u32, event),
        }
    }

    /// Goes on with a handshake, unless its user has had its turn: then the event is reported again.
    fn greet_in_turn(&mut self, index: usize) {
        let pending = self.pending.get(index).and_then(Option::as_ref);
        let Some(uid) = pending.map(|pending| pending.peer.uid) else {
            return;
        };
        if let Some(turn) = self.turn_of(uid) {
            self.greet(index);
            self.spend(uid, turn);
        }
    }

    /// The rest of a user's part of this round. A user with many links has no more than one with a single link, so
    /// that a round stays short, and others are heard soon.
    fn turn_of(&self, uid: u32) -> Option<Turn> {
        let spent_ns = self.spent_ns.get(&uid).copied().unwrap_or(0);
        let since_ns = clock::ticks_ns();
        let left_ns = TURN_NS.checked_sub(spent_ns).filter(|left| *left > 0)?;
        Some(Turn {
            since_ns,
            until_ns: since_ns + left_ns,
        })
    }

    fn spend(&mut self, uid: u32, turn: Turn) {
        let took_ns = clock::ticks_ns().saturating_sub(turn.since_ns);
        *self.spent_ns.entry(uid).or_default() += took_ns;
    }

    fn link(&self, serial: u32) -> Option<Arc<Link>> {
        let links = links::list(&self.process);
        let mut links = links.iter().flatten();
        links.find(|link| link.serial == serial).cloned()
    }

    fn end(&mut self, serial: u32) {
        if let Some(link) = self.link(serial) {
            self.end_now(link);
        }
    }

    fn end_now(&mut self, link: Arc<Link>) {
        link_end::end_link(&self.process, &link);
        self.leaving.push(link);
        self.process.schedule(Timer::Leavers);
    }

    fn collect_dead(&mut self) {
        let mut dead = links::live(&self.process);
        dead.retain(|link| link.is_down());
        dead.into_iter().for_each(|link| self.end_now(link));
    }

    /// Does the work that was put off until now. A panic ends only the work of one timer, which is done again soon.
    fn keep_up(&mut self) {
        self.process.upkeep.begin();
        for timer in Timer::ALL {
            if !self.process.upkeep.take(timer, clock::ticks_ns()) {
                continue;
            }
            let mut left = Left::Soon;
            turn(|| left = self.work(timer));
            if let Some(from_now_ns) = self.backoff.after(timer, left) {
                self.process.upkeep.put_off(timer, from_now_ns);
            }
        }
        self.process.upkeep.end();
    }

    /// Takes waiting connections of the listener of `receiver`.
    fn accept(&mut self, receiver: u32) {
        let listener = {
            self.process
                .listeners
                .lock()
                .iter()
                .find(|(of, _)| *of == receiver)
                .map(|(_, fd)| fd.clone())
        };
        let Some(listener) = listener else { return };
        for _ in 0..ACCEPT_BUDGET {
            match socket::accept(&*listener) {
                Ok(socket) => self.begin(socket, receiver),
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.refuse_for_descriptors(&listener);
                    return;
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(_) => return self.be_deaf(),
            }
        }
    }

    /// Takes the connections to names that have come with their ports.
    fn take_accepted(&mut self) {
        let accepted = core::mem::take(&mut *bound::accepted(&self.process));
        for (port, socket) in accepted {
            // If another port is at its receiver by now, they are not taken.
            let known = ports::at(&self.process, port.receiver);
            if let Ok(peer) = socket::peer(&socket)
                && known.is_some_and(|known| Arc::ptr_eq(&known, &port))
            {
                self.start(socket, peer, port.receiver);
            }
        }
    }

    /// Without a free descriptor a waiting connection can be neither taken nor told; one is kept
    /// for this.
    fn refuse_for_descriptors(&mut self, listener: &Foreign) {
        self.spare = None;
        if let Ok(socket) = socket::accept(listener) {
            self.refuse(socket, handfast_sys::process::descriptor_limit());
        }
        self.spare = spare();
        if self.spare.is_none() {
            // Another thread was faster.
            self.be_deaf();
        }
    }

    /// Refuses a connection that has not been told to go on.
    fn refuse(&self, socket: OwnedFd, limit: u64) {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let welcome = Welcome::refusal(self.process.incarnation, Status::Exhausted, limit);
        let _ = socket::send(&socket, &welcome.to_bytes(), &[]);
        self.close_untold(socket);
    }

    /// Closes a connection that has not been told to go on. Nothing lies in its queue that makes closing it slow, where the
    /// kernel sees to that.
    fn close_untold(&self, socket: OwnedFd) {
        if socket::pass_descriptors(&socket, false).is_err() {
            let uid = socket::peer(&socket).map_or(0, |peer| peer.uid);
            drop(Foreign::new(&self.process.users, uid, socket));
        }
    }

    /// Takes the listeners out of the poll set for a while: a waiting connection that can be neither
    /// taken nor refused would be reported again at once, and again.
    fn be_deaf(&mut self) {
        crate::guest::tell!(
            warn,
            "connections wait: no descriptor is free to take or refuse them"
        );
        self.process.schedule(Timer::Listeners);
        let listeners = self.process.listeners.lock();
        for (_, listener) in listeners.iter() {
            self.process.poll.remove(&**listener);
        }
    }

    /// Puts the listeners back, if there is a descriptor to refuse a connection with.
    fn listen_again(&mut self) {
        self.spare = self.spare.take().or_else(spare);
        if self.spare.is_none() {
            return self.process.schedule(Timer::Listeners);
        }
        let listeners = self.process.listeners.lock();
        for (receiver, listener) in listeners.iter() {
            let listening = token::LISTENER | u64::from(*receiver);
            // A port that was bound meanwhile is there already.
            let _ = (self.process.poll).add(&**listener, listening, Trigger::Level);
        }
    }

    /// Begins a handshake, if the connector's user has room for another.
    fn begin(&mut self, socket: OwnedFd, receiver: u32) {
        let Ok(peer) = socket::peer(&socket) else {
            return self.close_untold(socket);
        };
        match self.process.users.charge(peer.uid, Quota::Descriptors, 1) {
            Ok(charge) => self.start(Foreign::charged(socket, charge), peer, receiver),
            Err(refused) => self.refuse(socket, refused.limit()),
        }
    }

    /// The handshake that gives way to another of this user: its own that has been under way for the longest; or one of any
    /// user whose connector has said nothing for long.
    fn gives_way(&self, uid: u32) -> Option<usize> {
        let silent_ns = (clock::now_ns() + Timer::Handshakes.delay_ns()).saturating_sub(SILENT_NS);
        let is_silent =
            |pending: &Pending| pending.offer.is_none() && pending.deadline_ns < silent_ns;
        self.oldest(|pending| pending.peer.uid == uid)
            .or_else(|| self.oldest(is_silent))
    }

    fn oldest(&self, is_one: impl Fn(&Pending) -> bool) -> Option<usize> {
        let pending = self.pending.iter().enumerate();
        let pending = pending.filter_map(|(index, entry)| Some((index, entry.as_ref()?)));
        let found = pending.filter(|(_, pending)| is_one(pending));
        // A connector that has been answered does not ask again.
        let oldest =
            found.min_by_key(|(_, pending)| (pending.offer.is_some(), pending.deadline_ns));
        oldest.map(|(index, _)| index)
    }

    /// Has a connector ask again.
    fn put_off(&self, connector: &Foreign) {
        let crossed = Welcome::refusal(self.process.incarnation, Status::Crossed, 0);
        let _ = socket::send(connector, &crossed.to_bytes(), &[]);
    }

    fn forget_pending(&mut self, index: usize) {
        if let Some(pending) = self.pending[index].take() {
            // The socket is closed later, and would be reported until then.
            self.process.poll.remove(&pending.socket);
        }
    }

    fn start(&mut self, socket: Foreign, peer: Peer, receiver: u32) {
        let port = ports::at(&self.process, receiver);
        if port.is_none() && receiver != DOOR {
            // The port has just gone, or moved: the connector comes again.
            return;
        }
        let users = self.process.users.clone();
        let charge = || users.charge(peer.uid, Quota::Handshakes, 1);
        let Ok(charge) = charge().or_else(|_| {
            if let Some(oldest) = self.gives_way(peer.uid) {
                let silent = self.pending[oldest].as_ref();
                if let Some(silent) = silent.filter(|pending| pending.offer.is_none()) {
                    self.put_off(&silent.socket);
                }
                self.forget_pending(oldest);
            }
            charge()
        }) else {
            // Others have all places.
            return self.put_off(&socket);
        };
        // Before Linux 6.16 it takes descriptors already.
        let _ = socket::pass_descriptors(&socket, true);
        if socket::send(&socket, &ready(self.process.incarnation), &[]).is_ok() {
            self.await_more(Pending {
                socket,
                peer,
                port,
                deadline_ns: 0,
                _charge: charge,
                offer: None,
            });
        }
    }

    /// Waits for the connector's next message.
    fn await_more(&mut self, mut pending: Pending) {
        let free = self.pending.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        let listening = token::PENDING | index as u64;
        pending.deadline_ns = clock::now_ns() + Timer::Handshakes.delay_ns();
        if (self
            .process
            .poll
            .add(&pending.socket, listening, Trigger::Level))
        .is_ok()
        {
            self.pending[index] = Some(pending);
            self.process.schedule(Timer::Handshakes);
        }
    }
}
