//! The part of a right that its receiver is told with each message.

use handfast_layout::part::IS_HANDLE;
use handfast_proto::rights::Target;

/// The part of a right that its receiver is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seal {
    pub(crate) badge: u64,
    pub(crate) permissions: u16,
    /// The port, if it shares its receiver, with [`ONCE`] where that is the one of a send-once right; zero for the receiver's own.
    beside: u32,
}

/// No port's number has this bit.
const ONCE: u32 = IS_HANDLE;

impl Seal {
    /// The seal of no right.
    pub(crate) const NONE: Self = Self {
        badge: 0,
        permissions: 0,
        beside: 0,
    };

    /// The port, if it is one that the application has made at the receiver of another.
    pub(crate) fn member(self) -> Option<u32> {
        (self.beside != 0 && !self.is_once()).then_some(self.beside)
    }

    pub(crate) const fn is_once(self) -> bool {
        self.beside & ONCE != 0
    }

    /// The port, if it is the one of a send-once right.
    pub(crate) fn once(self) -> Option<u32> {
        self.is_once().then_some(self.beside & !ONCE)
    }

    pub(crate) const fn of(target: Target) -> Self {
        Self {
            badge: target.badge,
            permissions: target.permissions,
            beside: 0,
        }
    }

    /// As [`Self::of`], of a right to a port that shares its receiver.
    pub(crate) const fn of_member(target: Target) -> Self {
        Self {
            beside: target.port,
            ..Self::of(target)
        }
    }

    /// The same, of a right to a receiver's own port.
    pub(crate) const fn alone(self) -> Self {
        Self { beside: 0, ..self }
    }

    /// As [`Self::of_member`], of a send-once right.
    pub(crate) const fn of_once(target: Target) -> Self {
        Self {
            beside: target.port | ONCE,
            ..Self::of(target)
        }
    }
}
