//! Rights in messages that are served inside this process: values that pass from caller to server and back on one
//! thread. A call says how deep it is in the thread's calls, and that is all when there are no rights.

use super::room::Room;
use crate::error::{Gone, Misuse, RightError, SendError};
use crate::imported::own_of;
use crate::port::Port;
use crate::process::Process;
use crate::right::Right;
use crate::send::{SendRight, ended, route};
use core::cell::Cell;
use handfast_layout::PARTS_MAX;
use std::sync::Arc;

/// Rights on their way into a call of some depth, or out of it.
struct Beside {
    depth: u32,
    way: Way,
    rights: Vec<Right>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Reply,
}

thread_local! {
    /// How deep this thread is in calls that are served here; zero outside.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// There is something beside one of them.
    static HAS: Cell<bool> = const { Cell::new(false) };
    static BESIDE: Cell<Vec<Beside>> = const { Cell::new(Vec::new()) };
    static NEXT: Cell<Vec<Next>> = const { Cell::new(Vec::new()) };
}

/// A call is being served on this thread, until this is dropped; by its caller, also when the call went wrong.
pub(super) struct Inside(u32);

impl Inside {
    #[inline]
    pub(super) fn enter(rights: Vec<Right>) -> Self {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        if !rights.is_empty() {
            put(depth, Way::In, rights);
        }
        Self(depth)
    }

    /// The rights to go with the reply.
    #[inline]
    pub(super) fn reply_rights(&self) -> Vec<Right> {
        match HAS.get() {
            true => take(self.0, Way::Reply),
            false => Vec::new(),
        }
    }

    /// Where the call goes on.
    #[inline]
    pub(super) fn next(&self) -> Option<Next> {
        match HAS.get() {
            true => take_next(self.0),
            false => None,
        }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(self.0 - 1);
        if HAS.get() {
            end(self.0);
        }
    }
}

/// Takes the rights that came with the message that this thread serves, in the order in which they were sent. A right
/// to the port that serves the message is an [`OwnRight`](crate::OwnRight), any other right to a port can be called.
#[must_use]
pub fn take_rights() -> Vec<Right> {
    match HAS.get() {
        true => take(DEPTH.get(), Way::In),
        false => Vec::new(),
    }
}

/// Sends these rights with the reply to the message that this thread serves, behind rights that were given before:
/// all arrive, or none.
///
/// # Errors
/// The rights, when the thread serves no message, the reply would have more than four, or there are blocks, loans or receive rights among
/// them.
pub fn reply_rights(rights: Vec<Right>) -> Result<(), Vec<Right>> {
    let depth = DEPTH.get();
    let mut there = take(depth, Way::Reply);
    if depth == 0 || !may_pass(&rights) || there.len() + rights.len() > PARTS_MAX {
        put(depth, Way::Reply, there);
        return Err(rights);
    }
    there.extend(rights);
    put(depth, Way::Reply, there);
    Ok(())
}

/// Passes the call that this thread serves on with a message, as soon as the function that serves it has returned. The target's answer
/// is the reply, and the function's own is dropped. This is a tail call, since the function's stack is free by then. A
/// one-way message is sent on. The last call of `pass_on` counts. One copy.
///
/// # Errors
/// [`SendError::TooLong`], [`SendError::Right`] for more than four rights or others than go with replies, and
/// [`SendError::Misuse`] when this thread serves no message. In these cases, too, the rights are gone.
pub fn pass_on(to: SendRight, bytes: &[u8], rights: Vec<Right>) -> Result<(), SendError> {
    let depth = DEPTH.get();
    if depth == 0 {
        return Err(SendError::Misuse(Misuse::NotACall));
    }
    if !may_pass(&rights) {
        let count = rights.len();
        return Err(SendError::Right(RightError::TooMany { count }));
    }
    let mut room = Room::take();
    let len_bytes = bytes.len();
    let place = room.0.get_mut(..len_bytes);
    place
        .ok_or(SendError::TooLong { len_bytes })?
        .copy_from_slice(bytes);
    let message = (room, len_bytes);
    let next = Next {
        depth,
        to,
        message,
        rights,
    };
    let mut all = NEXT.try_with(Cell::take).unwrap_or_default();
    let last = all.pop_if(|next| next.depth == depth);
    all.push(next);
    HAS.set(NEXT.try_with(|place| place.set(all)).is_ok());
    drop(last);
    Ok(())
}

/// The arguments of [`pass_on`]: the target, the bytes, and the rights.
pub type Passed = (SendRight, Vec<u8>, Vec<Right>);

