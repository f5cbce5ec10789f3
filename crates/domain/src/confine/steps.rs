//! The steps, in order: first all that can be refused, then all that takes hold.

use super::code::{self, Plan};
use super::maps::{self, Mapping, Range};
use super::{ConfineError, ConfineOptions, Confined, descriptors, filter, paths};
use crate::confined;
use crate::rows;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use handfast_sys::landlock::{self, Rules};
use handfast_sys::seccomp::Instruction;
use handfast_sys::{Errno, cpu, private, process, seccomp, signal};

/// Signals have numbers up to this.
const SIGNALS: i32 = 64;
/// The C library's own: it cancels threads by the one, and has all of them change their user by the other.
const LIBRARYS: [i32; 2] = [32, 33];

pub(super) fn confine(options: &ConfineOptions) -> Result<Confined, ConfineError> {
    if !rows::all().any(|row| !row.server.load(Relaxed).is_null()) {
        return Err(ConfineError::NoDomains);
    }
    one_thread()?;
    no_handlers()?;
    descriptors::check()?;
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: asks, and changes nothing.
    if unsafe { libc::personality(ASK) } & libc::READ_IMPLIES_EXEC != 0 {
        return Err(ConfineError::Personality);
    }
    let all = maps::read()?;
    maps::check(&all)?;
    let plan = code::plan(&all, options)?;
    let moved = plan.moved.iter().map(|moved| {
        let start = moved.memory.base().addr().get();
        (start, start + moved.memory.len_bytes())
    });
    let more: Vec<Range> = moved.chain([rows::table_range()]).collect();
    let guarded = maps::guarded(&all, &more);
    if guarded.len() > filter::RANGES_MAX {
        return Err(ConfineError::Ranges {
            count: guarded.len(),
            limit: filter::RANGES_MAX,
        });
    }
    let rules = paths::rules(&paths::places(&options.only)?)?;
    let program = filter::program(&guarded);

    // Commit point: what fails from here on leaves half of it.
    confined::begin();
    let places_changed = plan.patches.len();
    let copied_bytes =
        take_hold(&all, plan, rules, &program).map_err(|(step, errno)| ConfineError::Half {
            step,
            errno: errno.into(),
        })?;
    Ok(Confined {
        places_changed,
        ranges: guarded.len(),
        copied_bytes,
        landlock: landlock::version(),
    })
}

type Failed = (&'static str, Errno);

fn take_hold(
    all: &[Mapping],
    plan: Plan,
    rules: Rules,
    program: &[Instruction],
) -> Result<usize, Failed> {
    let step = |what: &'static str| move |errno: Errno| (what, errno);
    wipe_in_children(all).map_err(step("keeping domains from forked children (madvise)"))?;
    rows::set_confined().map_err(step("closing the gate to deadlines (mprotect)"))?;
    let copied_bytes = out_of_files(all, plan).map_err(step("copying code out of its files"))?;
    cpu::give_up_rseq().map_err(step("giving up restartable sequences (rseq)"))?;
    for signal in own_signals() {
        signal::set_default(signal)
            .map_err(step("giving up the handlers of faults (sigaction)"))?;
    }
    process::hide().map_err(step("forbidding core files (prctl)"))?;
    seccomp::no_new_privileges().map_err(step("giving up new privileges (prctl)"))?;
    rules.restrict().map_err(step("landlock_restrict_self"))?;
    seccomp::install(program).map_err(step("seccomp"))?;
    Ok(copied_bytes)
}

/// A forked child has no copy of what domains hold, which it could ask as often as it likes, each time a fresh one.
fn wipe_in_children(all: &[Mapping]) -> Result<(), Errno> {
    let keys: Vec<u32> = rows::domain_keys().collect();
    for mapping in all.iter().filter(|mapping| keys.contains(&mapping.key)) {
        let start = core::ptr::with_exposed_provenance_mut(mapping.start);
        let start = NonNull::new(start).ok_or(Errno::INVAL)?;
        // SAFETY: a mapping of a domain or of a group, which no child can call.
        unsafe { private::wipe_in_children(start, mapping.len_bytes()) }?;
    }
    Ok(())
}

/// Replaces code and read-only data with copies, with the changes of the plan. A process that can write the file,
/// or truncate it, cannot change them then.
fn out_of_files(all: &[Mapping], plan: Plan) -> Result<usize, Errno> {
    let mut copied_bytes = 0;
    for moved in plan.moved {
        // SAFETY: memory that is nobody else's yet.
        unsafe {
            private::replace(
                moved.memory.base(),
                moved.memory.len_bytes(),
                true,
                |copy| {
                    // Traps everywhere else.
                    copy.fill(0xcc);
                    if let Some(place) = copy.get_mut(..moved.code.len()) {
                        place.copy_from_slice(&moved.code);
                    }
                },
            )
        }?;
        // Code of this process for as long as it lives.
        core::mem::forget(moved.memory);
    }
    // The kernel's own page of code has no file.
    let is_ours = |mapping: &&Mapping| {
        mapping.reads
            && (maps::is_image(all, mapping) || mapping.runs && !mapping.path.starts_with('['))
    };
    for mapping in all.iter().filter(is_ours) {
        let Some(start) = NonNull::new(core::ptr::with_exposed_provenance_mut(mapping.start))
        else {
            continue;
        };
        // SAFETY: it can be read, and is one mapping; there is one thread, and the patches leave what the code does as
        // it was, but where they say otherwise.
        unsafe {
            private::replace(start, mapping.len_bytes(), mapping.runs, |copy| {
                code::apply(&plan.patches, mapping.start, copy);
            })
        }?;
        copied_bytes += mapping.len_bytes();
    }
    Ok(copied_bytes)
}

/// Only other threads can give up their own registrations with the kernel.
fn one_thread() -> Result<(), ConfineError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|error| ConfineError::Os {
        call: "reading /proc/self/task",
        errno: error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)
            .into(),
    })?;
    match threads.count() {
        1 => Ok(()),
        count => Err(ConfineError::Threads { count }),
    }
}

/// The signals that this crate and the C library handle.
fn own_signals() -> impl Iterator<Item = i32> {
    let faults = crate::fault::SIGNALS.into_iter();
    let deadlines = crate::fault::handles_deadlines().then(signal::deadline_number);
    faults.chain(LIBRARYS).chain(deadlines)
}

/// Except for the handlers of this crate and of the C library, which are taken away.
fn no_handlers() -> Result<(), ConfineError> {
    for signal in 1..=SIGNALS {
        let has_handler = signal::has_handler(signal).map_err(|errno| ConfineError::Os {
            call: "rt_sigaction",
            errno: errno.into(),
        })?;
        if has_handler && !own_signals().any(|own| own == signal) {
            return Err(ConfineError::Handler { signal });
        }
    }
    Ok(())
}
