//! The handshake over the rendezvous socket: the acceptor says that it is ready, or refuses at once; then one
//! message each way; where that is an offer of a link, one more (`spec/layout.md`).
//!
//! The first 24 bytes never change meaning, so two releases that share nothing else can still
//! tell each other their versions. Parsing takes a private copy of the bytes and refuses
//! everything it does not know.

use crate::part::receiver_of;
use crate::{FEATURES, LAYOUT_VERSION, name};

/// A process: its incarnation, and its process number as the process that names it sees it.
pub type Process = [u8; 20];

/// The process with this incarnation and process number.
#[must_use]
pub fn process(incarnation: [u8; 16], pid: u32) -> Process {
    let mut process = [0; 20];
    process[..16].copy_from_slice(&incarnation);
    process[16..].copy_from_slice(&pid.to_le_bytes());
    process
}

/// First bytes of both messages.
pub const MAGIC: [u8; 8] = *b"handfast";

/// Bytes of what the acceptor says first, once it takes descriptors through the connection.
pub const READY_BYTES: usize = 40;

/// The acceptor's first statement: that a hello may come, and whose link with the connector that may name.
#[must_use]
pub fn ready(incarnation: [u8; 16]) -> [u8; READY_BYTES] {
    let mut bytes = [0; READY_BYTES];
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &LAYOUT_VERSION.to_le_bytes());
    put(&mut bytes, 16, &FEATURES.to_le_bytes());
    put(&mut bytes, 24, &incarnation);
    bytes
}

/// The acceptor's incarnation, if its first message says that a hello may come; otherwise it is a refusal, a [`Welcome`].
///
/// # Errors
/// [`Malformed`] for what is neither.
pub fn parse_ready(bytes: &[u8]) -> Result<Option<[u8; 16]>, Malformed> {
    match bytes.len() {
        WELCOME_BYTES => Ok(None),
        _ => prefix(bytes, READY_BYTES).map(|_| Some(take(bytes, 24))),
    }
}

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 128;
/// Bytes of a [`Welcome`].
pub const WELCOME_BYTES: usize = 80;

/// The connecting process's first statement. Carries one descriptor: its bell region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Layout version of the connector.
    pub version: u32,
    /// Features the connector offers.
    pub features: u64,
    /// Identity of the connecting process, new each time it starts: eight bytes that the kernel knows it by (the number of its
    /// inode in pidfs, where there is one), which the acceptor checks, and eight random ones.
    pub incarnation: [u8; 16],
    /// The port it asks for.
    pub name: String,
    /// Index the acceptor's messages shall ring in the connector's bell region.
    pub link: u32,
    /// The link that the connector has with this process and would use: the index its messages ring in the acceptor's bell region.
    pub known: Option<u32>,
}

/// The accepting process's answer. Carries the link region and its bell region when
/// [`Status::Linked`], nothing otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Layout version of the acceptor.
    pub version: u32,
    /// Features both have.
    pub features: u64,
    /// Whether there is a link, and why not.
    pub status: Status,
    /// Identity of the accepting process, likewise; the connector checks it.
    pub incarnation: [u8; 16],
    /// Number of the port, which says who receives from it.
    pub port: u32,
    /// The connector's right to it: a handle of the acceptor's export table.
    pub handle: u32,
    /// Index the connector's messages shall ring in the acceptor's bell region.
    pub link: u32,
    /// The limit reached, when `status` is [`Status::Exhausted`].
    pub limit: u32,
}

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The offer of a new link; its descriptors come with the message.
    Linked,
    /// The two processes have a link already; this port is reached through it.
    Known,
    /// The layout versions have nothing in common.
    Version,
    /// The port was unbound between the connection and the handshake.
    NoSuchPort,
    /// A limit of the acceptor was reached: descriptors, memory or links.
    Exhausted,
    /// The hello was not understood.
    Malformed,
    /// The acceptor connects to the connector at this moment, and that link shall be the one: ask
    /// again.
    Crossed,
}

