//! The source of a trail's messages: a port on its way to another process, as its old home has it.

use crate::error::ReceiveError;
use crate::introduce;
use crate::member::MemberPort;
use crate::poller::diverted::{self, Diverted};
use crate::poller::idle;
use crate::polling;
use crate::port::{Port, ports};
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::right::Right;
use core::time::Duration;
use std::sync::Arc;

pub(super) enum TrailSource {
    /// It has a receiver of its own, where its trail receives.
    Own(ReceiveRight),
    /// It shares a receiver, whose threads divert messages for it. The port is dropped first: a thread that finds no diversion looks for it.
    Member(MemberPort, Diversion),
    /// It shares a receiver, and goes nowhere.
    Here(MemberPort),
}

impl TrailSource {
    /// The port of a right that has been sent.
    pub(super) fn of(right: Right, stays_here: bool) -> Option<Self> {
        Some(match right {
            Right::Receive(mut receive) => {
                if !stays_here {
                    receive.unlisten();
                }
                Self::Own(receive)
            }
            Right::Member(member) if stays_here => Self::Here(member),
            Right::Member(member) => {
                let diversion = Diversion::of(member.port());
                Self::Member(member, diversion)
            }
            _ => return None,
        })
    }

    pub(super) const fn port(&self) -> &Arc<Port> {
        match self {
            Self::Own(receive) => receive.port(),
            Self::Member(member, _) | Self::Here(member) => member.port(),
        }
    }

    /// The right, which was sent within the process.
    pub(super) fn into_right(self) -> Right {
        match self {
            Self::Own(receive) => Right::Receive(receive),
            Self::Here(member) => Right::Member(member),
            Self::Member(..) => Right::Dead,
        }
    }

    /// Received messages are passed on from now on.
    pub(super) fn passes_on(&self) {
        if let Self::Own(receive) = self {
            idle::pass_on(&mut polling::lock(&receive.port().at));
        }
    }

    /// The next message, mark or notice. Blocks; where there is a receiver of its own, for `pause` at most.
    pub(super) fn next(&self, pause: Option<Duration>) -> Result<Request, ReceiveError> {
        match (self, pause) {
            (Self::Own(receive), Some(pause)) => receive.receive_timeout(pause),
            (Self::Own(receive), None) => receive.receive(),
            (Self::Member(_, diversion), _) => {
                let (request, has_room) = diversion.diverted.next().ok_or(ReceiveError::Empty)?;
                if has_room {
                    diversion.has_room();
                }
                Ok(request)
            }
            (Self::Here(_), _) => Err(ReceiveError::Empty),
        }
    }

    /// Its send-once rights that are not used: numbers, and badges.
    pub(super) fn unused_once(&self) -> Vec<(u32, u64)> {
        match self {
            Self::Own(receive) => ports::unused_once(receive.port()),
            Self::Member(..) | Self::Here(_) => Vec::new(),
        }
    }

    /// Drops a port to which no right is left.
    pub(super) fn drop_quietly(self) {
        if let Self::Own(receive) = self {
            receive.drop_quietly();
        }
    }
}

/// Messages for a port that shares a receiver are diverted, until this is dropped.
pub(super) struct Diversion {
    port: Arc<Port>,
    diverted: Arc<Diverted>,
}

impl Diversion {
    fn of(port: &Arc<Port>) -> Self {
        let diverted = Arc::new(Diverted::new(port.came_from.get().copied()));
        diverted::add(port, &diverted);
        Self {
            port: port.clone(),
            diverted,
        }
    }

    /// Lanes may wait for that.
    fn has_room(&self) {
        introduce::has_settled(&self.port.process);
        ports::rouse(&self.port.process, self.port.receiver);
    }
}

impl Drop for Diversion {
    fn drop(&mut self) {
        diverted::remove(&self.port, &self.diverted);
        self.has_room();
    }
}
