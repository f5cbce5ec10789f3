//! Lending blocks with messages, over one link: telling the peer of arenas, naming blocks in parts, taking back
//! what was given back, and taking up what the peer lends. The tables are `handfast_proto::loans`.

use crate::arena::{Block, Lends, Out, Owned};
use crate::error::{Exhausted, RightError};
use crate::link::{Link, backlog, inbox};
use crate::loan::Loan;
use crate::process::Process;
use crate::rank;
use handfast_channel::loan;
use handfast_layout::control::ControlMessage;
use handfast_layout::loan::{ARENAS, LOANS, LentBlock, Told};
use handfast_proto::loans::{Lent, Missed, Refused, Reserved, Taken};
use handfast_ring::{Fault, Rule};
use handfast_sys::Errno;
use handfast_sys::sync::MutexGuard;
use std::sync::{Arc, Weak};

/// Loans looked at when another one is made: more come back than go.
const LOOKS: usize = 2;

const fn described(block: u32, len_bytes: u64, reserved: Reserved) -> LentBlock {
    LentBlock {
        arena: reserved.arena,
        block,
        loan: reserved.loan,
        generation: reserved.generation,
        len_bytes,
        fill: 0,
    }
}

fn lent(link: &Link) -> MutexGuard<'_, Lent<Out>, rank::Lent> {
    link.parts.lent.lock()
}

fn returned(link: &Link, of: u32) -> u32 {
    loan::returned(&link.region, link.calls, of)
}

/// Describes a block as lent to the peer, which is told of its arena first if it does not know it: then
/// one system call. [`has_lent`] must follow, or [`lends_not`].
pub(crate) fn lend(link: &Arc<Link>, block: &Block) -> Result<LentBlock, RightError> {
    let (arena, number, len_bytes) = block.named().ok_or(RightError::Lost)?;
    if arena.is_forked() {
        return Err(RightError::Forked);
    }
    let mut lent = lent(link);
    let mut reserved = lent.reserve(arena.key, |of| returned(link, of));
    if reserved == Err(Refused::Unknown) {
        let number = free_number(link, &mut lent);
        let told = number.map(|number| tell_of_arena(link, &mut lent, arena, number));
        reserved = match told {
            Ok(Ok(())) => lent.reserve(arena.key, |of| returned(link, of)),
            Ok(Err(error)) => return Err(error),
            Err(Refused::Full) => return Err(RightError::Arenas { limit: ARENAS }),
            Err(refused) => Err(refused),
        };
    }
    if reserved == Err(Refused::Full) {
        let collected = lent.collect(|of| returned(link, of), Out::back);
        reserved = collected.and_then(|()| lent.reserve(arena.key, |of| returned(link, of)));
    }
    drop(lent);
    let reserved = reserved.map_err(|refused| match refused {
        Refused::Word(of) => forged(link, of),
        Refused::Full => RightError::Loans { limit: LOANS },
        Refused::Over | Refused::Unknown => RightError::Gone,
    })?;
    Ok(described(number, len_bytes, reserved))
}

/// A number for another arena.
fn free_number(link: &Link, lent: &mut Lent<Out>) -> Result<u32, Refused> {
    match lent.free_number() {
        Err(Refused::Full) => {
            lent.collect(|of| returned(link, of), Out::back)?;
            lent.free_number()
        }
        number => number,
    }
}

/// Tells the peer of an arena.
fn tell_of_arena(
    link: &Arc<Link>,
    lent: &mut Lent<Out>,
    arena: &Owned,
    number: u32,
) -> Result<(), RightError> {
    let geometry = arena.geometry;
    let new = ControlMessage::Arena(Told::New { number, geometry });
    let said = backlog::say_now(link, new, &[arena.fd()]);
    said.map_err(|errno| match errno {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => RightError::Unread,
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => RightError::Gone,
        errno => RightError::Refused {
            errno: errno.into(),
        },
    })?;
    lent.told(number, arena.key);
    arena.told(Arc::downgrade(link) as Weak<dyn Lends>);
    Ok(())
}

/// As [`lend`], if nothing at all stands in the way.
#[inline]
pub(crate) fn lend_now(link: &Link, block: &Block) -> Option<LentBlock> {
    let (arena, number, len_bytes) = block.named()?;
    if arena.is_forked() {
        return None;
    }
    let reserved = lent(link).reserve(arena.key, |of| returned(link, of));
    let reserved = reserved.ok()?;
    Some(described(number, len_bytes, reserved))
}

/// The message with a block was sent. Looks at some of the blocks lent before: their receiver, which gave
/// them back, is at work now anyway.
pub(crate) fn has_lent(link: &Link, of: u32, block: Block) {
    let Some((out, arena)) = block.into_out() else {
        return;
    };
    let mut lent = lent(link);
    // Before this one is entered: its word's line is the borrower's now.
    lent.collect_some(LOOKS, |of| returned(link, of), Out::back);
    let back = lent.commit(of, out);
    drop(lent);
    if let Some(back) = back {
        back.back();
    }
    // Its end takes the lock again.
    drop(arena);
}

/// The message with a block was not sent.
pub(crate) fn lends_not(link: &Link, of: u32) {
    lent(link).retract(of);
}

/// Takes back what the peer has given back.
fn collect_loans(link: &Link) {
    let collected = lent(link).collect(|of| returned(link, of), Out::back);
    if let Err(Refused::Word(of)) = collected {
        forged(link, of);
    }
}

fn forged(link: &Link, of: u32) -> RightError {
    // Once: the words stay as they are until the control thread has ended the link.
    if !link.is_down() {
        // A thread that takes back blocks may hold the lock of those for long messages.
        link.condemn(Fault {
            rule: Rule::LoanReturn,
            offset: link.calls.returned(of),
        });
    }
    RightError::Gone
}

/// An arena has been dropped.
fn end_arena(link: &Link, key: u64) {
    let mut lent = lent(link);
    let Some((number, lent_in_all)) = lent.end_arena(key) else {
        return;
    };
    let ended = Told::Ended {
        number,
        lent: lent_in_all,
    };
    // Under the lock: its number may be another's next.
    link.say(ControlMessage::Arena(ended));
}

impl Lends for Link {
    fn collect(&self) {
        collect_loans(self);
    }

    fn end_arena(&self, key: u64) {
        end_arena(self, key);
    }
}

/// The link has ended: lent blocks come back.
pub(crate) fn end_loans(link: &Link) {
    let mut lent = lent(link);
    if lent.out() > 0 {
        loan::end(&link.region, link.calls);
    }
    lent.end(Out::back);
}

/// Takes up a block that the peer has lent, or says what this process had no room for.
pub(crate) fn take_up_loan(
    process: &Process,
    link: &Arc<Link>,
    lent: LentBlock,
) -> Result<Result<Loan, Exhausted>, Fault> {
    let fault = Rule::Loan.broken();
    let loan = (lent.loan, lent.generation);
    let taken = inbox::read_until(
        link,
        process,
        inbox::inbox(link),
        fault,
        |inbox| match (inbox.borrowed).take((lent.arena, lent.block), loan, lent.len_bytes) {
            Err(Missed::Arena) => None,
            taken => Some(taken),
        },
    );
    let (taken, inbox) = taken?;
    drop(inbox);
    let Taken {
        memory,
        at,
        len_bytes,
    } = taken.map_err(|_| fault)?;
    Ok(match memory {
        Ok(memory) => Ok(Loan::new(link, (memory, at, len_bytes), loan)),
        Err(exhausted) => {
            loan::give_back(&link.region, link.calls.other(), lent.loan, lent.generation);
            Err(exhausted)
        }
    })
}
