//! How a reply right goes to another process with a message.

use crate::error::RightError;
use crate::link::Link;
use crate::link::passing::Known;
use crate::link::returns::{For, Own};
use crate::paths;
use crate::process::Process;
use crate::relay;
use crate::relay::Relay;
use crate::reply_right::ReplyRight;
use handfast_layout::link::{REPLIES, passed_word};
use handfast_proto::paths::Way;
use std::sync::Arc;

/// How a reply right goes to another process.
pub(crate) enum Passed {
    /// The right's caller hears of the path.
    Path {
        number: u32,
        place: u32,
        generation: u32,
        path: u32,
    },
    /// The right stays here; the other process answers to this one.
    Vine(Own),
}

impl Passed {
    /// How it goes to the peer of `to`.
    pub(crate) fn of(reply: &ReplyRight, to: &Arc<Link>) -> Result<Self, RightError> {
        let slot = reply.slot();
        if slot.link.is_over() {
            return Err(RightError::Answered);
        }
        if to.is_down() {
            return Err(RightError::Gone);
        }
        if !Arc::ptr_eq(&slot.link.process, &to.process) {
            return Err(RightError::OtherNode);
        }
        // Before the look.
        let version = to.parts.passing.ways();
        Ok(match paths::way(&slot.link, slot.index, to) {
            Way::Path { number, path } => {
                let known = Known {
                    from: (slot.link.serial, slot.index / REPLIES),
                    to: to.serial,
                    version,
                    number,
                    path,
                };
                known.remember();
                Self::Path {
                    number,
                    place: slot.index % REPLIES,
                    generation: slot.generation,
                    path,
                }
            }
            Way::Vine(_) => {
                let limit = REPLIES;
                let caller = slot.link.peer.uid;
                let of_other = caller != 0 && caller != handfast_sys::process::uid();
                let own = Own::take_for(to, of_other.then_some(For::Call(caller)));
                let own = own.ok_or(RightError::Returns { limit })?;
                Relay::announce(&own);
                Self::Vine(own)
            }
        })
    }

    /// Its name there: word and generation.
    pub(crate) const fn words(&self) -> (u32, u32) {
        match self {
            Self::Path {
                number,
                place,
                generation,
                ..
            } => (passed_word(*number, *place), *generation),
            Self::Vine(own) => (own.word(), own.generation),
        }
    }

    /// The right was not sent after all.
    pub(crate) fn take_back(self, _: &Link) {
        if let Self::Vine(own) = self {
            own.free();
        }
    }

    /// The right has been sent.
    pub(crate) fn sent(self, process: &Arc<Process>, to: &Link, reply: ReplyRight) {
        // First: a caller that has its answer finds it counted.
        let column = match self {
            Self::Path { .. } => FORWARDS,
            Self::Vine(_) => VINES,
        };
        to.row.add(column, 1);
        match self {
            Self::Path { path, .. } => {
                let slot = reply.slot();
                slot.move_on(path);
                slot.wake(path);
                reply.used();
            }
            Self::Vine(own) => relay::add_relay(process, Relay::new(own, reply)),
        }
    }
}

/// Columns of a link's counters.
pub(crate) const FORWARDS: usize = 13;
const VINES: usize = 14;
