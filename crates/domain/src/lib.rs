//! Protected procedure calls (after paper 002, section 2, which has a worker process cross in the caller's place): the caller's thread crosses into a domain of the same process, on its own
//! processor, without a system call, a lock or a shared write.
//!
//! A [`Domain`] is functions and memory behind a gate. Its memory has a protection key of its own: code outside
//! faults when it accesses that memory, and so does every other domain. A call saves the caller's place, takes the domain's
//! rights, claims a stack from the pool of this CPU with one exchange, and runs the function on that stack. A failure
//! of the function comes back as a [`CallError::Fault`]; the process goes on.
//!
//! A domain contains *faults*, in both directions between domains and from clients to domains. It is no
//! boundary against hostile code in the same process unless the process is confined (feature `confine`), and a domain can access memory
//! outside of all domains. docs/limits.md and SECURITY.md name the gaps.
//!
//! ```
//! use handfast_domain::{CallContext, CallError, Domain, Fault, LoadError, DomainOptions, Table};
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! fn add(total: &AtomicU64, call: &mut CallContext<'_>) {
//!     let words = call.words();
//!     words[0] += total.fetch_add(words[0], Ordering::Relaxed);
//! }
//! fn fail(_: &AtomicU64, _: &mut CallContext<'_>) {
//!     panic!("a fault of the domain's");
//! }
//!
//! let table = Table::new(|_| AtomicU64::new(0)).entry(add).entry(fail);
//! // SAFETY: the functions lend nothing to other threads, and touch nothing outside of the domain.
//! let load = |options| unsafe { Domain::new(&table, options) };
//! let domain = match load(DomainOptions::new()) {
//!     // This processor has no memory keys.
//!     Err(LoadError::NoKeys) => load(DomainOptions::new().unprotected())?,
//!     loaded => loaded?,
//! };
//! domain.call(0, [2; 8])?;
//! assert_eq!(domain.call(0, [3; 8])?[0], 5);
//! assert_eq!(domain.call(1, [0; 8]), Err(CallError::Fault(Fault::Panic)));
//! // The domain was reset.
//! assert_eq!(domain.call(0, [4; 8])?[0], 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without memory keys a domain is a child process instead ([`Isolation`]), if the program has the crate `handfast`, which
//! reaches the child by ports; else [`Domain::new`] returns [`LoadError::NoKeys`]. [`DomainOptions::unprotected`] loads a domain whose gate is plain
//! Rust, and which contains only panics.
//!
//! Reading order: [`Domain`] (the caller's side), `loaded` (the state that its handles share), [`Table`] and [`CallContext`] (the
//! server's side), `gate` (the crossing), `run` (the server's side of it), `row` and `rows` (how the gate finds a domain), `stack`,
//! `pool`, `group` and `upkeep` (the stacks that calls claim), `server` and `image` (the domain's own state, and its reset), `fault`
//! (signals), `deadline`, `way`, `parent` and `process` (domains that are child processes), `confine`, [`error`].

#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "domains have no keys there")
)]
mod alone;
mod call;
#[cfg(feature = "confine")]
pub mod confine;
mod confined;
mod deadline;
mod domain;
pub mod error;
#[cfg(target_arch = "x86_64")]
mod fault;
mod flags;
mod gate;
mod group;
mod held;
mod image;
mod isolation;
mod loaded;
mod options;
mod parent;
mod pool;
#[doc(hidden)]
pub mod process;
mod rank;
mod row;
#[cfg(target_arch = "x86_64")]
mod rows;
mod run;
mod server;
mod stack;
mod table;
mod thread;
mod upkeep;
mod way;

pub use call::CallContext;
pub use deadline::shielded;
pub use domain::Domain;
pub use error::{CallError, Fault, LoadError, NoDeadline, NotStarted};
pub use group::Group;
pub use held::Held;
pub use isolation::{Isolation, Reason};
pub use options::{DomainOptions, Policy};
pub use server::Heap;
pub use stack::{BYTES_MAX, STACK_BYTES, Sender};
pub use table::Table;

/// The words a call carries in registers, each way.
pub type Words = [u64; 8];

/// The number of calls that may be nested in one thread: a domain that calls a domain, and so on. Each holds a stack.
pub const DEPTH_MAX: u32 = 32;
