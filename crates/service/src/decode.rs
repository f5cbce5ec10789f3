//! Bytes into values. The bytes are private, and may be anything.

use crate::encode::Fixed;
use crate::error::Malformed;
use crate::method::values;
use core::num::Wrapping;
use handfast_port::{
    Loan, Memory, OwnRight, ReceiveRight, ReplyRight, Request, Right, SendOnceRight, SendRight,
};
use postcard::Deserializer;
use postcard::de_flavors::Flavor;
use serde::Deserialize;
use std::os::fd::OwnedFd;

/// Takes the values of one message out, one after the other.
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    /// The first one last.
    rights: Vec<Right>,
}

impl<'a> Decoder<'a> {
    /// A decoder of a request behind its method, with these rights.
    #[must_use]
    pub fn of_request(request: &'a Request, mut rights: Vec<Right>) -> Self {
        rights.reverse();
        let rest = values(request.bytes());
        Self { rest, rights }
    }

    /// The value that `decode` takes out of a message.
    #[inline(always)]
    pub(crate) fn read<T, E>(
        bytes: &'a [u8],
        rights: Vec<Right>,
        decode: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut decoder = Self {
            rest: bytes,
            rights,
        };
        if decoder.rights.len() > 1 {
            decoder.rights.reverse();
        }
        let value = decode(&mut decoder);
        if decoder.rights.capacity() == 0 {
            // Nearly always; then nothing is to be dropped, and the compiler does not know.
            core::mem::forget(decoder);
        }
        value
    }

