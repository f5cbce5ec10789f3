//! Room for one message that is served in this process.

use core::cell::Cell;
use handfast_layout::MESSAGE_BYTES_MAX;

/// Room for one message: this thread's, also for calls within calls. A failure in a domain that calls another may lose
/// one.
pub(super) struct Room(pub(super) Vec<u8>);

thread_local! {
    static ROOMS: Cell<Vec<Vec<u8>>> = const { Cell::new(Vec::new()) };
}

impl Room {
    #[inline]
    pub(super) fn take() -> Self {
        // A thread that is ending has none.
        let mut rooms = ROOMS.try_with(Cell::take).unwrap_or_default();
        let room = rooms.pop();
        let _ = ROOMS.try_with(|all| all.set(rooms));
        Self(room.unwrap_or_else(|| vec![0; MESSAGE_BYTES_MAX]))
    }
}

impl Drop for Room {
    #[inline]
    fn drop(&mut self) {
        let mut rooms = ROOMS.try_with(Cell::take).unwrap_or_default();
        rooms.push(core::mem::take(&mut self.0));
        let _ = ROOMS.try_with(|all| all.set(rooms));
    }
}
