//! Where code could change its own rights: WRPKRU, and XRSTOR, which can load the rights with other registers.
//!
//! A sequence counts wherever it begins, in an instruction or across two of them: a jump can arrive at any byte.
//! XRSTORS (0F C7 /3) is none of them: programs may not run it.

/// An instruction that changes rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    WrPkru,
    XRstor,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WrPkru => "WRPKRU (0f 01 ef)",
            Self::XRstor => "XRSTOR (0f ae /5)",
        }
    }
}

/// Bytes of a sequence.
pub(super) const LEN: usize = 3;

/// All of them in `code`, with where they begin.
pub(super) fn find(code: &[u8]) -> impl Iterator<Item = (usize, Kind)> {
    let mut from = 0;
    core::iter::from_fn(move || {
        loop {
            let at = from + first_of(code.get(from..)?, ESCAPE)?;
            from = at + 1;
            let bytes = code.get(at..at + LEN)?.try_into().ok()?;
            if let Some(kind) = kind(bytes) {
                return Some((at, kind));
            }
        }
    })
}

/// The first byte of all of them.
const ESCAPE: u8 = 0x0f;

/// Where the first such byte is. The C library's way: there are megabytes of code.
fn first_of(code: &[u8], byte: u8) -> Option<usize> {
    // SAFETY: looks at the bytes of the slice.
    let found = unsafe { libc::memchr(code.as_ptr().cast(), byte.into(), code.len()) };
    (!found.is_null()).then(|| found.addr() - code.as_ptr().addr())
}

/// The instruction that begins with these bytes.
const fn kind(bytes: [u8; LEN]) -> Option<Kind> {
    const REGISTER: u8 = 3;
    match bytes {
        [0x0f, 0x01, 0xef] => Some(Kind::WrPkru),
        // Operation 5, and an operand in memory; with a register the same bytes are LFENCE.
        [0x0f, 0xae, operand] if operand >> 3 & 7 == 5 && operand >> 6 != REGISTER => {
            Some(Kind::XRstor)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(code: &[u8]) -> Vec<(usize, Kind)> {
        find(code).collect()
    }

    #[test]
    fn sequences_are_found_at_every_offset() {
        for before in 0..20 {
            let mut code = vec![0x90; before];
            code.extend([0x0f, 0x01, 0xef]);
            assert_eq!(all(&code), [(before, Kind::WrPkru)]);
            // Cut short it is none.
            assert_eq!(all(&code[..before + 2]), []);
        }
    }

    #[test]
    fn xrstor_is_found_with_every_operand_in_memory_and_no_other() {
        let found = (0..=255u8).filter(|operand| !all(&[0x0f, 0xae, *operand]).is_empty());
        let expected = [0x28..0x30, 0x68..0x70, 0xa8..0xb0u8];
        let expected: Vec<u8> = expected.into_iter().flatten().collect();
        assert_eq!(found.collect::<Vec<_>>(), expected);
        // With the prefix for 64-bit pointers, too.
        assert_eq!(
            all(&[0x48, 0x0f, 0xae, 0x6c, 0x24, 0x40]),
            [(1, Kind::XRstor)]
        );
    }

    #[test]
    fn sequences_may_overlap_and_follow_each_other() {
        let code = [0x0f, 0x0f, 0x01, 0xef, 0x0f, 0xae, 0x28, 0x0f, 0x01, 0xef];
        let expected = [(1, Kind::WrPkru), (4, Kind::XRstor), (7, Kind::WrPkru)];
        assert_eq!(all(&code), expected);
    }
}
