//! Messages between parent and child on their socket; all else goes by ports.

/// Child: it is the same program, and waits for the plan.
pub(crate) const HERE: u8 = 1;
/// Child: the domain is loaded; with the descriptor that leads to its port.
pub(crate) const READY: u8 = 2;
/// Child: it is not, and this is why (a status; zero: something else).
pub(crate) const FAILED: u8 = 3;
/// Child: the domain has gone wrong (a status), and the process ends.
pub(crate) const FAULT: u8 = 4;

/// Bytes of a message of the child's: its kind and a number.
pub(crate) const BYTES: usize = 9;

/// The most bytes of the plan in one message.
pub(crate) const PLAN_BYTES: usize = 16 << 10;

pub(crate) const fn of_status(kind: u8, status: u64) -> [u8; BYTES] {
    let number = status.to_le_bytes();
    let [a, b, c, d, e, f, g, h] = number;
    [kind, a, b, c, d, e, f, g, h]
}

pub(crate) fn parse(bytes: &[u8]) -> Option<(u8, u64)> {
    let (kind, number) = bytes.split_first()?;
    Some((*kind, u64::from_le_bytes(number.try_into().ok()?)))
}
