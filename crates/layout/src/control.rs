//! Messages of the control socket of a link: what its two processes say beside the shared memory (`spec/layout.md`, *Handshake*).
//!
//! Each begins with a byte that names its [kind](ControlKind) and an argument byte, zero where none is named. Numbers follow in little-endian
//! order. A message is parsed once, whole; the protocols see a [`ControlMessage`]. `spec/control.txt` has the bytes of each.

use crate::hello::Process;
use crate::loan::{ARENA, ARENA_ENDED, Told};
use crate::part::{DESCRIPTORS, Descriptors};
use codec::{Argument, Field, Rest};

mod codec;
mod list;

pub use codec::{Encoded, Shape};
pub use list::{Element, List, OnCpu, Released};

/// Bytes of the longest.
pub const CONTROL_BYTES_MAX: usize = 512;
/// In the place of a receiver: the waiter for an outcome.
pub const NOBODY: u8 = u8::MAX;

/// A message of a known kind that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its kind.
    pub kind: ControlKind,
}

/// The messages: name and number of the kind, then the argument byte in parentheses if it has one, then what follows it.
macro_rules! messages {
    (
        $($(#[$plain_doc:meta])* $Plain:ident = $plain_number:literal;)*
        => $($(#[$doc:meta])* $Name:ident = $number:literal
            $(($(#[$argument_doc:meta])* $argument:ident: $Argument:ty))?
            { $($(#[$field_doc:meta])* $field:ident: $Field:ty,)* })*
    ) => {
        /// The kinds of messages. The number of a kind is its message's first byte, and known to this module alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ControlKind {
            $(
                #[doc = concat!("Of [`ControlMessage::", stringify!($Plain), "`].")]
                $Plain,
            )*
            $(
                #[doc = concat!("Of [`ControlMessage::", stringify!($Name), "`].")]
                $Name,
            )*
            /// Of [`ControlMessage::Descriptors`].
            Descriptors,
            /// Of [`ControlMessage::Arena`] with [`Told::New`].
            Arena,
            /// Of [`ControlMessage::Arena`] with [`Told::Ended`].
            ArenaEnded,
        }

        impl ControlKind {
            /// Every kind.
            pub const ALL: &[Self] = &[
                $(Self::$Plain,)*
                $(Self::$Name,)*
                Self::Descriptors,
                Self::Arena,
                Self::ArenaEnded,
            ];

            const fn number(self) -> u8 {
                match self {
                    $(Self::$Plain => $plain_number,)*
                    $(Self::$Name => $number,)*
                    Self::Descriptors => DESCRIPTORS,
                    Self::Arena => ARENA,
                    Self::ArenaEnded => ARENA_ENDED,
                }
            }

            // A number that two kinds have is an unreachable pattern.
            const fn numbered(number: u8) -> Option<Self> {
                Some(match number {
                    $($plain_number => Self::$Plain,)*
                    $($number => Self::$Name,)*
                    DESCRIPTORS => Self::Descriptors,
                    ARENA => Self::Arena,
                    ARENA_ENDED => Self::ArenaEnded,
                    _ => return None,
                })
            }
        }

        /// A message. Lists are parsed with it, and their elements when they are asked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ControlMessage<'a> {
            $($(#[$plain_doc])* $Plain,)*
            $($(#[$doc])* $Name {
                $($(#[$argument_doc])* $argument: $Argument,)?
                $($(#[$field_doc])* $field: $Field,)*
            },)*
            /// Descriptors, which come with it, of messages in lanes.
            Descriptors(Descriptors),
            /// About an arena; a new one's file comes with it.
            Arena(Told),
        }

        impl<'a> ControlMessage<'a> {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> ControlKind {
                match self {
                    $(Self::$Plain => ControlKind::$Plain,)*
                    $(Self::$Name { .. } => ControlKind::$Name,)*
                    Self::Descriptors(_) => ControlKind::Descriptors,
                    Self::Arena(Told::New { .. }) => ControlKind::Arena,
                    Self::Arena(Told::Ended { .. }) => ControlKind::ArenaEnded,
                }
            }

            /// The fields of messages of a kind.
            const fn shapes(kind: ControlKind) -> &'static [Shape] {
                match kind {
                    $(ControlKind::$Plain => &[],)*
                    $(ControlKind::$Name => const { &[$(<$Field>::SHAPE),*] },)*
                    ControlKind::Descriptors => &[Shape::Zero(2), Shape::Word],
                    ControlKind::Arena => &[
                        Shape::Zero(2),
                        Shape::Word,
                        Shape::Word,
                        Shape::Zero(4),
                        Shape::Long,
                    ],
                    ControlKind::ArenaEnded => &[Shape::Zero(2), Shape::Word, Shape::Word],
                }
            }

            /// The bytes to send.
            ///
            /// # Panics
            /// If a list makes it longer than [`CONTROL_BYTES_MAX`].
            #[must_use]
            pub fn encode(&self) -> Encoded {
                let number = self.kind().number();
                match *self {
                    $(Self::$Plain => Encoded::of(number, 0),)*
                    $(Self::$Name { $($argument,)? $($field,)* } => {
                        let encoded = Encoded::of(number, 0 $(+ u8::from($argument))?);
                        $(let encoded = $field.put(encoded);)*
                        encoded
                    })*
                    Self::Descriptors(sent) => Encoded::whole(&sent.to_bytes()),
                    Self::Arena(told) => {
                        let (bytes, len_bytes) = told.to_bytes();
                        Encoded::whole(&bytes[..len_bytes])
                    }
                }
            }

            /// The fields of a message; `None` for one that ends too early, has an argument that it should not have, or a form of
            /// its own.
            fn fields(kind: ControlKind, argument: u8, rest: &mut Rest<'a>) -> Option<Self> {
                let has_argument = match kind {
                    $(ControlKind::$Name => !<[&str]>::is_empty(&[$(stringify!($argument))?]),)*
                    _ => false,
                };
                if argument != 0 && !has_argument {
                    return None;
                }
                Some(match kind {
                    $(ControlKind::$Plain => Self::$Plain,)*
                    $(ControlKind::$Name => Self::$Name {
                        $($argument: <$Argument>::of(argument)?,)?
                        $($field: Field::take(rest)?,)*
                    },)*
                    ControlKind::Descriptors | ControlKind::Arena | ControlKind::ArenaEnded => return None,
                })
            }
        }
    };
}

messages! {
    /// Asks for the peer's counters.
    ShowCounters = 2;
    /// The answer, with a descriptor or without.
    Counters = 3;
    /// To the acceptor: its connector does not use the link any more.
    Unused = 26;
    /// To the connector: the link stays, it is used here.
    Used = 27;
    /// To the connector: it is not any more.
    Free = 28;
    /// To the callee: a lane is wanted; says of all what has been taken.
    LaneWanted = 31;
    /// The link region is sealed; and the answer to that, there is a link. The first messages after the welcome.
    Sealed = 43;

    =>
    /// Wakes a receiver that sleeps in a descriptor; or, with [`NOBODY`], the waiter for an outcome.
    Ring = 1(/** Which one. */ receiver: u8) {}
    /// A port of the sender's has been dropped, and those before it at its receiver.
    Closed = 4(/** The port had moved. */ has_moved: bool) {
        /// Its number.
        port: u32,
    }
    /// Rights are given back.
    Release = 5 {
        /// Those.
        rights: List<'a, Released, 8>,
    }
    /// To the replier: asks for a path.
    PathAsk = 6 {
        /// The forwarder's number for it.
        number: u32,
        /// Whose calls it is for.
        caller: Process,
        /// The index of the forwarder's link with the caller.
        index: u32,
        /// The set of that link's reply slots.
        set: u32,
    }
    /// To the caller: asks for a path.
    PathWant = 7 {
        /// The replier's number for the question.
        token: u32,
        /// The process that passes its calls on.
        forwarder: Process,
        /// As in [`Self::PathAsk`].
        index: u32,
        /// As there.
        set: u32,
    }
    /// To the replier: it is granted.
    PathGranted = 8 {
        /// The question's.
        token: u32,
        /// The caller's number for the path.
        path: u32,
        /// The set of return slots.
        set: u32,
    }
    /// To the replier: it is not.
    PathDenied = 9 {
        /// The question's.
        token: u32,
    }
    /// To the forwarder: it is there.
    PathReady = 10 {
        /// The forwarder's.
        number: u32,
        /// The caller's.
        path: u32,
    }
    /// To the forwarder: it is not there, or not any more.
    PathRefused = 11 {
        /// The forwarder's.
        number: u32,
    }
    /// To the caller: nothing more comes by it.
    PathOver = 12 {
        /// The caller's.
        path: u32,
    }
    /// To the replier: it is not needed any more.
    PathDrop = 13 {
        /// The forwarder's.
        number: u32,
    }
    /// To the exporter: what was provided is void.
    ProvisionVoid = 14 {
        /// The introducer's.
        number: u64,
    }
    /// To the introducer: what was provided will not be claimed.
    Declined = 15 {
        /// The introducer's.
        number: u64,
        /// With whom it was provided.
        exporter: Process,
    }
    /// To the introducer: where is the door?
    DoorWhere = 17 {
        /// Whose.
        exporter: Process,
    }
    /// To the exporter: asks for its own door.
    DoorAsk = 18 {
        /// The introducer's number for the question.
        token: u32,
    }
    /// To the introducer: the door comes with it, or there is none.
    Door = 19 {
        /// The question's.
        token: u32,
    }
    /// To the recipient: likewise.
    DoorOf = 20 {
        /// Whose.
        exporter: Process,
    }
    /// To the introducer: what was provided is kept.
    Kept = 21 {
        /// The introducer's.
        number: u64,
    }
    /// To the introducer: there is no use for what is kept any more.
    Leave = 22 {
        /// The introducer's.
        number: u64,
        /// How often it has come again.
        came: u32,
    }
    /// To the recipient: it does not come again any more.
    Left = 23 {
        /// The introducer's.
        number: u64,
    }
    /// Rights to the sender's ports are revoked.
    Revoked = 24(/** There was nothing to claim: no such right, or its port has ended. */ in_vain: bool) {
        /// Handles, or words of claims.
        names: List<'a, u32, 4>,
    }
    /// A port has a receiver for each CPU.
    Spread = 25 {
        /// Its number.
        port: u32,
        /// Those.
        entries: List<'a, OnCpu, 4>,
    }
    /// To the callee: its caller does not use the lane any more, and all in it has been taken.
    LaneFree = 29(/** Which one. */ lane: u8) {}
    /// To the caller: the lane may lead to any receiver from now on.
    LaneBack = 30(/** Which one. */ lane: u8) {}
    /// To the old home of a port that has moved: it has arrived.
    Arrived = 40 {
        /// The move's number.
        token: u32,
        /// The port's, at its new home.
        port: u32,
        /// The old home's right to it.
        handle: u32,
    }
    /// To the old home: there is no room for it.
    NotArrived = 41 {
        /// The move's number.
        token: u32,
    }
    /// To a sender: the port of a right has moved.
    Moved = 42 {
        /// The right's handle or word.
        name: u32,
        /// The port's number at its new home.
        port: u32,
        /// The old home's number for its provision there.
        number: u64,
        /// The new home.
        home: Process,
    }
}

impl ControlKind {
    /// The kind of a message, whole or not, by its first byte; `None` for one that this release does not know.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [number, ..] => Self::numbered(*number),
            [] => None,
        }
    }

    /// The parts of such a message behind the argument byte: for tests that make messages of any kind.
    #[must_use]
    pub const fn shapes(self) -> &'static [Shape] {
        ControlMessage::shapes(self)
    }

    /// A message of this kind with any bytes behind the argument byte: for tests.
    ///
    /// # Panics
    /// If that is longer than [`CONTROL_BYTES_MAX`].
    #[must_use]
    pub fn with(self, argument: u8, rest: &[u8]) -> Encoded {
        Encoded::of(self.number(), argument).and(rest)
    }
}

impl<'a> ControlMessage<'a> {
    /// The message in a peer's bytes; `None` for a kind that this release does not know, which is passed over.
    ///
    /// # Errors
    /// [`Malformed`] when it is of a known kind and not as long as that, or its statement on descriptors or an arena cannot be.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let Some(kind) = ControlKind::of(bytes) else {
            return Ok(None);
        };
        let parsed = match (kind, bytes) {
            (ControlKind::Descriptors, _) => Descriptors::parse(bytes).map(Self::Descriptors),
            (ControlKind::Arena | ControlKind::ArenaEnded, _) => {
                Told::parse(bytes).map(Self::Arena)
            }
            (_, [_, argument, rest @ ..]) => {
                let mut rest = Rest::new(rest);
                Self::fields(kind, *argument, &mut rest).filter(|_| rest.is_empty())
            }
            // A message of any kind: received ones have an argument, too.
            _ => None,
        };
        parsed.ok_or(Malformed { kind }).map(Some)
    }
}

/// How many descriptors a message has, at most, by its first bytes.
#[must_use]
pub fn descriptors_of(bytes: &[u8]) -> usize {
    match ControlKind::of(bytes) {
        Some(ControlKind::Descriptors) => {
            Descriptors::parse(bytes).map_or(0, |sent| sent.count as usize)
        }
        Some(
            ControlKind::Arena | ControlKind::Counters | ControlKind::Door | ControlKind::DoorOf,
        ) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
