//! The protocols of paper 000 ("Efficient Sleep/Wake-up Protocols for User-Level IPC"), by their names there,
//! as its Figures 1, 5, 7 and 9 have them: Both Sides Spin, Wait, Wait and Yield, Limited Spin.
//!
//! The server has one receive queue for all clients, each client a reply queue; all are two-lock queues
//! (section 2.2). Beside its queue each process has an `awake` flag and a counting semaphore. A message's 24
//! bytes end in an opcode and the client's number. With server and clients on one CPU `busy_wait` and
//! `poll_queue` are yields; elsewhere they are a short delay, and a longer one with looks at the queue.
//!
//! System calls are counted ([`Tally`]), but for the calls of a queue's lock that is held for long.

mod oneway;
mod party;

pub(crate) use self::oneway::Asynchronous;
use self::party::{Kind, Memory, Party};
use super::semaphores::{SemaphoreSet, Semaphores};
use super::{Bundle, Caller, Named, System, Waits};
use crate::control::{Line, Tally};
use crate::plan::Plan;
use crate::shared::{Shared, Words};
use crate::systems::child::Seat;
use handfast_layout::page_align;
use handfast_layout::queue::two_lock::queue_bytes;
use handfast_region::Region;
use handfast_ring::queue::two_lock::TwoLock;
use handfast_ring::queue::{Members, Message, Pop, Push, Queue};
use handfast_sys::memory::{Access, Mapping, create_sealed};
use handfast_sys::{OwnedFd, clock, cpu};
use handfast_wait::sleep_wake::{BUSY_PAUSES, POLL_NS};
use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Each protocol, as its figure has it and in variants.
pub(crate) const ALL: [Protocol; 7] = [
    Protocol::new("bss", Kind::Bss),
    // Yields also where there are other CPUs.
    Protocol {
        passes: Pass::Yield,
        ..Protocol::new("bss-yield", Kind::Bss)
    },
    Protocol::new("bsw", Kind::Bsw),
    Protocol::new("bswy", Kind::Bswy),
    Protocol::new("bsls", Kind::Bsls),
    // With semaphores that are futexes.
    Protocol {
        is_futex: true,
        ..Protocol::new("bsw-futex", Kind::Bsw)
    },
    // Section 6: `handoff(PID_ANY)` at the server, and the client's `yield`. No kernel has a `handoff(pid)`.
    Protocol {
        is_futex: true,
        passes: Pass::HandOff,
        ..Protocol::new("bswy-handoff-any", Kind::Bswy)
    },
];

/// Messages in a reply queue: its client has one call under way.
const REPLIES: u32 = 2;
const OPCODE_ECHO: u32 = 1;

/// The meaning of `busy_wait` and `yield`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// A delay; on one CPU a yield.
    Delay,
    Yield,
    /// Hand-off to anybody.
    HandOff,
}

/// One protocol, at server and clients.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    name: &'static str,
    kind: Kind,
    passes: Pass,
    is_futex: bool,
}

impl Protocol {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            passes: Pass::Delay,
            is_futex: false,
        }
    }
}

impl Named for Protocol {
    fn name(&self) -> &'static str {
        self.name
    }

    fn waits(&self) -> Waits {
        match self.kind {
            Kind::Bsw => Waits::Blocks,
            _ => Waits::Adapts,
        }
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        if plan.payload_bytes != size_of::<Message>() || plan.reply_bytes() > plan.payload_bytes {
            return Err("the paper's messages have 24 bytes".to_owned());
        }
        Ok(())
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let (words, shared) = Shared::create("handfast-bench-flags", words_bytes(plan))?;
        for index in 0..=plan.clients {
            // Relaxed: nobody else is there yet. All are awake.
            words_of(&shared, index).awake.0.store(1, Ordering::Relaxed);
        }
        let queues = create_sealed("handfast-bench-queues", queues_bytes(plan))?;
        let region = region(&queues, plan)?;
        for index in 0..=plan.clients {
            let (at, capacity) = place(plan, index);
            TwoLock::create(region.clone(), at, capacity, Arc::new(Alive)).map_err(no_queue)?;
        }
        let set = match self.is_futex {
            true => None,
            false => Some(SemaphoreSet::create(plan.clients + 1)?),
        };
        Ok(Bundle {
            common: vec![words, queues],
            address: set
                .as_ref()
                .map_or_else(String::new, |set| set.id().to_string()),
            guard: set.map(|set| Box::new(set) as Box<dyn Any>),
            ..Bundle::default()
        })
    }
}

