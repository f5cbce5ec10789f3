//! Local IPC over shared memory, between processes and between protection domains of one process.
//!
//! A program [`bind`]s a port by name; others [`connect`] to it and [`call`](SendRight::call).
//! Messages go through shared memory without a system call while both sides are busy. A side that has
//! nothing to do sleeps. Neither side trusts a byte that the other can write.
//!
//! A *port* is a queue of messages, from which one process receives. A *right* is an unforgeable handle to a port, a capability: to
//! receive from the port ([`ReceiveRight`]), to send to it ([`SendRight`]) or to answer one call ([`ReplyRight`]). Rights travel in
//! messages. A *badge* is a number that a server chooses when it makes (*mints*) a send right, and that comes with
//! each message through that right. A *link* is a control socket and a region of memory that two processes share; all their
//! rights to ports of each other use it. A *node* is the ports, the links and the control thread of one program: a process has one,
//! unless it makes more ([`Node`]).
//!
//! ```
//! // Somewhere: a server.
//! # let name = format!("doc-{}", std::process::id());
//! # let server = name.clone();
//! let port = handfast::bind(&server)?;
//! std::thread::spawn(move || {
//!     let mut request = port.receive().unwrap();
//!     loop {
//!         let shout = request.bytes().to_ascii_uppercase();
//!         request = port.reply_and_receive(request, &shout).unwrap();
//!     }
//! });
//! // Elsewhere, in another process or the same one: a client.
//! let port = handfast::connect(&name)?;
//! assert_eq!(&*port.call(b"hello")?, b"HELLO");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What there is
//!
//! | for | see |
//! | --- | --- |
//! | calls by name | [`bind`], [`ReceiveRight::reply_and_receive`]; [`connect`], [`SendRight::call`] |
//! | methods of a trait | [`service`](mod@service) |
//! | one-way messages, also many in one operation | [`SendRight::send`], [`SendRight::send_many`], [`ReceiveRight::receive_many`] |
//! | many objects behind one port, and who may use them | [`ReceiveRight::mint`], [`Request::badge`], [`ReceiveRight::notify_no_senders_of`], [`ReceiveRight::revoke`] |
//! | rights, descriptors and memory in messages | [`SendRight::with`], [`Right`], [`Memory`], [`SharedArena`] |
//! | one message, or the news that there will be none | [`ReceiveRight::mint_once`], [`SendOnceRight`], [`Notice::SendOnceUnused`] |
//! | passing a call on | [`Request::forward`], [`ReplyRight`] |
//! | several ports and descriptors in one wait | [`WaitSet`] |
//! | tasks, and event loops | [`SendRight::call_async`], [`ReceiveRight::receive_async`], [`ReceiveRight::readiness`] |
//! | a worker on each CPU | [`ReceiveRight::serve_per_cpu`] |
//! | functions and memory kept apart within the process | `domain` (feature `domain`) |
//! | waiting strategies | [`Options`], [`Strategy`] |
//! | several independent nodes in one process, and their shutdown | [`Node`] |
//! | limits for peers | [`set_quotas`] |
//! | a queue, and nothing else | [`SharedQueue`] |
//!
//! # What holds throughout
//!
//! * `try_x` does not wait, `x` waits by the strategy, forever if need be, and `x_timeout` waits for at most a `Duration`. Two kinds of `try_x`
//!   wait nevertheless: those of a [two-lock queue](QueueKind::TwoLock), for the queue's lock, and a message that carries a right back to the process of its port, where
//!   that process has not yet confirmed the right, for 100 ms at most ([`Sending::try_send`]).
//! * A message has at most [`LONG_BYTES_MAX`] bytes ([`MESSAGE_BYTES_MAX`] between processes of two users) and four rights. Its bytes are copied in once and out once.
//!   Messages of more than [`MESSAGE_BYTES_MAX`] go in memory that is made for the first long message to a process, and kept for 10 s after the last one. While both
//!   sides are busy there is no system call; a sender that posts to a sleeping receiver makes one, to wake it.
//! * When a peer dies, by whatever signal, every wait for it ends within milliseconds as [`error::Gone`], with two exceptions: a sender to a port that was moving to
//!   the dead process waits for about 1 s, and [`connect`] to a dead server times out after 5 s where a child that the server has forked keeps
//!   its socket open. Whether a call was served is not known then. Messages that the peer had sent are received all the same.
//!   Messages that it had not received are lost.
//! * Everything that a peer writes is checked. A peer that breaks a rule loses its link ([`error::PeerFault`]); other links are not
//!   affected. No peer makes this library panic.
//! * The first use in a process measures the machine (about 5 ms), registers with the kernel for `membarrier` (10 to 20 ms more where the process has
//!   several threads by then, up to a second on a busy machine) and starts the control thread, which sleeps while no peer
//!   connects or ends and nobody waits for long.
//! * The library reports events of names and links to `tracing`, and nothing of a message.
//! * A handle that was made before a `fork` fails in the child as [`error::Misuse::Forked`]; the child binds and connects for itself.
//!
//! # Features
//!
//! | feature | adds |
//! | --- | --- |
//! | `service` (default) | [`service`](mod@service) |
//! | `domain` | `domain`: a function that runs before `main`, for domains that are child processes |
//! | `confine` | `domain` with `domain::confine`: filters for system calls, and an instruction decoder |
//!
//! # Environment
//!
//! The [global node](Node::global), which the free functions use, reads `HANDFAST_DIR` whenever it binds or connects, and the others
//! when it starts. Other nodes are configured by their [builder](Node::builder).
//!
//! | variable | sets |
//! | --- | --- |
//! | `HANDFAST_DIR` | the directory of names ([`rendezvous::directory`]) |
//! | `HANDFAST_STRATEGY`, `HANDFAST_SPIN_CAP_US` | the strategy of ports and rights without options of their own ([`Options`]) |
//! | `HANDFAST_INTRODUCTIONS` | `vine`: a right to a third process's port stays indirect, and its messages go through the process that gave the right; this process makes no link for it |
//! | `HANDFAST_ISOLATION` | `keys` or `process`: the mechanism that isolates domains (feature `domain`) |
//!
//! Missing features are listed in `CAVEATS.md`, and every limit in `docs/limits.md`. Papers 000 to 004, which are cited by number, are
//! named in `ARCHITECTURE.md`.
#![forbid(unsafe_code)]

