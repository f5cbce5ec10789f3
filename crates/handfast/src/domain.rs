//! Domains of this process ([`Domain`] is one), and the ports that they serve ([`Port`]).
//!
//! A port that a domain serves is a port like any other: its rights are minted, sent to other processes, attenuated and
//! revoked, it may have a name, and a caller need not know that a domain serves it. A thread of the port takes messages from
//! other processes and crosses the gate with them; a thread of this process that calls by a right of
//! [`OwnRight::connect`] crosses the gate itself, on its own processor, without a system call, a lock or a write to
//! memory that another thread writes.
//!
//! ```
//! use handfast::domain::{CallContext, Domain, DomainOptions, Port, Table};
//! use handfast::error::{DomainError, SendError};
//!
//! fn shout(_: &(), call: &mut CallContext<'_>) {
//!     let badge = call.sender().badge;
//!     let (request, reply) = call.both();
//!     assert!(!request.is_empty(), "nothing to shout");
//!     reply[..request.len()].copy_from_slice(request);
//!     reply[..request.len()].make_ascii_uppercase();
//!     reply[request.len()] = b'0' + badge as u8;
//!     let len_bytes = request.len() + 1;
//!     call.set_reply_len(len_bytes);
//! }
//!
//! let table = Table::new(|_| ()).entry(shout);
//! // SAFETY: the function lends nothing to other threads, and touches nothing outside of the domain.
//! let domain = unsafe { Domain::new(&table, DomainOptions::new()) }?;
//! let port = Port::new(handfast::anonymous()?, &domain, 0)?;
//! let right = port.mint(7).connect()?;
//! assert_eq!(&*right.call(b"hello")?, b"HELLO7");
//! // A failure in the domain is the error of that call.
//! let error = right.call(b"").map(drop);
//! assert_eq!(error, Err(SendError::Domain(DomainError::Panic)));
//! assert_eq!(&*right.call(b"again")?, b"AGAIN7");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where the processor has no memory keys, and where the program asks for it ([`Isolation`]), the same domain is a child process, which runs
//! this program's file again: the same calls, errors and ports, at microseconds instead of nanoseconds. The child has memory of its own: its
//! functions do not see a `static` that the parent has changed, and have no rights except those that come with messages. The child does not run
//! `main`, has no standard input, and lives as long as its parent keeps the domain. When it ends earlier, a call returns the reason
//! ([`Fault`]), and the next child is started, by the domain's policy: `docs/decisions/0015-domains-as-processes.md`.

use crate::error::{BindError, ConnectError, DomainError, Misuse, SendError};
use crate::{Holder, OwnRight, ReceiveRight, SendRight};
#[cfg(feature = "confine")]
pub use handfast_domain::confine;
pub use handfast_domain::{
    BYTES_MAX, CallContext, CallError, DEPTH_MAX, Domain, DomainOptions, Fault, Group, Heap, Held,
    Isolation, LoadError, NoDeadline, NotStarted, Policy, Reason, STACK_BYTES, Sender, Table,
    Words, error, shielded,
};
use handfast_port::MESSAGE_BYTES_MAX;
use handfast_port::served::{Incoming, Serve, Served, deadline_ns};
pub use handfast_port::served::{pass_on, reply_rights, take_rights};
use std::sync::Arc;
use std::time::Duration;

mod child;
mod parent;
mod wire;

pub(crate) use child::at_start;

// A message is a call's bytes, both ways.
const _: () = assert!(BYTES_MAX == MESSAGE_BYTES_MAX);

/// A port that a domain serves. Dropping it drops the port: calls by other processes that are under way in the domain go on
/// there, and are answered; other calls end as [`Gone::Port`](crate::error::Gone::Port) at their callers.
pub struct Port {
    served: Served,
    domain: Domain,
}

/// A domain's function as what serves a port.
struct Function {
    domain: Domain,
    entry: u16,
    is_process: bool,
}

impl Port {
    /// Has a function of the domain serve the port to which this is the receive right: it is called with the bytes of
    /// each message, and told about the right that the message came through ([`CallContext::sender`]). The bytes it leaves
    /// as its reply go to the caller, for a one-way message to nobody. Rights that come with the message are
    /// taken by [`take_rights`], and sent with the reply by [`reply_rights`]; [`pass_on`] makes a tail call.
    ///
    /// One thread takes the messages of other processes, one after the other; [`Self::with_threads`] starts more.
    ///
    /// A call by a link costs as much as any call, plus the crossing with two copies more. A call by a right of
    /// [`OwnRight::connect`] costs the crossing alone. A caller that dies meanwhile ends nothing: the function goes on, and its reply
    /// is dropped.
    ///
    /// # Errors
    /// [`BindError::Exhausted`] when no thread can be started; the port is gone then.
    pub fn new(receive: ReceiveRight, domain: &Domain, entry: u16) -> Result<Self, BindError> {
        Self::with_threads(receive, domain, entry, 1)
    }

