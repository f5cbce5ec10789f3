//! Stream sockets: which way the bytes of one direction go, through the kernel's socket or through a ring in memory that both ends map, and how neither end
//! waits for the other when that changes (paper 001, section 2.2; `docs/decisions/0048-stream-sockets.md`).
//!
//! ```text
//! Kernel --writer turns--> Ring --writer ends----> Ended    bytes of the ring, then what the kernel says of the end
//!    |                      |----writer goes back-> Back     bytes of the ring, then those of the kernel
//!    '------reader leaves---'----reader leaves----> Left     the writer gives the kernel all that was not taken
//! ```
//!
//! The state is one word that both change by exchange, so one of them wins, and each acts upon what has become of the state. No state leads back:
//! a direction that goes through the kernel for good needs another region to turn again.
//!
//! A reader may not take just all that the kernel has: the writer may turn, and go back, between the reader's look at the state and its reading, and bytes
//! of after the ring then lie behind those of before. So the reader asks for a count first, looks at the state, and takes no more than that
//! count.

use handfast_layout::stream::State;

/// The peer has written words that no honest peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// One look at a direction's words: the state first, then the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which way the bytes go.
    pub state: State,
    /// How many bytes had gone through the kernel when the writer turned to the ring.
    pub from: u64,
    /// Bytes in the ring that have not been taken.
    pub unread: usize,
}

/// A reader's knowledge from before it looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Nothing.
    Nothing,
    /// The kernel's socket has so many bytes.
    Bytes(usize),
    /// It has an end or an error, and no bytes.
    End,
    /// The writer uses the region no more: its process has ended, or has left.
    Gone,
}

/// A reader's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// It reads at most so many bytes from the kernel's socket.
    Kernel(u64),
    /// It reads from the ring, which has bytes.
    Ring,
    /// It waits for the kernel's socket and for a change of the state.
    AwaitEither,
    /// It waits for bytes in the ring, a change of the state, or the end.
    AwaitRing,
}

/// The end that reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incoming {
    by_kernel: u64,
    is_by_kernel_for_good: bool,
}

impl Incoming {
    /// Before the first byte.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            by_kernel: 0,
            is_by_kernel_for_good: false,
        }
    }

    /// Whether all bytes from now on come through the kernel, and nobody need look at a region.
    #[must_use]
    pub const fn is_by_kernel_for_good(&self) -> bool {
        self.is_by_kernel_for_good
    }

    /// So many bytes were read from the kernel's socket.
    pub const fn took_from_kernel(&mut self, len_bytes: usize) {
        self.by_kernel += len_bytes as u64;
    }

    /// How the next bytes are read, where a region is shared. `pending` was asked for before the words were looked at: a count
    /// only where the writer had not turned when it was looked last.
    ///
    /// # Errors
    /// [`Broken`]: the writer turned after fewer bytes than have come.
    pub const fn next(&mut self, pending: Pending, seen: Seen) -> Result<Take, Broken> {
        if self.is_by_kernel_for_good {
            return Ok(Take::Kernel(u64::MAX));
        }
        if matches!(seen.state, State::Kernel) {
            return Ok(match pending {
                Pending::Nothing => Take::AwaitEither,
                Pending::Bytes(len_bytes) => Take::Kernel(len_bytes as u64),
                Pending::End => Take::Kernel(u64::MAX),
                Pending::Gone => self.by_kernel_for_good(),
            });
        }
        let Some(left) = seen.from.checked_sub(self.by_kernel) else {
            return Err(Broken);
        };
        Ok(match (left, seen.unread, seen.state) {
            (1.., ..) => Take::Kernel(left),
            (0, 1.., State::Ring | State::Ended | State::Back) => Take::Ring,
            (0, 0, State::Ring) if !matches!(pending, Pending::End | Pending::Gone) => {
                Take::AwaitRing
            }
            _ => self.by_kernel_for_good(),
        })
    }

    const fn by_kernel_for_good(&mut self) -> Take {
        self.is_by_kernel_for_good = true;
        Take::Kernel(u64::MAX)
    }

    /// The state after this reader has tried to leave the ring: whether the kernel has all that comes.
    ///
    /// # Errors
    /// The number of bytes that this reader must take from the ring first: the writer had left it already, and gives the kernel none of them.
    pub const fn leave(&mut self, seen: Seen) -> Result<(), usize> {
        match seen.state {
            State::Ended | State::Back if seen.unread > 0 => Err(seen.unread),
            _ => {
                self.is_by_kernel_for_good = true;
                Ok(())
            }
        }
    }
}

