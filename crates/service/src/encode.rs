//! Values into bytes.

use crate::error::{ANSWERED, CallError, Refusal, Unencodable};
use crate::method::Method;
use core::cell::Cell;
use handfast_port::{LONG_BYTES_MAX, MESSAGE_BYTES_MAX, Right};
use postcard::ser_flavors::Flavor;
use serde::{Serialize, Serializer};
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

/// Types whose values travel as they lie in memory: without padding, pointers or anything else that
/// means nothing to another process. Numbers and arrays of numbers are such types. A type of your own becomes one by
/// `#[derive(TryFromBytes, IntoBytes, Immutable)]` of the crate `zerocopy`, which also defines which
/// bytes are no value of the type.
pub trait Fixed: TryFromBytes + IntoBytes + Immutable {}

impl<T: TryFromBytes + IntoBytes + Immutable> Fixed for T {}

/// Puts the values of one message in, one after the other.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    /// The longest message.
    max: usize,
    rights: Vec<Right>,
    /// Why the first value that could not be put in was not.
    failure: Option<Unencodable>,
}

thread_local! {
    /// Used again: encoding does not allocate once a thread has seen its longest message, but for
    /// rights, and for messages of more than 64 KiB. Taken out while it is in use.
    static ENCODER: Cell<Option<Box<Encoder>>> = const { Cell::new(None) };
}

impl Encoder {
    /// Runs `use_it` with this thread's encoder, or one of its own within another `with`.
    #[inline]
    pub(crate) fn with<T>(use_it: impl FnOnce(&mut Self) -> T) -> T {
        // A thread that is ending has none any more.
        let encoder = ENCODER.try_with(Cell::take).ok().flatten();
        let mut encoder = encoder.unwrap_or_default();
        let used = use_it(&mut encoder);
        if !encoder.rights.is_empty() {
            encoder.rights.clear();
        }
        if !encoder.is_large() {
            let _ = ENCODER.try_with(|known| known.set(Some(encoder)));
        }
        used
    }

    /// Runs `use_it` with an encoder that has the start of a request of `method`.
    #[inline]
    pub fn request<T>(method: &'static Method, use_it: impl FnOnce(&mut Self) -> T) -> T {
        Self::with(|request| {
            request.start(LONG_BYTES_MAX);
            request.put_fixed(&method.word());
            use_it(request)
        })
    }

    /// The request, if all arguments were put in.
    ///
    /// # Errors
    /// [`CallError::Arguments`].
    #[inline]
    pub fn bytes(&self, method: &'static Method) -> Result<&[u8], CallError> {
        match self.check() {
            Ok(()) => Ok(&self.bytes),
            Err(why) => Err(CallError::Arguments { method, why }),
        }
    }

    /// The request and its rights, if all arguments were put in.
    ///
    /// # Errors
    /// [`CallError::Arguments`].
    pub fn parts(&mut self, method: &'static Method) -> Result<(&[u8], Vec<Right>), CallError> {
        let rights = self.take_rights();
        Ok((self.bytes(method)?, rights))
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
        let output = Limited(&mut self.bytes, self.max);
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

    /// Empties it, for a message of so many bytes at most.
    #[inline(always)]
    pub(crate) fn start(&mut self, max: usize) {
        self.bytes.clear();
        self.max = max;
        self.failure = None;
        if !self.rights.is_empty() {
            self.rights.clear();
        }
    }

    /// Makes it a reply that answers, if all values were put in.
    #[inline(always)]
    pub(crate) fn finish_reply(&mut self) -> Result<(), Unencodable> {
        self.bytes.push(ANSWERED);
        self.check()
    }

    /// Whether it has more memory than is kept for the next message.
    #[inline(always)]
    pub(crate) const fn is_large(&self) -> bool {
        // Fixed-layout values are put in before their length is looked at.
        self.bytes.capacity() > 2 * MESSAGE_BYTES_MAX
    }

    /// An encoder for a reply of at most `max` bytes, which is not the thread's.
    #[must_use]
    pub fn of_reply(max: usize) -> Self {
        let mut reply = Self::default();
        reply.start(max);
        reply
    }

    /// A reply: what was put in, or why there is nothing.
    #[inline]
    pub(crate) fn end(&mut self, outcome: Result<(), Refusal>) {
        let outcome = outcome.and_then(|()| self.finish_reply().map_err(Refusal::Result));
        if let Err(why) = outcome {
            self.refuse(why);
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
            None if self.bytes.len() > self.max => Err(Unencodable::TooLong),
            None => Ok(()),
        }
    }

    #[inline(always)]
    pub(crate) fn reply(&self) -> &[u8] {
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

/// A request of fixed-layout arguments alone: `N` bytes, the start of a request included.
#[derive(Debug)]
pub struct FixedRequest<const N: usize> {
    bytes: [u8; N],
    len_bytes: usize,
}

impl<const N: usize> FixedRequest<N> {
    /// Runs `use_it` with the start of a request of `method`.
    #[inline(always)]
    pub fn request<T>(method: &'static Method, use_it: impl FnOnce(&mut Self) -> T) -> T {
        let mut request = Self {
            bytes: [0; N],
            len_bytes: 0,
        };
        request.put_fixed(&method.word());
        use_it(&mut request)
    }

    /// A value as it lies in memory.
    ///
    /// # Panics
    /// If there is no room: the generated code knows the sizes.
    #[inline(always)]
    pub fn put_fixed<T: Fixed + ?Sized>(&mut self, value: &T) {
        let end = self.len_bytes + size_of_val(value);
        self.bytes[self.len_bytes..end].copy_from_slice(value.as_bytes());
        self.len_bytes = end;
    }

    /// The request.
    ///
    /// # Errors
    /// None; the type is that of an [`Encoder`]'s.
    #[inline(always)]
    pub const fn bytes(&self, _: &'static Method) -> Result<&[u8], CallError> {
        Ok(&self.bytes)
    }
}

/// Takes no more than a message can hold, so that a value of any size ends here.
struct Limited<'a>(&'a mut Vec<u8>, usize);

impl Flavor for Limited<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.0.len() >= self.1 {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.0.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.1.saturating_sub(self.0.len()) {
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
        for max in [MESSAGE_BYTES_MAX, LONG_BYTES_MAX] {
            let mut encoder = Encoder::of_reply(max);
            encoder.put(&vec![7u16; max]);
            assert_eq!(encoder.check(), Err(Unencodable::TooLong));
            assert!(encoder.reply().len() <= max);
            encoder.start(max);
            assert_eq!(encoder.check(), Ok(()));
            encoder.put_bytes(&vec![0; max]);
            assert_eq!(encoder.check(), Err(Unencodable::TooLong));
            encoder.start(max);
            encoder.bytes.resize(max, 0);
            assert_eq!(encoder.check(), Ok(()));
            assert_eq!(encoder.finish_reply(), Err(Unencodable::TooLong));
        }
    }

    /// Which a server gives up before it waits: a refusal has few bytes in much memory.
    #[test]
    fn the_memory_of_a_long_reply_that_is_refused_is_large() {
        let mut reply = Encoder::of_reply(LONG_BYTES_MAX);
        reply.put_bytes(&vec![0; 60_000]);
        reply.end(Ok(()));
        assert!(!reply.is_large());
        reply.start(LONG_BYTES_MAX);
        reply.put_bytes(&vec![0; 1 << 20]);
        reply.end(Err(Refusal::Method));
        assert!(reply.is_large() && reply.reply().len() < 10);
    }
}
