//! Sending by send rights: bytes alone, or with rights beside them.

mod now;
mod once;
mod plain;
mod post;
mod reply;
mod slots;
mod vectored;
mod with;

pub use once::NotSent;
pub use with::Sending;
