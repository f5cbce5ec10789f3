//! A process that was started to run a domain, and how it is started and reached.

use super::parent::Child;
use super::wire::{self, Reply, Request};
use crate::Right;
use crate::error::{Misuse, SendError};
use crate::rank;
use core::cell::RefCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use handfast_domain::process::{self, Crossing, Ports, Way};
use handfast_domain::{BYTES_MAX, Domain, Sender, Words};
use handfast_port::served::{Incoming, Serve, Served, end_of, reply_rights, take_passed};
use handfast_port::{behind_descriptor, connect_by_descriptor};
use handfast_sys::sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

/// Ports of this library.
struct Own;

/// See [`process::at_start`].
pub(crate) fn at_start() {
    process::at_start(&Own);
}

impl Ports for Own {
    fn serve(&self, domain: Domain) -> Option<OwnedFd> {
        let (receive, descriptor) = behind_descriptor().ok()?;
        let server = Arc::new(Server {
            domain,
            busy: AtomicUsize::new(0),
            workers: AtomicUsize::new(1),
            served: OnceLock::new(),
            rests: Mutex::default(),
        });
        let served = Served::start(receive, server.clone(), 1).ok()?;
        // As long as the process lives.
        let _ = server.served.set(served);
        Some(descriptor)
    }

    fn connect(&self, door: &OwnedFd, pid: u32) -> Result<Box<dyn Way>, &'static str> {
        let right = connect_by_descriptor(door).map_err(|_| "there is no link with it")?;
        match right.peer().pid {
            // Zero: it cannot be seen from here.
            0 => {}
            peer if peer == pid => {}
            _ => return Err("another process answers in its place"),
        }
        Ok(Box::new(Child(right)))
    }
}

/// Serves the domain in this process.
struct Server {
    domain: Domain,
    /// Threads that are in the domain, and all that serve.
    busy: AtomicUsize,
    workers: AtomicUsize,
    served: OnceLock<Served>,
    rests: Mutex<Rests, rank::Rests>,
}

/// Bytes that had no room beside the head of a message.
#[derive(Default)]
struct Rests {
    last: u32,
    kept: VecDeque<Rest>,
}

struct Rest {
    number: u32,
    bytes: Vec<u8>,
    rights: Vec<Right>,
}

/// Threads of a child: as many as there are outstanding calls of one process to one port.
const THREADS_MAX: usize = 192;
/// Rests at a time: rests that no call asks for are dropped first.
const RESTS_MAX: usize = 4 * THREADS_MAX;
/// Rights that a message carries.
const RIGHTS_MAX: usize = 4;

thread_local! {
    /// Replies, before their head is in front of them.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Serve for Server {
    fn serve_until(
        &self,
        message: Incoming<'_>,
        reply: &mut [u8],
        _deadline_ns: u64,
    ) -> Result<usize, SendError> {
        // Only calls by rights of this process have one, and there are none to this port.
        self.serve(message, reply)
    }

    fn serve(&self, message: Incoming<'_>, reply: &mut [u8]) -> Result<usize, SendError> {
        let mut words = Words::default();
        // Only a parent that is no honest one says anything else.
        let not_a_call = SendError::Misuse(Misuse::NotACall);
        let (request, bytes) = Request::read(message.bytes, &mut words).ok_or(not_a_call)?;
        match request.kind {
            wire::KEEP => {
                let number = self.keep(bytes.to_vec(), Vec::new()).to_le_bytes();
                reply[..number.len()].copy_from_slice(&number);
                Ok(number.len())
            }
            wire::FETCH => {
                let rest = self.take(request.rest).ok_or(not_a_call)?;
                reply[..rest.bytes.len()].copy_from_slice(&rest.bytes);
                let _ = reply_rights(rest.rights);
                Ok(rest.bytes.len())
            }
            _ => self
                .call(request, &mut words, bytes, reply)
                .ok_or(not_a_call),
        }
    }
}

