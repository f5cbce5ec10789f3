//! Servers in a chain: each passes the request on to the next, the last one answers it; or a ring of one-way messages.

use super::handfast::{self, By, Usage};
use super::{Caller, System, Waits};
use crate::plan::Plan;
use crate::systems::child::Seat;
use ::handfast::{Counters, Memory, ReceiveRight, Request, Right, SendRight};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub(crate) const NESTED_SPIN: By<Way> = By(handfast::SPIN, "nested-spin", Way::Nested);
pub(crate) const NESTED_DEFAULT: By<Way> = By(handfast::DEFAULT, "nested-default", Way::Nested);
pub(crate) const TAIL_SPIN: By<Way> = By(handfast::SPIN, "tail-spin", Way::Tail);
pub(crate) const TAIL_DEFAULT: By<Way> = By(handfast::DEFAULT, "tail-default", Way::Tail);
pub(crate) const NESTED_BLOCK: By<Way> = By(handfast::BLOCK, "nested-block", Way::Nested);
pub(crate) const TAIL_BLOCK: By<Way> = By(handfast::BLOCK, "tail-block", Way::Tail);
pub(crate) const RING_DEFAULT: By<Way> = By(handfast::DEFAULT, "ring-default", Way::Ring);
pub(crate) const RING_BLOCK: By<Way> = By(handfast::BLOCK, "ring-block", Way::Ring);
pub(crate) const MEMORY_DEFAULT: By<Way> = By(handfast::DEFAULT, "memory-default", Way::Memory);

/// How a server passes a request on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Calls the next, waits, and replies with what comes back.
    Nested,
    /// Forwards to the next, which replies in its place.
    Tail,
    /// Sends it to the next as a one-way message; the last sends it to a port of the client's.
    Ring,
    /// As `Tail`, of memory that the client keeps, in the place of bytes.
    Memory,
}

impl Usage for Way {
    fn supports(&self, waits: Waits, plan: &Plan) -> Result<(), String> {
        handfast::has_cpus(waits, plan.servers + plan.clients)
    }
}

impl System for By<Way> {
    type Caller = ChainCaller;

