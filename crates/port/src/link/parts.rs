//! The parts of messages that are under way.

use super::fills::Fills;
use super::inbox::UnderWay;
use super::long::{self, Long};
use super::passing::Passing;
use super::returns::Returns;
use crate::arena::Out;
use crate::rank;
use crate::users::Users;
use handfast_proto::loans::Lent;
use handfast_sys::sync::Mutex;
use std::sync::Arc;

/// The parts of messages that are not there for good: reply rights, blocks, descriptors.
pub(crate) struct PartsUnderWay {
    pub(crate) passing: Passing,
    /// Return slots of ours.
    pub(crate) returns: Mutex<Returns, rank::Returns>,
    /// Memory in which long messages go to the peer, and to no other.
    pub(crate) long: Mutex<Long, rank::Long>,
    pub(crate) fills: Fills,
    /// Blocks of our arenas that the peer has.
    pub(crate) lent: Mutex<Lent<Out>, rank::Lent>,
    /// Descriptors that go with messages, both ways.
    pub(crate) under_way: UnderWay,
    /// The longest message, in bytes.
    pub(super) longest: usize,
}

impl PartsUnderWay {
    /// None yet; descriptors count against this user, the peer's.
    pub(super) fn new(users: &Arc<Users>, user: u32) -> Self {
        Self {
            passing: Passing::default(),
            returns: Mutex::default(),
            long: Mutex::default(),
            fills: Fills::default(),
            lent: Mutex::default(),
            under_way: UnderWay::new(users, user),
            longest: long::longest_to(user),
        }
    }
}
