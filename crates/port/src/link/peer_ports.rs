//! The ports of the peer at each of its receivers, as far as this process knows: which are gone.

use core::sync::atomic::{AtomicU32, Ordering};
use handfast_layout::bell::RECEIVERS;

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
        last != 0 && !is_later(port, last)
    }

    /// All ports of a receiver up to this one are gone. Whether that is news.
    pub(super) fn go(&self, port: u32) -> bool {
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
