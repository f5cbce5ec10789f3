//! The promises of a port at any distance: each case is a server and a client, which know of each other by the client's right alone.
//!
//! The same cases run over each kind of link (`tests/conformance/main.rs`, and `simulation/conformance.rs` on a simulated machine),
//! so a side waits by ports and rights alone, and uses nothing but the public interface.

use super::api;
pub(crate) use sides::Case;

mod calls;
mod ends;
mod members;
mod once;
mod rights;
mod sides;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = Case> {
    [
        calls::CASES,
        rights::CASES,
        once::CASES,
        ends::CASES,
        members::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
