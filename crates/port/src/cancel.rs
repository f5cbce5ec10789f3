//! Learning that a caller has given up: a future, a wait, and the end of nested calls.
//!
//! The caller writes which call it has given up into the call's slot, and rings if the callee has announced
//! there that it waits for that (E14). The ring goes through the link's socket to the control thread, as for any task.
//! So a callee that only asks now and then ([`Request::is_cancelled`]) costs a caller nothing.

use crate::error::SendError;
use crate::giving_up::{Watch, given_up};
use crate::message::Message;
use crate::reply_right::ReplyRight;
use crate::reply_slot::ReplySlot;
use crate::request::Request;
use crate::send::SendRight;
use crate::sending::plain;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use handfast_sys::clock;
use std::sync::Arc;
use std::task::Wake;
use std::thread::{self, Thread};
use std::time::Instant;

/// A future that is ready when the caller has given its call up: [`Request::cancelled`].
///
/// May be dropped, and made again, at any time. Works on every executor; may be moved between threads.
#[must_use = "a future does nothing unless it is polled"]
pub struct Cancelled<'a>(Option<Watch<'a>>);

impl Request {
    /// Whether the caller is known not to wait any more: it has given the call up, by a deadline or
    /// by dropping it, or its process is gone. Long work can ask this now and then; it costs one load. The
    /// request must be answered or dropped nevertheless: that frees the call's reply slot at the caller.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reply_right().is_some_and(ReplySlot::is_cancelled)
    }

    /// Waits, as a task, until the caller is known not to wait any more ([`Self::is_cancelled`]); forever if
    /// the caller waits on, or the message is no call.
    ///
    /// Completes some 50 us after the caller has given up, and within milliseconds of its death. No system call
    /// here; the caller that gives up makes one. A call not awaited this way costs nothing extra. Allocates
    /// when more tasks wait than ever before.
    ///
    /// Work that is done by calls in turn ends with them, if it is dropped:
    ///
    /// ```no_run
    /// # async fn work() -> Vec<u8> { Vec::new() }
    /// # async fn serve(request: handfast_port::Request) -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::{pin::pin, task::Poll};
    /// // `tokio::select!` does the same.
    /// let reply = {
    ///     let (mut given_up, mut work) = (pin!(request.cancelled()), pin!(work()));
    ///     let first = std::future::poll_fn(|context| match given_up.as_mut().poll(context) {
    ///         Poll::Ready(()) => Poll::Ready(None),
    ///         Poll::Pending => work.as_mut().poll(context).map(Some),
    ///     });
    ///     first.await
    /// };
    /// match reply {
    ///     Some(reply) => request.reply(&reply)?,
    ///     None => drop(request),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled(self.reply_right().map(Watch::new))
    }

    /// Blocks until the caller is known not to wait any more, for at most `timeout`. Returns
    /// whether the caller has given up. Costs what [`Self::cancelled`] costs, an allocation, and a system call or two to sleep.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn serve(request: handfast_port::Request) -> Result<(), Box<dyn std::error::Error>> {
    /// let stop = std::sync::atomic::AtomicBool::new(false);
    /// # fn work(stop: &std::sync::atomic::AtomicBool) -> Vec<u8> { Vec::new() }
    /// let reply = std::thread::scope(|scope| {
    ///     let work = scope.spawn(|| work(&stop));
    ///     while !work.is_finished() && !request.wait_cancelled_timeout(Duration::from_millis(10)) {}
    ///     stop.store(true, std::sync::atomic::Ordering::Relaxed);
    ///     work.join().unwrap()
    /// });
    /// request.reply(&reply)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn wait_cancelled_timeout(&self, timeout: Duration) -> bool {
        wait(self.cancelled(), clock::deadline_ns(timeout))
    }

    /// As [`Self::wait_cancelled_timeout`], until `deadline`.
    #[must_use]
    pub fn wait_cancelled_deadline(&self, deadline: Instant) -> bool {
        wait(self.cancelled(), clock::instant_ns(deadline))
    }

    /// Calls through `right` on behalf of this request's caller, for at most as long as that caller waits.
    /// The call is given up when the caller gives up, by its deadline or before, and so are calls that the
    /// callee makes in this way. Costs as much as a [`call`](SendRight::call) that does not sleep; a
    /// sleep takes two short locks more.
    ///
    /// A task gets the same by dropping [`SendRight::call_async`] when [`Self::cancelled`] is ready.
    ///
    /// # Errors
    /// The errors of [`SendRight::call`]; [`SendError::TimedOut`] when the time is over, and [`SendError::Cancelled`]
    /// when the caller has given up before; if it had given up before this call, nothing is sent. The end of the caller's wait is
    /// not noticed while there is no room for the request.
    pub fn call_through(&self, right: &SendRight, bytes: &[u8]) -> Result<Message, SendError> {
        if self.is_cancelled() {
            let deadline_ns = self.reply_right().and_then(ReplySlot::deadline_ns);
            return Err(given_up(deadline_ns));
        }
        match self.reply_right() {
            Some(reply) => {
                plain::call_for(right, bytes, reply.deadline_ns(), &mut Watch::new(reply))
            }
            None => right.call(bytes),
        }
    }
}

impl ReplyRight {
    /// Like [`Request::cancelled`].
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled(Some(Watch::new(self.slot())))
    }

    /// Like [`Request::wait_cancelled_timeout`].
    #[must_use]
    pub fn wait_cancelled_timeout(&self, timeout: Duration) -> bool {
        wait(self.cancelled(), clock::deadline_ns(timeout))
    }

    /// As [`Request::wait_cancelled_deadline`].
    #[must_use]
    pub fn wait_cancelled_deadline(&self, deadline: Instant) -> bool {
        wait(self.cancelled(), clock::instant_ns(deadline))
    }
}

/// As [`Request::wait_cancelled_timeout`].
fn wait(cancelled: Cancelled<'_>, deadline_ns: u64) -> bool {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cancelled = pin!(cancelled);
    loop {
        let mut context = Context::from_waker(&waker);
        if cancelled.as_mut().poll(&mut context).is_ready() {
            return true;
        }
        let left_ns = deadline_ns.saturating_sub(clock::now_ns());
        if left_ns == 0 {
            return false;
        }
        thread::park_timeout(Duration::from_nanos(left_ns));
    }
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let watch = self.0.as_mut();
        match watch.is_some_and(|watch| watch.is_over(context.waker())) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

const fn is_send<T: Send>() {}
const _: () = is_send::<Cancelled<'_>>();

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl core::fmt::Debug for Cancelled<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cancelled").finish_non_exhaustive()
    }
}
