//! Descriptors that have come ahead of the messages that they belong to.

use super::Link;
use crate::error::{Exhausted, Resource};
use crate::process::Process;
use crate::rank;
use crate::users::{Charge, Foreign, ForeignMemory, Users};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use handfast_layout::control::{
    CONTROL_BYTES_MAX, ControlKind, ControlMessage, Malformed, descriptors_of,
};
use handfast_layout::loan::Told;
use handfast_layout::part::{Descriptors, UNCLAIMED_MAX};
use handfast_proto::loans::Borrowed;
use handfast_proto::users::Quota;
use handfast_region::Memory as _;
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{Errno, clock, socket};
use std::collections::VecDeque;
use std::sync::Arc;

/// The memory of an arena of the peer's, or the reason why there is none.
pub(crate) type ForeignArena = Result<Arc<ForeignMemory<handfast_region::Lent>>, Exhausted>;

/// The descriptors on their way through a link.
pub(crate) struct UnderWay {
    /// How many have been sent, modulo 2^32. Held while they are: they arrive in this order.
    pub(crate) sent: Mutex<u32, rank::SentDescriptors>,
    inbox: Mutex<Inbox, rank::Inbox>,
    /// A message of the control socket is being taken away where that may block.
    pub(crate) discarding: Arc<AtomicBool>,
}

impl UnderWay {
    pub(crate) fn new(users: &Arc<Users>, user: u32) -> Self {
        Self {
            sent: Mutex::default(),
            inbox: Mutex::new(Inbox::new(users.nothing(user, Quota::Backlog))),
            discarding: Arc::default(),
        }
    }
}

/// Why there is no next control message.
pub(crate) enum Unheard {
    Os(Errno),
    Fault(Fault),
    /// Another thread is reading, or taking a message away: soon.
    Busy,
}

/// The messages read from the control socket. Held while it is read.
pub(crate) struct Inbox {
    /// Numbers below have arrived, modulo 2^32.
    pub(crate) arrived: u32,
    claimed: u32,
    /// By number. `None`: there was no room for it in this process.
    unclaimed: Vec<(u32, Option<Foreign>)>,
    /// Messages for the control thread, read by a thread in search of a descriptor.
    pub(crate) unheard: VecDeque<(Vec<u8>, Option<Foreign>)>,
    /// Their bytes.
    unheard_bytes: Charge,
    /// Since when a message is being taken away.
    pub(crate) discarding_since_ns: u64,
    /// The peer's arenas.
    pub(crate) borrowed: Borrowed<ForeignArena>,
}

/// How long a message with descriptors that there is no room for may take to be closed, before the link is cut. A receiver waits
/// as long for a peer of its own user: the closing thread may be waiting for a processor.
pub(super) const DISCARD_NS_MAX: u64 = 1_000_000_000;

/// How long a receiver waits for a peer of another user, which can make the close take as long as it likes.
const DISCARD_WAIT_NS_MAX: u64 = 100_000_000;

/// Between two looks of a receiver that waits so.
const DISCARD_LOOK: Duration = Duration::from_micros(50);

/// Control messages that may come between the last one the control thread has read and a descriptor that a
/// message names: more than a socket holds, which is some 280 unless the system is told otherwise.
pub(crate) const UNHEARD_MAX: usize = 1024;

pub(crate) fn inbox(link: &Link) -> MutexGuard<'_, Inbox, rank::Inbox> {
    link.parts.under_way.inbox.lock()
}

/// Control thread: takes the next message of the control socket. Descriptors for messages have been put where
/// receivers look for them. Never waits for a receiver that reads.
pub(crate) fn hear(link: &Link, bytes: &mut [u8]) -> Result<(usize, Option<Foreign>), Unheard> {
    let mut inbox = link.parts.under_way.inbox.try_lock().ok_or(Unheard::Busy)?;
    if let Some((message, fd)) = inbox.unheard.pop_front() {
        inbox.unheard_bytes.shrink(message.len() as u64);
        bytes[..message.len()].copy_from_slice(&message);
        return Ok((message.len(), fd));
    }
    read(link, &mut inbox, bytes)
}

