//! Deadlines of calls: a timer of the thread's own raises a signal in it, and the handler (`fault::tick`) ends the
//! function that the thread is in, as a fault would.
//!
//! A call with a deadline takes a way of its own behind the gate (`run::bounded`), which notes in the thread's memory on
//! which stack its function runs; calls that this function makes take it, too. A function is ended only while the thread
//! is on that very stack with its domain's rights: not in the gate, not in what `run` does before and after it, not while a
//! value is made, and not when the call is over, however late the signal comes. The signal comes again until nothing has a
//! deadline that is past, so what cannot be ended at one moment is at a later one.

use crate::confined::is_confined;
use crate::error::{CallError, NoDeadline};
use core::cell::Cell;
use handfast_sys::deadline::{self, AGAIN_NS, NEVER_NS};
use handfast_sys::timer::Timer;
use handfast_sys::{Errno, process, signal};

thread_local! {
    /// This thread's timer, while no call sets it, and in which process it was made.
    static TIMER: Cell<Option<(u32, Timer)>> = const { Cell::new(None) };
}

/// Ends calls of this thread at a deadline, until it is dropped. Work of the thread outside of calls is not ended meanwhile.
pub(crate) struct Armed {
    /// The previous deadline.
    until_ns: u64,
    place: usize,
    has_timer: bool,
    /// Where the thread is at its end, and has no place for its timer any more.
    own_timer: Option<(u32, Timer)>,
}

impl Armed {
    /// Without a timer: the waiting thread looks at the deadline itself. No system call.
    pub(crate) fn of_waiting(deadline_ns: u64) -> Self {
        let armed = Self {
            place: deadline::set_place(0),
            until_ns: deadline::until_ns(),
            has_timer: false,
            own_timer: None,
        };
        deadline::set_until_ns(deadline_ns.min(armed.until_ns));
        armed
    }

    /// An earlier deadline stays. Two system calls in all, four more for a thread's first one.
    pub(crate) fn new(deadline_ns: u64) -> Result<Self, CallError> {
        if is_confined() {
            return Err(CallError::NoDeadline(NoDeadline::Confined));
        }
        let mut armed = Self {
            place: deadline::set_place(0),
            until_ns: deadline::until_ns(),
            has_timer: true,
            own_timer: None,
        };
        if deadline_ns < armed.until_ns {
            let timer = take_timer().map_err(CallError::NoDeadline)?;
            // Before the timer: a handler in between that calls with a deadline of its own leaves the timer for this one.
            deadline::set_until_ns(deadline_ns);
            timer.1.set(deadline_ns, AGAIN_NS);
            armed.own_timer = put_timer(timer);
        }
        Ok(armed)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if deadline::until_ns() != self.until_ns {
            // Before the timer, as above.
            deadline::set_until_ns(self.until_ns);
            if self.has_timer
                && self.own_timer.take().is_none()
                && let Ok(timer) = take_timer()
            {
                match self.until_ns {
                    NEVER_NS => timer.1.stop(),
                    until_ns => timer.1.set(until_ns, AGAIN_NS),
                }
                drop(put_timer(timer));
            }
        }
        deadline::set_place(self.place);
    }
}

/// Runs a closure that no deadline ends in the middle, such as one that holds a lock of the process. A deadline that
/// passes meanwhile ends the function when the closure has returned. No system call.
///
/// ```
/// # static TOTAL: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
/// // In a function of a domain: other threads want the lock, too.
/// handfast_domain::shielded(|| *TOTAL.lock().unwrap() += 1);
/// ```
pub fn shielded<T>(what: impl FnOnce() -> T) -> T {
    let _shield = deadline::shield();
    what()
}

fn take_timer() -> Result<(u32, Timer), NoDeadline> {
    let epoch = process::fork_epoch();
    let timer = TIMER.try_with(Cell::take).ok().flatten();
    match timer {
        Some(timer) if timer.0 == epoch => Ok(timer),
        other => {
            // Its number may be another timer's in this process.
            core::mem::forget(other);
            new_timer().map(|timer| (epoch, timer))
        }
    }
}

/// While the thread ends there is no place for it: then it comes back.
fn put_timer(timer: (u32, Timer)) -> Option<(u32, Timer)> {
    let mut timer = Some(timer);
    let _ = TIMER.try_with(|place| place.set(timer.take()));
    timer
}

#[cold]
fn new_timer() -> Result<Timer, NoDeadline> {
    let os = |call| {
        move |errno: Errno| NoDeadline::Os {
            call,
            errno: errno.into(),
        }
    };
    #[cfg(target_arch = "x86_64")]
    crate::fault::install_tick().map_err(os("sigaction"))?;
    let number = signal::deadline_number();
    signal::unblock(number);
    Timer::new(number).map_err(os("timer_create"))
}