impl System for Protocol {
    type Caller = Client;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let party = self.party(seat, seat.server_tally(), true)?;
        let channels = channels(seat, 0..=seat.plan.clients)?;
        let (own, clients) = channels.split_first().ok_or(io::ErrorKind::NotFound)?;
        seat.ready();
        loop {
            let mut message = party.receive(own)?;
            let client = clients
                .get(channel(&message))
                .ok_or(io::ErrorKind::InvalidData)?;
            handler(&mut message);
            party.reply(client, &message)?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Client> {
        let number = seat.index + 1;
        let mut both = channels(seat, [0, number])?.into_iter();
        let (server, own) = both
            .next()
            .zip(both.next())
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(Client {
            party: self.party(seat, seat.client_tally(), false)?,
            server,
            own,
            number: seat.index as u32,
        })
    }
}

impl Protocol {
    fn party(
        &self,
        seat: &Seat,
        tally: &'static Tally,
        is_server: bool,
    ) -> io::Result<Party<Real>> {
        let semaphores = if self.is_futex {
            Semaphores::Futex
        } else {
            let number = seat.address.parse().map_err(io::Error::other)?;
            Semaphores::SystemV(number)
        };
        let one_cpu = seat.plan.placement.same_core() || cpu::online() == 1;
        let passes = match self.passes {
            Pass::Delay if one_cpu => Pass::Yield,
            // Only the server asks for anybody to run.
            Pass::HandOff if !is_server => Pass::Yield,
            passes => passes,
        };
        let memory = Real {
            passes,
            semaphores,
            one_cpu,
            tally,
        };
        Ok(Party {
            kind: self.kind,
            memory,
            max_spin: seat.plan.max_spin,
            tally,
        })
    }
}

/// One client's end.
pub(crate) struct Client {
    party: Party<Real>,
    server: Channel,
    own: Channel,
    number: u32,
}

impl Caller for Client {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        let mut message = [0; size_of::<Message>()];
        message.copy_from_slice(request);
        message[16..20].copy_from_slice(&OPCODE_ECHO.to_le_bytes());
        message[20..].copy_from_slice(&self.number.to_le_bytes());
        let answer = self.party.send(&self.server, &self.own, &message)?;
        reply.copy_from_slice(&answer[..reply.len()]);
        Ok(())
    }
}