/// Whether there are messages for the control thread that no event tells of.
pub(crate) fn has_unheard(link: &Link) -> bool {
    !inbox(link).unheard.is_empty()
}

/// The link has been cut: no message of its peer is received any more.
pub(crate) fn close_unclaimed(link: &Link) {
    let mut inbox = inbox(link);
    inbox.unclaimed.clear();
    inbox.borrowed.clear();
}

/// The link has ended: reads what its peer has sent, since the socket will be closed before all of that is asked for. A system call
/// for each message. `false`: a message is being taken away, and others lie behind it.
pub(super) fn drain(link: &Link) -> bool {
    let mut inbox = inbox(link);
    let mut bytes = [0; CONTROL_BYTES_MAX];
    for _ in 0..UNHEARD_MAX {
        match read(link, &mut inbox, &mut bytes) {
            Ok((1.., _)) | Err(Unheard::Os(Errno::INTR | Errno::CONNRESET | Errno::MFILE)) => {}
            Err(Unheard::Busy) => return false,
            Ok(_) | Err(_) => return true,
        }
    }
    true
}

/// Reads one message, with the descriptors that belong to its kind. None is closed by this thread.
fn read(
    link: &Link,
    inbox: &mut Inbox,
    bytes: &mut [u8],
) -> Result<(usize, Option<Foreign>), Unheard> {
    let fault = |rule| Unheard::Fault(Fault { rule, offset: 0 });
    // Acquire: pairs with the Release of the thread that has taken the message away.
    if link.parts.under_way.discarding.load(Ordering::Acquire) {
        let since_ns = clock::now_ns().saturating_sub(inbox.discarding_since_ns);
        return Err(match since_ns > DISCARD_NS_MAX {
            true => fault(Rule::ControlDescriptor),
            false => Unheard::Busy,
        });
    }
    let socket = link.connection.socket().map_err(Unheard::Os)?;
    let received = socket::receive_expected(&socket, bytes, descriptors_of).map_err(Unheard::Os)?;
    let bytes = &bytes[..received.len_bytes];
    let fds = received.fds.into_iter().map(|fd| socket.charged_beside(fd));
    let mut fds: Vec<_> = fds.collect();
    let came = fds.len();
    // Descriptors that the peer's user may not have are lost; if they are not closed in time, either, the
    // link is cut.
    let is_refused = received.is_short || fds.iter().any(Option::is_none);
    let has_room = !is_refused || !link.users().is_backed_up(link.peer.uid);
    if received.is_surplus || !has_room {
        let rule = ControlKind::of(bytes).and_then(rule_of_parts);
        return Err(fault(rule.unwrap_or(Rule::ControlDescriptor)));
    }
    if received.is_short {
        discard(link, inbox, &socket);
    }
    match ControlMessage::parse(bytes) {
        Ok(Some(ControlMessage::Descriptors(sent))) => {
            let arrived = inbox.arrive(sent, fds, received.is_short);
            arrived.map_err(fault)?;
            Ok((bytes.len(), None))
        }
        Ok(Some(ControlMessage::Arena(told))) => {
            let fd = fds.pop().flatten();
            let is_short = received.is_short || came > 0 && fd.is_none();
            hear_of_arena(&mut inbox.borrowed, told, (fd.as_ref(), is_short)).map_err(fault)?;
            // A memory file, which closes at once.
            drop(fd.map(Foreign::into_inner));
            Ok((bytes.len(), None))
        }
        Err(Malformed { kind }) if let Some(rule) = rule_of_parts(kind) => Err(fault(rule)),
        // Without room for its descriptor a message is lost, and only that.
        _ if received.is_short || fds.iter().any(Option::is_none) => Err(Unheard::Os(Errno::MFILE)),
        _ => Ok((bytes.len(), fds.pop().flatten())),
    }
}

