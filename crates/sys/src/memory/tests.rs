//! Memory files of every kind, and what is told of them.

use super::*;

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_sealed_file_keeps_its_size_and_says_so() {
    let fd = create_sealed("test", 8192).unwrap();
    assert!(is_sealed(&fd, 8192).unwrap());
    assert!(!is_sealed(&fd, 4096).unwrap());
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn an_unsealed_file_and_an_ordinary_file_are_told_apart() {
    let open = rustix::fs::memfd_create("open", FLAGS).unwrap();
    rustix::fs::ftruncate(&open, 4096).unwrap();
    assert_eq!(is_sealed(&open, 4096), Ok(false));
    let plain = std::fs::File::open("/proc/self/status").unwrap();
    assert!(is_sealed(&plain, 4096).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn only_the_owner_writes_an_owner_written_file() {
    let (fd, _mapping) = create_owner_written("counters", 4096).unwrap();
    assert!(is_sealed(&fd, 4096).unwrap());
    assert!(Mapping::new(&fd, 4096, Access::ReadWrite).is_err());
    assert!(Mapping::new(&fd, 4096, Access::Read).is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_lent_file_is_whole_and_stays_so_and_only_its_owner_writes_it() {
    let (fd, mapping) = create_lent("lent", 8192).unwrap();
    assert_eq!(is_lent(&fd, 8192), Ok(true));
    assert_eq!(is_lent(&fd, 4096), Ok(false));
    assert!(Mapping::new(&fd, 8192, Access::ReadWrite).is_err());
    assert!(Mapping::new(&fd, 8192, Access::Read).is_ok());
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, 4096), Err(Errno::PERM));
    // Nor can its owner take pages away through the mapping.
    // SAFETY: the range is the mapping's; nobody holds a reference into it.
    let removed =
        unsafe { rustix::mm::madvise(mapping.base().as_ptr().cast(), 4096, Advice::LinuxRemove) };
    assert_eq!(removed, Err(Errno::PERM));
    assert_eq!(is_lent(&fd, 8192), Ok(true));

    let (sparse, _mapping) = create_owner_written("sparse", 8192).unwrap();
    assert_eq!(is_lent(&sparse, 8192), Ok(false));
    assert_eq!(
        is_lent(create_sealed("sized", 4096).unwrap(), 4096),
        Ok(false)
    );
    assert_eq!(
        is_lent(create_whole("open", 4096).unwrap(), 4096),
        Ok(false)
    );
    let plain = std::fs::File::open("/proc/self/status").unwrap();
    assert_eq!(is_lent(&plain, 0), Err(Errno::INVAL));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_constant_file_is_sealed_in_every_way_and_whole() {
    let fd = create_whole("whole", 5000).unwrap();
    assert_eq!(constant_len(&fd), Ok(None));
    let mapping = Mapping::new(&fd, 5000, Access::ReadWrite).unwrap();
    assert_eq!(seal(&fd), Err(Errno::BUSY));
    drop(mapping);
    seal(&fd).unwrap();
    assert_eq!(constant_len(&fd), Ok(Some(5000)));
    assert!(rustix::io::write(&fd, b"x").is_err());
    assert!(Mapping::new(&fd, 5000, Access::ReadWrite).is_err());
    assert!(Mapping::constant(&fd, 5000).is_ok());

    let sized = create_sealed("sized", 4096).unwrap();
    assert_eq!(constant_len(&sized), Ok(None));
    let (owned, _writes) = create_owner_written("owned", 4096).unwrap();
    assert_eq!(constant_len(&owned), Ok(None));
    let plain = std::fs::File::open("/proc/self/status").unwrap();
    assert_eq!(constant_len(&plain), Err(Errno::INVAL));
    // With a hole, which a look would have to fill.
    let sparse = rustix::fs::memfd_create("sparse", FLAGS).unwrap();
    rustix::fs::ftruncate(&sparse, 1 << 20).unwrap();
    rustix::io::write(&sparse, b"x").unwrap();
    seal(&sparse).unwrap();
    assert_eq!(constant_len(&sparse), Ok(None));
    let empty = rustix::fs::memfd_create("empty", FLAGS).unwrap();
    seal(&empty).unwrap();
    assert_eq!(constant_len(&empty), Ok(Some(0)));
}

const PAGE: u64 = 4096;

/// A file of so many pages that are not there, but those given: `(first, count)`.
fn with_pages(pages: u64, there: &[(u64, u64)]) -> OwnedFd {
    let fd = rustix::fs::memfd_create("holes", FLAGS).unwrap();
    rustix::fs::ftruncate(&fd, pages * PAGE).unwrap();
    for (first, count) in there {
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&fd, keep, first * PAGE, count * PAGE).unwrap();
    }
    fd
}

/// Whether the file is taken for whole memory, and for a whole arena.
fn is_taken(file: impl Fn() -> OwnedFd, pages: u64) -> (bool, bool) {
    let (memory, arena) = (file(), file());
    seal(&memory).unwrap();
    rustix::fs::fcntl_add_seals(&arena, LENT_SEALS).unwrap();
    let len_bytes = (pages * PAGE) as usize;
    let is_arena = is_lent(&arena, len_bytes).unwrap();
    (constant_len(&memory).unwrap() == Some(len_bytes), is_arena)
}

/// Security finding 11: pages behind the end made up for holes, and could be taken away once the file had been looked at.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_file_with_a_hole_anywhere_is_not_whole_whatever_lies_behind_its_end() {
    let pages = 64;
    assert_eq!(
        is_taken(|| with_pages(pages, &[(0, pages)]), pages),
        (true, true)
    );
    let far = 1 << 30;
    for missing in [0, 1, pages / 2, pages - 1] {
        let rest = [(0, missing), (missing + 1, pages - missing - 1)];
        let rest = Vec::from_iter(rest.into_iter().filter(|(_, count)| *count > 0));
        for behind in [None, Some((pages, 1)), Some((pages, pages)), Some((far, 7))] {
            let there = Vec::from_iter(rest.iter().copied().chain(behind));
            let taken = is_taken(|| with_pages(pages, &there), pages);
            assert_eq!(taken, (false, false), "{missing} {behind:?}");
        }
    }
    let only_behind = || with_pages(pages, &[(pages, 3 * pages)]);
    assert_eq!(is_taken(only_behind, pages), (false, false));
    // Pages behind the end alone are no reason to refuse: with large pages an honest file has them.
    let more = || with_pages(pages, &[(0, pages + 5)]);
    assert_eq!(is_taken(more, pages), (true, true));
    // Nor is a descriptor that can only read.
    let whole = with_pages(pages, &[(0, pages)]);
    seal(&whole).unwrap();
    let path = format!("/proc/self/fd/{}", whole.as_raw_fd());
    let read_only = std::fs::File::open(path).unwrap();
    assert_eq!(constant_len(&read_only), Ok(Some((pages * PAGE) as usize)));
}

/// As security finding 11. Pages behind the end, which their owner pays for once and may show often, had the reader count them each time.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_file_with_many_pages_behind_its_end_is_refused_by_their_number() {
    let large = PAGE / 8;
    for (behind, taken) in [(large, true), (large + 1, false), (100 * large, false)] {
        let file = || with_pages(1, &[(0, 1 + behind)]);
        assert_eq!(is_taken(file, 1), (taken, taken), "{behind}");
    }
}

/// As many pages behind the end as are missing: found by looks at random, before those behind the end are counted.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_large_file_with_holes_is_refused_and_a_whole_one_is_taken() {
    let pages = 3 * 4096;
    let whole = || with_pages(pages, &[(0, pages + 7)]);
    assert_eq!(is_taken(whole, pages), (true, true));
    for missing in [1, pages / 2, pages] {
        let there = [(missing, pages - missing), (2 * pages, missing)];
        let there = Vec::from_iter(there.into_iter().filter(|(_, count)| *count > 0));
        let taken = is_taken(|| with_pages(pages, &there), pages);
        assert_eq!(taken, (false, false), "{missing}");
    }
}