    /// Like [`Self::new`], with `threads` threads, from one to 64 (0 counts as one, a larger number as 64). A thread that is in the domain, and
    /// from there calls a server that calls this port again, waits for another of these threads.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn with_threads(
        receive: ReceiveRight,
        domain: &Domain,
        entry: u16,
        threads: usize,
    ) -> Result<Self, BindError> {
        let function = Function::new(domain, entry);
        Self::served_by(receive, domain, Arc::new(function), threads)
    }

    /// Like [`Self::with_threads`]; a function that has served one message for longer than `limit` is ended
    /// ([`Domain::call_timeout`]), wherever the message came from: a caller sees [`DomainError::Deadline`].
    /// A caller's own limit ([`SendRight::call_timeout`]) ends a function only where the caller runs it, in this process;
    /// callers by links wait no longer, and the function goes on, up to this limit.
    ///
    /// # Errors
    /// The errors of [`Self::with_threads`]. Where calls cannot be ended, each one ends as [`DomainError::NoDeadline`].
    pub fn with_limit(
        receive: ReceiveRight,
        domain: &Domain,
        entry: u16,
        threads: usize,
        limit: Duration,
    ) -> Result<Self, BindError> {
        let function = Function::new(domain, entry);
        Self::served_by(
            receive,
            domain,
            Arc::new(Limited { function, limit }),
            threads,
        )
    }

    fn served_by(
        receive: ReceiveRight,
        domain: &Domain,
        by: Arc<dyn Serve>,
        threads: usize,
    ) -> Result<Self, BindError> {
        Ok(Self {
            served: Served::start(receive, by, threads)?,
            domain: domain.clone(),
        })
    }

    /// Like [`ReceiveRight::mint`].
    #[must_use]
    pub fn mint(&self, badge: u64) -> OwnRight {
        self.served.receive_right().mint(badge)
    }

    /// Like [`ReceiveRight::mint_with`].
    #[must_use]
    pub fn mint_with(&self, badge: u64, permissions: u16) -> OwnRight {
        self.served.receive_right().mint_with(badge, permissions)
    }

    /// A right by which this process calls the port, with badge zero: [`OwnRight::connect`] of a right that is minted for it.
    ///
    /// # Errors
    /// The errors of [`OwnRight::connect`].
    pub fn connect(&self) -> Result<SendRight, ConnectError> {
        self.mint(0).connect()
    }

    /// Like [`ReceiveRight::revoke`]. Calls that have begun to cross are served.
    pub fn revoke(&self, badge: u64) {
        self.served.receive_right().revoke(badge);
    }

    /// Like [`ReceiveRight::revoke_from`].
    pub fn revoke_from(&self, holder: Holder, badge: u64) {
        self.served.receive_right().revoke_from(holder, badge);
    }

    /// The bound name; empty for a port without one.
    #[must_use]
    pub fn name(&self) -> &str {
        self.served.receive_right().name()
    }

    /// The domain.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl core::fmt::Debug for Port {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Port")
            .field("name", &self.name())
            .field("domain", &self.domain)
            .finish()
    }
}

impl Function {
    fn new(domain: &Domain, entry: u16) -> Self {
        Self {
            domain: domain.clone(),
            entry,
            is_process: domain.isolation() == Isolation::Process,
        }
    }
}

impl Serve for Function {
    #[inline]
    fn serve(&self, message: Incoming<'_>, reply: &mut [u8]) -> Result<usize, SendError> {
        if self.is_process {
            return parent::serve(self, message, reply, None);
        }
        let (domain, entry) = (&self.domain, self.entry);
        let called = domain.call_message(entry, sender_of(message), message.bytes, reply);
        called.map_err(|error| failed(error, reply.len()))
    }

    fn serve_until(
        &self,
        message: Incoming<'_>,
        reply: &mut [u8],
        deadline_ns: u64,
    ) -> Result<usize, SendError> {
        if self.is_process {
            return parent::serve(self, message, reply, Some(deadline_ns));
        }
        let (domain, entry, sender) = (&self.domain, self.entry, sender_of(message));
        let called = domain.call_message_timeout(entry, sender, message.bytes, reply, deadline_ns);
        called.map_err(|error| failed(error, reply.len()))
    }
}

/// As a function, that ends when it has run for so long.
struct Limited {
    function: Function,
    limit: Duration,
}

impl Serve for Limited {
    fn serve(&self, message: Incoming<'_>, reply: &mut [u8]) -> Result<usize, SendError> {
        let deadline_ns = deadline_ns(self.limit);
        self.function.serve_until(message, reply, deadline_ns)
    }

    fn serve_until(
        &self,
        message: Incoming<'_>,
        reply: &mut [u8],
        deadline_ns: u64,
    ) -> Result<usize, SendError> {
        let until_ns = handfast_port::served::deadline_ns(self.limit);
        self.function
            .serve_until(message, reply, deadline_ns.min(until_ns))
    }
}

const fn sender_of(message: Incoming<'_>) -> Sender {
    Sender::of(message.badge, message.permissions, !message.is_call)
}

#[cold]
fn failed(error: CallError, room_bytes: usize) -> SendError {
    SendError::Domain(match error {
        CallError::Fault(fault) => match fault {
            Fault::Panic => DomainError::Panic,
            Fault::Access { .. } => DomainError::Access,
            Fault::Key { .. } => DomainError::Key,
            Fault::StackOverflow => DomainError::StackOverflow,
            Fault::Arithmetic => DomainError::Arithmetic,
            Fault::Illegal => DomainError::Illegal,
            Fault::Bus => DomainError::Bus,
            Fault::Deadline => DomainError::Deadline,
            // A later kind, too: its function did not return.
            Fault::Ended | _ => DomainError::Ended,
        },
        CallError::Dead => DomainError::Dead,
        CallError::NotStarted(_) => DomainError::NotStarted,
        CallError::Resetting => DomainError::Resetting,
        CallError::Stacks { .. } => DomainError::Stacks,
        CallError::TooDeep => DomainError::TooDeep,
        CallError::NoEntry { .. } => DomainError::NoEntry,
        CallError::NoDeadline(_) => DomainError::NoDeadline,
        CallError::TooLong { len_bytes } => return SendError::TooLong { len_bytes },
        CallError::ReplyTooLong { len_bytes } => {
            return SendError::ReplyTooLong {
                len_bytes,
                room_bytes,
            };
        }
        CallError::Forked => return SendError::Misuse(Misuse::Forked),
        // Buffers that cannot be read are none of a safe caller's, but of one in a domain with the caller's memory.
        _ => DomainError::Thread,
    })
}
