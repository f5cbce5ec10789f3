//! handfast's policies as state machines without I/O: no clock, no descriptor, no memory but
//! their own. Time comes in as an argument, decisions come out as values, so one simulator drives
//! thousands of steps in the time of one real sleep.
//!
//! * [`spin`]: how long a waiter spins before it sleeps (paper 001, section 7).
//! * [`introductions`]: how a right comes straight from a third process (`docs/decisions/0009-introductions.md`).
//! * [`loans`]: which blocks of arenas the two parties of a link have lent to each other.
//! * [`moves`]: how those who have rights to a port find it after it has moved (paper 004, section 2.5.6).
//! * [`neighbours`]: whether other threads run on this processor while one yields.
//! * [`paths`]: how the answer to a call that was passed on comes straight to its caller (`docs/decisions/0008-return-paths.md`).
//! * [`rights`]: which rights the two parties of a link have given to each other (paper 004, section 2.5).
//! * [`rota`]: which clients an overloaded server serves, and whom it wakes (paper 000,
//!   section 5, future work).
//! * [`streams`]: which way the bytes of a stream socket go (paper 001, section 2.2).
//! * [`takers`]: which of the tasks that wait at one port looks next.
//! * [`timers`]: which work a node puts off, and when it is tried again.
//! * [`users`]: what the users of peers may hold of this process, so that none takes what the others need.
//! * [`yields`]: when to yield to a peer on the same processor before one sleeps.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod introductions;
pub mod loans;
pub mod moves;
pub mod neighbours;
pub mod paths;
pub mod rights;
pub mod rota;
pub mod spin;
pub mod streams;
pub mod takers;
pub mod timers;
pub mod users;
pub mod yields;

#[cfg(test)]
mod schedule;