/// The number of the client that a message is from.
fn channel(message: &Message) -> usize {
    let [.., a, b, c, d] = *message;
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// The queues, flags and semaphores of real processes.
struct Real {
    passes: Pass,
    semaphores: Semaphores,
    one_cpu: bool,
    tally: &'static Tally,
}

impl Memory for Real {
    type End = Channel;

    #[inline]
    fn try_enqueue(&self, to: &Channel, message: &Message) -> io::Result<bool> {
        match to.queue.try_push(message) {
            Ok(()) => Ok(true),
            Err(Push::Full) => Ok(false),
            Err(Push::Fault(fault)) => Err(no_queue(fault)),
        }
    }

    #[inline]
    fn dequeue(&self, own: &Channel) -> io::Result<Option<Message>> {
        match own.queue.try_pop() {
            Ok(message) => Ok(Some(message)),
            Err(Pop::Empty) => Ok(None),
            Err(Pop::Fault(fault)) => Err(no_queue(fault)),
        }
    }

    fn looks_empty(&self, own: &Channel) -> bool {
        own.queue.looks_empty()
    }

    #[inline]
    fn set_awake(&self, of: &Channel, is_awake: bool) -> bool {
        // AcqRel, and all accesses are exchanges: of two sides the later one sees all that the other did
        // before its own. So either the producer finds the flag cleared or the consumer, which looks at its
        // queue after it has cleared the flag, finds the message (the paper's interleaving 4).
        let flag = &of.words.awake.0;
        flag.swap(u32::from(is_awake), Ordering::AcqRel) != 0
    }

    fn down(&self, own: &Channel) -> io::Result<()> {
        let calls = self.semaphores.down(own.number, &own.words.count.0)?;
        self.tally.syscalls.add(calls);
        Ok(())
    }

    fn up(&self, to: &Channel) -> io::Result<()> {
        let calls = self.semaphores.up(to.number, &to.words.count.0)?;
        self.tally.syscalls.add(calls);
        Ok(())
    }

    fn busy_wait(&self) {
        match self.passes {
            Pass::Delay => (0..BUSY_PAUSES).for_each(|_| core::hint::spin_loop()),
            Pass::Yield | Pass::HandOff => self.let_run(),
        }
    }

    fn let_run(&self) {
        self.tally.syscalls.add(1);
        match self.passes {
            Pass::HandOff => clock::nap(),
            Pass::Delay | Pass::Yield => cpu::yield_now(),
        }
    }

    fn poll_queue(&self, own: &Channel) {
        if self.one_cpu {
            return self.let_run();
        }
        let end_ns = clock::ticks_ns() + POLL_NS;
        while own.queue.looks_empty() && clock::ticks_ns() < end_ns {
            core::hint::spin_loop();
        }
    }

    fn sleep_long(&self) {
        self.tally.syscalls.add(1);
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// A queue, and where its owner sleeps.
struct Channel {
    queue: TwoLock<Region>,
    words: &'static OwnerWords,
    /// The number of the semaphore.
    number: u16,
}

/// The words beside a queue.
#[repr(C)]
struct OwnerWords {
    awake: Line<AtomicU32>,
    /// The semaphore, where it is a futex.
    count: Line<AtomicU32>,
}

// SAFETY: atomic integers and padding only.
unsafe impl Words for OwnerWords {}

/// The members of the queues. All are processes of one measurement and end with it, so none is ever missed; like
/// the threads of one process they share a number, since there may be more than numbers.
struct Alive;

impl Members for Alive {
    fn me(&self) -> u32 {
        1
    }

    fn is_dead(&self, _: u32) -> bool {
        false
    }
}

/// Channels by number: 0 is the server's, then the clients'.
fn channels(seat: &Seat, numbers: impl IntoIterator<Item = usize>) -> io::Result<Vec<Channel>> {
    let shared = seat.map(words_bytes(&seat.plan))?;
    let queues = seat.fds.get(1).ok_or(io::ErrorKind::InvalidInput)?;
    let region = region(queues, &seat.plan)?;
    let channel = |index| {
        let (at, capacity) = place(&seat.plan, index);
        let queue = TwoLock::attach(region.clone(), at, capacity, Arc::new(Alive));
        Ok(Channel {
            queue: queue.map_err(no_queue)?,
            words: words_of(shared, index),
            number: u16::try_from(index).map_err(io::Error::other)?,
        })
    };
    numbers.into_iter().map(channel).collect()
}

const fn words_bytes(plan: &Plan) -> usize {
    (plan.clients + 1) * size_of::<OwnerWords>()
}

fn words_of(shared: &Shared, index: usize) -> &OwnerWords {
    shared.at(index * size_of::<OwnerWords>())
}

/// Where queue `index` is, and how many messages it holds.
fn place(plan: &Plan, index: usize) -> (usize, u32) {
    // One call of each client is under way, or as many messages as there is to be room for.
    let receive = (plan.clients as u32).max(plan.room);
    match index.checked_sub(1) {
        None => (0, receive),
        Some(client) => (
            queue_bytes(receive) + client * queue_bytes(REPLIES),
            REPLIES,
        ),
    }
}

fn queues_bytes(plan: &Plan) -> usize {
    page_align(place(plan, plan.clients + 1).0)
}

fn region(file: &OwnedFd, plan: &Plan) -> io::Result<Arc<Region>> {
    let mapping = Mapping::new(file, queues_bytes(plan), Access::ReadWrite)?;
    Ok(Arc::new(Region::mapped(mapping)))
}

fn no_queue(why: impl core::fmt::Debug) -> io::Error {
    io::Error::other(format!("two-lock queue: {why:?}"))
}
