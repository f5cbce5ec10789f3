//! The ports of the peer at each of its receivers, as far as this process knows: which are gone. Rights to a port that shares a
//! receiver are revoked when it ends: such ports are not in a row.

use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::bell::RECEIVERS;
use handfast_layout::part::is_member;

pub(crate) struct PeerPorts {
    /// The last port of each receiver that is gone; zero for none.
    gone: [AtomicU32; RECEIVERS as usize],
    /// The latest port of each that this process has sent to.
    newest: [AtomicU32; RECEIVERS as usize],
}

impl Default for PeerPorts {
    fn default() -> Self {
        Self {
            gone: core::array::from_fn(|_| AtomicU32::new(0)),
            newest: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl PeerPorts {
    #[inline]
    pub(super) fn is_gone(&self, port: u32) -> bool {
        // Acquire: pairs with the exchange in `go`.
        let last = self.gone[(port % RECEIVERS) as usize].load(Ordering::Acquire);
        last != 0 && !is_later(port, last) && !is_member(port)
    }

    /// All ports of a receiver up to this one are gone. Whether that is news.
    pub(super) fn go(&self, port: u32) -> bool {
        if is_member(port) {
            return false;
        }
        let gone = &self.gone[(port % RECEIVERS) as usize];
        // Acquire and Release: pairs with the load in `is_gone`.
        let news = gone.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
            (last == 0 || is_later(port, last)).then_some(port)
        });
        news.is_ok()
    }

    /// This process sends to `port`, as the peer itself has told it. Returns the port that is gone by that: of two at one receiver,
    /// the earlier one.
    pub(super) fn gone_by_use_of(&self, port: u32) -> Option<u32> {
        if is_member(port) {
            return None;
        }
        let newest = &self.newest[(port % RECEIVERS) as usize];
        // Relaxed: numbers; that one is gone publishes itself.
        let other = newest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |newest| {
            (newest == 0 || is_later(port, newest)).then_some(port)
        });
        match other {
            Ok(0) => None,
            Ok(earlier) => Some(earlier),
            Err(same) if same == port => None,
            Err(_) => Some(port),
        }
    }
}

/// Whether `port` was bound after `other`, at the same receiver: the generation is in the 22 bits above
/// the receiver and wraps around.
const fn is_later(port: u32, other: u32) -> bool {
    ((port & !0xff) << 2)
        .wrapping_sub((other & !0xff) << 2)
        .cast_signed()
        > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_layout::part::IS_MEMBER;

    #[test]
    fn ports_that_share_a_receiver_are_in_no_row() {
        let ports = PeerPorts::default();
        let (first, second) = (1 << 8 | 3, 2 << 8 | 3);
        let member = |number: u32| number << 8 | 3 | IS_MEMBER;
        for number in [0, 1, 1 << 20, 1 << 21, 3 << 20] {
            assert!(!ports.go(member(number)));
            assert_eq!(ports.gone_by_use_of(member(number)), None);
        }
        assert_eq!(ports.gone_by_use_of(first), None);
        assert_eq!(ports.gone_by_use_of(second), Some(first));
        assert!(ports.go(first) && ports.is_gone(first) && !ports.is_gone(second));
        for number in [0, 1, 1 << 20, 1 << 21, 3 << 20] {
            assert!(!ports.is_gone(member(number)));
        }
    }
}
