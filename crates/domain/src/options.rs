//! How a domain is loaded.

use crate::group::Group;
use crate::isolation::Isolation;

/// The treatment of a domain after a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The domain's memory is cleared and its value made anew, once the last call has left the domain.
    #[default]
    Reset,
    /// The domain stays as it is, and all calls fail.
    Dead,
}

/// How a domain is loaded.
#[derive(Clone, Debug)]
pub struct DomainOptions {
    pub(crate) heap_bytes: usize,
    pub(crate) policy: Policy,
    pub(crate) group: Option<Group>,
    pub(crate) isolation: Isolation,
}

impl Default for DomainOptions {
    fn default() -> Self {
        Self {
            heap_bytes: 1 << 20,
            policy: Policy::Reset,
            group: None,
            isolation: Isolation::Automatic,
        }
    }
}

impl DomainOptions {
    /// 1 MiB of memory, a group of its own, reset after a fault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The size of the domain's memory for its value, in bytes, rounded up to pages. Untouched pages take no memory.
    #[must_use]
    pub const fn heap_bytes(mut self, heap_bytes: usize) -> Self {
        self.heap_bytes = heap_bytes;
        self
    }

    /// The treatment of the domain after a fault.
    #[must_use]
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Shares stacks with the other domains of this group. Takes one memory key more than a domain alone.
    #[must_use]
    pub fn group(mut self, group: &Group) -> Self {
        self.group = Some(group.clone());
        self
    }

    /// Without memory keys: the same calls, in plain Rust, on the caller's stack. Only panics stay in the domain; any other
    /// fault is the process's.
    #[must_use]
    pub const fn unprotected(self) -> Self {
        self.isolation(Isolation::Unprotected)
    }

    /// The mechanism that isolates the domain; unless set, [`Isolation::Automatic`].
    #[must_use]
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    pub(crate) const fn get_heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    pub(crate) const fn get_policy(&self) -> Policy {
        self.policy
    }
}
