//! A domain as its callers see it.

use crate::Words;
use crate::confined::is_confined;
use crate::error::{CallError, LoadError, Status};
use crate::group::Group;
use crate::held::Held;
use crate::image::Functions;
use crate::isolation::Isolation;
use crate::loaded::Loaded;
use crate::options::DomainOptions;
use crate::parent::Process;
use crate::pool::PER_CPU;
use crate::run::{INIT, TRIM};
use crate::stack::{BOUNDED, BYTES_MAX, Buffers, ENTRY_SHIFT, Sender};
use crate::table::Table;
use crate::way::{self, Crossing};
use core::cell::Cell;
use handfast_sys::{clock, cpu};
use std::sync::Arc;
use std::time::Duration;

/// A loaded domain. Clones are handles to the same domain, which is unloaded with the last one.
#[derive(Clone, Debug)]
pub struct Domain {
    inner: Arc<Loaded>,
}

impl Domain {
    /// Loads a domain: gives it memory, a key and a row in the gate's table, and makes its value. Some sixty system
    /// calls. The first domain of a process also takes over the signals of faults (`SIGSEGV`, `SIGBUS`, `SIGFPE`,
    /// `SIGILL`), and passes signals that do not concern domains on to the earlier handlers.
    ///
    /// Without memory keys, or with [`Isolation::Process`], this starts a child process instead, which runs this program's file
    /// again, but not its `main`; that takes some milliseconds. The child lives as long as this process keeps the domain. It has the
    /// functions of the table, and no memory of this process: neither changed statics nor the targets of pointers in
    /// words.
    ///
    /// # Errors
    /// [`LoadError`]; nothing is left of a domain that was not loaded.
    ///
    /// # Safety
    /// A fault ends a call at an arbitrary instruction, and drops nothing on its stack. So a function of the table
    /// must not have lent its stack to another thread (`std::thread::scope`), and its changes to memory outside of
    /// the domain must be whole at any instruction, or that memory must never be used again after a fault. Locks of the
    /// process that the function holds then (the allocator's among them) stay held.
    pub unsafe fn new<T: Sync + 'static>(
        table: &Table<T>,
        options: DomainOptions,
    ) -> Result<Self, LoadError> {
        let wanted = options.isolation;
        let options = options.isolation(wanted.resolved());
        if options.isolation != Isolation::Process {
            return Self::load(table.functions(), options);
        }
        if wanted == Isolation::Automatic && !way::are_possible() {
            return Err(LoadError::NoKeys);
        }
        if is_confined() {
            return Err(LoadError::Confined);
        }
        let process = Process::new(&table.functions(), &options)?;
        Ok(Self {
            inner: Arc::new(Loaded::elsewhere(process, options.group)?),
        })
    }

    /// Loads one into this process.
    pub(crate) fn load(functions: Functions, options: DomainOptions) -> Result<Self, LoadError> {
        let inner = Loaded::new(&functions, options)?;
        let domain = Self {
            inner: Arc::new(inner),
        };
        let control = u64::from(INIT) << ENTRY_SHIFT;
        match domain.inner.call(control, &mut Words::default(), 0) {
            Ok(_) => Ok(domain),
            Err(CallError::Fault(fault)) => Err(LoadError::Init(fault)),
            Err(error) => Err(LoadError::Call(error)),
        }
    }

    /// Calls function `entry` with eight words, on this thread and processor. No system call, no lock, no allocation,
    /// and no write to memory that another CPU writes.
    ///
    /// # Errors
    /// [`CallError`]. After [`CallError::Fault`] the function was ended where it was.
    #[inline]
    pub fn call(&self, entry: u16, words: Words) -> Result<Words, CallError> {
        let mut words = words;
        self.call_in_place(entry, &mut words)?;
        Ok(words)
    }

    /// Like [`Self::call`]; the result's words take the place of the call's. Spares copies of the words, which cost up
    /// to a quarter of a call. After an error the words are unspecified.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    #[inline]
    pub fn call_in_place(&self, entry: u16, words: &mut Words) -> Result<(), CallError> {
        let control = u64::from(entry) << ENTRY_SHIFT;
        self.inner.call(control, words, first_of_cpu())
    }

    /// Like [`Self::call`], with a deadline, `timeout` from now: a function that runs past the deadline is ended where it is, as by
    /// a fault ([`Fault::Deadline`](crate::Fault::Deadline)), and the domain is reset or dead by its policy. Two system calls.
    ///
    /// Calls that the function makes into other domains have the same deadline, or an earlier one of their own, and so
    /// do calls to ports of other processes. At the deadline they end first, from the inside out, each by its own domain's policy.
    /// A function that waits in the kernel is ended like any other. One that panics, or is found inside the C
    /// library (it may hold the allocator's lock), is ended as soon as it is found elsewhere, some 0.1 ms to 0.1 s of its
    /// processor time later.
    /// Other locks that the function holds stay held ([`Self::new`]), except inside [`shielded`](crate::shielded).
    ///
    /// The deadline limits functions only, not the making of a new value afterwards. A function that
    /// blocks the signal (`SIGRTMIN + 6`) is not ended.
    ///
    /// ```
    /// use handfast_domain::{CallContext, CallError, Domain, Fault, LoadError, DomainOptions, Table};
    /// use std::time::Duration;
    ///
    /// fn stay(_: &(), call: &mut CallContext<'_>) {
    ///     while call.words()[0] != 0 {
    ///         std::hint::spin_loop();
    ///     }
    /// }
    ///
    /// let table = Table::new(|_| ()).entry(stay);
    /// // SAFETY: the function lends nothing to other threads, and touches nothing outside of the domain.
    /// let domain = match unsafe { Domain::new(&table, DomainOptions::new()) } {
    ///     // This processor has no memory keys.
    ///     Err(LoadError::NoKeys) => return Ok(()),
    ///     loaded => loaded?,
    /// };
    /// let timeout = Duration::from_millis(5);
    /// assert_eq!(domain.call_timeout(0, [0; 8], timeout)?, [0; 8]);
    /// let ended = domain.call_timeout(0, [1; 8], timeout);
    /// assert_eq!(ended, Err(CallError::Fault(Fault::Deadline)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Self::call`]; [`CallError::NoDeadline`] where a deadline cannot be kept.
    pub fn call_timeout(
        &self,
        entry: u16,
        words: Words,
        timeout: Duration,
    ) -> Result<Words, CallError> {
        let mut words = words;
        let _armed = self.inner.arm(clock::deadline_ns(timeout))?;
        let control = u64::from(entry) << ENTRY_SHIFT | BOUNDED;
        self.inner.call(control, &mut words, first_of_cpu())?;
        Ok(words)
    }

    /// Like [`Self::call_in_place`], with up to [`BYTES_MAX`] bytes each way. The domain gets a copy of `request`; the bytes
    /// of its reply are copied to the front of `reply`. Returns the length of the reply. Two copies.
    ///
    /// # Errors
    /// The errors of [`Self::call`]; [`CallError::TooLong`], [`CallError::ReplyTooLong`].
    #[inline]
    pub fn call_bytes(
        &self,
        entry: u16,
        words: &mut Words,
        request: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, CallError> {
        let (control, none) = (u64::from(entry) << ENTRY_SHIFT, Sender::NOBODY);
        self.inner
            .call_bytes(control, words, (request, none), reply, first_of_cpu())
    }

    /// Like [`Self::call_bytes`], of a message with a port's statement about its sender ([`CallContext::sender`](crate::CallContext::sender)). A
    /// domain may call another domain in this way, with bytes of its own memory: two copies more then.
    ///
    /// # Errors
    /// The errors of [`Self::call_bytes`].
    #[inline(always)]
    pub fn call_message(
        &self,
        entry: u16,
        sender: Sender,
        request: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, CallError> {
        let control = u64::from(entry) << ENTRY_SHIFT;
        let (request, hint) = ((request, sender), first_of_cpu());
        match self.inner.call_message(control, request, reply, hint)? {
            Some(len_bytes) => Ok(len_bytes),
            None => self.call_staged(control, request, reply, hint),
        }
    }

    /// Like [`Self::call_message`], with a deadline as in [`Self::call_timeout`], as a time of the monotonic clock.
    ///
    /// # Errors
    /// The errors of both.
    pub fn call_message_timeout(
        &self,
        entry: u16,
        sender: Sender,
        request: &[u8],
        reply: &mut [u8],
        deadline_ns: u64,
    ) -> Result<usize, CallError> {
        let _armed = self.inner.arm(deadline_ns)?;
        let control = u64::from(entry) << ENTRY_SHIFT | BOUNDED;
        let (request, hint) = ((request, sender), first_of_cpu());
        match self.inner.call_message(control, request, reply, hint)? {
            Some(len_bytes) => Ok(len_bytes),
            None => self.call_staged(control, request, reply, hint),
        }
    }

    /// As [`Self::call_message`], from a domain: nothing that the other is to read or write lies in this one's memory.
    #[cold]
    fn call_staged(
        &self,
        control: u64,
        (request, sender): (&[u8], Sender),
        reply: &mut [u8],
        hint: u32,
    ) -> Result<usize, CallError> {
        let stage = STAGE.try_with(Cell::take).ok().flatten();
        let mut stage = stage.unwrap_or_else(|| {
            Box::new(Stage {
                buffers: Buffers::default(),
                bytes: vec![0; 2 * BYTES_MAX],
            })
        });
        let (there, room) = stage.bytes.split_at_mut(BYTES_MAX);
        let there = &mut there[..request.len()];
        there.copy_from_slice(request);
        let room_bytes = reply.len().min(BYTES_MAX);
        let room = &mut room[..room_bytes];
        stage.buffers = Buffers::of((there, sender), room);
        let mut words = Words::default();
        let called = self
            .inner
            .call_buffers(control, &mut words, &stage.buffers, hint);
        if let Ok(len_bytes) = called {
            reply[..len_bytes].copy_from_slice(&room[..len_bytes]);
        }
        let _ = STAGE.try_with(|place| place.set(Some(stage)));
        called
    }

    /// Keeps a stack for calls through the handle alone. Such calls need not find out which CPU they are on, and their
    /// stack stays in the cache. No system call.
    ///
    /// # Errors
    /// [`CallError::Stacks`] when all 32 stacks that can be held in a group are held.
    pub fn hold(&self) -> Result<Held, CallError> {
        Held::new(self.inner.clone())
    }

    /// Gives the memory of unused stacks back, except one for each CPU. Calls do that by themselves,
    /// for stacks of their CPU that have not been used for some thousand calls; `trim` is for domains that nobody calls.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn trim(&self) -> Result<(), CallError> {
        self.stacks_in_use().map(drop)
    }

    /// The number of stacks of the domain's group that calls use at this moment. Also trims, as [`Self::trim`]. For tests and reports.
    ///
    /// # Errors
    /// The errors of [`Self::call`].
    pub fn stacks_in_use(&self) -> Result<u64, CallError> {
        let (control, mut words) = (u64::from(TRIM) << ENTRY_SHIFT, Words::default());
        self.inner.call(control, &mut words, first_of_cpu())?;
        Ok(words[0])
    }

    /// Whether the domain is protected by memory keys.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.inner.is_protected()
    }

    /// The mechanism that isolates the domain; never [`Isolation::Automatic`].
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.inner.isolation()
    }

    /// Makes a call that was requested elsewhere. Returns its status and the length of the reply in bytes.
    #[doc(hidden)]
    pub fn cross_for(&self, crossing: &mut Crossing<'_>) -> (u64, usize) {
        let hint = first_of_cpu();
        let entry = u64::from(crossing.entry) << ENTRY_SHIFT;
        let crossed = match &mut crossing.bytes {
            None => self.inner.cross(entry, hint, crossing.words),
            Some((request, reply)) => {
                let buffers = Buffers::of((request, crossing.sender), reply);
                let control = entry | (&raw const buffers).expose_provenance() as u64;
                self.inner.cross(control, hint, crossing.words)
            }
        };
        // A thread that cannot call has no stack.
        let status = crossed.unwrap_or(Status::new(Status::STACKS, 0));
        let room_bytes = match &crossing.bytes {
            Some((_, reply)) if status.code() == Status::DONE => reply.len(),
            _ => 0,
        };
        (status.0, (status.number() as usize).min(room_bytes))
    }

    /// The domain's group.
    #[must_use]
    pub fn group(&self) -> &Group {
        self.inner.group()
    }
}

/// Data on its way from one domain to another, in memory that both may touch.
struct Stage {
    buffers: Buffers,
    bytes: Vec<u8>,
}

thread_local! {
    /// The last one used, while it is not. A fault may lose one.
    static STAGE: Cell<Option<Box<Stage>>> = const { Cell::new(None) };
}

/// The stack to try first: the first one of this CPU's.
#[inline(always)]
fn first_of_cpu() -> u32 {
    cpu::hint().wrapping_mul(PER_CPU as u32)
}

#[cfg(test)]
mod tests;
