//! Lists in control messages: elements of the sender's, or their bytes as they have come.

use core::fmt;

/// An element of a list, in `N` bytes.
pub trait Element<const N: usize>: Copy {
    /// The bytes to send.
    fn encode(self) -> [u8; N];

    /// The element in a peer's bytes; `None` for bytes that are none.
    fn parse(bytes: [u8; N]) -> Option<Self>;
}

/// A list of elements.
#[derive(Clone, Copy)]
pub struct List<'a, T, const N: usize>(Elements<'a, T, N>);

#[derive(Clone, Copy)]
enum Elements<'a, T, const N: usize> {
    Made(&'a [T]),
    /// Each of them has been parsed once.
    Received(&'a [[u8; N]]),
}

/// A right that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The handle, or the word of a claim.
    pub name: u32,
    /// How often it was received.
    pub count: u32,
}

/// The receiver of a port on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// Number of the CPU.
    pub cpu: u16,
    /// The receiver there.
    pub receiver: u8,
}

impl<'a, T: Element<N>, const N: usize> List<'a, T, N> {
    /// The list in a peer's bytes; `None` if some are no element.
    pub(super) fn parse(bytes: &'a [[u8; N]]) -> Option<Self> {
        let is_one = |bytes: &[u8; N]| T::parse(*bytes).is_some();
        let are_elements = bytes.iter().all(is_one);
        are_elements.then_some(Self(Elements::Received(bytes)))
    }

    /// How many elements there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Elements::Made(elements) => elements.len(),
            Elements::Received(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements.
    pub fn iter(self) -> impl Iterator<Item = T> + 'a
    where
        T: 'a,
    {
        (0..self.len()).filter_map(move |at| match self.0 {
            Elements::Made(elements) => Some(elements[at]),
            Elements::Received(bytes) => T::parse(bytes[at]),
        })
    }
}

impl<'a, T, const N: usize> From<&'a [T]> for List<'a, T, N> {
    fn from(elements: &'a [T]) -> Self {
        Self(Elements::Made(elements))
    }
}

impl<'a, T, const N: usize, const COUNT: usize> From<&'a [T; COUNT]> for List<'a, T, N> {
    fn from(elements: &'a [T; COUNT]) -> Self {
        Self::from(elements.as_slice())
    }
}

impl<T: Element<N> + PartialEq, const N: usize> PartialEq for List<'_, T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Element<N> + Eq, const N: usize> Eq for List<'_, T, N> {}

/// The bytes of each element, as `spec/control.txt` has them.
impl<T: Element<N>, const N: usize> fmt::Debug for List<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(T::encode)).finish()
    }
}

impl Element<4> for u32 {
    fn encode(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn parse(bytes: [u8; 4]) -> Option<Self> {
        Some(Self::from_le_bytes(bytes))
    }
}

impl Element<8> for Released {
    fn encode(self) -> [u8; 8] {
        (u64::from(self.name) | u64::from(self.count) << 32).to_le_bytes()
    }

    fn parse(bytes: [u8; 8]) -> Option<Self> {
        let both = u64::from_le_bytes(bytes);
        Some(Self {
            name: both as u32,
            count: (both >> 32) as u32,
        })
    }
}

impl Element<4> for OnCpu {
    fn encode(self) -> [u8; 4] {
        let [low, high] = self.cpu.to_le_bytes();
        [low, high, self.receiver, 0]
    }

    fn parse(bytes: [u8; 4]) -> Option<Self> {
        let [low, high, receiver, 0] = bytes else {
            return None;
        };
        Some(Self {
            cpu: u16::from_le_bytes([low, high]),
            receiver,
        })
    }
}
