//! The gate's trusted data: the rows of all domains, in a page that nobody can write. x86-64 only.

use crate::alone::alone;
use crate::row::Row;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};
use handfast_sys::{Errno, private};

/// Access to key 0 only: what the kernel starts threads and signal handlers with.
pub(crate) const NO_DOMAIN: u32 = 0x5555_5554;
/// Rows: one for each key. Row 0 stays unused.
pub(crate) const ROWS: usize = 16;
pub(crate) const ROW_BITS: u32 = size_of::<Row>().trailing_zeros();
const _: () = assert!(1 << ROW_BITS == size_of::<Row>());

/// The gate's trusted data. Read-only but while a domain is loaded or unloaded.
#[repr(C, align(4096))]
pub(crate) struct Table {
    /// The bits of all domains' keys that say "no access".
    pub(crate) denied: AtomicU32,
    /// Which vector registers there are: zero, [`AVX`] or [`AVX512`].
    pub(crate) vectors: AtomicU32,
    /// Whether the process is confined, for code with a domain's rights: whatever else says so can be written by anybody.
    confined: AtomicU32,
    padding: [u32; 29],
    pub(crate) rows: [Row; ROWS],
}

/// With AVX, and no more than that.
pub(crate) const AVX: u32 = 1;
/// With AVX-512.
pub(crate) const AVX512: u32 = 2;

pub(crate) struct Page(UnsafeCell<Table>);
// SAFETY: all fields are atomics. While the page is read-only nobody writes them: writers hold the lock of `change`.
unsafe impl Sync for Page {}

pub(crate) static TABLE: Page = Page(UnsafeCell::new(Table {
    denied: AtomicU32::new(0),
    vectors: AtomicU32::new(0),
    confined: AtomicU32::new(0),
    padding: [0; 29],
    rows: [const { Row::unused(NO_DOMAIN) }; ROWS],
}));
const _: () = assert!(size_of::<Page>().is_multiple_of(4096));

fn table() -> &'static Table {
    // SAFETY: a static, of which only shared references exist.
    unsafe { &*TABLE.0.get() }
}

/// The row of the domain whose memory has this key.
pub(crate) fn of(key: u32) -> Option<&'static Row> {
    table().rows.get(key as usize).filter(|_| key != 0)
}

/// All rows that may be of domains.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    table().rows.iter().skip(1)
}

/// The keys of all memory that domains and their stacks have.
#[cfg(feature = "confine")]
pub(crate) fn domain_keys() -> impl Iterator<Item = u32> {
    // Relaxed: rows are filled in before their domains are anybody's.
    let loaded = |(_, row): &(usize, &Row)| !row.server.load(Relaxed).is_null();
    let all = table().rows.iter().enumerate().skip(1).filter(loaded);
    all.flat_map(|(own, row)| [own as u32, row.stack_key.load(Relaxed)])
}

/// Changes the row of the domain with this key. Two system calls.
pub(crate) fn change(key: u32, what: impl FnOnce(&Row)) -> Result<(), Errno> {
    let row = of(key).ok_or(Errno::INVAL)?;
    change_table(|| what(row))
}

/// From now on domains take no deadline from their callers: they would note it where those can say it is. Two system calls.
#[cfg(feature = "confine")]
pub(crate) fn set_confined() -> Result<(), Errno> {
    // Relaxed: stored by the only thread there is, which all others come from.
    change_table(|| table().confined.store(1, Relaxed))
}

/// Whether [`set_confined`] has been called. One load.
pub(crate) fn is_confined() -> bool {
    // Relaxed: as above.
    table().confined.load(Relaxed) != 0
}

/// Makes the table writable meanwhile.
fn change_table(what: impl FnOnce()) -> Result<(), Errno> {
    let _alone = alone();
    let page = NonNull::new(TABLE.0.get().cast::<u8>()).ok_or(Errno::INVAL)?;
    // SAFETY: the table fills whole pages; they become writable.
    unsafe { private::set_writable(page, size_of::<Page>(), true) }?;
    // Relaxed, both: any thread that gets the domain gets it after this.
    table().vectors.store(vectors(), Relaxed);
    what();
    let denied = all()
        .enumerate()
        .filter(|(_, row)| !row.server.load(Relaxed).is_null())
        .fold(0, |denied, (index, row)| {
            denied | no_access(index as u32 + 1) | no_access(row.stack_key.load(Relaxed))
        });
    table().denied.store(denied & !no_access(0), Release);
    // SAFETY: as above; all writers hold the lock.
    unsafe { private::set_writable(page, size_of::<Page>(), false) }
}

/// The bit of the rights that forbids a key's pages.
const fn no_access(key: u32) -> u32 {
    1 << (2 * key)
}

/// The rights of a domain with these keys.
pub(crate) const fn rights(own: u32, stacks: u32) -> u32 {
    const BOTH: u32 = 3;
    NO_DOMAIN & !(BOTH << (2 * own)) & !(BOTH << (2 * stacks))
}

/// The rights to the stacks alone, for a handler of the program's: not the rights of any domain, so that nobody takes the
/// handler's work for the domain's.
pub(crate) const fn lent(stacks: u32) -> u32 {
    let own = rights(stacks, stacks);
    // The second bit of a key says no more than the first.
    own | (own & NO_DOMAIN) << 1
}

fn vectors() -> u32 {
    let wide = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("avx512bw");
    match (wide, std::arch::is_x86_feature_detected!("avx")) {
        (true, _) => AVX512,
        (_, true) => AVX,
        _ => 0,
    }
}

/// The pages of the table: first byte, and the one behind the last.
#[cfg(feature = "confine")]
pub(crate) fn table_range() -> (usize, usize) {
    let start = TABLE.0.get().addr();
    (start, start + size_of::<Page>())
}
