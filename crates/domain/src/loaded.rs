//! A loaded domain, which its handles share: how it is made, crossed into, and unloaded.

use crate::Words;
use crate::deadline::Armed;
use crate::error::{CallError, LoadError, NoDeadline, Status};
use crate::gate;
use crate::group::{self, Group};
use crate::image::{Functions, Laid};
use crate::isolation::Isolation;
use crate::options::{DomainOptions, Policy};
use crate::parent::Process;
use crate::row::Row;
#[cfg(target_arch = "x86_64")]
use crate::rows;
use crate::run::TRIM;
use crate::stack::{BYTES_MAX, Buffers, Sender};
use crate::thread::{self, Nested};
#[cfg(target_arch = "x86_64")]
use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::keys::Key;
use handfast_sys::{clock, cpu, deadline, private};

/// A domain in the gate's table, in this process without protection, or in a child process.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Its row in the gate's table; 0: it has one of its own here.
    number: u32,
    /// As the gate wants that; 0 as well.
    #[cfg(target_arch = "x86_64")]
    row_at: u32,
    /// Its rights; the gate compares them with the table's.
    #[cfg(target_arch = "x86_64")]
    rights: u32,
    epoch: u32,
    own_row: Option<Box<Plain>>,
    /// It is in a process of its own.
    process: Option<Process>,
    tag: u32,
    /// Before the keys: they must not be another's while pages have them.
    _memory: Option<private::Private>,
    group: Group,
    _key: Option<Key>,
}

impl Loaded {
    pub(crate) fn new(functions: &Functions, options: DomainOptions) -> Result<Self, LoadError> {
        let is_protected = options.isolation == Isolation::Keys;
        let entries = functions.entries.len();
        if entries >= usize::from(TRIM) {
            return Err(LoadError::TooManyEntries { entries });
        }
        let own_group = options.group.is_none();
        let group = match options.group {
            Some(group) => group,
            None if is_protected => Group::with_key()?,
            None => Group::unprotected()?,
        };
        if group.0.key().is_some() != is_protected {
            return Err(LoadError::OtherGroup);
        }
        let key = match is_protected && !own_group {
            true => Some(group::allocate()?),
            false => None,
        };
        let os = |call| {
            move |errno: handfast_sys::Errno| LoadError::Os {
                call,
                errno: errno.into(),
            }
        };
        let room = size_of_val(functions.entries.as_slice()) + 2 * private::page_bytes();
        let len_bytes = options.heap_bytes.checked_add(room);
        let len_bytes =
            len_bytes.and_then(|len| len.checked_next_multiple_of(private::page_bytes()));
        let memory = private::Private::new(len_bytes.unwrap_or(usize::MAX))
            .map_err(os("mmap of the domain's memory"))?;
        let dies = options.policy == Policy::Dead;
        let random = handfast_sys::process::random_bytes().map_err(os("getrandom"))?;
        let random = u128::from_ne_bytes(random);
        let secrets = [random as u64, (random >> u64::BITS) as u64];
        let server = functions
            .lay_out(&memory, dies, secrets)
            .ok_or(LoadError::TooManyEntries { entries })?;
        if let Some(key) = key.as_ref().or(group.0.key()) {
            memory
                .protect(key)
                .map_err(os("pkey_mprotect of the domain's memory"))?;
        }
        let tag = group.0.take_tag()?;
        let mut inner = Self {
            number: 0,
            #[cfg(target_arch = "x86_64")]
            row_at: 0,
            #[cfg(target_arch = "x86_64")]
            rights: 0,
            epoch: thread::epoch(),
            own_row: None,
            process: None,
            tag,
            _memory: Some(memory),
            group,
            _key: key,
        };
        inner.describe(server).map_err(os("mprotect of the gate"))?;
        Ok(inner)
    }

    /// One in a process of its own. Its group has nothing for it but a place.
    pub(crate) fn elsewhere(process: Process, group: Option<Group>) -> Result<Self, LoadError> {
        let group = match group {
            Some(group) => group,
            None => Group::unprotected()?,
        };
        let tag = group.0.take_tag()?;
        Ok(Self {
            number: 0,
            #[cfg(target_arch = "x86_64")]
            row_at: 0,
            #[cfg(target_arch = "x86_64")]
            rights: 0,
            epoch: thread::epoch(),
            own_row: None,
            process: Some(process),
            tag,
            _memory: None,
            group,
            _key: None,
        })
    }