/// A whole file stays whole, whatever a holder of the descriptor does.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn nothing_takes_pages_out_of_a_whole_file_or_puts_some_behind_its_end() {
    use rustix::fs::FallocateFlags;
    let (pages, len_bytes) = (64, 64 * PAGE);
    for seals in [CONSTANT_SEALS, LENT_SEALS] {
        let fd = with_pages(pages, &[(0, pages + 5)]);
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        assert_eq!(whole::whole_len(fd.as_fd()), Ok(Some(len_bytes)));
        // Pages behind the end go.
        rustix::fs::ftruncate(&fd, len_bytes).unwrap();
        assert_eq!(
            rustix::fs::fstat(&fd).unwrap().st_blocks as u64,
            len_bytes / 512
        );
        let keep = FallocateFlags::KEEP_SIZE;
        for (flags, at) in [
            (keep, len_bytes),
            (FallocateFlags::empty(), len_bytes),
            (keep | FallocateFlags::PUNCH_HOLE, 0),
            (keep | FallocateFlags::PUNCH_HOLE, len_bytes),
        ] {
            let refused = rustix::fs::fallocate(&fd, flags, at, PAGE);
            assert_eq!(refused, Err(Errno::PERM), "{flags:?} {at}");
        }
        for flags in [FallocateFlags::ZERO_RANGE, FallocateFlags::COLLAPSE_RANGE] {
            assert!(rustix::fs::fallocate(&fd, flags, 0, PAGE).is_err());
        }
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len_bytes).unwrap();
        rustix::fs::ftruncate(&fd, len_bytes).unwrap();
        assert_eq!(whole::whole_len(fd.as_fd()), Ok(Some(len_bytes)));
    }
}

