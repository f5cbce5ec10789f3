//! Many calls at once, by one task.

use crate::server::is_last;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use handfast_port::error::ReceiveError;
use handfast_port::{ReceiveRight, Request};

/// Calls that a task has at work at once: a wake-up polls all of them.
const AT_ONCE_MAX: usize = 64;
/// Requests that a task takes before others of its executor get their turn.
const REQUESTS_PER_TURN: u32 = 64;

/// Receives requests and has `answer` answer them, up to 64 at once, until a notice says that no sender is left (if the port
/// was asked for it), and all requests are answered.
///
/// # Errors
/// [`ReceiveError`]; requests at work are dropped then.
pub async fn serve_at_once<F: Future>(
    port: &ReceiveRight,
    answer: impl Fn(Request) -> F,
) -> Result<(), ReceiveError> {
    let mut receive = pin!(port.receive_async());
    let (mut at_work, mut is_over) = (Vec::<Pin<Box<F>>>::new(), false);
    poll_fn(|context| {
        at_work.retain_mut(|answer| answer.as_mut().poll(context).is_pending());
        for _ in 0..REQUESTS_PER_TURN {
            if is_over || at_work.len() == AT_ONCE_MAX {
                break;
            }
            match receive.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(request)) if is_last(&request) => {
                    is_over = true;
                }
                Poll::Ready(Ok(request)) if request.member().is_some() => {
                    receive.set(port.receive_async());
                }
                Poll::Ready(Ok(request)) => {
                    receive.set(port.receive_async());
                    let mut answer = Box::pin(answer(request));
                    if answer.as_mut().poll(context).is_pending() {
                        at_work.push(answer);
                    }
                }
            }
        }
        if is_over && at_work.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if !is_over && at_work.len() < AT_ONCE_MAX {
            // There may be more.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// The output of `work`; `None` when the caller of `request` has given up before. Costs nothing as long as `work` does not wait.
pub async fn unless_given_up<T>(request: &Request, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut given_up) = (pin!(work), pin!(request.cancelled()));
    let look = |context: &mut Context<'_>| match work.as_mut().poll(context) {
        Poll::Ready(made) => Poll::Ready(Some(made)),
        Poll::Pending => given_up.as_mut().poll(context).map(|()| None),
    };
    poll_fn(look).await
}
