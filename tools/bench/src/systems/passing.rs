//! handfast's calls with rights beside their bytes.

use super::handfast::{self, By, Usage};
use super::{Caller, System, Waits, third};
use crate::plan::{Passed, Plan, Task};
use crate::systems::child::Seat;
use ::handfast::{OwnRight, ReceiveRight, Right, SendRight};
use std::io;

pub(crate) const SPIN: By<Passing> = By(handfast::SPIN, "passing-spin", Passing);
pub(crate) const DEFAULT: By<Passing> = By(handfast::DEFAULT, "passing-default", Passing);

/// See the module text.
pub(crate) struct Passing;

impl Usage for Passing {
    fn supports(&self, waits: Waits, plan: &Plan) -> Result<(), String> {
        let spinning = match plan.task {
            Task::Pass(Passed::Strangers) if waits == Waits::Spins => {
                return Err("servers that wait for their turn do not spin".to_owned());
            }
            // The client's second thread with them.
            Task::Pass(_) if plan.clients == 1 => {
                plan.servers + 1 + usize::from(!plan.meets_strangers())
            }
            _ => return Err("one client passes rights".to_owned()),
        };
        handfast::has_cpus(waits, spinning)
    }
}

fn passed(seat: &Seat) -> Passed {
    match seat.plan.task {
        Task::Pass(passed) => passed,
        _ => Passed::Nothing,
    }
}

impl System for By<Passing> {
    type Caller = PassingCaller;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let passed = passed(seat);
        if passed.servers() > 1 {
            return third::serve(&self.0, seat, passed, handler);
        }
        let coming = if passed == Passed::InReply {
            0
        } else {
            passed.count()
        };
        let port = self.0.bind(seat)?;
        let own = port.mint(1);
        let mut kept = Vec::new();
        seat.ready();
        let mut request = port.receive().map_err(io::Error::other)?;
        loop {
            let mut message = request.take_message();
            if coming > 0 {
                let mut rights = third::taken(&mut message, coming)?;
                if let Some(right) = rights.pop_if(|right| matches!(right, Right::SendOnce(_))) {
                    answer_once(right, &mut message, &mut handler)?;
                    request = port.receive().map_err(io::Error::other)?;
                    continue;
                }
                if kept.is_empty() && matches!(passed, Passed::Known(_)) {
                    kept = rights;
                }
            }
            let len = handler(&mut message);
            request = if passed == Passed::InReply {
                let rights = [own.clone().into()];
                port.reply_with_and_receive(request, &message[..len], rights)
                    .map_err(io::Error::other)?
            } else {
                port.reply_and_receive(request, &message[..len])
                    .map_err(io::Error::other)?
            };
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<PassingCaller> {
        let passed = passed(seat);
        let pairs = match passed.servers() {
            1 => Vec::new(),
            _ => third::pairs(&self.0, seat)?,
        };
        let server = self.0.port(seat)?;
        let port = ::handfast::bind(&format!("{}-own", seat.address)).map_err(io::Error::other)?;
        let known = match passed {
            Passed::Known(count) => (0..count as u64).map(|badge| port.mint(badge)).collect(),
            _ => Vec::new(),
        };
        let mut caller = PassingCaller {
            passed,
            server,
            port,
            known,
            kept: Vec::new(),
            badge: 0,
            pairs,
            met: Vec::new(),
        };
        if passed == Passed::Strangers {
            // Starts what this process needs once.
            let (request, mut reply) = (
                vec![0; seat.plan.payload_bytes],
                vec![0; seat.plan.reply_bytes()],
            );
            caller.call(&request, &mut reply)?;
        }
        Ok(caller)
    }
}

/// The answer goes into a queue of the client's, by a right that is used once.
fn answer_once(
    right: Right,
    message: &mut [u8],
    handler: &mut impl FnMut(&mut [u8]) -> usize,
) -> io::Result<()> {
    let len = handler(message);
    match right {
        Right::SendOnce(right) => right.send(&message[..len]).map_err(io::Error::other),
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}

/// The client's end.
pub(crate) struct PassingCaller {
    passed: Passed,
    server: SendRight,
    port: ReceiveRight,
    known: Vec<OwnRight>,
    /// So that what comes again is known.
    kept: Vec<Right>,
    badge: u64,
    /// Recipients and exporters.
    pairs: Vec<(SendRight, SendRight)>,
    /// The pairs that have been introduced: their links end later.
    met: Vec<(SendRight, SendRight)>,
}

impl Caller for PassingCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        let server = &self.server;
        let message = match self.passed {
            Passed::Nothing | Passed::InReply => server.call(request).map_err(io::Error::other),
            Passed::Known(_) => {
                let rights = self.known.iter().cloned().map(Right::from);
                server.with(rights).call(request).map_err(io::Error::other)
            }
            Passed::Third { .. } => {
                let rights = self.pairs.iter().map(|(_, to)| to.clone().into());
                server.with(rights).call(request).map_err(io::Error::other)
            }
            Passed::Strangers => {
                let pair = self.pairs.pop();
                let (server, right) = pair.ok_or_else(|| io::Error::other("no strangers left"))?;
                let called = server.with([right.clone().into()]).call(request);
                self.met.push((server, right));
                called.map_err(io::Error::other)
            }
            Passed::New => {
                self.badge += 1;
                let rights = [self.port.mint(self.badge).into()];
                server.with(rights).call(request).map_err(io::Error::other)
            }
            Passed::Once => {
                let right = self.port.mint_once(0).map_err(io::Error::other)?;
                let sent = server.with([right.into()]).send(request);
                sent.map_err(io::Error::other)?;
                let answer = self.port.receive().map_err(io::Error::other)?;
                Ok(answer.into_message())
            }
            Passed::Home => {
                let rights = [server.clone().into()];
                server.with(rights).call(request).map_err(io::Error::other)
            }
        };
        let mut message = message?;
        if self.passed == Passed::InReply {
            let rights = third::taken(&mut message, 1)?;
            if self.kept.is_empty() {
                self.kept = rights;
            }
        }
        handfast::fill(reply, &message)
    }
}