    /// Fills in the row.
    fn describe(&mut self, server: Laid) -> Result<(), handfast_sys::Errno> {
        #[cfg(target_arch = "x86_64")]
        if let Some(stacks) = self.group.0.key() {
            let own = self._key.as_ref().unwrap_or(stacks).number();
            let rights = rows::rights(own, stacks.number());
            crate::fault::install()?;
            rows::change(own, |row| {
                row.rights.store(rights, Relaxed);
                self.group.0.describe(row, self.tag);
                server.describe(row);
            })?;
            self.number = own;
            self.row_at = gate::protected::row_at(own);
            self.rights = rights;
            return Ok(());
        }
        let row = Row::unused(0);
        self.group.0.describe(&row, self.tag);
        server.describe(&row);
        self.own_row = Some(Box::new(Plain(row)));
        Ok(())
    }

    /// Calls of this thread end at the deadline until what this returns is dropped.
    pub(crate) fn arm(&self, deadline_ns: u64) -> Result<Armed, CallError> {
        thread::ready(self.epoch)?;
        if self.process.is_some() {
            return Ok(Armed::of_waiting(deadline_ns));
        }
        if self.number == 0 {
            return Err(CallError::NoDeadline(NoDeadline::Unprotected));
        }
        Armed::new(deadline_ns)
    }

    /// `control` is the entry, from bit [`ENTRY_SHIFT`], and [`BOUNDED`] or not.
    #[inline(always)]
    pub(crate) fn call(&self, control: u64, words: &mut Words, hint: u32) -> Result<(), CallError> {
        let status = self.cross(control, hint, words)?;
        match status.code() {
            Status::DONE => Ok(()),
            _ => Err(self.failed(status)),
        }
    }

    #[inline(always)]
    pub(crate) fn call_bytes(
        &self,
        control: u64,
        words: &mut Words,
        (request, sender): (&[u8], Sender),
        reply: &mut [u8],
        hint: u32,
    ) -> Result<usize, CallError> {
        if request.len() > BYTES_MAX {
            return Err(CallError::TooLong {
                len_bytes: request.len(),
            });
        }
        let buffers = Buffers::of((request, sender), reply);
        self.call_buffers(control, words, &buffers, hint)
    }

    #[inline(always)]
    pub(crate) fn call_buffers(
        &self,
        control: u64,
        words: &mut Words,
        buffers: &Buffers,
        hint: u32,
    ) -> Result<usize, CallError> {
        let control = control | (&raw const *buffers).expose_provenance() as u64;
        let status = self.cross(control, hint, words)?;
        match status.code() {
            Status::DONE => Ok((status.number() as usize).min(buffers.reply_room)),
            _ => Err(self.failed(status)),
        }
    }

    /// As [`Self::call_bytes`], of a message; `None`: this thread is in a domain.
    #[inline(always)]
    pub(crate) fn call_message(
        &self,
        control: u64,
        request: (&[u8], Sender),
        reply: &mut [u8],
        hint: u32,
    ) -> Result<Option<usize>, CallError> {
        let len_bytes = request.0.len();
        if len_bytes > BYTES_MAX {
            return Err(CallError::TooLong { len_bytes });
        }
        let (buffers, mut words) = (Buffers::of(request, reply), Words::default());
        let control = control | (&raw const buffers).expose_provenance() as u64;
        let status = self.cross_if::<true>(control, hint, &mut words)?;
        match status.code() {
            Status::DONE => Ok(Some((status.number() as usize).min(buffers.reply_room))),
            Status::INSIDE => Ok(None),
            _ => Err(self.failed(status)),
        }
    }

    #[inline(always)]
    pub(crate) fn cross(
        &self,
        control: u64,
        hint: u32,
        words: &mut Words,
    ) -> Result<Status, CallError> {
        self.cross_if::<false>(control, hint, words)
    }

    /// With `FROM_OUTSIDE` only if this thread is in no domain. All that is rare is elsewhere.
    #[inline(always)]
    fn cross_if<const FROM_OUTSIDE: bool>(
        &self,
        control: u64,
        hint: u32,
        words: &mut Words,
    ) -> Result<Status, CallError> {
        #[cfg(target_arch = "x86_64")]
        if self.row_at != 0 && thread::is_ready(self.epoch) {
            let (row_at, rights) = (self.row_at, self.rights);
            // SAFETY: this handle keeps the domain loaded; `control` comes from the functions above.
            let status = unsafe {
                gate::protected::cross::<FROM_OUTSIDE>(row_at, rights, control, hint, words)
            };
            if status.code() == Status::DONE {
                return Ok(status);
            }
            return Ok(self.not_done(status, control, hint, words));
        }
        self.cross_rarely::<FROM_OUTSIDE>(control, hint, words)
    }

