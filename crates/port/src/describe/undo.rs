//! The effects of describing rights, which are undone or finished.

use crate::again;
use crate::introduce::Provided;
use crate::link::{Link, releases};
use crate::moving;
use crate::passed::Passed;
use crate::process::Process;
use crate::right::Right;
use crate::send::{SendRight, life};
use crate::{give_back, lending};
use handfast_proto::rights::Handle;
use std::sync::Arc;

/// The effect of describing a right, to be undone if it is not sent, or finished if it is.
pub(crate) enum Undo {
    Nothing,
    /// A handle counted as sent.
    Exported(Handle),
    Passed(Passed),
    /// A receive right, or a port that shares a receiver, with this number.
    Leaving(u32),
    /// The right comes again, by this number.
    Again(u64),
    /// A right to a port of the peer, by its name there, which is not given back meanwhile.
    Named(NamedRight),
    /// An export of the vine, and what the exporter was told, if it was.
    Introduced(Handle, Option<Provided>),
    /// A loan reserved.
    Lent(u32),
}

/// A right that a message names to the process of its port.
pub(crate) struct NamedRight {
    pub(super) name: Handle,
    /// The right itself, where the application has another: its port has moved from here.
    pub(super) own: Option<Box<SendRight>>,
}

impl Undo {
    /// The right has been sent: what it stood for is no longer here.
    #[inline(always)]
    pub(crate) fn sent(
        self,
        (process, link): (&Arc<Process>, &Arc<Link>),
        right: &mut Right,
        lane: Option<u32>,
    ) {
        if let Some(right) = right.to_send() {
            life::used_at(right, link, lane);
        }
        match self {
            Self::Named(named) => {
                // Before the name may be given back: after the use of it.
                if let Some(own) = &named.own {
                    life::used_at(own, link, lane);
                }
                releases::has_written(link, named.name);
            }
            Self::Passed(passed) => {
                if let Right::Reply(reply) = core::mem::replace(right, Right::Dead) {
                    passed.sent(process, link, reply);
                }
            }
            Self::Lent(loan) => {
                if let Right::Block(block) = core::mem::replace(right, Right::Dead) {
                    lending::has_lent(link, loan, block);
                }
            }
            Self::Nothing
            | Self::Exported(_)
            | Self::Leaving(_)
            | Self::Again(_)
            | Self::Introduced(..) => {}
        }
    }

    /// The right was not sent after all.
    pub(crate) fn take_back(self, link: &Link) {
        match self {
            Self::Nothing => {}
            Self::Exported(handle) => give_back::retract(link, &link.process, handle),
            Self::Passed(passed) => passed.take_back(link),
            Self::Leaving(token) => moving::stays(&link.process, token),
            Self::Again(number) => again::unsent_again(link, number),
            Self::Lent(loan) => lending::lends_not(link, loan),
            Self::Named(named) => releases::has_written(link, named.name),
            Self::Introduced(handle, provided) => {
                give_back::retract(link, &link.process, handle);
                if let Some(provided) = provided {
                    provided.take_back();
                }
            }
        }
    }
}
