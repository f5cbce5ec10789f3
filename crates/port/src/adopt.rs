//! Taking up the rights that came with a message, and giving back those that no thread holds any more.

use crate::again::{self, keep};
use crate::ahead;
use crate::arriving::adopt_one;
use crate::bound::Moving;
use crate::descriptors::{lost, take_up, take_up_memory};
use crate::door::{later, on_word, strange};
use crate::error::Exhausted;
use crate::home::{Looks, come_home};
use crate::imported::{import, own, own_around};
use crate::introduce::claim;
use crate::lending::take_up_loan;
use crate::link::held::Held;
use crate::link::{Link, inbox, introductions, long};
use crate::message::{Message, Whom};
use crate::moving::{is_unread, refuse, settle_beside, settle_in, take_here};
use crate::process::Process;
use crate::reply_right::ReplyRight;
use crate::reply_slot::ReplySlot;
use crate::right::Right;
use crate::send::{self, Origin, SendRight, going};
use crate::{links, redirect};
use handfast_layout::hello;
use handfast_layout::part::{Bound, Part, ThirdForm};
use handfast_layout::{LONG_BYTES_MAX, MESSAGE_BYTES_MAX, PARTS_MAX};
use handfast_ring::lane::Unit;
use handfast_ring::{Fault, Rule};
use handfast_sys::{Errno, socket};
use std::sync::Arc;

/// Makes rights of their descriptions, in the order in which they were sent: all, or none and the rule the peer
/// broke. One allocation, as long as the rights are not taken out. `false`, for an answer that goes on: not all
/// are known yet, and [`adopt_rest`] must follow.
#[cold]
pub(crate) fn adopt(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: &mut Message,
    whom: Whom<'_>,
) -> Result<bool, Fault> {
    let moved = |name| redirect::arrived_moved(link, process, name);
    if adopt_one(process, link, message, moved)? {
        return Ok(true);
    }
    adopt_rest(process, link, message, whom)
}

/// As [`adopt`], behind the rights that were made already.
#[cold]
pub(crate) fn adopt_rest(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: &mut Message,
    whom: Whom<'_>,
) -> Result<bool, Fault> {
    let before = take_bytes(process, link, message, whom)?;
    let Some((units, rights)) = message.units_and_rights() else {
        return Ok(true);
    };
    let adopted = adopt_all(process, link, &units[before..], (rights, whom));
    message.has_come_from(link);
    if adopted.is_err() {
        message.clear();
    }
    adopted
}

/// Copies the bytes of a message out of the block in which they were lent, if they were, and gives it back. Returns how many units say
/// where they are.
fn take_bytes(
    process: &Arc<Process>,
    link: &Arc<Link>,
    message: &mut Message,
    whom: Whom<'_>,
) -> Result<usize, Fault> {
    if !message.bytes().is_empty() && !message.is_filled() {
        // Such a message says nothing of others.
        return Ok(0);
    }
    let part = message
        .units_and_rights()
        .and_then(|(units, _)| Part::parse(units));
    let Some((Part::Bytes(lent), count)) = part else {
        return Ok(0);
    };
    if message.is_filled() {
        return Ok(count);
    }
    let len_bytes = usize::try_from(lent.len_bytes).unwrap_or(usize::MAX);
    if !(MESSAGE_BYTES_MAX + 1..=LONG_BYTES_MAX).contains(&len_bytes) {
        return Err(Rule::Part.broken());
    }
    match (take_up_loan(process, link, lent)?, whom) {
        (Err(exhausted), _) => message.lose(exhausted),
        (Ok(_), Whom::Nobody | Whom::NoReceiver) => {}
        // Its sender may see another user here than this process does: it is no fault.
        (Ok(_), _) if len_bytes > long::longest(link) => message.lose(Exhausted {
            what: "bytes of a message from a process of another user",
            advice: None,
            limit: MESSAGE_BYTES_MAX as u64,
        }),
        (Ok(loan), _) => {
            if lent.fill != 0 {
                link.parts.fills.has_come();
            }
            let ahead = ahead::take(link, &lent);
            message.fill(len_bytes, ahead, |from, bytes| {
                loan.copy_left(from, bytes).is_ok()
            });
        }
    }
    Ok(count)
}