/// Why a handshake message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Wrong length or magic: not handfast at the other end.
    NotHandfast,
    /// The version is another one; nothing after the fixed part was read.
    Version {
        /// Version of the peer.
        theirs: u32,
    },
    /// A field has a value outside its range.
    Field(&'static str),
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

fn prefix(bytes: &[u8], len_bytes: usize) -> Result<(u32, u64), Malformed> {
    if bytes.len() < 24 || bytes[..8] != MAGIC {
        return Err(Malformed::NotHandfast);
    }
    let version = u32::from_le_bytes(take(bytes, 8));
    if version != LAYOUT_VERSION {
        return Err(Malformed::Version { theirs: version });
    }
    if bytes.len() != len_bytes {
        return Err(Malformed::NotHandfast);
    }
    Ok((version, u64::from_le_bytes(take(bytes, 16))))
}

/// Nothing is said in what this layout leaves zero.
fn all_known(bytes: &[u8], known: &[u8]) -> Result<(), Malformed> {
    match bytes == known {
        true => Ok(()),
        false => Err(Malformed::Field("reserved bytes")),
    }
}

impl Hello {
    /// A hello of this release.
    #[must_use]
    pub fn new(incarnation: [u8; 16], name: &str, link: u32, known: Option<u32>) -> Self {
        let name = name.to_owned();
        Self {
            version: LAYOUT_VERSION,
            features: FEATURES,
            incarnation,
            name,
            link,
            known,
        }
    }

    /// The bytes to send. The name must have passed [`name::check`].
    ///
    /// # Panics
    /// If the name is longer than a checked name can be.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &self.version.to_le_bytes());
        put(&mut bytes, 16, &self.features.to_le_bytes());
        put(&mut bytes, 24, &self.incarnation);
        put(&mut bytes, 40, &self.link.to_le_bytes());
        let name = self.name.as_bytes();
        assert!(name.len() <= name::NAME_BYTES_MAX, "the name was checked");
        bytes[44] = u8::try_from(name.len()).unwrap_or(0);
        bytes[45] = u8::from(self.known.is_some());
        put(&mut bytes, 48, name);
        put(&mut bytes, 112, &self.known.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// Parses a private copy of what the peer sent.
    ///
    /// # Errors
    /// The defect of the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (version, features) = prefix(bytes, HELLO_BYTES)?;
        let len_bytes = usize::from(bytes[44]);
        if len_bytes > name::NAME_BYTES_MAX {
            return Err(Malformed::Field("name length"));
        }
        let Ok(name) = core::str::from_utf8(&bytes[48..48 + len_bytes]) else {
            return Err(Malformed::Field("name"));
        };
        if name::check(name).is_err() {
            return Err(Malformed::Field("name"));
        }
        let link = u32::from_le_bytes(take(bytes, 40));
        if link >= crate::bell::LINKS {
            return Err(Malformed::Field("link index"));
        }
        let known = u32::from_le_bytes(take(bytes, 112));
        let known = match bytes[45] {
            0 => None,
            1 if known < crate::bell::LINKS => Some(known),
            _ => return Err(Malformed::Field("known link")),
        };
        let hello = Self {
            version,
            features,
            incarnation: take(bytes, 24),
            name: name.to_owned(),
            link,
            known,
        };
        all_known(bytes, &hello.to_bytes())?;
        Ok(hello)
    }
}

impl Welcome {
    /// A refusal.
    #[must_use]
    pub const fn refusal(incarnation: [u8; 16], status: Status, limit: u32) -> Self {
        Self {
            version: LAYOUT_VERSION,
            features: FEATURES,
            status,
            incarnation,
            port: 0,
            handle: 0,
            link: 0,
            limit,
        }
    }

    /// The bytes to send.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        let status: u32 = match self.status {
            Status::Linked => 0,
            Status::Known => 1,
            Status::Version => 2,
            Status::NoSuchPort => 3,
            Status::Exhausted => 4,
            Status::Malformed => 5,
            Status::Crossed => 6,
        };
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &self.version.to_le_bytes());
        put(&mut bytes, 16, &self.features.to_le_bytes());
        put(&mut bytes, 24, &self.incarnation);
        put(&mut bytes, 40, &status.to_le_bytes());
        put(&mut bytes, 44, &self.port.to_le_bytes());
        put(&mut bytes, 48, &self.handle.to_le_bytes());
        put(&mut bytes, 52, &self.link.to_le_bytes());
        put(&mut bytes, 56, &self.limit.to_le_bytes());
        bytes
    }

    /// Parses a private copy of what the peer sent.
    ///
    /// # Errors
    /// The defect of the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (version, features) = prefix(bytes, WELCOME_BYTES)?;
        let word = |at| u32::from_le_bytes(take(bytes, at));
        let status = match word(40) {
            0 => Status::Linked,
            1 => Status::Known,
            2 => Status::Version,
            3 => Status::NoSuchPort,
            4 => Status::Exhausted,
            5 => Status::Malformed,
            6 => Status::Crossed,
            _ => return Err(Malformed::Field("status")),
        };
        let (port, link) = (word(44), word(52));
        if receiver_of(port) >= crate::bell::RECEIVERS {
            return Err(Malformed::Field("port"));
        }
        if link >= crate::bell::LINKS {
            return Err(Malformed::Field("link index"));
        }
        let welcome = Self {
            version,
            features,
            status,
            incarnation: take(bytes, 24),
            port,
            handle: word(48),
            link,
            limit: word(56),
        };
        all_known(bytes, &welcome.to_bytes())?;
        Ok(welcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshake_messages_round_trip() {
        let hello = Hello::new([7; 16], "orders", 3, Some(5));
        assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        let mut welcome = Welcome::refusal([9; 16], Status::Exhausted, 1024);
        assert_eq!(Welcome::parse(&welcome.to_bytes()), Ok(welcome));
        welcome.status = Status::Linked;
        welcome.port = 0x4d05;
        welcome.handle = 0x8000_0000;
        assert_eq!(Welcome::parse(&welcome.to_bytes()), Ok(welcome));
    }

    #[test]
    fn another_version_is_named_whatever_follows_it() {
        let mut bytes = Hello::new([7; 16], "orders", 3, Some(5))
            .to_bytes()
            .to_vec();
        bytes[8] = 99;
        bytes.truncate(40);
        assert_eq!(Hello::parse(&bytes), Err(Malformed::Version { theirs: 99 }));
    }

    #[test]
    fn what_is_ready_for_a_hello_says_who_it_is() {
        assert_eq!(parse_ready(&ready([3; 16])), Ok(Some([3; 16])));
        let refusal = Welcome::refusal([9; 16], Status::Exhausted, 1);
        assert_eq!(parse_ready(&refusal.to_bytes()), Ok(None));
        let short = &ready([3; 16])[..24];
        assert_eq!(parse_ready(short), Err(Malformed::NotHandfast));
    }

    #[test]
    fn a_link_that_there_cannot_be_is_refused() {
        let mut bytes = Hello::new([7; 16], "orders", 3, Some(5)).to_bytes();
        bytes[112..116].copy_from_slice(&crate::bell::LINKS.to_le_bytes());
        assert_eq!(Hello::parse(&bytes), Err(Malformed::Field("known link")));
    }

    #[test]
    fn what_is_said_where_nothing_is_known_is_refused() {
        let reserved = Err(Malformed::Field("reserved bytes"));
        for at in [12, 15, 46, 47, 54, 111, 116, 127] {
            let mut bytes = Hello::new([7; 16], "orders", 3, Some(5)).to_bytes();
            bytes[at] = 1;
            assert_eq!(Hello::parse(&bytes), reserved, "byte {at}");
        }
        for at in [12, 15, 60, 79] {
            let mut bytes = Welcome::refusal([9; 16], Status::Known, 0).to_bytes();
            bytes[at] = 1;
            let reserved = Err(Malformed::Field("reserved bytes"));
            assert_eq!(Welcome::parse(&bytes), reserved, "byte {at}");
        }
    }

    #[test]
    fn no_byte_string_makes_the_parser_panic() {
        let good = Hello::new([7; 16], "orders", 3, Some(5)).to_bytes();
        let welcome = Welcome::refusal([9; 16], Status::Known, 0).to_bytes();
        for at in 0..HELLO_BYTES {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = good;
                bytes[at] = value;
                let _ = Hello::parse(&bytes);
                if at < WELCOME_BYTES {
                    let mut bytes = welcome;
                    bytes[at] = value;
                    let _ = Welcome::parse(&bytes);
                }
                let _ = Hello::parse(&good[..at]);
            }
        }
    }
}
