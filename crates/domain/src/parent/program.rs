//! Functions as places in the program's own file, which are the same in every process that runs it.

use core::ffi::{c_int, c_void};

/// The program's own code in this process.
struct Program {
    base: usize,
    /// Ranges that can be run: first byte and length.
    code: Vec<(usize, usize)>,
}

unsafe extern "C" fn look(about: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: passed through from `own`.
    let found = unsafe { &mut *found.cast::<Program>() };
    // SAFETY: the C library's, for this call.
    let about = unsafe { &*about };
    // SAFETY: as many headers lie there.
    let headers = unsafe { core::slice::from_raw_parts(about.dlpi_phdr, about.dlpi_phnum.into()) };
    found.base = about.dlpi_addr as usize;
    let runs = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0);
    let range = |header: &libc::Elf64_Phdr| {
        let start = found.base.wrapping_add(header.p_vaddr as usize);
        (start, header.p_memsz as usize)
    };
    found.code = runs.map(range).collect();
    // The program comes first, its libraries behind it.
    1
}

impl Program {
    fn own() -> Self {
        let mut found = Self {
            base: 0,
            code: Vec::new(),
        };
        // SAFETY: `look` gets what outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        found
    }

    fn has(&self, address: usize) -> bool {
        let is_in = |&(start, len): &(usize, usize)| address.wrapping_sub(start) < len;
        self.code.iter().any(is_in)
    }
}

/// Where functions with these addresses lie in the program; `None` when one is a library's.
pub(super) fn places_of(addresses: impl Iterator<Item = usize>) -> Option<Vec<u64>> {
    let program = Program::own();
    let place = |address| {
        program
            .has(address)
            .then(|| address.wrapping_sub(program.base) as u64)
    };
    addresses.map(place).collect()
}

/// The addresses of functions at these places of the program; `None` when one is no place of code.
pub(super) fn addresses_of(places: impl Iterator<Item = u64>) -> Option<Vec<usize>> {
    let program = Program::own();
    let address = |place| {
        let address = program.base.wrapping_add(usize::try_from(place).ok()?);
        program.has(address).then_some(address)
    };
    places.map(address).collect()
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_program_have_places_and_others_do_not() {
        let own = [
            look as *const () as usize,
            Program::own as *const () as usize,
        ];
        let places = places_of(own.into_iter()).unwrap();
        assert_eq!(addresses_of(places.into_iter()).unwrap(), own);
        let library = libc::getpid as *const () as usize;
        let data = (&raw const own).addr();
        for other in [library, data, 0] {
            // A test that is linked statically has no libraries.
            assert!(places_of([other].into_iter()).is_none() || other == library);
        }
        assert!(addresses_of([u64::MAX >> 8].into_iter()).is_none());
    }
}
