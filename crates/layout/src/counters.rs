//! The counters region: pages one process writes and others may only read.
//!
//! The file is sealed so that no later mapping can write it. Rows are 64-bit words; a reader may
//! see a row half a step behind its neighbours.

use crate::{PAGE, page_align};

/// Words of a row.
pub const ROW_WORDS: usize = 16;
/// Rows for receivers (ports), then rows for links.
pub const PORT_ROWS: u32 = crate::bell::RECEIVERS;
/// Rows for links.
pub const LINK_ROWS: u32 = crate::bell::LINKS;
/// Bytes of a port's name in the table that follows the rows.
pub const NAME_BYTES: usize = 64;
const ROW_BYTES: usize = ROW_WORDS * 8;
const NAMES: usize = (PORT_ROWS + LINK_ROWS) as usize * ROW_BYTES;
/// Bytes of the region.
pub const REGION_BYTES: usize = page_align(NAMES + PORT_ROWS as usize * NAME_BYTES);

/// The count in each word of a row, in order; `spec/layout.md` lists a port's and a link's.
pub const COLUMNS: [&str; 16] = [
    "in_use",
    "peer_pid",
    "peer_uid",
    "calls",
    "sends",
    "rights",
    "bytes_in",
    "bytes_out",
    "spins",
    "parks",
    "wakes",
    "defers",
    "faults",
    "forwards",
    "vines",
    "muted",
];

/// The column of calls.
pub const CALLS: usize = 3;

/// The column of how many bytes the answers to a port's calls had.
pub const BYTES_OUT: usize = 7;

/// The column of how often a port had to wake a peer.
pub const WAKES: usize = 10;

/// The column of how many links were cut for what came through them to a port.
pub const FAULTS: usize = 12;

/// The column of how many rights to ports of this process the peer of a link has, revoked ones included.
pub const RIGHTS: usize = 5;

/// The column of how often somebody who woke this process all the time was not listened to for a moment.
pub const MUTED: usize = 15;

/// Offset of word `column` in the row of receiver `receiver`.
///
/// # Panics
/// If either index is out of range.
#[must_use]
pub const fn port_word(receiver: u32, column: usize) -> usize {
    assert!(receiver < PORT_ROWS && column < ROW_WORDS);
    receiver as usize * ROW_BYTES + column * 8
}

/// Offset of word `column` in the row of link `link`.
///
/// # Panics
/// If either index is out of range.
#[must_use]
pub const fn link_word(link: u32, column: usize) -> usize {
    assert!(link < LINK_ROWS && column < ROW_WORDS);
    (PORT_ROWS + link) as usize * ROW_BYTES + column * 8
}

/// Offset of the name of receiver `receiver`: zero-padded bytes.
///
/// # Panics
/// If the index is out of range.
#[must_use]
pub const fn port_name(receiver: u32) -> usize {
    assert!(receiver < PORT_ROWS);
    NAMES + receiver as usize * NAME_BYTES
}

const _: () = assert!(COLUMNS.len() <= ROW_WORDS && REGION_BYTES.is_multiple_of(PAGE));
