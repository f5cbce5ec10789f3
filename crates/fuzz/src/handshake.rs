//! The first messages over the rendezvous socket.

use handfast_layout::bell::{LINKS, RECEIVERS};
use handfast_layout::hello::{Hello, Malformed, Welcome};
use handfast_layout::part::receiver_of;
use handfast_layout::{LAYOUT_VERSION, name};

/// A hello, or a welcome.
pub fn handshake(bytes: &[u8]) {
    match Hello::parse(bytes) {
        Ok(hello) => {
            assert_eq!(name::check(&hello.name), Ok(()));
            assert!(hello.link < LINKS && hello.known.is_none_or(|known| known < LINKS));
            assert_eq!(hello.to_bytes(), *bytes);
        }
        Err(malformed) => refused(bytes, malformed),
    }
    match Welcome::parse(bytes) {
        Ok(welcome) => {
            assert!(receiver_of(welcome.port) < RECEIVERS && welcome.link < LINKS);
            assert_eq!(welcome.to_bytes(), *bytes);
        }
        Err(malformed) => refused(bytes, malformed),
    }
}

/// Another release is told from what is no handfast, by bytes that mean the same in all releases.
fn refused(bytes: &[u8], malformed: Malformed) {
    if let Malformed::Version { theirs } = malformed {
        assert_ne!(theirs, LAYOUT_VERSION);
        assert_eq!(bytes[8..12], theirs.to_le_bytes());
    }
}