/// A hole in one would be filled from a pool, or not at all: `SIGBUS`.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_file_of_huge_pages_is_refused_whatever_it_is_taken_for() {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::ALLOW_SEALING.union(MemfdFlags::HUGETLB);
    let make = |seals| {
        let fd = rustix::fs::memfd_create("huge", flags)?;
        rustix::fs::ftruncate(&fd, HUGE)?;
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        // Where the machine has one, it is behind the end.
        let _ = rustix::fs::fallocate(&fd, keep, HUGE, HUGE);
        rustix::fs::fcntl_add_seals(&fd, seals).map(|()| fd)
    };
    match make(SIZE_SEALS) {
        Ok(fd) => assert_eq!(is_sealed(&fd, HUGE as usize), Ok(false)),
        Err(_) => return handfast_testing::not_exercised("no files of huge pages"),
    }
    assert_eq!(is_lent(make(LENT_SEALS).unwrap(), HUGE as usize), Ok(false));
    assert_eq!(constant_len(make(CONSTANT_SEALS).unwrap()), Ok(None));
}

#[test]
fn what_a_thread_that_is_moved_makes_is_made_anew_so_many_times() {
    use core::cell::Cell;
    // The processors on which the thread finds itself, one after the other, and how often it makes something.
    for (cpus, expected) in [(&[3, 3][..], 1), (&[0, 1, 1, 1], 2), (&[0, 1, 1, 0], 3)] {
        let (looks, made) = (Cell::new(0), Cell::new(0));
        let cpu = || cpus[looks.replace(looks.get() + 1)];
        let make = || Ok(made.replace(made.get() + 1) + 1);
        assert_eq!(on_one_cpu(3, cpu, make), Ok(expected));
        assert_eq!(looks.get(), cpus.len());
    }
    let moved = || unreachable!("one try looks at no processor");
    assert_eq!(on_one_cpu(1, moved, || Ok(7)), Ok(7));
}
