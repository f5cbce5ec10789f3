//! Receiving without a thread that sleeps: a future for tasks, a descriptor for event loops. `waits` has their
//! implementation.

use crate::error::{ReceiveError, SetError};
use crate::guest;
use crate::polling;
use crate::polling::waits;
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use core::pin::Pin;
use core::task::{Context, Poll};
use handfast_sys::BorrowedFd;

/// The next message of a port, for a task to wait for: [`ReceiveRight::receive_async`].
///
/// Dropping the future loses no message: a message is taken only when the future is ready. A future that was woken and is
/// neither polled nor dropped keeps the other tasks of its port waiting.
#[must_use = "a future does nothing unless it is polled"]
pub struct Receive<'a> {
    right: &'a ReceiveRight,
    /// Among the takers.
    number: Option<u64>,
    has_looked: bool,
}

impl ReceiveRight {
    /// Receives, for a task. Any number of tasks may wait at one port, beside threads; each message goes to one
    /// of them, and among tasks mostly to the one that has waited longest.
    ///
    /// The first poll spins by the port's strategy, for at most 20 us, and blocks its executor for that time;
    /// [`Strategy::Block`](crate::Strategy::Block) does not. A message that comes meanwhile costs as much as
    /// [`receive`](Self::receive), and no system call. Going to sleep costs no system call here; each post
    /// that ends a sleep costs its sender one, and wakes this process's control thread and then the executor. Other
    /// tasks that wait here cost a message an uncontended lock and a wake-up of the executor's. The library needs no
    /// runtime.
    ///
    /// ```
    /// # use std::{pin::pin, sync::Arc, task::{Context, Poll, Wake, Waker}, thread::Thread};
    /// # struct Unpark(Thread);
    /// # impl Wake for Unpark {
    /// #     fn wake(self: Arc<Self>) {
    /// #         self.0.unpark();
    /// #     }
    /// # }
    /// # fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// #     let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    /// #     let mut future = pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #             Poll::Ready(value) => return value,
    /// #             Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// # let name = format!("doc-receive-{}", std::process::id());
    /// let port = handfast_port::bind(&name)?;
    /// let server = std::thread::spawn(move || {
    ///     // On tokio: `tokio::spawn(async move { ... })`.
    ///     block_on(async {
    ///         let request = port.receive_async().await.unwrap();
    ///         let shout = request.bytes().to_ascii_uppercase();
    ///         request.reply(&shout).unwrap();
    ///     });
    /// });
    /// assert_eq!(&*handfast_port::connect(&name)?.call(b"hello")?, b"HELLO");
    /// # server.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The future's errors are those of [`Self::receive`].
    pub const fn receive_async(&self) -> Receive<'_> {
        Receive {
            right: self,
            number: None,
            has_looked: false,
        }
    }

    /// A descriptor that is readable while there may be something to receive, messages or notices: for event
    /// loops that wait in `epoll` or `poll` and cannot be woken otherwise. The first call makes the descriptor, which stays
    /// with the port; a duplicate works as well.
    ///
    /// The descriptor stays readable until [`try_receive`](ReceiveRight::try_receive) has returned
    /// [`Empty`](ReceiveError::Empty); the next message then makes it readable again, which edge-triggered
    /// waits see, too. So: wait until it is readable, receive until empty, and repeat. It may be readable
    /// when no message is there. Wait for the descriptor, do not read it.
    ///
    /// While messages come before the strategy gives up spinning there is no system call. One is made when the port becomes
    /// empty, and one by the sender of the next message, which wakes this process's control thread. The tasks of the port
    /// ([`receive_async`](Self::receive_async)) and threads that [`receive`](Self::receive) may take the message it was
    /// readable for. While the port is in a [`WaitSet`](crate::WaitSet) the descriptor's state has no meaning.
    ///
    /// ```no_run
    /// # fn wait_until_readable(_: impl std::os::fd::AsFd) {}
    /// let port = handfast_port::bind("loop")?;
    /// let readiness = port.readiness()?;
    /// loop {
    ///     // By `poll`, `epoll`, an event loop; `tokio::io::unix::AsyncFd` with a duplicate of it.
    ///     wait_until_readable(readiness);
    ///     while let Ok(request) = port.try_receive() {
    ///         request.reply(b"seen")?;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SetError::Exhausted`] without descriptors; [`SetError::Misuse`] in a forked child and once the node was shut down.
    pub fn readiness(&self) -> Result<BorrowedFd<'_>, SetError> {
        self.port().process.check()?;
        waits::descriptor(&self.port().at)
    }
}

impl Future for Receive<'_> {
    type Output = Result<Request, ReceiveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.right.check()?;
        let port = self.right.port();
        port.process.check()?;
        if let Some(number) = self.number.take() {
            // Called or not, it looks now.
            drop(waits::leave_takers(&port.at, number));
        }
        // Before the poller is locked: a copy is made, and dropped, by code of the application.
        let mut waker = Some(guest::Value::new(context.waker().clone()));
        let mut enter = || Some(waits::enter_takers(&port.at, waker.take()?));
        let guard = polling::try_lock(&port.at).or_else(|| {
            self.number = enter();
            waits::try_lock_again(&port.at)
        });
        let Some(mut poller) = guard else {
            return Poll::Pending;
        };
        waits::resume(&port.at, &mut poller);
        // As a thread before it sleeps; once, not at every wake-up.
        let found = match core::mem::replace(&mut self.has_looked, true) {
            false => waits::look_long(&port.at, &mut poller),
            true => waits::look(&port.at, &mut poller),
        };
        if let Some(request) = found {
            let entered = self.number.take();
            let left = entered.map(|number| waits::leave_takers(&port.at, number));
            polling::leave(&port.at, poller);
            drop(left);
            return Poll::Ready(Ok(request));
        }
        let number = self.number.take().or_else(enter);
        match waits::rest(&port.at, poller, number, |_, request| request) {
            Some(request) => Poll::Ready(Ok(request)),
            None => {
                self.number = number;
                Poll::Pending
            }
        }
    }
}

impl Drop for Receive<'_> {
    fn drop(&mut self) {
        if self.right.check().is_err() {
            return;
        }
        if let Some(number) = self.number.take() {
            waits::taker_gone(&self.right.port().at, number);
        }
    }
}

const fn is_send<T: Send>() {}
const _: () = is_send::<Receive<'_>>();

impl core::fmt::Debug for Receive<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Receive")
            .field("right", &self.right.name())
            .finish_non_exhaustive()
    }
}