impl Server {
    fn call(
        &self,
        request: Request,
        words: &mut Words,
        bytes: &[u8],
        reply: &mut [u8],
    ) -> Option<usize> {
        let whole;
        let bytes = match request.rest {
            0 => bytes,
            rest => {
                whole = [bytes, &self.take(rest)?.bytes].concat();
                &whole
            }
        };
        let mut room = ROOM.try_with(RefCell::take).unwrap_or_default();
        room.resize(BYTES_MAX, 0);
        let is_one_way = request.flags & wire::ONE_WAY != 0;
        let room_bytes = BYTES_MAX.min(request.room as usize);
        let has_bytes = request.flags & wire::BYTES != 0;
        let mut crossing = Crossing {
            entry: request.entry,
            sender: Sender::of(request.badge, request.permissions, is_one_way),
            words,
            bytes: has_bytes.then(|| (bytes, &mut room[..room_bytes])),
            // The parent's to keep, by ending this process.
            deadline_ns: None,
        };
        self.has_begun();
        let (status, len_bytes) = self.domain.cross_for(&mut crossing);
        // Relaxed: a count.
        self.busy.fetch_sub(1, Ordering::Relaxed);
        let passed = take_passed().filter(|_| process::is_done(status));
        let (message, rights, flags) = match passed {
            None => (None, Vec::new(), 0),
            Some((to, _, _)) if let Some(gone) = end_of(&to) => {
                (None, Vec::new(), wire::dead(gone))
            }
            Some((to, bytes, rights)) => {
                let to = core::iter::once(Right::Send(to));
                (Some(bytes), to.chain(rights).collect(), wire::PASS)
            }
        };
        let message = message.as_deref().unwrap_or(&room[..len_bytes]);
        let len_bytes = self.reply((status, flags), words, (message, rights), reply);
        let _ = ROOM.try_with(|place| place.replace(room));
        Some(len_bytes)
    }

    /// Writes a reply, and sends the rights with it; what has no room is kept until it is asked for.
    fn reply(
        &self,
        (status, flags): (u64, u8),
        words: &Words,
        (bytes, mut rights): (&[u8], Vec<Right>),
        to: &mut [u8],
    ) -> usize {
        let (now, rest) = wire::divide(words, bytes);
        let others = rights.split_off(rights.len().min(RIGHTS_MAX));
        let rest = match rest.is_empty() && others.is_empty() {
            true => 0,
            false => self.keep(rest.to_vec(), others),
        };
        if !rights.is_empty() {
            let _ = reply_rights(rights);
        }
        let said = Reply {
            status,
            rest,
            flags,
        };
        said.write(to, words, now)
    }

    /// A thread is in the domain: another one waits for the next call, up to a limit.
    fn has_begun(&self) {
        // Relaxed, all: counts. A thread more or less does no harm.
        let busy = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        let workers = self.workers.load(Ordering::Relaxed);
        let is_first = || {
            let (more, order) = (workers + 1, Ordering::Relaxed);
            let changed = self.workers.compare_exchange(workers, more, order, order);
            changed.is_ok()
        };
        if busy >= workers
            && workers < THREADS_MAX
            && is_first()
            && let Some(served) = self.served.get()
            && served.start_worker().is_err()
        {
            self.workers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn rests(&self) -> MutexGuard<'_, Rests, rank::Rests> {
        self.rests.lock()
    }

    /// Keeps what has no room in a message; returns its number, which is not zero.
    fn keep(&self, bytes: Vec<u8>, rights: Vec<Right>) -> u32 {
        let mut rests = self.rests();
        rests.last = rests.last.checked_add(1).unwrap_or(1);
        let number = rests.last;
        rests.kept.push_back(Rest {
            number,
            bytes,
            rights,
        });
        let surplus = (rests.kept.len() > RESTS_MAX).then(|| rests.kept.pop_front());
        drop(rests);
        // Outside of the lock: it may have rights.
        drop(surplus);
        number
    }

    fn take(&self, number: u32) -> Option<Rest> {
        let mut rests = self.rests();
        let place = rests.kept.iter().position(|rest| rest.number == number)?;
        rests.kept.remove(place)
    }
}
