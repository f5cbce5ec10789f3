//! Typed services: [`#[handfast::service]`](macro@crate::service) makes a client and a server of a trait.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use std::sync::atomic::{AtomicI64, Ordering};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! pub struct Overdrawn {
//!     missing: i64,
//! }
//!
//! #[handfast::service]
//! pub trait Account {
//!     fn balance(&self) -> i64;
//!     fn withdraw(&self, cents: u32, note: &str) -> Result<i64, Overdrawn>;
//!     #[oneway]
//!     fn log(&self, line: &str);
//! }
//!
//! // The server.
//! struct Mine(AtomicI64);
//!
//! impl Account for Mine {
//!     fn balance(&self) -> i64 {
//!         self.0.load(Ordering::Relaxed)
//!     }
//!     fn withdraw(&self, cents: u32, _note: &str) -> Result<i64, Overdrawn> {
//!         let left = self.balance() - i64::from(cents);
//!         if left < 0 {
//!             return Err(Overdrawn { missing: -left });
//!         }
//!         self.0.store(left, Ordering::Relaxed);
//!         Ok(left)
//!     }
//!     fn log(&self, line: &str) {
//!         println!("{line}");
//!     }
//! }
//!
//! # let name = format!("doc-service-{}", std::process::id());
//! let port = handfast::bind(&name)?;
//! std::thread::spawn(move || AccountServer::serve(&port, &Mine(100.into())));
//!
//! // The client, in another process or the same one.
//! let account = AccountClient::new(handfast::connect(&name)?);
//! assert_eq!(account.withdraw(30, "lunch")?, Ok(70));
//! assert_eq!(account.withdraw(100, "shoes")?, Err(Overdrawn { missing: 30 }));
//! account.log("poor")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `AccountClient` wraps a [`SendRight`](crate::SendRight); its methods take the arguments of the trait's methods and
//! return `Result<T, CallError>`: the service's own answer is in `T`, the failure of the call
//! in [`CallError`]. `with_timeout` gives every call a deadline; calls that a method makes in turn, by clients of the same
//! thread, end no later than its own caller gives up waiting. `AccountServer::serve` is the loop of
//! a server, and `serve_async` the loop of a task; `AccountServer::dispatch` answers one [`Request`](crate::Request) in a loop of your own.
//! `AccountAsyncClient` has the same methods as `async fn`, for tasks of any executor: a future that is
//! dropped gives its call up, so deadlines are the executor's (`tokio::time::timeout`). Its one-way
//! methods do not wait for room: [`SendError::Full`](crate::error::SendError::Full).
//! A trait with `async` methods is served by tasks only: `serve_async` has up to 64 calls at work at once, and `dispatch_async`
//! answers one request, to be spawned. A method whose caller has given up is dropped where it waits. Clients of such a trait are as above.
//!
//! ```no_run
//! #[handfast::service]
//! trait Clock {
//!     async fn after(&self, ms: u64) -> u64;
//! }
//!
//! struct Mine;
//!
//! impl Clock for Mine {
//!     async fn after(&self, ms: u64) -> u64 {
//!         ms // On tokio: `tokio::time::sleep(...).await` before that.
//!     }
//! }
//!
//! # async fn tasks() -> Result<(), Box<dyn std::error::Error>> {
//! // A task of the server, and one of a client.
//! let port = handfast::bind("clock")?;
//! ClockServer::serve_async(&port, &Mine).await?;
//! let clock = ClockAsyncClient::new(handfast::connect("clock")?);
//! assert_eq!(clock.after(5).await?, 5);
//! # Ok(()) }
//! ```
//!
//! `AccountServer::entry` is a function of a domain (feature `domain`) that serves the same trait, with the same client and the same
//! errors, except that a method that panics is [`DomainError::Panic`](crate::error::DomainError::Panic).
//!
//! The attribute belongs to the feature `service`, which is on by default.
//!
//! # Values
//!
//! | type | form in the message |
//! | --- | --- |
//! | numbers, `bool`, arrays of them | as in memory |
//! | own types, in a method marked `#[fixed]` | as in memory: `TryFromBytes`, `IntoBytes` and `Immutable` of the crate `zerocopy` |
//! | `&str`, `&[u8]` | the method gets a view of the message: no copy except out of shared memory |
//! | `Option`, `Result`, tuples | their parts, one after the other |
//! | all other types, also as `&T` and `&[T]` | by serde, in the format of postcard |
//! | [`SendRight`](crate::SendRight), [`OwnRight`](crate::OwnRight), [`ReplyRight`](crate::ReplyRight), [`ReceiveRight`](crate::ReceiveRight), [`Memory`](crate::Memory), [`Loan`](crate::Loan), `OwnedFd`, [`Right`](crate::Right) | beside the bytes, up to four a message; also within `Option`, `Result` and tuples |
//!
//! The attribute recognises types by name: it does not take a type alias of a right for a right, and a type alias of a number
//! travels by serde. A fixed-layout type is checked when it is read: bytes that are no value of the type
//! are refused.
//!
//! A right has another type at each end. The trait names the server's type:
//!
//! | in the trait | server | client |
//! | --- | --- | --- |
//! | argument `SendRight` | a right to another process's port, as the client's | passes anything that is `Into<Right>`, such as an `OwnRight` that it has minted |
//! | argument `OwnRight` | a right of its own that comes home | passes the `SendRight` that it once got |
//! | argument `ReplyRight` | answers a call | passes the reply right that it has split from a request |
//! | argument or result `Memory`, `OwnedFd`, `ReceiveRight` | has or returns the value | the same |
//! | argument `Loan` | looks at the block | passes the [`Block`](crate::Block) of an arena |
//! | argument `Right` | any | passes anything that is `Into<Right>` |
//! | result `OwnRight` | mints it | gets a `SendRight` |
//! | result `ReplyRight` | returns it | gets a `ReplyRight` |
//! | result `SendRight`, `Right` | returns it | gets a `Right` |
//!
//! A right that is passed is moved, also when the call fails; pass a clone to keep it.
//!
//! # Costs
//!
//! Beyond [`SendRight::call`](crate::SendRight::call): some nanoseconds for values as in memory (two
//! `u64`: `docs/decisions/0006-typed-services.md`), and serde's time for others. No system call and,
//! once a thread has seen its longest message up to 64 KiB, no allocation except for the values and for rights.
//! A request has eight bytes before its arguments, a reply one behind its result; with at most 32
//! and 39 bytes they travel in one cache line. Arguments and results end at 64 MiB
//! ([`LONG_BYTES_MAX`](crate::LONG_BYTES_MAX)), and between two users, or where the service is in a domain, at 64 KiB
//! ([`MESSAGE_BYTES_MAX`](crate::MESSAGE_BYTES_MAX)): longer arguments are
//! [`CallError::Arguments`] or [`CallError::Send`], a longer result is [`Refusal::Result`] at its caller.
//!
//! # Errors and panics
//!
//! Each request carries a fingerprint of the trait: its name and the names, arguments and results of
//! its methods, in order, and the sizes of fixed-layout types. A server of another trait, or of another
//! version, answers [`Refusal::OtherService`]; the check is one comparison. *The fields of serde types are not
//! in the fingerprint*: after a change of fields, give the trait or the type another name.
//!
//! Neither side trusts received bytes. A server answers a request that it cannot decode with a typed refusal and
//! goes on; a client makes a typed error of a reply that it cannot decode; the message is private by
//! then, its lengths are checked, and values that nest too deep are refused. A service must not
//! have an argument type with a sequence of values that take no bytes, as `Vec<()>`, whose length costs its
//! sender nothing.
//!
//! When a method panics, the panic unwinds through `serve` or `dispatch`; the caller sees
//! [`Gone::Reply`](crate::error::Gone::Reply), and other calls of a server that goes on are not
//! affected. When the server dies, its callers see [`Gone::Process`](crate::error::Gone::Process)
//! within milliseconds; the method may or may not have run. The end of a one-way method is not
//! reported.
//!
//! # Compile-time errors
//!
//! More rights than a message can carry:
//! ```compile_fail
//! #[handfast::service]
//! trait Five {
//!     fn give(&self, rights: (handfast::Right, handfast::Right), a: handfast::Right, b: handfast::Right, c: handfast::Right);
//! }
//! ```
//! Arguments that are no values:
//! ```compile_fail
//! #[handfast::service]
//! trait Files {
//!     fn give(&self, file: std::fs::File);
//! }
//! ```
//! Generic methods:
//! ```compile_fail
//! #[handfast::service]
//! trait Any {
//!     fn give<T>(&self, value: T);
//! }
//! ```
//! Own types in a fixed method whose layout is not fixed:
//! ```compile_fail
//! #[handfast::service]
//! trait Fixed {
//!     #[fixed]
//!     fn give(&self, value: String);
//! }
//! ```

pub use handfast_service::error;
pub use handfast_service::{CallError, Malformed, Method, Refusal, Service, Unencodable};
#[doc(hidden)]
pub use handfast_service::{
    Client, Decoder, Encoder, FixedRequest, begin, dispatch, fingerprint, finish, serve,
    serve_async, serve_at_once, unless_given_up,
};

/// Serves a message inside a domain.
#[cfg(feature = "domain")]
#[doc(hidden)]
pub fn serve_in(
    call: &mut crate::domain::CallContext<'_>,
    service: &Service,
    run: impl Fn(u16, &mut Decoder<'_>, &mut Encoder) -> Result<(), Refusal>,
) {
    let is_call = !call.sender().is_one_way();
    let (request, rights) = (call.request(), crate::domain::take_rights());
    let answered = |reply: &[u8], rights| {
        // Where there is no room for it, the message was one-way.
        if let Some(room) = call.reply().get_mut(..reply.len()) {
            room.copy_from_slice(reply);
            call.set_reply_len(reply.len());
        }
        // No more than fit a message: the macro has counted them.
        let _ = crate::domain::reply_rights(rights);
    };
    handfast_service::serve_message((request, is_call), rights, service, run, answered);
}
