//! The steps of one measurement: the part of the parent's decision every child must know.

use crate::laws::Law;
use crate::scheduling::Scheduling;
use handfast_sys::cpu;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// One measurement of one system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The server's work.
    pub task: Task,
    /// Bytes of a request.
    pub payload_bytes: usize,
    /// Client processes.
    pub clients: usize,
    /// Server processes: in a chain each calls the next, with rights to third processes the second
    /// half is those, elsewhere there is one.
    pub servers: usize,
    /// Where the processes run.
    pub placement: Placement,
    /// Whether hand-written spin loops execute the processor's pause hint.
    pub pause: bool,
    /// How long the hand-written waiters spin before they yield or sleep, and handfast's hybrids; these for as long as a block costs if
    /// this is zero.
    pub spin_ns: u64,
    /// `MAX_SPIN` of `bsls`: how often it polls its queue before it sleeps.
    pub max_spin: u32,
    /// Messages that wait for the receiver of one-way messages, at most, where the parent chooses that; zero: as the system has it.
    pub room: u32,
    /// How the kernel schedules server and clients.
    pub scheduling: Scheduling,
    /// How long clients sleep between calls.
    pub think_ns: u64,
    /// Whether the server is to notice when a client dies.
    pub watches: bool,
}

/// A client's request and the server's work for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// The server sends the request back.
    Echo,
    /// The server works for a delay drawn from the law, then sends the request back; the client
    /// records the latency beyond that work.
    Service(Law),
    /// As that, and the client works, too, before it sends: for delays drawn from the same law.
    PingPong(Law),
    /// The client makes the payload in place where the system can, the server reads all of it and
    /// answers with a checksum.
    Consume,
    /// Messages in one direction.
    Stream,
    /// The server answers with nothing.
    OneWay,
    /// The client makes the payload in place where the system can, the server sends it back, the
    /// client reads all of that, where it is if the system can.
    Return,
    /// An echo with rights beside the bytes.
    Pass(Passed),
    /// An echo, and after so many requests the port goes to the other server, and comes back after as many there.
    Move(u32),
    /// An echo, and every tenth request of each client has the server's thread sleep for a millisecond.
    Doze,
}

/// How long a handler sleeps.
pub(crate) const DOZE: Duration = Duration::from_millis(1);
/// Every so many requests of each client.
pub(crate) const DOZES_EVERY: u64 = 10;

/// The server's part of [`Task::Doze`]: a request begins with its number.
pub(crate) fn doze(request: &[u8]) {
    let number = request.first_chunk().copied().map(u64::from_le_bytes);
    if number.is_some_and(|number| number % DOZES_EVERY == DOZES_EVERY - 1) {
        std::thread::sleep(DOZE);
    }
}

/// The rights in a call and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Passed {
    /// None.
    Nothing,
    /// That many to ports of the client's, which the server has already.
    Known(usize),
    /// One to a port of the client's, minted for the call; the server drops it.
    New,
    /// One to a port of the server's, back to it.
    Home,
    /// One to a port of the server's, in the reply; the client has it already.
    InReply,
    /// One to a port of a third process's, the same each time. The server has a link with that
    /// process, or with `vine` none, and makes none; with `called` it calls once through the right.
    Third {
        /// By the vine: without a link of their own.
        vine: bool,
        /// With a call through it.
        called: bool,
    },
    /// A send-once right to a port of the client's in a one-way message; the server answers by it.
    Once,
    /// As `Third`, each time with another server and third process, which had no link before: the
    /// server waits for the link and calls once through it.
    Strangers,
}

/// Strangers introduced in one measurement, and one pair to warm up with.
pub(crate) const STRANGERS: usize = 8;

impl Passed {
    /// How many rights a call and its reply have together.
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Known(count) => count,
            _ => 1,
        }
    }

    /// How many server processes that takes.
    pub(crate) const fn servers(self) -> usize {
        match self {
            Self::Third { .. } => 2,
            Self::Strangers => 2 * (STRANGERS + 1),
            _ => 1,
        }
    }
}

/// Where the processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Wherever the scheduler puts them.
    Free,
    /// The server on one CPU, the clients on another; equal for both on one. More servers are on
    /// the CPUs that are left.
    Pinned {
        /// The server's CPU.
        server: u32,
        /// The clients' CPU.
        client: u32,
    },
    /// Each client on a CPU of its own, in turn; servers where they like.
    OnePerCpu,
}

impl Plan {
    /// 24-byte echo, one client, unpinned.
    pub const fn echo() -> Self {
        Self {
            task: Task::Echo,
            payload_bytes: 24,
            clients: 1,
            servers: 1,
            placement: Placement::Free,
            pause: true,
            spin_ns: 0,
            max_spin: 20,
            room: 0,
            scheduling: Scheduling::Default,
            think_ns: 0,
            watches: false,
        }
    }

    /// Whether processes without a link may make one when they are introduced.
    pub(crate) const fn meets_strangers(&self) -> bool {
        !matches!(self.task, Task::Pass(Passed::Third { vine: true, .. }))
    }

    /// How many calls the client makes in all, none of them to warm up.
    pub(crate) const fn calls_max(&self) -> Option<u64> {
        match self.task {
            Task::Pass(Passed::Strangers) => Some(STRANGERS as u64),
            _ => None,
        }
    }

    /// Bytes of the reply.
    pub(crate) const fn reply_bytes(&self) -> usize {
        match self.task {
            Task::Consume => 8,
            Task::OneWay => 0,
            _ => self.payload_bytes,
        }
    }
}

impl Placement {
    /// Where client `index` is pinned, one on each CPU.
    pub(crate) fn client_cpu(self, index: usize) -> u32 {
        match self {
            Self::Pinned { client, .. } => client,
            Self::Free | Self::OnePerCpu => {
                let cpus = cpu::allowed();
                cpus.get(index % cpus.len().max(1)).copied().unwrap_or(0)
            }
        }
    }

    /// Whether server and clients share one CPU.
    pub fn same_core(self) -> bool {
        matches!(self, Self::Pinned { server, client } if server == client)
    }
}

/// How long to warm up and to record.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The time to warm up.
    pub warm: Duration,
    /// The time to record.
    pub window: Duration,
}

impl Timing {
    /// Both in milliseconds.
    pub const fn ms(warm: u64, window: u64) -> Self {
        Self {
            warm: Duration::from_millis(warm),
            window: Duration::from_millis(window),
        }
    }
}

/// The kind of a child process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// The first is the one the clients call.
    Server(usize),
    Client(usize),
    /// Burns CPU, on one CPU or anywhere.
    Hog(Option<u32>),
}

/// Everything a child is told, as JSON in its argument.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChildSpec {
    pub(crate) role: Role,
    /// The parent's process id: without it the child ends.
    pub(crate) parent: u32,
    /// [`Named::key`](crate::systems::Named::key).
    pub(crate) system: String,
    pub(crate) plan: Plan,
    /// Inherited descriptors: the control page, then the system's own.
    pub(crate) fds: Vec<i32>,
    /// The system's address, or a name unique to this measurement.
    pub(crate) address: String,
    /// A directory for socket files, removed after the run.
    pub(crate) dir: PathBuf,
}
