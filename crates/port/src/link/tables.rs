//! The tables of rights of a link, each under its lock.

use super::Link;
use crate::rank;
use handfast_proto::rights::{Exports, Handle, Imports, Refused};
use handfast_sys::lock::Guard;

impl Link {
    /// The rights to our ports that the peer has.
    #[inline]
    pub(crate) fn exports(&self) -> Guard<'_, Exports, rank::Exports> {
        self.exports.lock()
    }

    /// The rights to the peer's ports that we have.
    #[inline]
    pub(crate) fn imports(&self) -> Guard<'_, Imports, rank::Imports> {
        self.imports.lock()
    }

    /// Adds a right to `port` of the peer, by this name: the first of all is a use of the link, as [`Held`] is.
    #[inline(always)]
    pub(crate) fn arrive(&self, handle: Handle, port: u32) -> Result<(), Refused> {
        let mut imports = self.imports();
        let is_first = !imports.has_rights();
        imports.arrive(handle, port)?;
        if is_first {
            // Under the lock, so before the last right is dropped.
            self.usage.add();
        }
        Ok(())
    }
}
