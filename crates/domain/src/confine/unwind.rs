//! Where functions begin, from the tables for unwinding that every program and library has.

use core::ffi::{c_int, c_void};

/// A loaded program or library.
struct Object {
    base: usize,
    /// Its table of functions (`.eh_frame_hdr`).
    table: Option<usize>,
}

/// The object that [`libc::dl_iterate_phdr`] looks for, and what it has found.
struct Search {
    at: usize,
    found: Option<Object>,
}

unsafe extern "C" fn look(about: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: passed through from `find`.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the C library's, for this call.
    let about = unsafe { &*about };
    // SAFETY: as many headers lie there.
    let headers = unsafe { core::slice::from_raw_parts(about.dlpi_phdr, about.dlpi_phnum.into()) };
    let base = about.dlpi_addr as usize;
    let has = |header: &&libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && search.at.wrapping_sub(start) < header.p_memsz as usize
    };
    if !headers.iter().any(|header| has(&header)) {
        return 0;
    }
    let table = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    search.found = Some(Object {
        base,
        table: table.map(|header| base.wrapping_add(header.p_vaddr as usize)),
    });
    1
}

fn find(at: usize) -> Option<Object> {
    let mut search = Search { at, found: None };
    // SAFETY: `look` gets the search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Where the program or library that has this address is loaded.
pub(super) fn object_of(at: usize) -> Option<usize> {
    find(at).map(|object| object.base)
}

fn word(at: usize) -> u32 {
    let at: *const u32 = core::ptr::with_exposed_provenance(at);
    // SAFETY: inside the table of a loaded object, as its own header says.
    unsafe { at.read_unaligned() }
}

const fn plus(at: usize, distance: u32) -> usize {
    at.wrapping_add_signed(distance.cast_signed() as isize)
}

/// The first instruction of the function that has this address; `None` where no table says it.
pub(super) fn function_of(at: usize) -> Option<usize> {
    /// Version 1; a pointer of 4 bytes from here; a count of 4 bytes; a sorted table of pairs of 4 bytes, from the
    /// table's own address.
    const USUAL: u32 = u32::from_le_bytes([1, 0x1b, 0x03, 0x3b]);
    const ENTRIES_AT: usize = 12;
    const ENTRY_BYTES: usize = 8;
    let table = find(at)?.table?;
    if word(table) != USUAL {
        return None;
    }
    let count = word(table + 8) as usize;
    let entry = |index: usize| table + ENTRIES_AT + index * ENTRY_BYTES;
    let function = |index: usize| plus(table, word(entry(index)));
    // The last one that begins at or before the address.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if function(middle) <= at {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let index = low.checked_sub(1)?;
    let start = function(index);
    // Its description: length, where the common part is, first address (from here), length of the function.
    let about = plus(table, word(entry(index) + 4));
    let is_its = plus(about + 8, word(about + 8)) == start;
    (is_its && at - start < word(about + 12) as usize).then_some(start)
}
