//! The state of a call in flight.

use crate::awaited::Awaited;
use crate::elsewhere::HOPES;
use crate::slots::Ticket;

/// A call in flight, without the right that it was made by.
pub(crate) struct CallState {
    pub(super) ticket: Ticket,
    /// The link's count of troubles when this call last checked for trouble.
    pub(super) trouble: u32,
    pub(super) woke_peer: bool,
    pub(super) done: bool,
    /// How often the call may yet find elsewhere an answer that has not been moved there.
    pub(super) hopes: u8,
    /// The place of the outcome, once it has been moved.
    pub(super) moved: Option<Box<Awaited>>,
}

impl CallState {
    /// One that has ended.
    pub(crate) const OVER: Self = Self {
        ticket: Ticket {
            index: 0,
            generation: 0,
        },
        trouble: 0,
        woke_peer: false,
        done: true,
        hopes: 0,
        moved: None,
    };

    #[inline(always)]
    pub(crate) const fn new(ticket: Ticket, trouble: u32, woke_peer: bool) -> Self {
        Self {
            ticket,
            trouble,
            woke_peer,
            done: false,
            hopes: HOPES,
            moved: None,
        }
    }

    /// The number of the slot of its outcome.
    pub(crate) fn index(&self) -> u32 {
        match &self.moved {
            Some(moved) => moved.index,
            None => self.ticket.index,
        }
    }
}
