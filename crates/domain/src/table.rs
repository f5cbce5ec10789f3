//! The parts of a server: a value and the functions that are called with it.

use crate::call::CallContext;
use crate::image::Functions;
use crate::row::Entry;
use crate::run::run;
use crate::server::Heap;
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// The functions of a domain, and the function that makes their common value.
pub struct Table<T> {
    init: fn(&Heap) -> T,
    entries: Vec<Entry>,
    value: PhantomData<fn(T) -> T>,
}

impl<T: Sync + 'static> Table<T> {
    /// A table without functions. `init` runs in the domain when it is loaded and whenever it is reset; its return
    /// value lies in the domain's memory. Memory that the value owns elsewhere (a `Box` or `Vec` is in memory that all domains share) is not
    /// protected, and is leaked by a reset and at the end: the value is never dropped.
    #[must_use]
    pub const fn new(init: fn(&Heap) -> T) -> Self {
        Self {
            init,
            entries: Vec::new(),
            value: PhantomData,
        }
    }

    /// Adds a function, by its name or as a closure that captures nothing; the first one has number 0.
    ///
    /// Any thread may call the function, and several at once, so it captures nothing that belongs to one thread, not even a token of no bytes:
    ///
    /// ```compile_fail,E0277
    /// use handfast_domain::{CallContext, Table};
    /// use std::marker::PhantomData;
    ///
    /// /// A thread that has one is on its thread.
    /// #[derive(Clone, Copy)]
    /// struct Token(PhantomData<*const ()>);
    ///
    /// let token = Token(PhantomData);
    /// let table = Table::new(|_| ()).entry(move |_: &(), _: &mut CallContext<'_>| {
    ///     let _own = &token;
    /// });
    /// ```
    #[must_use]
    pub fn entry<F>(mut self, function: F) -> Self
    where
        F: Fn(&T, &mut CallContext<'_>) + Copy + Send + Sync + 'static,
    {
        let _ = function;
        self.entries.push(run::<T, F>);
        self
    }

    pub(crate) fn functions(&self) -> Functions {
        Functions {
            init: self.init as *const (),
            make: make::<T>,
            entries: self.entries.clone(),
        }
    }
}

/// # Safety
/// `init` is a `fn(&Heap) -> T`.
unsafe fn make<T>(init: *const (), heap: &Heap) -> Option<NonNull<()>> {
    // SAFETY: the caller says that it is such a function.
    let init = unsafe { core::mem::transmute::<*const (), fn(&Heap) -> T>(init) };
    let place = heap.allocate(Layout::new::<T>())?.cast::<T>();
    let value = init(heap);
    // SAFETY: the heap gave this place out for one `T`, aligned.
    unsafe { place.write(value) };
    Some(place.cast())
}