/// Has the peer's user take away the next message, whose descriptors have no room here: taking it closes
/// them.
fn discard(link: &Link, inbox: &mut Inbox, socket: &Arc<Foreign>) {
    inbox.discarding_since_ns = clock::now_ns();
    let discarding = link.parts.under_way.discarding.clone();
    discarding.store(true, Ordering::Release);
    let socket = socket.clone();
    link.users().expend(link.peer.uid, move || {
        let _ = socket::discard(&socket);
        // Release: a thread that sees this reads the next message.
        discarding.store(false, Ordering::Release);
    });
}

/// Reads the control socket until the descriptors that a received message names are found: they were sent
/// before. Messages for the control thread are kept for it. `fault`: the rule that the peer has broken otherwise.
pub(crate) fn read_until<'a, T>(
    link: &'a Link,
    process: &Process,
    mut inbox: MutexGuard<'a, Inbox, rank::Inbox>,
    fault: Fault,
    mut find: impl FnMut(&mut Inbox) -> Option<T>,
) -> Result<(T, MutexGuard<'a, Inbox, rank::Inbox>), Fault> {
    let mut looks = UNHEARD_MAX;
    let patience_ns = match link.group.is_foreign {
        true => DISCARD_WAIT_NS_MAX,
        false => DISCARD_NS_MAX,
    };
    let deadline_ns = clock::now_ns() + patience_ns;
    loop {
        if let Some(found) = find(&mut inbox) {
            return Ok((found, inbox));
        }
        looks -= 1;
        if looks == 0 || inbox.unheard.len() >= UNHEARD_MAX {
            return Err(fault);
        }
        if !read_one(link, process, &mut inbox, fault)? {
            if clock::now_ns() >= deadline_ns {
                return Err(fault);
            }
            looks += 1;
            drop(inbox);
            clock::sleep(DISCARD_LOOK);
            inbox = self::inbox(link);
        }
    }
}

/// Whether there was nothing in the way. Out of line: its buffer is large.
#[cold]
fn read_one(
    link: &Link,
    process: &Process,
    inbox: &mut Inbox,
    fault: Fault,
) -> Result<bool, Fault> {
    let mut bytes = [0; CONTROL_BYTES_MAX];
    match read(link, inbox, &mut bytes) {
        Ok((1.., _)) if ControlKind::of(&bytes).and_then(rule_of_parts).is_some() => Ok(true),
        Ok((len_bytes @ 1.., fd)) => {
            let grown = inbox.unheard_bytes.grow(len_bytes as u64);
            grown.map_err(|_| Rule::Unread.broken())?;
            inbox.unheard.push_back((bytes[..len_bytes].to_vec(), fd));
            process.attention.raise();
            Ok(true)
        }
        // A peer that has gone resets the connection, which is said once, before what it sent.
        Err(Unheard::Os(Errno::INTR | Errno::CONNRESET | Errno::MFILE)) => Ok(true),
        Err(Unheard::Busy) => Ok(false),
        Err(Unheard::Fault(fault)) => Err(fault),
        Ok((0, _)) | Err(Unheard::Os(_)) => Err(fault),
    }
}

/// Takes the descriptor that a received message names; `None` when there was no room for it in
/// this process. A system call for each control message that the control thread has not read yet;
/// never blocks.
pub(crate) fn claim_descriptor(
    link: &Link,
    process: &Process,
    number: u32,
) -> Result<Option<Foreign>, Fault> {
    let fault = Rule::Descriptor.broken();
    let (_, mut inbox) = read_until(link, process, inbox(link), fault, |inbox| {
        inbox.has_arrived(number).then_some(())
    })?;
    let place = inbox.unclaimed.iter().position(|(of, _)| *of == number);
    let (_, fd) = inbox.unclaimed.swap_remove(place.ok_or(fault)?);
    inbox.claimed = inbox.claimed.wrapping_add(1);
    // Relaxed: as where it is read. The peer sends no more on its strength than there is room for.
    let at = link.calls.other().claimed();
    link.region.store(at, inbox.claimed, Ordering::Relaxed);
    Ok(fd)
}

impl Inbox {
    /// Nothing has come, and `unheard_bytes` is nothing.
    pub(crate) fn new(unheard_bytes: Charge) -> Self {
        Self {
            arrived: 0,
            claimed: 0,
            unclaimed: Vec::new(),
            unheard: VecDeque::new(),
            unheard_bytes,
            discarding_since_ns: 0,
            borrowed: Borrowed::default(),
        }
    }