fn adopt_all(
    process: &Arc<Process>,
    link: &Arc<Link>,
    mut units: &[Unit],
    (rights, whom): (&mut Vec<Right>, Whom<'_>),
) -> Result<bool, Fault> {
    let (mut taken, known) = (0, rights.len());
    let looks = Looks::new();
    rights.reserve_exact(units.len().min(PARTS_MAX - known.min(PARTS_MAX)));
    while !units.is_empty() {
        let (part, count) = next_part(units, taken).ok_or(Rule::Part.broken())?;
        let (of_part, rest) = units.split_at(count);
        (units, taken) = (rest, taken + 1);
        if taken <= known {
            continue;
        }
        if !adopt_part((process, link), (part, of_part), (rights, whom, &looks))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The next part after `taken` others, and its units; `None` for a part that this layout does not know, or when
/// there are too many.
fn next_part(units: &[Unit], taken: usize) -> Option<(Part, usize)> {
    Part::parse(units).filter(|_| taken < PARTS_MAX)
}

/// Makes a right of a part, of which these are the units. `false`: it is known later. The arm for most is
/// [`adopt_one`].
#[inline]
fn adopt_part(
    (process, link): (&Arc<Process>, &Arc<Link>),
    (part, units): (Part, &[Unit]),
    (rights, whom, looks): (&mut Vec<Right>, Whom<'_>, &Looks),
) -> Result<bool, Fault> {
    rights.push(match part {
        Part::OfSender { handle, port } | Part::Once { handle, port } if link.is_loop() => {
            own_around(process, link, (handle, port))?
        }
        Part::OfSender { handle, port } => Right::Send(import(process, link, (handle, port))?),
        Part::Once { handle, port } => {
            Right::elsewhere(import(process, link, (handle, port))?, true)
        }
        Part::OfReceiver { handle } => own(process, link, handle)?,
        // A process that may only pass rights on is told of each again: see `Described::goes_on`.
        Part::Again { .. } if matches!(whom, Whom::Relay(_)) => {
            return Err(Rule::Introduction.broken());
        }
        Part::Again { number } => again::take_again(link, number)?,
        Part::Third {
            vine,
            port,
            exporter,
            number,
            pid,
            form,
        } => {
            let vine = import(process, link, vine)?;
            let what = (hello::process(exporter, pid), number, port);
            let is_to_stay = form == ThirdForm::Kept;
            let right = introduced(process, link, vine, (what, is_to_stay, whom));
            Right::elsewhere(right, form == ThirdForm::Once)
        }
        Part::Home { .. } if matches!(whom, Whom::Receiver(_) | Whom::NoReceiver) => {
            return Err(Rule::Part.broken());
        }
        Part::Home {
            port,
            introducer,
            pid,
            number,
        } => {
            let number = (hello::process(introducer, pid), number);
            match come_home(process, link, (number, port), (whom, looks)) {
                Some(right) => right,
                None => return Ok(false),
            }
        }
        Part::Receive {
            token,
            number,
            name_bytes,
            asks,
        } => {
            let name = (&units[1..], name_bytes);
            receive(process, link, (token, asks), (number, name), whom)?
        }
        Part::Member { token, asks } => member(process, link, (token, asks), whom)?,
        Part::Reply { word, generation } => passed_reply(link, word, generation)?,
        Part::Descriptor { number } => take_up(process, link, number)?,
        Part::Memory { number, len_bytes } => take_up_memory(process, link, (number, len_bytes))?,
        Part::Loan(lent) => {
            take_up_loan(process, link, lent)?.map_or_else(Right::Lost, Right::Loan)
        }
        // First, and by itself: [`take_bytes`].
        Part::Bytes(_) => return Err(Rule::Part.broken()),
    });
    Ok(true)
}

/// A reply right that the peer has passed on.
#[inline(never)]
fn passed_reply(link: &Arc<Link>, word: u32, generation: u32) -> Result<Right, Fault> {
    Ok(match ReplySlot::passed(link, word, generation)? {
        Some(mut slot) => {
            // The last right to a port there may be dropped first.
            slot.held = Some(Held::new(&slot.link));
            Right::Reply(ReplyRight::new(slot))
        }
        None => Right::Dead,
    })
}

/// A receive right, with the name of its port.
#[inline(never)]
fn receive(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (token, asks): (u32, bool),
    (number, (units, name_bytes)): (u32, (&[Unit], u8)),
    whom: Whom<'_>,
) -> Result<Right, Fault> {
    if is_unread(link) {
        return Err(Rule::Introduction.broken());
    }
    if matches!(whom, Whom::NoReceiver) {
        refuse(link, token);
        return match name_bytes {
            0 => Ok(Right::Dead),
            // The socket that listens at its name is closed.
            _ => take_up(process, link, number),
        };
    }
    if link.is_loop() {
        if name_bytes > 0 {
            // A copy of the socket that listens at its name.
            drop(inbox::claim_descriptor(link, process, number)?);
        }
        return Ok(take_here(process, token));
    }
    if name_bytes == 0 {
        return Ok(settle_in(process, link, (token, asks), None));
    }
    let name = Bound::parse(units, name_bytes).ok_or(Rule::Part.broken())?;
    let listener = match inbox::claim_descriptor(link, process, number)? {
        Some(listener) if socket::is_listener(&listener) => listener.uncharged(),
        Some(_) => return Err(Rule::Descriptor.broken()),
        None => {
            refuse(link, token);
            return Ok(lost("recvmsg", Errno::MFILE));
        }
    };
    let moving = Moving { name, listener };
    Ok(settle_in(process, link, (token, asks), Some(moving)))
}

/// A port that comes to share the receiver of its message.
#[inline(never)]
fn member(
    process: &Arc<Process>,
    link: &Arc<Link>,
    (token, asks): (u32, bool),
    whom: Whom<'_>,
) -> Result<Right, Fault> {
    if is_unread(link) {
        return Err(Rule::Introduction.broken());
    }
    match whom {
        Whom::Receiver(_) if link.is_loop() => Ok(take_here(process, token)),
        Whom::Receiver(Some(receiver)) => Ok(settle_beside(process, link, (token, asks), receiver)),
        Whom::Receiver(None) | Whom::NoReceiver => {
            refuse(link, token);
            Ok(Right::Dead)
        }
        // Answers have none.
        Whom::Caller | Whom::Relay(_) | Whom::Nobody => Err(Rule::Part.broken()),
    }
}

/// A right to a port of a third process: a direct one if there is a link, or will be.
#[inline(never)]
fn introduced(
    process: &Arc<Process>,
    link: &Arc<Link>,
    vine: SendRight,
    ((exporter, number, port), is_to_stay, whom): (([u8; 20], u64, u32), bool, Whom<'_>),
) -> SendRight {
    // Without a number the exporter was not told.
    if number == 0 {
        return send::with_origin(vine, Origin::Vine(None));
    }
    // To this process itself, too: it has sent by one link with itself what it got by another.
    if link.is_with(exporter) || exporter[..16] == process.incarnation {
        // A claim would take a lane of this link, and a thread that takes an unawaited reply holds a lane.
        introductions::decline(link, exporter, number);
        return send::with_origin(vine, Origin::Vine(None));
    }
    if let Whom::Relay(to) = whom
        && to.is_with(exporter)
    {
        return going(process, link, vine, (exporter, number, port));
    }
    let with = links::hold_link(process, |link| link.is_with(exporter));
    let Some(with) = with else {
        return strange(process, link, vine, (exporter, number, port));
    };
    let Some(right) = claim(process, &with, port, (link, number)) else {
        return later(process, link, vine, (exporter, number, port));
    };
    if link.is_of_others() {
        return on_word(process, link, vine, (exporter, number, right));
    }
    if is_to_stay {
        keep(process, link, number, &right);
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_part_is_refused() {
        let part = Part::OfReceiver { handle: 9 };
        let units = &part.to_units().0[..1];
        assert_eq!(next_part(units, PARTS_MAX - 1), Some((part, 1)));
        assert_eq!(next_part(units, PARTS_MAX), None);
    }
}
