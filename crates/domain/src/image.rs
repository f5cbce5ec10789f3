//! The functions of a domain without their types, and how they are laid out in its memory.

use crate::row::{Entry, Row};
use crate::server::{Heap, Make, Server};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::private;

/// The functions of a table.
pub(crate) struct Functions {
    pub(crate) init: *const (),
    pub(crate) make: Make,
    pub(crate) entries: Vec<Entry>,
}

impl Functions {
    /// Lays a server out at the front of `memory`, behind it the entries, behind those on a page boundary the heap.
    /// `None` when there is no room.
    pub(crate) fn lay_out(
        &self,
        memory: &private::Private,
        dies: bool,
        secrets: [u64; 2],
    ) -> Option<Laid> {
        let page = private::page_bytes();
        let entries_at = size_of::<Server>().next_multiple_of(align_of::<Entry>());
        let heap_at = (entries_at + size_of_val(self.entries.as_slice())).next_multiple_of(page);
        let len_bytes = memory.len_bytes().checked_sub(heap_at)?;
        // SAFETY: `heap_at` is inside the mapping, by the subtraction.
        let heap = unsafe { memory.base().add(heap_at) };
        // SAFETY: as above; less than `heap_at`.
        let place = unsafe { memory.base().add(entries_at) }.cast::<Entry>();
        for (index, entry) in self.entries.iter().enumerate() {
            // SAFETY: `heap_at` was computed so that all entries lie before it.
            let slot = unsafe { place.add(index) };
            // SAFETY: aligned, in the mapping, which is new and nobody else's.
            unsafe { slot.write(*entry) };
        }
        let server = memory.base().cast::<Server>();
        let start = memory.base().addr().get();
        // SAFETY: the rest of the mapping, which is new and nobody else's.
        let heap = unsafe { Heap::new(heap, len_bytes) };
        let value = Server::new(
            (start, start + memory.len_bytes()),
            heap,
            dies,
            (self.init, self.make),
            secrets,
        );
        // SAFETY: a page boundary, in the mapping, which is new and nobody else's.
        unsafe { server.write(value) };
        Some(Laid {
            server,
            entries: place,
            entries_len: u32::try_from(self.entries.len()).ok()?,
        })
    }
}

/// Where a server and its entries were laid out.
#[derive(Clone, Copy)]
pub(crate) struct Laid {
    server: NonNull<Server>,
    entries: NonNull<Entry>,
    entries_len: u32,
}

impl Laid {
    /// Fills in what a row says of them.
    pub(crate) fn describe(self, row: &Row) {
        // Relaxed, all of them: a thread that gets the domain gets it after this.
        row.entries.store(self.entries.as_ptr(), Relaxed);
        row.entries_len.store(self.entries_len, Relaxed);
        row.server.store(self.server.as_ptr(), Relaxed);
    }
}