    /// As that, of a thread that is not ready, or without the gate.
    #[inline(never)]
    fn cross_rarely<const FROM_OUTSIDE: bool>(
        &self,
        control: u64,
        hint: u32,
        words: &mut Words,
    ) -> Result<Status, CallError> {
        thread::ready(self.epoch)?;
        let status = self.try_cross::<FROM_OUTSIDE>(control, hint, words);
        Ok(self.not_done(status, control, hint, words))
    }

    fn try_cross<const FROM_OUTSIDE: bool>(
        &self,
        control: u64,
        hint: u32,
        words: &mut Words,
    ) -> Status {
        #[cfg(target_arch = "x86_64")]
        if self.row_at != 0 {
            let (row_at, rights) = (self.row_at, self.rights);
            // SAFETY: as above.
            return unsafe {
                gate::protected::cross::<FROM_OUTSIDE>(row_at, rights, control, hint, words)
            };
        }
        self.cross_plain(control, hint, words)
    }

    fn cross_plain(&self, control: u64, hint: u32, words: &mut Words) -> Status {
        // A thread that waits for a process is not ended, but looks at the deadline itself.
        let _shield = self.process.is_some().then(deadline::shield);
        let Some(nested) = Nested::enter() else {
            return Status::new(Status::TOO_DEEP, 0);
        };
        match (&self.own_row, &self.process) {
            // SAFETY: as above.
            (Some(row), _) => unsafe { gate::plain::cross(&row.0, control, hint, words, &nested) },
            // SAFETY: as above.
            (None, Some(process)) => unsafe { process.cross(control, words) },
            (None, None) => Status::new(Status::DEAD, 0),
        }
    }

    /// A call that has ended, mostly not well. If no stack was free, another thread may be building some: again.
    #[cold]
    fn not_done(&self, status: Status, control: u64, hint: u32, words: &mut Words) -> Status {
        /// Building takes some microseconds; on a busy machine a thread that builds may be without a processor for as long as all
        /// others take their turns.
        const YIELDS: u32 = 64;
        const WAIT_NS: u64 = 1_000_000_000;
        let until_ns = (clock::now_ns() + WAIT_NS).min(deadline::until_ns());
        let mut tries = 0;
        let mut status = status;
        while status.code() == Status::STACKS && (tries < YIELDS || clock::now_ns() < until_ns) {
            match tries < YIELDS {
                true => cpu::yield_now(),
                false => clock::nap(),
            }
            tries += 1;
            status = self.try_cross::<false>(control, hint, words);
        }
        status
    }

    #[cold]
    fn failed(&self, status: Status) -> CallError {
        if status.code() == Status::NOT_STARTED
            && let Some(why) = self.process.as_ref().and_then(Process::why_not_started)
        {
            return CallError::NotStarted(why);
        }
        status.error(self.group.stacks())
    }

    pub(crate) const fn group(&self) -> &Group {
        &self.group
    }

    /// Whether it has memory keys.
    pub(crate) const fn is_protected(&self) -> bool {
        self.number != 0
    }

    /// The mechanism that isolates it; never [`Isolation::Automatic`].
    pub(crate) const fn isolation(&self) -> Isolation {
        match &self.process {
            _ if self.is_protected() => Isolation::Keys,
            Some(_) => Isolation::Process,
            None => Isolation::Unprotected,
        }
    }

    /// Its row, if it is in this process.
    #[cfg(test)]
    pub(crate) fn row(&self) -> Option<&Row> {
        #[cfg(target_arch = "x86_64")]
        if let Some(row) = rows::of(self.number) {
            return Some(row);
        }
        self.own_row.as_ref().map(|row| &row.0)
    }

    /// The place of its row and its rights, as the gate wants them.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) const fn row_at_and_rights(&self) -> (u32, u32) {
        (self.row_at, self.rights)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.number != 0 {
            // A failure leaves a row that leads to memory nobody has any more: a call through it faults, and there is
            // no handle left to make one.
            let _ = rows::change(self.number, |row| {
                row.server.store(core::ptr::null_mut(), Relaxed);
                row.stacks.store(0, Relaxed);
                row.stacks_all.store(0, Relaxed);
                row.stack_key.store(0, Relaxed);
                row.rights.store(rows::NO_DOMAIN, Relaxed);
            });
        }
        self.group.0.give_tag(self.tag);
    }
}

/// A row in memory of this process.
struct Plain(Row);

impl core::fmt::Debug for Plain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Row")
    }
}

// SAFETY: what the row points to is the group's and the domain's memory, which live as long as [`Loaded`]; its fields
// are atomics.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}
