//! The systems under test.
//!
//! To add one, implement `System` (two functions matter: `System::serve` and
//! `System::connect`) and add a value to `calls`; for `stream` implement `OneWay` and add it
//! to `streams`. Everything else — processes, phases, clocks, histograms, ratios — is the
//! harness's. The loops around a system are compiled for each system: what is behind a pointer is
//! only which loop runs.

pub(crate) mod batches;
mod bytes;
pub(crate) mod chain;
pub mod child;
mod copy;
pub mod files;
pub(crate) mod handfast;
pub(crate) mod in_place;
pub(crate) mod lanes;
pub(crate) mod loans;
pub(crate) mod moving;
pub(crate) mod oneway;
pub(crate) mod pair;
pub(crate) mod passing;
mod percpu;
mod pieces;
pub(crate) mod queues;
pub(crate) mod ring;
pub(crate) mod semaphores;
pub(crate) mod sleep_wake;
mod streams;
mod third;
mod ttcp;
pub(crate) mod waiters;
pub mod yields;

use crate::plan::Plan;
use crate::shared::Piece;
use child::Seat;
use handfast_sys::OwnedFd;
use std::any::Any;
use std::io;
use std::path::Path;

/// Systems that answer calls.
pub(crate) fn calls() -> Vec<Box<dyn Runnable>> {
    vec![
        Box::new(Answering(pair::LIMIT)),
        Box::new(Answering(pair::YIELDING)),
        Box::new(Answering(handfast::SPIN)),
        Box::new(Answering(handfast::DEFAULT)),
        Box::new(Answering(handfast::BLOCK)),
        Box::new(Answering(pair::FUTEX)),
        Box::new(Answering(pair::SPIN_THEN_SLEEP)),
        Box::new(Answering(pair::EVENTFD)),
        Box::new(Answering(in_place::InPlace)),
        Box::new(Answering(bytes::PIPE)),
        Box::new(Answering(bytes::UNIX)),
        Box::new(Answering(bytes::TCP)),
        Box::new(Answering(bytes::UDP)),
        Box::new(Answering(queues::SysV)),
        Box::new(Answering(queues::Posix)),
    ]
}

/// Systems that carry a one-way stream.
pub(crate) fn streams() -> Vec<Box<dyn Runnable>> {
    vec![
        Box::new(Streaming(ring::Ring)),
        Box::new(Streaming(batches::BATCHES)),
        Box::new(Streaming(batches::SINGLES)),
        Box::new(Streaming(oneway::PIPE)),
        Box::new(Streaming(oneway::UNIX)),
    ]
}

/// The sleep/wake-up protocols of paper 000, answering calls of 24 bytes; and the product's strategies of these names.
pub(crate) fn protocols() -> Vec<Box<dyn Runnable>> {
    let mut all: Vec<Box<dyn Runnable>> = Vec::new();
    for protocol in sleep_wake::ALL {
        all.push(Box::new(Answering(protocol)));
    }
    for product in handfast::PROTOCOLS {
        all.push(Box::new(Answering(product)));
    }
    all
}

/// Systems that answer the calls of one benchmark only.
fn special() -> Vec<Box<dyn Runnable>> {
    vec![
        Box::new(Answering(copy::Copy)),
        Box::new(Answering(streams::Streams)),
        Box::new(Answering(bytes::TCP_NAGLE)),
        Box::new(Answering(chain::NESTED_SPIN)),
        Box::new(Answering(chain::NESTED_DEFAULT)),
        Box::new(Answering(chain::TAIL_SPIN)),
        Box::new(Answering(chain::TAIL_DEFAULT)),
        Box::new(Answering(chain::NESTED_BLOCK)),
        Box::new(Answering(chain::TAIL_BLOCK)),
        Box::new(Answering(chain::RING_DEFAULT)),
        Box::new(Answering(chain::RING_BLOCK)),
        Box::new(Answering(chain::MEMORY_DEFAULT)),
        Box::new(Answering(moving::Moving)),
        Box::new(Answering(files::SPIN)),
        Box::new(Answering(files::BLOCK)),
        Box::new(Answering(files::SPIN_BLOCK)),
        Box::new(Answering(files::DEFAULT)),
        Box::new(Answering(passing::SPIN)),
        Box::new(Answering(passing::DEFAULT)),
        Box::new(Answering(pieces::SPIN)),
        Box::new(Answering(pieces::DEFAULT)),
        Box::new(Answering(loans::SPIN)),
        Box::new(Answering(loans::DEFAULT)),
        Box::new(percpu::PerCpu),
        Box::new(percpu::Pool),
        Box::new(percpu::Pairs),
        Box::new(Answering(yields::Yields)),
        Box::new(Streaming(sleep_wake::Asynchronous)),
        Box::new(Streaming(queues::SysVOneWay)),
        Box::new(Answering(handfast::SCHED)),
        Box::new(Answering(handfast::NOTIFY)),
        Box::new(Answering(handfast::SPIN_SCHED)),
        Box::new(Answering(handfast::SPIN_BLOCK)),
        Box::new(Answering(handfast::SPIN_NOTIFY)),
        Box::new(Streaming(ttcp::SPIN)),
        Box::new(Streaming(ttcp::SCHED)),
        Box::new(Streaming(ttcp::BLOCK)),
        Box::new(Streaming(ttcp::NOTIFY)),
        Box::new(Streaming(ttcp::SPIN_SCHED)),
        Box::new(Streaming(ttcp::SPIN_BLOCK)),
        Box::new(Streaming(ttcp::SPIN_NOTIFY)),
        Box::new(Streaming(ttcp::DEFAULT)),
    ]
}

/// Every system.
pub(crate) fn all() -> Vec<Box<dyn Runnable>> {
    let mut all = calls();
    all.extend(streams());
    all.extend(protocols());
    all.extend(special());
    all
}