/// Takes back the message that the function that this thread runs has given to [`pass_on`], for other code to
/// pass on.
#[must_use]
pub fn take_passed() -> Option<Passed> {
    if !HAS.get() {
        return None;
    }
    let mut next = take_next(DEPTH.get())?;
    // Others answer the message that the function passes on.
    drop(take(DEPTH.get(), Way::Reply));
    let rights = core::mem::take(&mut next.rights);
    Some((next.to.clone(), next.bytes().to_vec(), rights))
}

/// The reason that a right is dead, if that is known here.
#[must_use]
pub fn end_of(right: &SendRight) -> Option<Gone> {
    match ended::is_as_before(route::best(right)) {
        Err(SendError::Gone(gone)) => Some(gone),
        Err(_) => Some(Gone::Process),
        Ok(()) => None,
    }
}

/// Where a call of some depth goes on, and with what.
pub(super) struct Next {
    depth: u32,
    pub(super) to: SendRight,
    message: (Room, usize),
    pub(super) rights: Vec<Right>,
}

impl Next {
    pub(super) fn bytes(&self) -> &[u8] {
        let (room, len_bytes) = &self.message;
        room.0.get(..*len_bytes).unwrap_or_default()
    }
}

#[cold]
fn take_next(depth: u32) -> Option<Next> {
    let mut all = NEXT.try_with(Cell::take).unwrap_or_default();
    let next = all.pop_if(|next| next.depth == depth);
    let _ = NEXT.try_with(|place| place.set(all));
    next
}

#[cold]
fn put(depth: u32, way: Way, rights: Vec<Right>) {
    if rights.is_empty() {
        return;
    }
    let mut beside = BESIDE.try_with(Cell::take).unwrap_or_default();
    beside.push(Beside { depth, way, rights });
    HAS.set(BESIDE.try_with(|all| all.set(beside)).is_ok());
}

#[cold]
fn take(depth: u32, way: Way) -> Vec<Right> {
    let mut beside = BESIDE.try_with(Cell::take).unwrap_or_default();
    let is_it = |beside: &Beside| beside.depth == depth && beside.way == way;
    let place = beside.iter().position(is_it);
    let taken = place.map(|place| beside.swap_remove(place).rights);
    let _ = BESIDE.try_with(|all| all.set(beside));
    taken.unwrap_or_default()
}

/// Drops rights that were not taken; also those of calls within this one, which a fault may have left.
#[cold]
fn end(depth: u32) {
    let mut beside = BESIDE.try_with(Cell::take).unwrap_or_default();
    let mut all = NEXT.try_with(Cell::take).unwrap_or_default();
    let ended: (Vec<_>, Vec<_>) = (
        beside.extract_if(.., |of| of.depth >= depth).collect(),
        all.extract_if(.., |of| of.depth >= depth).collect(),
    );
    HAS.set(!beside.is_empty() || !all.is_empty());
    let _ = BESIDE.try_with(|place| place.set(beside));
    let _ = NEXT.try_with(|place| place.set(all));
    // Outside of the lists: the dropped rights may serve or be served.
    drop(ended);
}

/// Whether all of these pass as they are; others take the way of messages.
pub(super) fn may_pass(rights: &[Right]) -> bool {
    let may = |right: &Right| {
        matches!(
            right,
            Right::Own(_)
                | Right::Send(_)
                | Right::SendOnce(_)
                | Right::Reply(_)
                | Right::Descriptor(_)
                | Right::Memory(_)
        )
    };
    rights.len() <= PARTS_MAX && rights.iter().all(may)
}

/// The form of a right for the server of `port`.
pub(super) fn incoming(process: &Arc<Process>, port: &Arc<Port>, right: Right) -> Right {
    let own = match &right {
        Right::Own(own) => Some(own.clone()),
        Right::Send(right) => {
            // Once: it may become another at any time.
            let best = route::best(right);
            match best.link().is_loop().then(|| own_of(process, best)) {
                Some(Ok(Right::Own(own))) => Some(own),
                // Revoked, or another's.
                None | Some(Ok(Right::Send(_)) | Err(RightError::Unsettled)) => None,
                _ => return Right::Dead,
            }
        }
        _ => None,
    };
    match own {
        Some(own) if Arc::ptr_eq(own.port(), port) => Right::Own(own),
        _ => outgoing(right),
    }
}

/// The form of a right for the caller: a right of this process's own becomes one it can call.
pub(super) fn outgoing(right: Right) -> Right {
    match right {
        Right::Own(own) => own.connect().map_or(Right::Dead, Right::Send),
        right => right,
    }
}
