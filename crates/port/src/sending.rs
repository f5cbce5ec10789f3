//! Sending by send rights: bytes alone, or with rights beside them.

pub(crate) mod fast;
pub(crate) mod now;
pub(crate) mod once;
pub(crate) mod plain;
pub(crate) mod post;
pub(crate) mod reply;
pub(crate) mod vectored;
pub(crate) mod with;

pub use once::NotSent;
pub use with::Sending;

#[cfg(test)]
mod tests;
