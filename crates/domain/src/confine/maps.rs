//! The mappings of this process, as the kernel says them.

use super::ConfineError;
use handfast_sys::Errno;
use std::fs;

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) runs: bool,
    pub(super) is_shared: bool,
    /// Where in the file it begins.
    pub(super) offset: u64,
    /// Device and number of the file; `None` without one.
    pub(super) file: Option<(String, u64)>,
    /// Its path, or the kernel's name for it, or nothing.
    pub(super) path: String,
    /// Its protection key.
    pub(super) key: u32,
}

impl Mapping {
    pub(super) const fn len_bytes(&self) -> usize {
        self.end - self.start
    }
}

/// The page of old system calls that the kernel emulates: outside of what programs can map, and never changed.
const VSYSCALL: &str = "[vsyscall]";

/// All mappings, in order.
pub(super) fn read() -> Result<Vec<Mapping>, ConfineError> {
    let text = fs::read("/proc/self/smaps").map_err(|error| ConfineError::Os {
        call: "reading /proc/self/smaps",
        errno: error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)
            .into(),
    })?;
    parse(&String::from_utf8_lossy(&text)).ok_or(ConfineError::Unsupported {
        what: "/proc/self/smaps does not name protection keys",
    })
}

/// `None` where a mapping has no key, or a line cannot be read.
pub(super) fn parse(text: &str) -> Option<Vec<Mapping>> {
    let mut all: Vec<Mapping> = Vec::new();
    let mut keys = 0;
    for line in text.lines() {
        let first = line.split_ascii_whitespace().next()?;
        if !first.ends_with(':') {
            all.push(head(line)?);
        } else if let Some(key) = line.strip_prefix("ProtectionKey:") {
            all.last_mut()?.key = key.trim().parse().ok()?;
            keys += 1;
        }
    }
    let is_whole = keys == all.len();
    all.retain(|mapping| mapping.path != VSYSCALL);
    is_whole.then_some(all)
}

/// `start-end rwxp offset device inode path`.
fn head(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let has = |at: usize, letter: u8| rights.get(at) == Some(&letter);
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let device = words.next()?;
    let number: u64 = words.next()?.parse().ok()?;
    Some(Mapping {
        // The page of old system calls lies at the very top.
        start: u64::from_str_radix(start, 16).ok()? as usize,
        end: u64::from_str_radix(end, 16).ok()? as usize,
        reads: has(0, b'r'),
        writes: has(1, b'w'),
        runs: has(2, b'x'),
        is_shared: has(3, b's'),
        offset,
        file: (number != 0).then(|| (device.to_owned(), number)),
        path: words.next().unwrap_or_default().trim_start().to_owned(),
        key: 0,
    })
}

/// Checks that writable memory stays without code in it, and that code can be looked at.
pub(super) fn check(all: &[Mapping]) -> Result<(), ConfineError> {
    /// Below it, code can be run in the processor's 32-bit mode, where the gate's instructions mean something else.
    const LOW: usize = 1 << 32;
    for mapping in all {
        let why = if mapping.runs && mapping.writes {
            "it can be written and executed; give up one of the two (mprotect)"
        } else if mapping.runs && !mapping.reads {
            "it can be executed and not read, so nobody can look what is in it; make it readable (mprotect)"
        } else if mapping.runs && mapping.start < LOW {
            "code below 4 GiB, which the processor's 32-bit mode can run; link it as position-independent"
        } else if mapping.runs && mapping.is_shared {
            "code that others can change (a shared mapping); map it privately"
        } else if mapping.key != 0 && (mapping.is_shared || mapping.file.is_some()) {
            "it has a domain's key and lies in a file as well; domains have private memory"
        } else {
            continue;
        };
        return Err(ConfineError::Memory {
            at: mapping.start,
            why,
            file: mapping.path.clone(),
        });
    }
    Ok(())
}

/// Whether a mapping is part of the code and constants of a program or library: not writable, of a file of which some
/// part can be executed. Also holes (no access) in it.
pub(super) fn is_image(all: &[Mapping], mapping: &Mapping) -> bool {
    let has_code = |file| {
        all.iter()
            .any(|other| other.runs && other.file.as_ref() == Some(file))
    };
    !mapping.writes && !mapping.is_shared && mapping.file.as_ref().is_some_and(has_code)
}

