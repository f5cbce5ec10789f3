//! Sleeping and waking: one protocol, many strategies.
//!
//! * [`word`]: the wait word. How a sleeper announces itself and a waker finds out, with the four
//!   interleavings of paper 000 excluded.
//! * [`strategy`]: what a waiter does between its first look and its sleep, by name.
//! * [`place`]: where one waits.
//! * [`waiter`]: runs a strategy at a place; [`sleep_wake`] those of paper 000.
//! * [`chain`]: whether more than two processes take turns.
//! * [`calibration`]: what blocking costs on this machine.
//! * [`handoff`](mod@handoff): suggestions to the scheduler.
#![forbid(unsafe_code)]

pub mod calibration;
pub mod chain;
pub mod handoff;
pub mod place;
pub mod sleep_wake;
pub mod strategy;
pub mod waiter;
pub mod word;

pub use handoff::{Target, Unsupported, handoff};
pub use place::{Ended, Place};
pub use strategy::Strategy;
pub use waiter::{FIRST_LOOKS, FIRST_PAUSED_LOOKS, Waiter};
