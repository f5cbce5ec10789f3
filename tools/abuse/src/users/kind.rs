//! The description of an attack, and what many have in common.

use super::{ATTACKER, VICTIM};
use std::time::Duration;

/// A newcomer's actions while the attack goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newcomer {
    /// Connects, as another user than all others, and calls.
    Connects,
    /// The same, and has had a port by a name before, by which the attacker knows it.
    IsKnown,
    /// Binds a name in the server's directory.
    Binds,
    /// Connects, has the server open ports, and drops its rights to them, of which the server is to be told.
    Opens,
}

pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Its program, and the words behind the server's name.
    pub(super) program: &'static str,
    pub(super) words: &'static [&'static str],
    pub(super) attacker: u32,
    pub(super) victim: u32,
    pub(super) newcomer: Newcomer,
    /// Whether the same attacker at work elsewhere is a control: not where nothing but the one server is its aim.
    pub(super) has_decoy: bool,
    /// In that control it is at work on the same server, with these words: where a busy server is no attack by itself. The scheduler
    /// has a thread that is always busy wait longer than one that mostly sleeps, the longer the more the machine has to do.
    pub(super) fair: Option<&'static [&'static str]>,
    /// So long it goes on, once it has begun.
    pub(super) time: Duration,
    /// The most descriptors that the server may have.
    pub(super) descriptors: Option<u64>,
    /// How much more a server may have while it is struck.
    pub(super) grows_mib: i64,
    /// The most memory that the server may have.
    pub(super) memory_mib: Option<u64>,
    /// The server passes calls on to another one, whose name it has from its own directory.
    pub(super) is_between: bool,
    /// The server has next to nothing to do while nobody but the attacker is left, and its processor time is measured then.
    pub(super) is_quiet: bool,
}

pub(super) const PLAIN: Kind = Kind {
    name: "",
    what: "",
    program: "",
    words: &[],
    attacker: ATTACKER,
    victim: VICTIM,
    newcomer: Newcomer::Connects,
    has_decoy: true,
    fair: None,
    time: Duration::from_millis(800),
    descriptors: Some(1024),
    grows_mib: 4,
    memory_mib: None,
    is_between: false,
    is_quiet: false,
};

/// A server with room for many links, each with tables and lanes of its own.
pub(super) const MANY_LINKS: Kind = Kind {
    descriptors: Some(4096),
    grows_mib: 16,
    ..PLAIN
};

/// A server that passes calls on, and is to hurt others by its own link with the one behind it.
pub(super) const DEPUTY: Kind = Kind {
    program: "deputy.py",
    time: Duration::from_millis(2000),
    // Answers to calls that are passed on lie in slots of this server's.
    grows_mib: 8,
    is_between: true,
    ..PLAIN
};
