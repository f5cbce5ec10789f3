//! One-way messages whose sender is a task: a future that waits for room.
//!
//! A task that finds its lane full enters its waker, announces in the lane's word for senders without room that one of
//! them sleeps in a descriptor, and looks again (E4, E15), as a thread does that sleeps there. The receiver that makes
//! room rings through the link's socket; the control thread wakes the tasks in whose lanes there is room.

use crate::error::SendError;
use crate::future::{At, LANE_LOOK_NS};
use crate::link::What;
use crate::right::{Returned, Right};
use crate::send::{SendRight, claimed, route};
use crate::sending::Sending;
use core::pin::Pin;
use core::task::{Context, Poll};
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_proto::timers::Timer;
use handfast_ring::lane::Place;
use handfast_wait::word;

/// A one-way message that is sent as soon as there is room: [`SendRight::send_async`].
///
/// A future that is dropped before it is ready sends nothing. Works on every executor; may be moved between threads. As an async
/// function it panics when it is polled after its end.
#[must_use = "what there is no room for at once is not sent unless somebody waits for it"]
pub struct Sent<'a> {
    right: &'a SendRight,
    state: State,
    at: Option<At>,
}

enum State {
    /// There was no room yet.
    Waiting(Vec<u8>, Vec<Right>),
    Ended(Result<(), SendError>),
    Over,
}

impl SendRight {
    /// Sends a one-way message, for a task: at once, if there is room, otherwise when the receiver has made
    /// room.
    ///
    /// If there is room, this costs as much as [`send`](Self::send). If not, one more copy, and a system call of the receiver and
    /// two wake-ups, of this process's control thread and its executor, for as many messages as the queue holds. Messages of
    /// a task that waits for each before the next stay in order, as long as the task is polled by one thread. A task that
    /// goes from thread to thread keeps the order with [`call_async`](Self::call_async), which waits for the receiver.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// let port = handfast_port::connect("log")?;
    /// port.send_async(b"started").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The future's errors are those of [`Self::send`]; when the peer dies meanwhile, [`SendError::Gone`] within
    /// milliseconds.
    pub fn send_async(&self, bytes: &[u8]) -> Sent<'_> {
        Sent::of(self, self.try_send(bytes), bytes, Vec::new())
    }
}

impl<'a> Sending<'a> {
    /// Like [`SendRight::send_async`]. Rights that could not be sent are dropped: send clones of rights you need to
    /// keep.
    ///
    /// # Errors
    /// The future's errors are those of [`SendRight::send`], and [`SendError::Right`].
    pub fn send_async(self, bytes: &[u8]) -> Sent<'a> {
        let right = self.right;
        match self.try_send(bytes) {
            Ok(()) => Sent::of(right, Ok(()), bytes, Vec::new()),
            Err(Returned { error, rights }) => Sent::of(right, Err(error), bytes, rights),
        }
    }
}

impl Future for Sent<'_> {
    type Output = Result<(), SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.at = None;
        if let Some(ended) = self.look() {
            return Poll::Ready(ended);
        }
        let right = route::best(self.right);
        let link = right.link();
        let lane = link.map.known(right.receiver());
        let Some(lane) = lane.filter(|_| !claimed::is_held(right)) else {
            // For a lane, or for an exporter's word: no wake-up comes when one falls out of use, or the word comes, so the control thread looks.
            self.at = Some(At::enter(right, link, What::Room, context.waker()));
            right.process().schedule_in(Timer::Sleepers, LANE_LOOK_NS);
            return Poll::Pending;
        };
        self.at = Some(At::enter(right, link, What::Space(lane), context.waker()));
        if let State::Waiting(bytes, _) = &self.state
            && bytes.len() > MESSAGE_BYTES_MAX
        {
            // Perhaps for a block: none rings that comes back.
            right.process().schedule_in(Timer::Sleepers, LANE_LOOK_NS);
        }
        word::announce(
            &link.region,
            Place::of(link.calls, lane).space(),
            word::DESCRIPTOR,
        );
        // Once more: no ring comes for room made before the announcement.
        match self.look() {
            Some(ended) => {
                self.at = None;
                Poll::Ready(ended)
            }
            None => Poll::Pending,
        }
    }
}

impl<'a> Sent<'a> {
    fn of(
        right: &'a SendRight,
        sent: Result<(), SendError>,
        bytes: &[u8],
        rights: Vec<Right>,
    ) -> Self {
        let state = match sent {
            Err(SendError::Full) => State::Waiting(bytes.to_vec(), rights),
            ended => State::Ended(ended),
        };
        let at = None;
        Self { right, state, at }
    }

    /// Sends, if there is room now.
    fn look(&mut self) -> Option<Result<(), SendError>> {
        let (bytes, rights) = match core::mem::replace(&mut self.state, State::Over) {
            State::Waiting(bytes, rights) => (bytes, rights),
            State::Ended(ended) => return Some(ended),
            State::Over => unreachable!("a future is not polled after its end"),
        };
        match self.right.with(rights).try_send(&bytes) {
            Ok(()) => Some(Ok(())),
            Err(Returned {
                error: SendError::Full,
                rights,
            }) => {
                self.state = State::Waiting(bytes, rights);
                None
            }
            Err(Returned { error, .. }) => Some(Err(error)),
        }
    }
}

impl core::fmt::Debug for Sent<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sent")
            .field("is_waiting", &matches!(self.state, State::Waiting(..)))
            .finish_non_exhaustive()
    }
}
