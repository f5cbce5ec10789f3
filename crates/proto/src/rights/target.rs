//! The target of a right.

/// The permissions of a right that was not attenuated.
pub const ALL_PERMISSIONS: u16 = u16::MAX;

/// The target of a handle: a port of this process, and the information its receiver gets about the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Number of the port.
    pub port: u32,
    /// Chosen when the right was minted.
    pub badge: u64,
    /// A bit for each thing that its holder may ask for; what they mean is the receiver's to say.
    pub permissions: u16,
}

impl Target {
    /// One with all permissions.
    #[must_use]
    pub const fn full(port: u32, badge: u64) -> Self {
        let permissions = ALL_PERMISSIONS;
        Self {
            port,
            badge,
            permissions,
        }
    }

    /// With no permissions but those in `mask`, as far as it has them.
    #[must_use]
    pub const fn attenuated(self, mask: u16) -> Self {
        let permissions = self.permissions & mask;
        Self {
            permissions,
            ..self
        }
    }
}
