//! Values into bytes.

use crate::error::{ANSWERED, Refusal, Unencodable};
use core::cell::Cell;
use handfast_port::{MESSAGE_BYTES_MAX, Right};
use postcard::ser_flavors::Flavor;
use serde::{Serialize, Serializer};
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

/// Types whose values travel as they lie in memory: without padding, pointers or anything else that
/// means nothing to another process. Numbers and arrays of them are; one's own types are by
/// `#[derive(TryFromBytes, IntoBytes, Immutable)]` of the crate `zerocopy`, which also says which
/// bytes are no value of the type.
pub trait Fixed: TryFromBytes + IntoBytes + Immutable {}

impl<T: TryFromBytes + IntoBytes + Immutable> Fixed for T {}

/// The values of one message, put in one behind the other.
///
/// Its buffer belongs to the thread: encoding does not allocate once a thread has seen its longest
/// message, except for rights.
#[derive(Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    rights: Vec<Right>,
    /// The first value that could not be put in.
    failure: Option<Unencodable>,
}

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Encoder {
    /// An empty one, with this thread's buffer.
    #[inline]
    pub(crate) fn new() -> Self {
        // A thread that is ending has none any more.
        let mut bytes = BUFFER.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        Self {
            bytes,
            rights: Vec::new(),
            failure: None,
        }
    }

    /// A value in postcard's format.
    #[inline]
    pub fn put<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.serialize(|serializer| value.serialize(serializer));
    }

    /// Bytes, as [`Self::put`] would, but not one by one.
    #[inline]
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.serialize(|serializer| serializer.serialize_bytes(bytes));
    }

    /// A value as it lies in memory.
    #[inline(always)]
    pub fn put_fixed<T: Fixed + ?Sized>(&mut self, value: &T) {
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// A right beside the bytes.
    pub fn put_right(&mut self, right: impl Into<Right>) {
        self.rights.push(right.into());
    }

    #[inline]
    fn serialize(
        &mut self,
        value: impl FnOnce(&mut postcard::Serializer<Limited<'_>>) -> postcard::Result<()>,
    ) {
        let output = Limited(&mut self.bytes);
        let mut serializer = postcard::Serializer { output };
        if let Err(error) = value(&mut serializer) {
            self.failed(error);
        }
    }

    #[cold]
    fn failed(&mut self, error: postcard::Error) {
        let why = match error {
            postcard::Error::SerializeBufferFull => Unencodable::TooLong,
            _ => Unencodable::Value,
        };
        self.failure.get_or_insert(why);
    }

    /// Starts a request.
    #[inline(always)]
    pub(crate) fn start_request(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    /// Starts a reply, whatever was there.
    #[inline(always)]
    pub(crate) fn start_reply(&mut self) {
        self.bytes.clear();
        self.bytes.push(ANSWERED);
        self.failure = None;
        if !self.rights.is_empty() {
            self.rights.clear();
        }
    }

    /// Makes it a reply that refuses.
    #[cold]
    pub(crate) fn refuse(&mut self, why: Refusal) {
        self.rights.clear();
        why.write(&mut self.bytes);
    }

    /// Whether all values were put in.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Unencodable> {
        match self.failure {
            Some(why) => Err(why),
            None if self.bytes.len() > MESSAGE_BYTES_MAX => Err(Unencodable::TooLong),
            None => Ok(()),
        }
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline(always)]
    pub(crate) fn has_rights(&self) -> bool {
        !self.rights.is_empty()
    }

    pub(crate) fn take_rights(&mut self) -> Vec<Right> {
        core::mem::take(&mut self.rights)
    }
}

impl Drop for Encoder {
    #[inline]
    fn drop(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        // Fixed-layout values are put in before their length is looked at.
        if bytes.capacity() <= 2 * MESSAGE_BYTES_MAX {
            let _ = BUFFER.try_with(|buffer| buffer.set(bytes));
        }
    }
}

/// Takes no more than a message can hold, so that a value of any size ends here.
struct Limited<'a>(&'a mut Vec<u8>);

impl Flavor for Limited<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.0.len() >= MESSAGE_BYTES_MAX {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > MESSAGE_BYTES_MAX.saturating_sub(self.0.len()) {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_too_long_ends_at_the_limit_of_a_message() {
        let mut encoder = Encoder::new();
        encoder.put(&vec![7u16; MESSAGE_BYTES_MAX]);
        assert_eq!(encoder.check(), Err(Unencodable::TooLong));
        assert!(encoder.bytes().len() <= MESSAGE_BYTES_MAX);
        encoder.start_reply();
        assert_eq!(encoder.check(), Ok(()));
        encoder.put_bytes(&[0; MESSAGE_BYTES_MAX]);
        assert_eq!(encoder.check(), Err(Unencodable::TooLong));
        encoder.start_reply();
        encoder.put_fixed(&[0u8; MESSAGE_BYTES_MAX]);
        assert_eq!(encoder.check(), Err(Unencodable::TooLong));
    }
}