/// A range of addresses: first, and the one behind the last.
pub(super) type Range = (usize, usize);

/// Memory that nobody may change any more: code, read-only memory of programs and libraries, and all memory with a key.
pub(super) fn guarded(all: &[Mapping], more: &[Range]) -> Vec<Range> {
    // The kernel's own pages, of code and of the time, are among them.
    let is_kernels = |mapping: &Mapping| mapping.path.starts_with("[v");
    let is_guarded = |mapping: &&Mapping| {
        mapping.runs || mapping.key != 0 || is_image(all, mapping) || is_kernels(mapping)
    };
    let mut ranges: Vec<Range> = all
        .iter()
        .filter(is_guarded)
        .map(|mapping| (mapping.start, mapping.end))
        .chain(more.iter().copied())
        .collect();
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_rights_names_and_keys() {
        let text = "\
7f00-7f10 r-xp 00001000 08:01 77                         /lib/a b.so
Size:                  4 kB
ProtectionKey:         0
VmFlags: rd ex mr mw me
8000-9000 rw-s 00000000 00:00 0
ProtectionKey:         3
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
ProtectionKey:         0
";
        let all = parse(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].start, all[0].end, all[0].offset),
            (0x7f00, 0x7f10, 0x1000)
        );
        assert_eq!(all[0].path, "/lib/a b.so");
        assert_eq!(all[0].file, Some(("08:01".to_owned(), 77)));
        assert!(all[0].runs && all[0].reads && !all[0].writes && !all[0].is_shared);
        assert_eq!(
            (all[1].key, all[1].is_shared, all[1].file.clone()),
            (3, true, None)
        );
        // Without keys it says nothing.
        assert_eq!(parse("7f00-7f10 r-xp 00001000 08:01 77 /lib/a.so\n"), None);
        assert_eq!(parse("7f00 r-xp\n"), None);
    }

    #[test]
    fn memory_that_can_be_written_and_run_or_not_looked_at_is_named() {
        let good = Mapping {
            start: 1 << 40,
            end: (1 << 40) + 4096,
            reads: true,
            runs: true,
            path: "/lib/x.so".to_owned(),
            file: Some(("1".to_owned(), 1)),
            ..Mapping::default()
        };
        check(std::slice::from_ref(&good)).unwrap();
        let bad = [
            Mapping {
                writes: true,
                ..good.clone()
            },
            Mapping {
                reads: false,
                ..good.clone()
            },
            Mapping {
                start: 4096,
                ..good.clone()
            },
            Mapping {
                is_shared: true,
                ..good.clone()
            },
            Mapping {
                key: 2,
                ..good.clone()
            },
        ];
        for mapping in bad {
            let error = check(&[mapping]).unwrap_err();
            assert!(error.to_string().contains("/lib/x.so"), "{error}");
        }
    }

    #[test]
    fn code_constants_and_keyed_memory_are_guarded_in_one_piece_where_they_touch() {
        let file = Some(("1".to_owned(), 1));
        let piece = |start, runs, writes, key, file: &Option<(String, u64)>| Mapping {
            start,
            end: start + 0x1000,
            reads: true,
            runs,
            writes,
            key,
            file: file.clone(),
            ..Mapping::default()
        };
        let all = [
            piece(0x1000, false, false, 0, &file),
            piece(0x2000, true, false, 0, &file),
            piece(0x3000, false, true, 0, &file),
            piece(0x5000, false, true, 4, &None),
            Mapping {
                path: "[vvar]".to_owned(),
                ..piece(0x9000, false, false, 0, &None)
            },
            // A file that is only read is nobody's code.
            piece(0x7000, false, false, 0, &Some(("1".to_owned(), 2))),
        ];
        let ranges = guarded(&all, &[(0x6000, 0x7000)]);
        assert_eq!(
            ranges,
            [(0x1000, 0x3000), (0x5000, 0x7000), (0x9000, 0xa000)]
        );
    }
}