/// The system with this key, of any kind.
pub fn find(key: &str) -> Option<Box<dyn Runnable>> {
    all().into_iter().find(|system| system.named().key() == key)
}

/// How a system waits, which decides what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Never sleeps; left out where all share one CPU. Compared with `limit`.
    Spins,
    /// Spins or sleeps as it sees fit, or gives its time slice away. Compared with `limit`.
    Adapts,
    /// Sleeps for every message. Compared with `futex`.
    Blocks,
}

/// A system's name, and the parent's preparations for it before the children start.
pub trait Named {
    /// The `system` of its rows.
    fn name(&self) -> &'static str;

    /// Unique in the registry; differs from the name where rows share one.
    fn key(&self) -> &'static str {
        self.name()
    }

    /// How it waits.
    fn waits(&self) -> Waits;

    /// The program that its processes run instead of this one: an adapter under `peers/`.
    fn program(&self) -> Option<&Path> {
        None
    }

    /// Says why it cannot do this, if it cannot.
    fn supports(&self, _plan: &Plan) -> Result<(), String> {
        Ok(())
    }

    /// Makes what both sides need. Runs in the parent.
    fn prepare(&self, _plan: &Plan) -> io::Result<Bundle> {
        Ok(Bundle::default())
    }
}

/// A system that answers calls.
pub(crate) trait System: Named {
    type Caller: Caller;

    /// Serves all clients with one thread until the process is killed. Calls [`Seat::ready`] as
    /// soon as clients may connect. For each request: copy it into private memory, run `handler`
    /// on that copy, and answer with as many bytes of its front as `handler` returns.
    fn serve(&self, seat: &Seat, handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()>;

    /// Connects one client. Runs in the client's process.
    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller>;
}

/// One client's end.
pub(crate) trait Caller {
    /// One round trip: sends `request`, receives exactly `reply.len()` bytes into `reply`.
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()>;

    /// As [`Self::call`], for a payload that is only now made, piece by piece. A system whose
    /// senders write in place overrides this to spare the copy; `scratch` has the payload's size.
    fn call_made(
        &mut self,
        make: impl Fn(usize) -> Piece,
        scratch: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<()> {
        fill_made(make, scratch);
        self.call(scratch, reply)
    }

    /// As [`Self::call_made`]; says what the words of the reply add up to. A system whose
    /// receivers read in place overrides this.
    fn call_returned(
        &mut self,
        make: impl Fn(usize) -> Piece,
        scratch: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<u64> {
        self.call_made(make, scratch, reply)?;
        Ok(child::checksum(reply))
    }
}

/// Makes a payload, piece by piece.
#[inline]
fn fill_made(make: impl Fn(usize) -> Piece, payload: &mut [u8]) {
    for (index, place) in payload.chunks_exact_mut(size_of::<Piece>()).enumerate() {
        for (word, bytes) in make(index).iter().zip(place.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// A system that carries messages in one direction.
pub(crate) trait OneWay: Named {
    type Producer: Producer;

    /// Receives for ever and hands on how many messages have come so far, now and then. Calls
    /// [`Seat::ready`] as soon as the producer may connect.
    fn consume(&self, seat: &Seat, received: impl FnMut(u64)) -> io::Result<()>;

    /// Connects the producer. Runs in its process.
    fn connect(&self, seat: &Seat) -> io::Result<Self::Producer>;
}

/// The sending end of a stream.
pub(crate) trait Producer {
    /// Sends one message of 24 bytes; waits while the other side is behind. By value, so that it
    /// comes in registers: a wide load of what was just written in parts stalls.
    fn send(&mut self, message: [u64; 3]) -> io::Result<()>;
}

/// The objects that the parent made for the children.
#[derive(Default)]
pub struct Bundle {
    /// Inherited by everybody, first.
    pub common: Vec<OwnedFd>,
    /// Inherited by the server, after the common ones.
    pub server: Vec<OwnedFd>,
    /// Inherited by each client, after the common ones.
    pub clients: Vec<Vec<OwnedFd>>,
    /// Passed on as `Seat::address` when not empty.
    pub address: String,
    /// Dropped when the measurement ends.
    pub guard: Option<Box<dyn Any>>,
}

/// A system of either kind, as the harness holds it.
pub trait Runnable {
    /// Its name and preparations.
    fn named(&self) -> &dyn Named;

    /// Runs the server's side in this process.
    fn run_server(&self, seat: &Seat) -> io::Result<()>;

    /// Runs a client's side in this process.
    fn run_client(&self, seat: &Seat) -> io::Result<()>;
}

struct Answering<S>(S);
struct Streaming<S>(S);

impl<S: System> Runnable for Answering<S> {
    fn named(&self) -> &dyn Named {
        &self.0
    }

    fn run_server(&self, seat: &Seat) -> io::Result<()> {
        child::serve(&self.0, seat)
    }

    fn run_client(&self, seat: &Seat) -> io::Result<()> {
        child::drive_calls(&mut self.0.connect(seat)?, seat)
    }
}

impl<S: OneWay> Runnable for Streaming<S> {
    fn named(&self) -> &dyn Named {
        &self.0
    }

    fn run_server(&self, seat: &Seat) -> io::Result<()> {
        self.0.consume(seat, |count| seat.set_served(count, 0))
    }

    fn run_client(&self, seat: &Seat) -> io::Result<()> {
        child::drive_stream(&mut self.0.connect(seat)?, seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_unique_so_that_a_child_finds_its_system() {
        let mut seen = HashSet::new();
        for system in all() {
            let key = system.named().key();
            assert!(seen.insert(key.to_owned()), "{key} twice");
            assert!(find(key).is_some());
        }
    }
}
