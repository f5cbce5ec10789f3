//! State that few rights have. Kept apart, so that a right is small: it is moved from message to message.

use super::SendRight;
use crate::link::spread::Entry;
use crate::options::WaitBy;
use crate::rank;
use handfast_sys::sync::Mutex;
use std::sync::OnceLock;

/// See the module text.
#[derive(Default)]
pub(super) struct Aside {
    /// How its callers wait, where that is not as the environment says.
    waiting: Mutex<Option<WaitBy>, rank::SendWaiting>,
    /// The right it has become since its port moved, with its options; `None`, for ever, for a right whose port
    /// stays.
    pub(super) moved: OnceLock<Option<Box<SendRight>>>,
    /// The right for each CPU, if the port is served on each; `None`, for ever, for those rights themselves.
    pub(super) spread: OnceLock<Option<Box<Spread>>>,
}

pub(super) fn aside(right: &SendRight) -> &Aside {
    right.aside.get_or_init(Box::default)
}

/// How its callers wait.
pub(super) fn waiting(right: &SendRight) -> WaitBy {
    let own = right.aside.get().and_then(|aside| {
        let waiting = aside.waiting.lock();
        *waiting
    });
    own.unwrap_or(right.process().defaults.waiting)
}

pub(super) fn set_waiting(right: &SendRight, waiting: WaitBy) {
    *aside(right).waiting.lock() = Some(waiting);
}

/// The right it has become since its port moved, or that the port stays, if a thread has asked.
pub(super) fn known_moved(right: &SendRight) -> Option<&Option<Box<SendRight>>> {
    right.aside.get().and_then(|aside| aside.moved.get())
}

impl Aside {
    /// Drops what its right has become, one after the other and not one within the other: others say how many those are.
    #[cold]
    pub(super) fn drop_moved(&mut self) {
        let mut moved = self.moved.take();
        while let Some(Some(mut right)) = moved {
            let aside = right.aside.get_mut();
            moved = aside.and_then(|aside| aside.moved.take());
        }
    }
}

/// A right to such a port: the same for each CPU, with that receiver's lanes.
pub(super) struct Spread {
    rights: Box<[SendRight]>,
    /// Index into the rights, plus one, by CPU.
    of_cpu: Box<[u8]>,
}

impl Spread {
    pub(super) fn new(entries: &[Entry], make: impl Fn(Entry) -> SendRight) -> Self {
        let last = entries
            .iter()
            .map(|(cpu, _)| *cpu)
            .max()
            .unwrap_or_default();
        let mut of_cpu = vec![0; last as usize + 1];
        for ((cpu, _), place) in entries.iter().zip(1..) {
            of_cpu[*cpu as usize] = place;
        }
        Self {
            rights: entries.iter().map(|entry| make(*entry)).collect(),
            of_cpu: of_cpu.into(),
        }
    }

    /// The place of the right for `cpu`, from 1 on; 0 where the port has no receiver.
    #[inline]
    pub(super) fn place(&self, cpu: u32) -> u8 {
        self.of_cpu.get(cpu as usize).copied().unwrap_or_default()
    }

    #[inline]
    pub(super) fn right(&self, place: u8) -> Option<&SendRight> {
        self.rights.get(usize::from(place).checked_sub(1)?)
    }
}
