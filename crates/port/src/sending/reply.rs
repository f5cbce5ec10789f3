//! Replying, with bytes alone or with rights beside them.

use crate::body::Body;
use crate::describe::laid::Reader;
use crate::describe::now::own_now;
use crate::describe::{Described, Load, list_of, pool};
use crate::error::{ReplyError, RightError, SendError};
use crate::link::Link;
use crate::link::long;
use crate::reply_right::ReplyRight;
use crate::reply_slot::ReplySlot;
use crate::request::Request;
use crate::right::{Returned, Right};
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_layout::part::Part;
use handfast_region::Bytes;
use handfast_ring::lane::Unit;
use handfast_sys::deadline;

impl Request {
    /// Replies. Never blocks: the caller has reserved the room. One copy; one system call if the caller sleeps,
    /// none otherwise. More than 64 KiB go in memory that is kept for the next long replies to the same process: the first make it.
    ///
    /// # Errors
    /// See [`ReplyError`]. With [`ReplyError::TooLong`] and [`ReplyError::Right`] the call ends as dropped. A caller that has died is
    /// [`ReplyError::Gone`] once its death is known here; until then, and when the caller has given up, the reply is
    /// discarded without an error. [`ReplyError::Misuse`] in a forked child, and once the node was shut down, which has ended the call.
    pub fn reply(mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        let right = self.take_reply().ok_or(ReplyError::NotACall)?;
        right.reply(bytes)
    }

    /// Like [`Self::reply`], with rights beside the bytes: all arrive, or none.
    ///
    /// # Errors
    /// The errors of [`Self::reply`], and [`ReplyError::Right`]. The rights come back; a call ends as dropped.
    pub fn reply_with(
        mut self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), Returned<ReplyError>> {
        match self.take_reply() {
            Some(right) => right.reply_with(bytes, rights),
            None => Err(Returned {
                error: ReplyError::NotACall,
                rights: rights.into_iter().collect(),
            }),
        }
    }
}

impl ReplyRight {
    /// Like [`Request::reply`].
    ///
    /// # Errors
    /// The errors of [`Request::reply`].
    pub fn reply(self, bytes: &[u8]) -> Result<(), ReplyError> {
        let replied = answer(self.slot(), bytes);
        // Nothing is left to be said to the caller.
        if matches!(
            replied,
            Ok(()) | Err(ReplyError::Gone | ReplyError::Misuse(_))
        ) {
            self.used();
        }
        replied
    }

    /// Like [`Request::reply_with`].
    ///
    /// # Errors
    /// The errors of [`Request::reply_with`].
    pub fn reply_with(
        self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), Returned<ReplyError>> {
        self.reply_by(Body::One(bytes), rights, |slot, bytes, units| {
            slot.answer_described(bytes, units);
        })
    }

    /// As [`Self::reply_with`]; `answer` writes what the reply is described by.
    pub(crate) fn reply_by(
        self,
        bytes: Body<'_>,
        rights: impl IntoIterator<Item = Right>,
        answer: impl FnOnce(&ReplySlot, Body<'_>, &[Unit]),
    ) -> Result<(), Returned<ReplyError>> {
        let mut load = Load {
            rights: list_of(rights),
            reply: None,
        };
        // Names of rights are counted as sent, or taken back, and a call that is not answered is dropped.
        let _shield = deadline::shield();
        let right = self;
        match answer_loaded(right.slot(), bytes, &mut load, answer) {
            Ok(()) => {
                pool(&mut load.rights);
                right.used();
                Ok(())
            }
            Err(error) => Err(Returned {
                error,
                rights: load.rights,
            }),
        }
    }
}

/// Why nothing goes through a link that has ended.
#[cold]
fn over(link: &Link) -> ReplyError {
    match link.process.check() {
        Err(misuse) => ReplyError::Misuse(misuse),
        Ok(()) => ReplyError::Gone,
    }
}

fn answer(reply: &ReplySlot, bytes: &[u8]) -> Result<(), ReplyError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        let _shield = deadline::shield();
        let load = &mut Load::default();
        return answer_loaded(reply, Body::One(bytes), load, |slot, bytes, units| {
            slot.answer_described(bytes, units);
        });
    }
    if reply.link.is_over() {
        return Err(over(&reply.link));
    }
    reply.answer(Kind::Message, bytes);
    Ok(())
}

#[cold]
fn answer_loaded(
    reply: &ReplySlot,
    bytes: Body<'_>,
    load: &mut Load,
    answer: impl FnOnce(&ReplySlot, Body<'_>, &[Unit]),
) -> Result<(), ReplyError> {
    let link = &reply.link;
    if let Err(SendError::TooLong { len_bytes }) = long::check(link, bytes.len_bytes()) {
        return Err(ReplyError::TooLong { len_bytes });
    }
    if link.is_over() {
        return Err(over(link));
    }
    if load.has_member() {
        return Err(RightError::NoReceiver.into());
    }
    if let [Right::Own(own)] = &load.rights[..]
        && bytes.len_bytes() <= MESSAGE_BYTES_MAX
        && let Some((handle, port)) = own_now((&link.process, link), own)
    {
        // The usual one.
        answer(reply, bytes, &[Part::unit_of_sender(handle, port)]);
        return Ok(());
    }
    let process = link.process.clone();
    let mut described = Described::new().goes_on(reply.is_passed());
    let body = described.lay(link, bytes, Reader::Caller { slot: reply.index })?;
    described.describe(&process, link, load)?;
    if let Err(unsent) = described.send_descriptors(link, &load.rights) {
        described.take_back(link);
        return Err(unsent.of_reply(link));
    }
    answer(reply, body, described.units());
    described.sent((&process, link), load, None);
    Ok(())
}