    fn has_arrived(&self, number: u32) -> bool {
        number.wrapping_sub(self.arrived).cast_signed() < 0
    }

    /// Enters descriptors that have come; the rule the peer broke.
    fn arrive(
        &mut self,
        sent: Descriptors,
        fds: Vec<Option<Foreign>>,
        is_short: bool,
    ) -> Result<(), Rule> {
        let (count, came) = (sent.count as usize, fds.len());
        let is_whole = came == count || (is_short && came < count);
        let is_within = self.unclaimed.len() + count <= UNCLAIMED_MAX as usize;
        if sent.first != self.arrived || !is_whole || !is_within {
            return Err(Rule::DescriptorCount);
        }
        let fds = fds.into_iter().chain(core::iter::repeat_with(|| None));
        for (place, fd) in (0..sent.count).zip(fds) {
            let number = sent.first.wrapping_add(place);
            self.unclaimed.push((number, fd));
        }
        self.arrived = sent.first.wrapping_add(sent.count);
        Ok(())
    }
}

/// The peer has said something about an arena of its own. The rule it broke, if so.
fn hear_of_arena(
    borrowed: &mut Borrowed<ForeignArena>,
    told: Told,
    (fd, is_short): (Option<&Foreign>, bool),
) -> Result<(), Rule> {
    let refused = match (told, fd) {
        (Told::New { number, geometry }, None) if is_short => {
            let memory = Err(Resource::of("recvmsg", Errno::MFILE).into());
            borrowed.arrive(number, geometry, memory)
        }
        (Told::New { number, geometry }, Some(fd)) => {
            let memory = match handfast_region::Lent::open(fd, geometry.file_bytes()) {
                Ok(Some(memory)) => {
                    let len_bytes = geometry.file_bytes();
                    Ok(Arc::new(ForeignMemory::from(fd, memory, len_bytes)))
                }
                Err(errno @ (Errno::NOMEM | Errno::AGAIN)) => {
                    Err(Resource::of("mmap", errno).into())
                }
                Ok(None) | Err(_) => return Err(Rule::Arena),
            };
            borrowed.arrive(number, geometry, memory)
        }
        (Told::Ended { number, lent }, None) => borrowed.ended(number, lent),
        _ => return Err(Rule::Arena),
    };
    refused.map_err(|_| Rule::Arena)
}

/// The rule that a peer breaks by a message of this kind that is not whole, or that has other descriptors than it says. A kind of
/// no protocol has none: such messages are passed over, like those of later releases.
pub(crate) const fn rule_of(kind: ControlKind) -> Option<Rule> {
    use ControlKind as K;
    match kind {
        K::Descriptors => Some(Rule::DescriptorCount),
        K::Arena | K::ArenaEnded => Some(Rule::Arena),
        K::PathAsk
        | K::PathWant
        | K::PathGranted
        | K::PathDenied
        | K::PathReady
        | K::PathRefused
        | K::PathOver
        | K::PathDrop => Some(Rule::Path),
        K::ProvisionVoid
        | K::Declined
        | K::DoorWhere
        | K::DoorAsk
        | K::Door
        | K::DoorOf
        | K::Kept
        | K::Leave
        | K::Left
        | K::Arrived
        | K::NotArrived
        | K::Moved => Some(Rule::Introduction),
        K::Spread => Some(Rule::Spread),
        K::Ring
        | K::ShowCounters
        | K::Counters
        | K::Closed
        | K::Release
        | K::Revoked
        | K::Unused
        | K::Used
        | K::Free
        | K::LaneFree
        | K::LaneBack
        | K::LaneWanted
        | K::Sealed => None,
    }
}

/// As [`rule_of`], of kinds whose messages say what others have beside their bytes, and are heard where they are read.
const fn rule_of_parts(kind: ControlKind) -> Option<Rule> {
    match kind {
        ControlKind::Descriptors | ControlKind::Arena | ControlKind::ArenaEnded => rule_of(kind),
        _ => None,
    }
}
