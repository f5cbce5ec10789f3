//! Services and methods: their names, and the word that names them in a message.

/// Bytes of the word in front of the arguments in a request.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();

/// The arguments in the bytes of a request.
pub(crate) fn values(request: &[u8]) -> &[u8] {
    request.get(WORD_BYTES..).unwrap_or_default()
}

/// A service as its trait describes it.
#[derive(Debug)]
pub struct Service {
    fingerprint: u64,
    methods: &'static [Method],
}

/// A method of a service.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    service: &'static str,
    name: &'static str,
    word: u64,
    is_one_way: bool,
    has_rights: bool,
}

impl Service {
    /// The service with this [`fingerprint`] and these methods.
    #[must_use]
    pub const fn new(fingerprint: u64, methods: &'static [Method]) -> Self {
        Self {
            fingerprint,
            methods,
        }
    }

    /// Its methods, in the order of the trait.
    #[must_use]
    pub const fn methods(&self) -> &'static [Method] {
        self.methods
    }

    /// 48 bits that differ between services whose signatures differ.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Method {
    /// Method `number` of the service with this name and [`fingerprint`]; whether it is one-way, and
    /// whether there are rights among its arguments.
    #[must_use]
    pub const fn new(
        (service, fingerprint): (&'static str, u64),
        (name, number): (&'static str, u16),
        (is_one_way, has_rights): (bool, bool),
    ) -> Self {
        Self {
            service,
            name,
            word: fingerprint << NUMBER_BITS | number as u64,
            is_one_way,
            has_rights,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The name of its service.
    #[must_use]
    pub const fn service(&self) -> &'static str {
        self.service
    }

    /// Whether the method is one-way: sent, without a reply.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        self.is_one_way
    }

    /// Whether there are rights among its arguments.
    pub(crate) const fn has_rights(&self) -> bool {
        self.has_rights
    }

    /// The word its requests start with.
    pub(crate) const fn word(&self) -> u64 {
        self.word
    }
}

impl core::fmt::Display for Method {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.service, self.name)
    }
}

/// Fingerprint and method number of a request's word.
pub(crate) const fn split(word: u64) -> (u64, u16) {
    (word >> NUMBER_BITS, word as u16)
}

/// The fingerprint of a service: of its signatures as text, and of the sizes of the fixed-layout
/// values in them, since the text of a type's name does not change with its fields. FNV-1a, computed
/// by the compiler; it finds mistakes, and does not protect from an attacker.
#[must_use]
pub const fn fingerprint(signatures: &str, sizes: &[usize]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < signatures.len() {
        hash = mix(hash, signatures.as_bytes()[at]);
        at += 1;
    }
    let mut at = 0;
    while at < sizes.len() {
        hash = mix(hash, sizes[at] as u8);
        hash = mix(hash, (sizes[at] >> 8) as u8);
        hash = mix(hash, (sizes[at] >> 16) as u8);
        // Of sizes from 16 MiB alone: the fingerprints of others are as they were when no message was that long.
        if sizes[at] >> 24 != 0 {
            hash = mix(hash, (sizes[at] >> 24) as u8);
        }
        at += 1;
    }
    (hash ^ hash >> 48) & (u64::MAX >> NUMBER_BITS)
}

const fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3)
}

const NUMBER_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_its_fingerprint_and_its_number() {
        let print = fingerprint("a", &[]);
        let method = Method::new(("A", print), ("a", 0xabcd), (false, false));
        assert_eq!(split(method.word()), (print, 0xabcd));
        assert_eq!(method.to_string(), "A.a");
    }

    #[test]
    fn fingerprints_differ_with_text_and_sizes() {
        let prints = [
            fingerprint("", &[]),
            fingerprint("a", &[]),
            fingerprint("b", &[]),
            fingerprint("a", &[8]),
            fingerprint("a", &[16]),
            fingerprint("a", &[8, 8]),
            fingerprint("a", &[0x800]),
        ];
        for (at, print) in prints.iter().enumerate() {
            assert!(*print < 1 << 48);
            assert!(!prints[..at].contains(print));
        }
    }
}