    /// A value in postcard's format.
    ///
    /// # Errors
    /// [`Malformed::Value`], as for all methods that follow.
    #[inline]
    pub fn take<T: Deserialize<'a>>(&mut self) -> Result<T, Malformed> {
        let mut deserializer = Deserializer::from_flavor(Shallow {
            rest: self.rest,
            start: stack_position(),
        });
        let value = T::deserialize(&mut deserializer).map_err(|_| Malformed::Value)?;
        self.rest = deserializer.finalize().map_err(|_| Malformed::Value)?;
        Ok(value)
    }

    /// A value as it lies in memory.
    ///
    /// # Errors
    /// [`Malformed::Value`].
    #[inline(always)]
    pub fn take_fixed<T: Fixed>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = T::try_read_from_prefix(self.rest).map_err(|_| Malformed::Value)?;
        self.rest = rest;
        Ok(value)
    }

    /// Which of two kinds of value follows: `Err` or `Ok`, `None` or `Some`.
    ///
    /// # Errors
    /// [`Malformed::Value`].
    #[inline]
    pub fn take_choice(&mut self) -> Result<bool, Malformed> {
        self.take_fixed()
    }

    /// A right of any kind.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none.
    pub fn take_right(&mut self) -> Result<Right, Malformed> {
        self.rights.pop().ok_or(Malformed::Rights)
    }

    /// A right to a port of another process.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind.
    pub fn take_send_right(&mut self) -> Result<SendRight, Malformed> {
        match self.take_right()? {
            Right::Send(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// A right to a port of this process.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind.
    pub fn take_own_right(&mut self) -> Result<OwnRight, Malformed> {
        match self.take_right()? {
            Right::Own(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// A right to send one message.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind.
    pub fn take_send_once_right(&mut self) -> Result<SendOnceRight, Malformed> {
        match self.take_right()? {
            Right::SendOnce(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// A right to answer a call.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind.
    pub fn take_reply_right(&mut self) -> Result<ReplyRight, Malformed> {
        match self.take_right()? {
            Right::Reply(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// A right to receive.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind, or there was no room for it here ([`Right::Lost`]).
    pub fn take_receive_right(&mut self) -> Result<ReceiveRight, Malformed> {
        match self.take_right()? {
            Right::Receive(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// Memory that nobody can change any more.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind, or there was no room for it here ([`Right::Lost`]).
    pub fn take_memory(&mut self) -> Result<Memory, Malformed> {
        match self.take_right()? {
            Right::Memory(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// An open descriptor.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind, or there was no room for it here ([`Right::Lost`]).
    pub fn take_descriptor(&mut self) -> Result<OwnedFd, Malformed> {
        match self.take_right()? {
            Right::Descriptor(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// A block that was lent.
    ///
    /// # Errors
    /// [`Malformed::Rights`] when there is none or one of another kind, or there was no room for it here ([`Right::Lost`]).
    pub fn take_loan(&mut self) -> Result<Loan, Malformed> {
        match self.take_right()? {
            Right::Loan(right) => Ok(right),
            _ => Err(Malformed::Rights),
        }
    }

    /// Checks that no value is left.
    ///
    /// # Errors
    /// [`Malformed::Left`], [`Malformed::Rights`].
    #[inline(always)]
    pub fn end(&self) -> Result<(), Malformed> {
        if !self.rest.is_empty() {
            return Err(Malformed::Left);
        }
        if !self.rights.is_empty() {
            return Err(Malformed::Rights);
        }
        Ok(())
    }
}

/// Bytes for as long as the stack does not get deep: every level of a type that contains itself
/// takes at least one byte (which variant, whether there is one, how many), and a message has enough
/// of them to use up any stack.
struct Shallow<'de> {
    rest: &'de [u8],
    start: Wrapping<usize>,
}

/// Bytes of stack a value may take while it is decoded.
const DEPTH_BYTES_MAX: usize = 256 << 10;

#[inline(always)]
fn stack_position() -> Wrapping<usize> {
    let here = 0u8;
    Wrapping((&raw const here).addr())
}

impl Shallow<'_> {
    #[inline(always)]
    fn is_deep(&self) -> bool {
        // Stacks grow towards lower addresses; a little way back up is where `take` has its frame.
        let depth = (self.start - stack_position()).0;
        depth.cast_signed() > DEPTH_BYTES_MAX.cast_signed()
    }
}

impl<'de> Flavor<'de> for Shallow<'de> {
    type Remainder = &'de [u8];
    type Source = &'de [u8];

    #[inline]
    fn pop(&mut self) -> postcard::Result<u8> {
        if self.is_deep() {
            return Err(postcard::Error::SerdeDeCustom);
        }
        let (byte, rest) = self
            .rest
            .split_first()
            .ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }

    #[inline]
    fn try_take_n(&mut self, len_bytes: usize) -> postcard::Result<&'de [u8]> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len_bytes)
            .ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn finalize(self) -> postcard::Result<&'de [u8]> {
        Ok(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encoder;

    fn decoder(rest: &[u8]) -> Decoder<'_> {
        let rights = Vec::new();
        Decoder { rest, rights }
    }

    #[test]
    fn what_was_put_in_comes_out() {
        let mut encoder = Encoder::of_reply(1 << 10);
        encoder.put("note");
        encoder.put_fixed(&7u64);
        encoder.put_bytes(&[1, 2, 3]);
        encoder.put(&Some(-5i32));
        let mut decoder = decoder(encoder.reply());
        assert_eq!(decoder.take::<&str>(), Ok("note"));
        assert_eq!(decoder.take_fixed::<u64>(), Ok(7));
        assert_eq!(decoder.end(), Err(Malformed::Left));
        assert_eq!(decoder.take::<Vec<u8>>(), Ok(vec![1, 2, 3]));
        assert_eq!(decoder.take(), Ok(Some(-5)));
        assert_eq!(decoder.end(), Ok(()));
        assert!(matches!(decoder.take_right(), Err(Malformed::Rights)));
    }

    #[test]
    fn lengths_are_checked() {
        assert_eq!(
            decoder(&[1, 2, 3]).take_fixed::<u32>(),
            Err(Malformed::Value)
        );
        assert_eq!(decoder(&[2]).take_fixed::<bool>(), Err(Malformed::Value));
        // A string of 2^63 bytes, a vector of as many numbers.
        let long = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1];
        assert_eq!(decoder(&long).take::<&str>(), Err(Malformed::Value));
        assert_eq!(decoder(&long).take::<Vec<u64>>(), Err(Malformed::Value));
        assert_eq!(decoder(&[1, 0xff]).take::<&str>(), Err(Malformed::Value));
    }

    #[derive(serde::Deserialize, Debug)]
    enum Chain {
        #[allow(dead_code, reason = "it is there to nest")]
        Link(Box<Self>),
        End,
    }

    #[test]
    fn what_nests_too_deep_is_refused_and_harms_no_stack() {
        let mut bytes = vec![0; 60_000];
        bytes.push(1);
        let small = std::thread::Builder::new().stack_size(1 << 20);
        let refused = small.spawn(move || {
            let refused = decoder(&bytes).take::<Chain>().unwrap_err();
            (
                refused,
                decoder(&bytes[60_000 - 100..]).take::<Chain>().is_ok(),
            )
        });
        assert_eq!(refused.unwrap().join().unwrap(), (Malformed::Value, true));
        assert!(matches!(decoder(&[1]).take::<Chain>(), Ok(Chain::End)));
    }
}
