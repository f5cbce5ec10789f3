//! The places where modules keep what they know of a process.
//!
//! A process is the ground on which the protocols stand, so its module names none of their types: each protocol keeps its table at
//! a place of its own here. A table is made by the first look at it.

use core::any::Any;
use std::sync::OnceLock;

/// Which table: each of one type.
#[derive(Clone, Copy)]
pub(crate) enum Which {
    Groups,
    Links,
    Ports,
    Protocols,
    Vines,
    Loops,
    Accepted,
    Connecting,
    Callers,
    Doors,
    Moves,
    Relays,
    Switches,
    Servers,
    Diverted,
}

const TABLES: usize = Which::Diverted as usize + 1;

/// The knowledge that a module has of a process.
pub(crate) trait Table: Any + Send + Sync + Default {
    const WHICH: Which;
}

/// See the module text.
#[derive(Default)]
pub(crate) struct Tables([OnceLock<Box<dyn Any + Send + Sync>>; TABLES]);

impl Tables {
    /// The table of this type.
    #[inline]
    pub(crate) fn get<T: Table>(&self) -> &T {
        let table = self.0[T::WHICH as usize].get_or_init(|| Box::<T>::default());
        table.downcast_ref().expect("a place of its own")
    }
}
