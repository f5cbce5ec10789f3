//! Messages of the control socket of a link: what its two processes say beside the shared memory (`spec/layout.md`, *Handshake*).
//!
//! Each begins with a byte that names its [`kind`] and an argument byte, zero where none is named. Numbers follow in little-endian
//! order. A message is parsed once, whole; the protocols see a [`ControlMessage`]. `spec/control.txt` has the bytes of each.

use crate::hello::Process;
use crate::loan::Told;
use crate::part::Descriptors;
use codec::{Argument, Field, Rest};

mod codec;

pub use codec::Encoded;

/// Bytes of the longest.
pub const CONTROL_BYTES_MAX: usize = 512;
/// In the place of a receiver: the waiter for an outcome.
pub const NOBODY: u8 = u8::MAX;

/// A message of a known kind that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its first byte.
    pub kind: u8,
}

/// The messages: name and number of the kind, then the argument byte in parentheses if it has one, then what follows it.
macro_rules! messages {
    (
        $($(#[$plain_doc:meta])* $PLAIN:ident = $plain_number:literal $Plain:ident;)*
        => $($(#[$doc:meta])* $KIND:ident = $number:literal $Name:ident
            $(($(#[$argument_doc:meta])* $argument:ident: $Argument:ty))?
            { $($(#[$field_doc:meta])* $field:ident: $Field:ty,)* })*
    ) => {
        /// First bytes.
        pub mod kind {
            pub use crate::loan::{ARENA, ARENA_ENDED};
            pub use crate::part::DESCRIPTORS;
            $(
                #[doc = concat!("Of `", stringify!($Plain), "`.")]
                pub const $PLAIN: u8 = $plain_number;
            )*
            $(
                #[doc = concat!("Of `", stringify!($Name), "`.")]
                pub const $KIND: u8 = $number;
            )*
        }

        /// One of them. Lists are borrowed as they travel: [`released`] and [`spread_entry`] make their elements.
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
            /// The bytes to send.
            ///
            /// # Panics
            /// If a list makes it longer than [`CONTROL_BYTES_MAX`].
            #[must_use]
            pub fn encode(&self) -> Encoded {
                match *self {
                    $(Self::$Plain => Encoded::of(kind::$PLAIN, 0),)*
                    $(Self::$Name { $($argument,)? $($field,)* } => {
                        let encoded = Encoded::of(kind::$KIND, 0 $(+ u8::from($argument))?);
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

            /// The fields of a message; `Ok(None)` for an unknown kind, `Err` for what ends too early.
            fn fields(kind: u8, argument: u8, rest: &mut Rest<'a>) -> Result<Option<Self>, codec::Short> {
                let _ = argument;
                Ok(Some(match kind {
                    $(kind::$PLAIN => Self::$Plain,)*
                    $(kind::$KIND => Self::$Name {
                        $($argument: <$Argument>::of(argument),)?
                        $($field: Field::take(rest)?,)*
                    },)*
                    _ => return Ok(None),
                }))
            }
        }
    };
}

messages! {
    /// Asks for the peer's counters.
    SHOW_COUNTERS = 2 ShowCounters;
    /// The answer, with a descriptor or without.
    COUNTERS = 3 Counters;
    /// To the acceptor: its connector does not use the link any more.
    UNUSED = 26 Unused;
    /// To the connector: the link stays, it is used here.
    USED = 27 Used;
    /// To the connector: it is not any more.
    FREE = 28 Free;
    /// To the callee: a lane is wanted; says of all what has been taken.
    LANE_WANTED = 31 LaneWanted;
    /// The link region is sealed; and the answer to that, there is a link. The first messages after the welcome.
    SEALED = 43 Sealed;

    =>
    /// Wakes a receiver that sleeps in a descriptor; or, with [`NOBODY`], the waiter for an outcome.
    RING = 1 Ring(/** Which one. */ receiver: u8) {}
    /// A port of the sender's has been dropped, and those before it at its receiver.
    CLOSED = 4 Closed(/** The port had moved. */ has_moved: bool) {
        /// Its number.
        port: u32,
    }
    /// Rights are given back.
    RELEASE = 5 Release {
        /// Those: see [`released`].
        rights: &'a [[u8; 8]],
    }
    /// To the replier: asks for a path.
    PATH_ASK = 6 PathAsk {
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
    PATH_WANT = 7 PathWant {
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
    PATH_GRANTED = 8 PathGranted {
        /// The question's.
        token: u32,
        /// The caller's number for the path.
        path: u32,
        /// The set of return slots.
        set: u32,
    }
    /// To the replier: it is not.
    PATH_DENIED = 9 PathDenied {
        /// The question's.
        token: u32,
    }
    /// To the forwarder: it is there.
    PATH_READY = 10 PathReady {
        /// The forwarder's.
        number: u32,
        /// The caller's.
        path: u32,
    }
    /// To the forwarder: it is not there, or not any more.
    PATH_REFUSED = 11 PathRefused {
        /// The forwarder's.
        number: u32,
    }
    /// To the caller: nothing more comes by it.
    PATH_OVER = 12 PathOver {
        /// The caller's.
        path: u32,
    }
    /// To the replier: it is not needed any more.
    PATH_DROP = 13 PathDrop {
        /// The forwarder's.
        number: u32,
    }
    /// To the exporter: what was provided is void.
    PROVISION_VOID = 14 ProvisionVoid {
        /// The introducer's.
        number: u64,
    }
    /// To the introducer: what was provided will not be claimed.
    DECLINED = 15 Declined {
        /// The introducer's.
        number: u64,
        /// With whom it was provided.
        exporter: Process,
    }
    /// To the introducer: where is the door?
    DOOR_WHERE = 17 DoorWhere {
        /// Whose.
        exporter: Process,
    }
    /// To the exporter: asks for its own door.
    DOOR_ASK = 18 DoorAsk {
        /// The introducer's number for the question.
        token: u32,
    }
    /// To the introducer: the door comes with it, or there is none.
    DOOR = 19 Door {
        /// The question's.
        token: u32,
    }
    /// To the recipient: likewise.
    DOOR_OF = 20 DoorOf {
        /// Whose.
        exporter: Process,
    }
    /// To the introducer: what was provided is kept.
    KEPT = 21 Kept {
        /// The introducer's.
        number: u64,
    }
    /// To the introducer: there is no use for what is kept any more.
    LEAVE = 22 Leave {
        /// The introducer's.
        number: u64,
        /// How often it has come again.
        came: u32,
    }
    /// To the recipient: it does not come again any more.
    LEFT = 23 Left {
        /// The introducer's.
        number: u64,
    }
    /// Rights to the sender's ports are revoked.
    REVOKED = 24 Revoked(/** There was nothing to claim: no such right, or its port has ended. */ in_vain: bool) {
        /// Handles, or words of claims.
        names: &'a [[u8; 4]],
    }
    /// A port has a receiver for each CPU.
    SPREAD = 25 Spread {
        /// Its number.
        port: u32,
        /// Those: see [`spread_entry`].
        entries: &'a [[u8; 4]],
    }
    /// To the callee: its caller does not use the lane any more, and all in it has been taken.
    LANE_FREE = 29 LaneFree(/** Which one. */ lane: u8) {}
    /// To the caller: the lane may lead to any receiver from now on.
    LANE_BACK = 30 LaneBack(/** Which one. */ lane: u8) {}
    /// To the old home of a port that has moved: it has arrived.
    ARRIVED = 40 Arrived {
        /// The move's number.
        token: u32,
        /// The port's, at its new home.
        port: u32,
        /// The old home's right to it.
        handle: u32,
    }
    /// To the old home: there is no room for it.
    NOT_ARRIVED = 41 NotArrived {
        /// The move's number.
        token: u32,
    }
    /// To a sender: the port of a right has moved.
    MOVED = 42 Moved {
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

impl<'a> ControlMessage<'a> {
    /// The message in a peer's bytes; `None` for a kind that this release does not know, which is passed over.
    ///
    /// # Errors
    /// [`Malformed`] when it is of a known kind and not as long as that, or its statement on descriptors or an arena cannot be.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let Some(&kind) = bytes.first() else {
            return Ok(None);
        };
        let malformed = Malformed { kind };
        let parsed = match (kind, bytes) {
            (kind::DESCRIPTORS, _) => Descriptors::parse(bytes).map(Self::Descriptors),
            (kind::ARENA | kind::ARENA_ENDED, _) => Told::parse(bytes).map(Self::Arena),
            (_, [_, argument, rest @ ..]) => {
                let mut rest = Rest::new(rest);
                match Self::fields(kind, *argument, &mut rest) {
                    Ok(None) => return Ok(None),
                    Ok(parsed) => parsed.filter(|_| rest.is_empty()),
                    Err(codec::Short) => None,
                }
            }
            // A message of any kind: received ones have an argument, too.
            _ => None,
        };
        parsed.ok_or(malformed).map(Some)
    }
}

/// How many descriptors a message has, at most, by its first bytes.
#[must_use]
pub fn descriptors_of(bytes: &[u8]) -> usize {
    match bytes {
        [kind::DESCRIPTORS, ..] => Descriptors::parse(bytes).map_or(0, |sent| sent.count as usize),
        [
            kind::ARENA | kind::COUNTERS | kind::DOOR | kind::DOOR_OF,
            ..,
        ] => 1,
        _ => 0,
    }
}

/// An element of [`ControlMessage::Release`]: a handle, or the word of a claim, and how often it was received.
#[must_use]
pub const fn released(name: u32, count: u32) -> [u8; 8] {
    (name as u64 | (count as u64) << 32).to_le_bytes()
}

/// The handle or word in such an element, and the count.
#[must_use]
pub const fn released_of(element: [u8; 8]) -> (u32, u32) {
    let both = u64::from_le_bytes(element);
    (both as u32, (both >> 32) as u32)
}

/// An element of [`ControlMessage::Spread`]: a CPU, and the receiver there.
#[must_use]
pub const fn spread_entry(cpu: u16, receiver: u8) -> [u8; 4] {
    let [low, high] = cpu.to_le_bytes();
    [low, high, receiver, 0]
}

#[cfg(test)]
mod tests;