/// A writer's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It writes to the kernel's socket.
    Kernel,
    /// It writes into the ring.
    Ring,
    /// The reader has left: first the kernel's socket is given the oldest of the bytes that were not taken, at most so many.
    Again(usize),
    /// It has ended the stream: it writes no more.
    Nowhere,
}

/// The end that writes.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    by_kernel: u64,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Ring,
    /// Of the bytes in the ring, the kernel has been given so many.
    Left {
        given: usize,
    },
    KernelForGood,
    Nowhere,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new()
    }
}

impl Outgoing {
    /// Before the first byte.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            by_kernel: 0,
            way: Way::Kernel,
        }
    }

    /// How many bytes the kernel has taken before a turn.
    #[must_use]
    pub const fn by_kernel(&self) -> u64 {
        self.by_kernel
    }

    /// Whether this writer may turn to a ring.
    #[must_use]
    pub const fn may_turn(&self) -> bool {
        matches!(self.way, Way::Kernel)
    }

    /// Whether all bytes go through the kernel from now on.
    #[must_use]
    pub const fn is_by_kernel_for_good(&self) -> bool {
        matches!(self.way, Way::KernelForGood)
    }

    /// Whether bytes go into the ring, or did when it was looked last.
    #[must_use]
    pub const fn is_in_ring(&self) -> bool {
        matches!(self.way, Way::Ring)
    }

    /// This writer does not turn any more.
    pub const fn stay(&mut self) {
        if self.may_turn() {
            self.way = Way::KernelForGood;
        }
    }

    /// The kernel's socket has taken so many bytes.
    pub const fn gave_kernel(&mut self, len_bytes: usize) {
        self.by_kernel += len_bytes as u64;
    }

    /// The kernel's socket has taken so many of the bytes of [`Put::Again`].
    pub const fn gave_again(&mut self, len_bytes: usize) {
        if let Way::Left { given } = &mut self.way {
            *given += len_bytes;
        }
    }

    /// The state was exchanged for another one, or was not: what it is now.
    ///
    /// # Errors
    /// [`Broken`]: a state that neither end has made.
    pub const fn became(&mut self, state: State) -> Result<(), Broken> {
        self.way = match (self.way, state) {
            (Way::Kernel, State::Kernel) => Way::Kernel,
            (Way::Kernel | Way::Ring, State::Ring) => Way::Ring,
            (Way::Kernel, State::Left) => Way::KernelForGood,
            (Way::Ring, State::Left) => Way::Left { given: 0 },
            (Way::Kernel | Way::Ring, State::Back) => Way::KernelForGood,
            (Way::Ring, State::Ended) => Way::Nowhere,
            (way @ (Way::Left { .. } | Way::KernelForGood | Way::Nowhere), _) => way,
            _ => return Err(Broken),
        };
        Ok(())
    }

    /// How the next bytes are written, after [`Self::became`]. `unread` are the bytes in the ring that the reader has not taken.
    ///
    /// # Errors
    /// [`Broken`]: the reader has taken bytes after it had left.
    pub const fn next(&mut self, unread: usize) -> Result<Put, Broken> {
        Ok(match self.way {
            Way::Ring => Put::Ring,
            Way::Nowhere => Put::Nowhere,
            Way::Left { given } if given < unread => Put::Again(unread - given),
            Way::Left { given } if given > unread => return Err(Broken),
            Way::Left { .. } | Way::Kernel | Way::KernelForGood => {
                if !matches!(self.way, Way::Kernel) {
                    self.way = Way::KernelForGood;
                }
                Put::Kernel
            }
        })
    }

    /// Whether the reader has left, and may not have taken all bytes in the ring.
    #[must_use]
    pub const fn is_giving_again(&self) -> bool {
        matches!(self.way, Way::Left { .. })
    }

    /// How many of the bytes in the ring the kernel's socket has been given, where the reader has left.
    #[must_use]
    pub const fn given_again(&self) -> usize {
        match self.way {
            Way::Left { given } => given,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod simulation;
