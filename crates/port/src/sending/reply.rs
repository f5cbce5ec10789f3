//! Replying, with bytes alone or with rights beside them.

use crate::describe::{Described, Load};
use crate::error::{ReplyError, SendError};
use crate::link::long::{self, Use};
use crate::reply_right::ReplyRight;
use crate::reply_slot::ReplySlot;
use crate::request::Request;
use crate::right::{Returned, Right};
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_sys::deadline;

impl Request {
    /// Replies. Never blocks: the caller has reserved the room. One copy; one system call if the caller sleeps,
    /// none otherwise. More than 64 KiB go in memory that is kept for the next long replies to the same process: the first make it.
    ///
    /// # Errors
    /// See [`ReplyError`]. With [`ReplyError::TooLong`] and [`ReplyError::Right`] the call ends as dropped. A caller that has died is
    /// [`ReplyError::Gone`] once its death is known here; until then, and when the caller has given up, the reply is
    /// discarded without an error.
    pub fn reply(self, bytes: &[u8]) -> Result<(), ReplyError> {
        let reply = self.reply_right().ok_or(ReplyError::NotACall)?;
        let replied = answer(reply, bytes);
        if is_over(replied)
            && let Some(received) = self.answered()
        {
            received.pool();
        }
        replied
    }

    /// As [`Self::reply`], with rights beside the bytes: all arrive, or none.
    ///
    /// # Errors
    /// As [`Self::reply`], and [`ReplyError::Right`]. The rights come back; a call ends as dropped.
    pub fn reply_with(
        self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), Returned<ReplyError>> {
        let mut load = load_of(rights);
        // Names of rights are counted as sent, or taken back, and a call that is not answered is dropped.
        let _shield = deadline::shield();
        let request = self;
        let replied = match request.reply_right() {
            Some(reply) => answer_loaded(reply, bytes, &mut load),
            None => Err(ReplyError::NotACall),
        };
        if replied.is_ok()
            && let Some(received) = request.answered()
        {
            received.pool();
        }
        returned(replied, load)
    }
}

impl ReplyRight {
    /// As [`Request::reply`].
    ///
    /// # Errors
    /// As there.
    pub fn reply(self, bytes: &[u8]) -> Result<(), ReplyError> {
        let replied = answer(self.slot(), bytes);
        if is_over(replied) {
            self.used();
        }
        replied
    }

    /// As [`Request::reply_with`].
    ///
    /// # Errors
    /// As there.
    pub fn reply_with(
        self,
        bytes: &[u8],
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<(), Returned<ReplyError>> {
        let mut load = load_of(rights);
        // As above.
        let _shield = deadline::shield();
        let right = self;
        let replied = answer_loaded(right.slot(), bytes, &mut load);
        if replied.is_ok() {
            right.used();
        }
        returned(replied, load)
    }
}

fn load_of(rights: impl IntoIterator<Item = Right>) -> Load {
    Load {
        rights: rights.into_iter().collect(),
        reply: None,
    }
}

fn returned(replied: Result<(), ReplyError>, load: Load) -> Result<(), Returned<ReplyError>> {
    let rights = load.rights;
    replied.map_err(|error| Returned { error, rights })
}

/// Whether nothing is left to be said to the caller.
const fn is_over(replied: Result<(), ReplyError>) -> bool {
    matches!(replied, Ok(()) | Err(ReplyError::Gone))
}

fn answer(reply: &ReplySlot, bytes: &[u8]) -> Result<(), ReplyError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        let _shield = deadline::shield();
        return answer_loaded(reply, bytes, &mut Load::default());
    }
    if reply.link.is_over() {
        return Err(ReplyError::Gone);
    }
    reply.answer(Kind::Message, bytes);
    Ok(())
}

#[cold]
fn answer_loaded(reply: &ReplySlot, bytes: &[u8], load: &mut Load) -> Result<(), ReplyError> {
    let link = &reply.link;
    if bytes.len() > MESSAGE_BYTES_MAX
        && let Err(SendError::TooLong { len_bytes }) = long::check(link, bytes.len())
    {
        return Err(ReplyError::TooLong { len_bytes });
    }
    if link.is_over() {
        return Err(ReplyError::Gone);
    }
    let process = link.process.clone();
    let mut described = Described::new().goes_on(reply.is_passed());
    let body = described.lay(link, bytes, Use::Reply)?;
    described.describe(&process, link, load)?;
    if let Err(unsent) = described.send_descriptors(link, &load.rights) {
        described.take_back(link);
        return Err(unsent.of_reply(link));
    }
    reply.answer_described(body, described.units());
    described.sent((&process, link), load, None);
    Ok(())
}
