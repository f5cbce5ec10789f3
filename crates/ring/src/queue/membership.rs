//! The members of real queues: record locks on a memory file (`handfast_sys::members`).

use super::Members;
use handfast_sys::members::{MEMBERS_MAX, Membership};

impl Members for Membership {
    fn me(&self) -> u32 {
        self.number()
    }

    fn incarnation(&self) -> u32 {
        Self::incarnation(self)
    }

    fn is_dead(&self, member: u32) -> bool {
        Self::is_dead(self, member)
    }
}

const _: () = assert!(MEMBERS_MAX == handfast_layout::queue::MEMBERS);