#[cfg(feature = "domain")]
pub mod domain;
mod queue;
mod rank;

#[cfg(feature = "domain")]
handfast_domain::at_start!(domain::at_start);

pub use handfast_port::error;
pub use handfast_port::{
    BATCH_MESSAGES_MAX, Batch, Block, Call, Cancelled, Counters, Event, Holder, Identity, Interest,
    LONG_BYTES_MAX, Loan, MESSAGE_BYTES_MAX, MemberPort, Memory, MemoryMut, Message, Node,
    NodeBuilder, NotForwarded, NotReceived, NotSent, Notice, Options, OwnRight, Peer, PerCpu,
    Place, Quotas, Readiness, Receive, ReceiveRight, Reply, ReplyRight, Request, Returned, Right,
    SendOnceRight, SendRight, Sending, Sent, SharedArena, Strategy, Target, Token, TryWait,
    Unsupported, WaitSet, Worker, anonymous, anonymous_with, bind, bind_with, connect,
    connect_deadline, connect_timeout, connect_with, handoff, set_quotas, set_quotas_by,
    wait_moved_timeout,
};
pub use handfast_port::{notify, rendezvous};
pub use queue::{PopError, PushError, QUEUE_MESSAGE_BYTES, QueueError, QueueKind, SharedQueue};

#[cfg(feature = "service")]
pub use handfast_macros::service;
#[cfg(feature = "service")]
pub mod service;

/// Keeps items that need the feature `domain`, in code that `#[handfast::service]` generates.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "domain")]
macro_rules! __with_domain {
    ($($items:tt)*) => { $($items)* };
}

/// Drops items that need the feature `domain`, in code that `#[handfast::service]` generates.
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "domain"))]
macro_rules! __with_domain {
    ($($items:tt)*) => {};
}
