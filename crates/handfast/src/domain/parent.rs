//! The parent's way to a domain that is a process: calls of the child's port.

use super::wire::{self, Reply, Request};
use super::{Function, failed, sender_of};
use crate::error::{ConnectError, Gone, SendError};
use crate::{Message, Right, SendRight};
use core::cell::{Cell, RefCell};
use handfast_domain::process::{Crossing, Lost, Way};
use handfast_domain::{BYTES_MAX, Sender};
use handfast_port::MESSAGE_BYTES_MAX;
use handfast_port::served::{Incoming, pass_on, reply_rights, take_rights};

/// The right to the child's port.
pub(super) struct Child(pub(super) SendRight);

/// Attachments of a port's message that this thread has for a child, and that come back.
#[derive(Default)]
struct Beside {
    rights: Vec<Right>,
    failed: Option<SendError>,
}

thread_local! {
    static BESIDE: Cell<Option<Beside>> = const { Cell::new(None) };
    /// Where requests are written.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Has a domain that is a process serve a message of a port, with its rights.
pub(super) fn serve(
    function: &Function,
    message: Incoming<'_>,
    reply: &mut [u8],
    deadline_ns: Option<u64>,
) -> Result<usize, SendError> {
    let (domain, entry) = (&function.domain, function.entry);
    let rights = take_rights();
    let there = Beside {
        rights,
        failed: None,
    };
    let _ = BESIDE.try_with(|beside| beside.set(Some(there)));
    let (sender, bytes) = (sender_of(message), message.bytes);
    let called = match deadline_ns {
        None => domain.call_message(entry, sender, bytes, reply),
        Some(until_ns) => domain.call_message_timeout(entry, sender, bytes, reply, until_ns),
    };
    // Taken by the call, if that has come to the child.
    let beside = BESIDE.try_with(Cell::take).ok().flatten();
    match beside.and_then(|beside| beside.failed) {
        Some(error) => Err(error),
        None => called.map_err(|error| failed(error, reply.len())),
    }
}

impl Way for Child {
    fn call(&self, crossing: &mut Crossing<'_>) -> Result<(u64, usize), Lost> {
        // Nobody's, but of the message that is served: calls from within that one have none.
        match BESIDE.try_with(Cell::take).ok().flatten() {
            None => self.cross(crossing, None).map_err(lost)?.map_err(lost),
            Some(beside) => match self.cross(crossing, Some(beside.rights)) {
                Ok(told) => told.map_err(refused),
                Err(error) => Err(match lost(error) {
                    lost @ (Lost::Child | Lost::Late) => lost,
                    // Tried again, it would have no rights.
                    Lost::Full | Lost::Refused => refused(error),
                }),
            },
        }
    }
}

/// For a reply that no honest child sends; the child is treated as one that has ended.
const NOT_A_REPLY: SendError = SendError::Gone(Gone::Process);

impl Child {
    /// With the rights that came beside the message, where the call is a port's. Fails in one way where the child does, and
    /// in another where it passes the call on to what is not there.
    fn cross(
        &self,
        crossing: &mut Crossing<'_>,
        beside: Option<Vec<Right>>,
    ) -> Result<Result<(u64, usize), SendError>, SendError> {
        let is_served = beside.is_some();
        let mut reply = self.request(crossing, beside.unwrap_or_default())?;
        let mut words = *crossing.words;
        let (said, bytes) = Reply::read(&reply, &mut words).ok_or(NOT_A_REPLY)?;
        let mut rest = match said.rest {
            0 => Message::default(),
            rest => self.ask(crossing, (wire::FETCH, rest), b"")?,
        };
        let is_passed = said.flags & wire::PASS != 0;
        let len_bytes = bytes.len() + rest.len();
        if is_served && let Some(gone) = wire::why_dead(said.flags) {
            return Ok(Err(SendError::Gone(gone)));
        }
        if is_served && is_passed {
            let whole = [bytes, &rest].concat();
            let rights = reply.take_rights().into_iter();
            let passed = go_on(rights.chain(rest.take_rights()), &whole);
            return Ok(passed.map(|()| (said.status, 0)));
        }
        if is_passed {
            // By itself a domain is called for no message, and passes none on.
            return Ok(Ok((said.status, 0)));
        }
        *crossing.words = words;
        if let Some((_, room)) = &mut crossing.bytes {
            let place = room.get_mut(..len_bytes).ok_or(NOT_A_REPLY)?;
            let (first, second) = place.split_at_mut(bytes.len());
            first.copy_from_slice(bytes);
            second.copy_from_slice(&rest);
        }
        let rights = reply.take_rights();
        if is_served && !rights.is_empty() {
            // As many as came with one message.
            drop(reply_rights(rights));
        }
        Ok(Ok((said.status, len_bytes)))
    }

    fn request(&self, crossing: &Crossing<'_>, rights: Vec<Right>) -> Result<Message, SendError> {
        let (bytes, room, flag) = match &crossing.bytes {
            Some((request, reply)) => (*request, reply.len(), wire::BYTES),
            None => (&b""[..], 0, 0),
        };
        let len_bytes = bytes.len();
        if len_bytes > BYTES_MAX {
            return Err(SendError::TooLong { len_bytes });
        }
        let sender = crossing.sender;
        let (now, rest) = wire::divide(crossing.words, bytes);
        let rest = match rest {
            [] => 0,
            rest => {
                let kept = self.ask(crossing, (wire::KEEP, 0), rest)?;
                u32::from_le_bytes(*kept.first_chunk().ok_or(NOT_A_REPLY)?)
            }
        };
        let one_way = if sender.is_one_way() {
            wire::ONE_WAY
        } else {
            0
        };
        let request = Request {
            kind: wire::CALL,
            flags: flag | one_way,
            entry: crossing.entry,
            permissions: sender.permissions,
            room: room as u32,
            rest,
            badge: sender.badge,
        };
        self.call_with(request, crossing, now, rights)
    }

    fn call_with(
        &self,
        request: Request,
        crossing: &Crossing<'_>,
        bytes: &[u8],
        rights: Vec<Right>,
    ) -> Result<Message, SendError> {
        let send = |message: &[u8]| match (crossing.time_left(), rights.is_empty()) {
            (None, true) => self.0.call(message),
            (Some(left), true) => self.0.call_timeout(message, left),
            (None, false) => (self.0.with(rights).call(message)).map_err(|failed| failed.error),
            (Some(left), false) => {
                let called = self.0.with(rights).call_timeout(message, left);
                called.map_err(|failed| failed.error)
            }
        };
        // A thread that is ending has no room of its own.
        let mut room = ROOM.try_with(RefCell::take).unwrap_or_default();
        room.resize(MESSAGE_BYTES_MAX, 0);
        let len_bytes = request.write(&mut room, crossing.words, bytes);
        let called = send(&room[..len_bytes]);
        let _ = ROOM.try_with(|place| place.replace(room));
        called
    }

    /// A question of the two of them, which comes to no function.
    fn ask(
        &self,
        about: &Crossing<'_>,
        (kind, rest): (u8, u32),
        bytes: &[u8],
    ) -> Result<Message, SendError> {
        let request = Request {
            kind,
            rest,
            ..Request::default()
        };
        let mut words = [0; 8];
        let crossing = Crossing {
            entry: 0,
            sender: Sender::of(0, 0, false),
            words: &mut words,
            bytes: None,
            deadline_ns: about.deadline_ns,
        };
        self.call_with(request, &crossing, bytes, Vec::new())
    }
}

/// The state of the domain and the outcome of the call after this error.
const fn lost(error: SendError) -> Lost {
    match error {
        SendError::TimedOut => Lost::Late,
        SendError::Full | SendError::Exhausted(_) => Lost::Full,
        // It lives, and could not send the rights with its reply, or get these.
        SendError::Right(_)
        | SendError::TooLong { .. }
        | SendError::Gone(Gone::Reply | Gone::Right | Gone::Port) => Lost::Refused,
        _ => Lost::Child,
    }
}

/// The caller of the port receives this error.
fn refused(error: SendError) -> Lost {
    let failed = Beside {
        rights: Vec::new(),
        failed: Some(error),
    };
    let _ = BESIDE.try_with(|beside| beside.set(Some(failed)));
    Lost::Refused
}

/// The function in the child has passed the call on: the first of the rights says where to.
fn go_on(mut rights: impl Iterator<Item = Right>, bytes: &[u8]) -> Result<(), SendError> {
    let to = match rights.next() {
        Some(Right::Send(right)) => right,
        Some(Right::Own(own)) => own.connect().map_err(|error| match error {
            ConnectError::Gone(gone) => SendError::Gone(gone),
            _ => SendError::Gone(Gone::Right),
        })?,
        _ => return Err(SendError::Gone(Gone::Right)),
    };
    pass_on(to, bytes, rights.collect())
}
