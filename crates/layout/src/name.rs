//! Port names: what may become a file name in the rendezvous directory.

/// Longest port name, in bytes. A socket address holds 108 bytes with its directory.
pub const NAME_BYTES_MAX: usize = 64;

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The name is empty.
    #[error("the port name is empty; give it 1 to {NAME_BYTES_MAX} characters")]
    Empty,
    /// The name is longer than [`NAME_BYTES_MAX`].
    #[error(
        "the port name is {len_bytes} bytes long and the limit is {NAME_BYTES_MAX}; shorten it"
    )]
    TooLong {
        /// Length of the refused name.
        len_bytes: usize,
    },
    /// A character other than an ASCII letter, digit, `.`, `_` or `-`.
    #[error(
        "the port name has the character {character:?} at position {at}; use ASCII letters, digits, \
         '.', '_' and '-'"
    )]
    Character {
        /// Where in the name.
        at: usize,
        /// The character found there.
        character: char,
    },
    /// The first character is a dot (or a dash, which commands take for an option).
    #[error("the port name starts with '.' or '-'; start it with a letter or digit")]
    FirstCharacter,
}

/// Checks a port name.
///
/// # Errors
/// The first rule the name breaks.
pub fn check(name: &str) -> Result<(), BadName> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Err(BadName::Empty);
    }
    if bytes.len() > NAME_BYTES_MAX {
        return Err(BadName::TooLong {
            len_bytes: bytes.len(),
        });
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some((at, character)) = name.char_indices().find(|(_, c)| !is_allowed(*c)) {
        return Err(BadName::Character { at, character });
    }
    if matches!(bytes[0], b'.' | b'-') {
        return Err(BadName::FirstCharacter);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_directory() {
        assert_eq!(check("db.orders-1_a"), Ok(()));
        assert_eq!(check(""), Err(BadName::Empty));
        assert_eq!(
            check("../etc"),
            Err(BadName::Character {
                at: 2,
                character: '/'
            })
        );
        assert_eq!(check(".."), Err(BadName::FirstCharacter));
        assert_eq!(check("-h"), Err(BadName::FirstCharacter));
        assert_eq!(
            check("a\0b"),
            Err(BadName::Character {
                at: 1,
                character: '\0'
            })
        );
        let accented = check("caf\u{e9}").unwrap_err();
        assert_eq!(
            accented,
            BadName::Character {
                at: 3,
                character: '\u{e9}'
            }
        );
        assert!(accented.to_string().contains("'\u{e9}' at position 3"));
        assert_eq!(check(&"x".repeat(64)), Ok(()));
        assert_eq!(
            check(&"x".repeat(65)),
            Err(BadName::TooLong { len_bytes: 65 })
        );
    }
}
