//! The part of a right that its receiver is told with each message.

use handfast_proto::rights::Target;

/// The part of a right that its receiver is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seal {
    pub(crate) badge: u64,
    pub(crate) permissions: u16,
    /// The port, if it shares its receiver; zero for the receiver's own.
    pub(crate) member: u32,
}

impl Seal {
    /// The seal of no right.
    pub(crate) const NONE: Self = Self {
        badge: 0,
        permissions: 0,
        member: 0,
    };

    /// The port, if it shares its receiver.
    pub(crate) fn member(self) -> Option<u32> {
        (self.member != 0).then_some(self.member)
    }

    pub(crate) const fn of(target: Target) -> Self {
        Self {
            badge: target.badge,
            permissions: target.permissions,
            member: 0,
        }
    }

    /// As [`Self::of`], of a right to a port that shares its receiver.
    pub(crate) const fn of_member(target: Target) -> Self {
        Self {
            member: target.port,
            ..Self::of(target)
        }
    }
}
