//! handfast's calls to a port that goes to and fro between two processes.

use super::handfast::{self, Handfast, HandfastCaller};
use super::{Named, System, Waits};
use crate::plan::{Plan, Task};
use crate::systems::child::Seat;
use ::handfast::error::{RightError, SendError};
use ::handfast::{ReceiveRight, Right, SendRight};
use std::io;

/// Two servers, of which one at a time has the port.
pub(crate) struct Moving;

const HANDFAST: Handfast = handfast::DEFAULT;

impl Named for Moving {
    fn name(&self) -> &'static str {
        HANDFAST.name()
    }

    fn key(&self) -> &'static str {
        "moving-default"
    }

    fn waits(&self) -> Waits {
        HANDFAST.waits()
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        match (plan.task, plan.servers) {
            (Task::Move(1..), 2) => Ok(()),
            _ => Err("a port moves between two servers".to_owned()),
        }
    }
}

impl System for Moving {
    type Caller = HandfastCaller;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let Task::Move(after) = seat.plan.task else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let home = ::handfast::bind(&home(seat, seat.index)).map_err(io::Error::other)?;
        let mut port = match seat.index {
            0 => Some(HANDFAST.bind(seat)?),
            _ => None,
        };
        seat.ready();
        let mut other = None;
        loop {
            let here = match port.take() {
                Some(port) => port,
                None => come(&home)?,
            };
            let mut request = here.receive().map_err(io::Error::other)?;
            let mut message = request.take_message();
            let mut len = handler(&mut message);
            for _ in 1..after {
                request = here
                    .reply_and_receive(request, &message[..len])
                    .map_err(io::Error::other)?;
                message = request.take_message();
                len = handler(&mut message);
            }
            request.reply(&message[..len]).map_err(io::Error::other)?;
            let to = match &other {
                Some(to) => to,
                None => other.insert(connect(seat)?),
            };
            port = go(to, here)?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<HandfastCaller> {
        HANDFAST.connect(seat)
    }
}

/// The name of the port by which the moving one comes to a server.
fn home(seat: &Seat, index: usize) -> String {
    format!("{}-home", seat.server(index))
}

/// The right to that of the other server.
fn connect(seat: &Seat) -> io::Result<SendRight> {
    ::handfast::connect(&home(seat, 1 - seat.index)).map_err(io::Error::other)
}

/// Sends the port to the other server. It stays, to be sent later, where too many moves are not over: its senders follow one after the other.
fn go(to: &SendRight, port: ReceiveRight) -> io::Result<Option<ReceiveRight>> {
    let Err(returned) = to.with([port.into()]).send(&[]) else {
        return Ok(None);
    };
    match (returned.error, returned.rights.into_iter().next()) {
        (SendError::Right(RightError::Trails { .. }), Some(Right::Receive(port))) => Ok(Some(port)),
        (error, _) => Err(io::Error::other(error)),
    }
}

fn come(home: &ReceiveRight) -> io::Result<ReceiveRight> {
    let mut request = home.receive().map_err(io::Error::other)?;
    match request.take_rights().pop() {
        Some(Right::Receive(port)) => Ok(port),
        other => Err(io::Error::other(format!("{other:?} came"))),
    }
}
