//! A value whose type only its maker knows.

use core::any::TypeId;
use core::ptr::NonNull;

/// A value of any type, found again by that type: as `Box<dyn Any>`, but the type is compared in place, and not by a call through a
/// table.
pub struct Erased {
    value: NonNull<()>,
    of: TypeId,
    /// Drops the value.
    drop: unsafe fn(NonNull<()>),
}

impl Erased {
    /// Takes the value. One allocation.
    pub fn new<T: Send + Sync + 'static>(value: T) -> Self {
        Self {
            value: NonNull::from(Box::leak(Box::new(value))).cast(),
            of: TypeId::of::<T>(),
            drop: drop_of::<T>,
        }
    }

    /// The value, if it is of this type.
    #[inline(always)]
    #[must_use]
    pub fn get<T: 'static>(&self) -> Option<&T> {
        // SAFETY: `new` has made it of a value of this type, which lives as long as this.
        (self.of == TypeId::of::<T>()).then(|| unsafe { self.value.cast().as_ref() })
    }
}

/// # Safety
/// `value` came of a box of this type, and is used no more.
unsafe fn drop_of<T>(value: NonNull<()>) {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(value.cast::<T>().as_ptr()) });
}

impl Drop for Erased {
    fn drop(&mut self) {
        // SAFETY: `drop` is that of the type of the value, which nobody uses after this.
        unsafe { (self.drop)(self.value) }
    }
}

// SAFETY: the value is `Send`.
unsafe impl Send for Erased {}

// SAFETY: the value is `Sync`, and a reference to this gives no more than one to the value.
unsafe impl Sync for Erased {}

impl core::fmt::Debug for Erased {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Erased").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_value_is_found_by_its_type_alone_and_dropped_once() {
        let shared = Arc::new(7);
        let erased = Erased::new(shared.clone());
        assert_eq!(erased.get::<Arc<i32>>().map(|value| **value), Some(7));
        assert!(erased.get::<i32>().is_none());
        assert!(erased.get::<Arc<u32>>().is_none());
        assert_eq!(Arc::strong_count(&shared), 2);
        drop(erased);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
