//! The places where modules keep what they know of a process, each by the type of its table.
//!
//! A process is the ground on which the protocols stand, so its module names none of them: each protocol keeps its table
//! here, and finds it again by its type. A table is made by the first look at it.

use core::any::Any;
use std::sync::OnceLock;

/// One process has at most so many tables.
const TABLES_MAX: usize = 16;

/// See the module text.
#[derive(Default)]
pub(crate) struct Tables([OnceLock<Box<dyn Any + Send + Sync>>; TABLES_MAX]);

impl Tables {
    /// The table of this type. A comparison for each table that was made before it.
    pub(crate) fn get<T: Any + Send + Sync + Default>(&self) -> &T {
        // Every thread takes the same way, so the first place without a table is the same for all that look for one.
        let tables = self.0.iter();
        let mut tables = tables.map(|place| place.get_or_init(|| Box::<T>::default()));
        let found = tables.find_map(|table| table.downcast_ref());
        found.expect("a place for each type of table there is")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct One(AtomicU32);
    #[derive(Default)]
    struct Other(AtomicU32);

    #[test]
    fn threads_that_look_for_a_table_at_once_find_the_same() {
        for _ in 0..200 {
            let tables = Tables::default();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        tables.get::<One>().0.fetch_add(1, Ordering::Relaxed);
                        tables.get::<Other>().0.fetch_add(1, Ordering::Relaxed);
                    });
                    scope.spawn(|| tables.get::<Other>().0.fetch_add(1, Ordering::Relaxed));
                }
            });
            assert_eq!(tables.get::<One>().0.load(Ordering::Relaxed), 2);
            assert_eq!(tables.get::<Other>().0.load(Ordering::Relaxed), 4);
        }
    }
}