    fn serve(&self, seat: &Seat, handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let next = seat.index + 1;
        if next == seat.plan.servers {
            return match self.2 {
                Way::Memory => self.take_memory(seat, handler),
                Way::Ring => self.send_back(seat, handler),
                Way::Nested | Way::Tail => self.0.serve(seat, handler),
            };
        }
        let next = self.0.port_of(seat, next)?;
        let port = self.0.bind(seat)?;
        seat.ready();
        let mut reply = vec![0; seat.plan.reply_bytes()];
        let mut request = port.receive().map_err(io::Error::other)?;
        loop {
            match self.2 {
                Way::Nested => {
                    let answer = next.call_into(request.bytes(), &mut reply);
                    let len = answer.map_err(io::Error::other)?;
                    request = port
                        .reply_and_receive(request, &reply[..len])
                        .map_err(io::Error::other)?;
                }
                Way::Tail => {
                    let message = request.take_message();
                    let passed = request.forward(&next, &message);
                    passed.map_err(|failed| io::Error::other(failed.error))?;
                    request = port.receive().map_err(io::Error::other)?;
                }
                Way::Ring => {
                    send_on(&mut request, &next)?;
                    request = port.receive().map_err(io::Error::other)?;
                }
                Way::Memory => {
                    let rights = request.take_rights();
                    request = port
                        .forward_and_receive(request, &next, &[], rights)
                        .map_err(io::Error::other)?;
                }
            }
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<ChainCaller> {
        let content = vec![1; seat.plan.payload_bytes];
        let mut caller = ChainCaller {
            links: Vec::new(),
            first: self.0.port(seat)?,
            content: match self.2 {
                Way::Memory => Some(Memory::from_bytes(&content).map_err(io::Error::other)?),
                _ => None,
            },
            back: None,
        };
        if self.2 == Way::Ring {
            caller.close_ring(self.0.bind_back(seat)?, seat)?;
        }
        if matches!(self.2, Way::Tail | Way::Memory) {
            let rights = (0..seat.plan.servers).map(|number| self.0.port_of(seat, number));
            caller.links = rights.collect::<io::Result<_>>()?;
            caller.find_paths(&seat.plan)?;
        }
        Ok(caller)
    }
}

impl By<Way> {
    /// The last server, where content comes as memory. The handler, which does not look at it, gets as many other bytes.
    fn take_memory(
        &self,
        seat: &Seat,
        mut handler: impl FnMut(&mut [u8]) -> usize,
    ) -> io::Result<()> {
        let port = self.0.bind(seat)?;
        seat.ready();
        let mut bytes = Vec::new();
        let mut request = port.receive().map_err(io::Error::other)?;
        loop {
            match request.take_rights().pop() {
                Some(Right::Memory(content)) => bytes.resize(content.len(), 0),
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
            let len = handler(&mut bytes);
            request = port
                .reply_and_receive(request, &bytes[..len])
                .map_err(io::Error::other)?;
        }
    }
}

impl By<Way> {
    /// The last server of a ring: the first message brings the right to the client's port.
    fn send_back(
        &self,
        seat: &Seat,
        mut handler: impl FnMut(&mut [u8]) -> usize,
    ) -> io::Result<()> {
        let port = self.0.bind(seat)?;
        seat.ready();
        let mut request = port.receive().map_err(io::Error::other)?;
        let back = match request.take_rights().pop() {
            Some(Right::Send(back)) => back,
            other => return Err(io::Error::other(format!("{other:?}"))),
        };
        loop {
            let mut message = request.take_message();
            let len = handler(&mut message);
            back.send(&message[..len]).map_err(io::Error::other)?;
            request = port.receive().map_err(io::Error::other)?;
        }
    }
}

/// Sends a one-way message on, with what it brought.
fn send_on(request: &mut Request, next: &SendRight) -> io::Result<()> {
    let rights = request.take_rights();
    let message = request.take_message();
    if rights.is_empty() {
        return next.send(&message).map_err(io::Error::other);
    }
    let sending = next.with(rights);
    sending.send(&message).map_err(io::Error::other)
}

/// The client's end.
pub(crate) struct ChainCaller {
    first: SendRight,
    /// To all servers: without a link with whom a call was forwarded to, the reply to it comes back
    /// the way it went.
    links: Vec<SendRight>,
    /// Goes with each call, in the place of its bytes.
    content: Option<Memory>,
    /// Messages come back to this port, where they go round.
    back: Option<ReceiveRight>,
}

impl ChainCaller {
    /// Sends the right to this client's port round, and waits for the message.
    fn close_ring(&mut self, back: ReceiveRight, seat: &Seat) -> io::Result<()> {
        // Zeros: numbers are counted from one.
        let message = vec![0; seat.plan.payload_bytes];
        let sending = self.first.with([back.mint(1).into()]);
        sending.send(&message).map_err(io::Error::other)?;
        back.receive().map_err(io::Error::other)?;
        self.back = Some(back);
        Ok(())
    }

    /// Calls until replies come straight back: the first ones do not, and with a control thread on the CPU
    /// of a process that spins that takes some milliseconds.
    fn find_paths(&mut self, plan: &Plan) -> io::Result<()> {
        // Zeros: numbers are counted from one.
        let (request, mut reply) = (vec![0; plan.payload_bytes], vec![0; plan.reply_bytes()]);
        let end = Instant::now() + PATIENCE;
        let mut vines = self.vines()?;
        while Instant::now() < end {
            for _ in 0..20 {
                self.call(&request, &mut reply)?;
            }
            let now = self.vines()?;
            if now == vines {
                return Ok(());
            }
            vines = now;
        }
        Err(io::Error::other("replies do not come straight back"))
    }

    /// How many calls the servers have forwarded whose replies came back the way they went.
    fn vines(&self) -> io::Result<u64> {
        let mut vines = 0;
        for right in &self.links {
            let links = right.counters().map_err(io::Error::other)?.links;
            let values = links.iter().map(|row| Counters::value(row, "vines"));
            vines += values.sum::<u64>();
        }
        Ok(vines)
    }
}

/// How long replies may take to find their paths.
const PATIENCE: Duration = Duration::from_secs(5);

impl Caller for ChainCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        if let Some(back) = &self.back {
            self.first.send(request).map_err(io::Error::other)?;
            let message = back.receive().map_err(io::Error::other)?;
            return handfast::fill(reply, message.bytes());
        }
        let Some(content) = &self.content else {
            return handfast::call(&self.first, request, reply);
        };
        let file = content.as_fd().try_clone_to_owned()?;
        let content = Memory::from_descriptor(file).map_err(io::Error::other)?;
        let sending = self.first.with([content.into()]);
        let answer = sending.call(&[]).map_err(io::Error::other)?;
        handfast::fill(reply, &answer)
    }
}
