//! Sending by send rights: bytes alone, or with rights beside them.

mod now;
mod plain;
mod post;
mod reply;
mod slots;
mod with;

pub use with::Sending;
