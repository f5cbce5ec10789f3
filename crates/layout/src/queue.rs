//! Layouts of the two plain shared queues: the two-lock queue and the bounded MPMC ring.
//!
//! Both hold fixed-size messages of [`MESSAGE_BYTES`] bytes, as the experiments of paper 000 do.

pub mod two_lock;

/// Bytes of a message in a plain queue (paper 000, section 2.2).
pub const MESSAGE_BYTES: usize = 24;

/// Most processes that share one plain queue; they are numbered from 1.
pub const MEMBERS: u32 = 63;
