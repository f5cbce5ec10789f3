//! Ports served by a part of this very process, a domain: for a caller here, without a message.
//!
//! Such a port is one like any other, with its lanes, rights and names: messages that come through them are taken and
//! served by threads of its own. A right that this process has made of one of its own
//! ([`OwnRight::connect`](crate::OwnRight::connect)) knows the server, and a call through it goes there at once, on the
//! caller's thread: two loads tell that the right is good and the port there, one that nothing has happened to the
//! link, and the count of calls is this thread's own. No lock, no write to memory that another thread writes, no system
//! call.

use crate::error::{BindError, Exhausted, SendError};
use crate::poller::clearing;
use crate::port::local::Local;
pub use crate::port::local::{Incoming, Serve};
use crate::port::notices::Notice;
use crate::port::{Port, notice};
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::{closing, polling};
pub(crate) use calls::copy_into;
use core::sync::atomic::{AtomicUsize, Ordering};
use handfast_layout::{MESSAGE_BYTES_MAX, counters};
use handfast_proto::timers::Timer;
use std::sync::Arc;

pub(crate) mod beside;
pub(crate) mod room;

use beside::{Inside, Next};

pub(crate) mod calls;
pub use beside::{Passed, end_of, pass_on, reply_rights, take_passed, take_rights};
pub use handfast_sys::clock::deadline_ns;

/// A port that is served until this is dropped.
pub struct Served {
    receive: Arc<ReceiveRight>,
    workers: AtomicUsize,
}

/// The number of threads that one port can have for messages that come by links.
pub const WORKERS_MAX: usize = 64;

/// The notice that tells a worker to leave. No other code asks for one at this port.
const STOP: Notice = Notice::Dead(u64::MAX);

/// How often one call is passed on in this process: each holds a buffer for its message until the last has answered.
const HOPS_MAX: u32 = 64;

impl Served {
    /// Has `by` serve the port, and `workers` threads take the messages that come by links.
    ///
    /// # Errors
    /// [`BindError::Exhausted`] without threads.
    pub fn start(
        receive: ReceiveRight,
        by: Arc<dyn Serve>,
        workers: usize,
    ) -> Result<Self, BindError> {
        let local = Arc::new(Local::new(by));
        let _ = receive.port().served.set(local);
        let served = Self {
            receive: Arc::new(receive),
            workers: AtomicUsize::new(0),
        };
        for _ in 0..workers.clamp(1, WORKERS_MAX) {
            served.start_worker()?;
        }
        Ok(served)
    }

    /// Starts one more thread for messages that come by links.
    ///
    /// # Errors
    /// [`BindError::Exhausted`] when no thread can be started.
    pub fn start_worker(&self) -> Result<(), BindError> {
        let receive = self.receive.clone();
        let Some(local) = receive.port().served.get().cloned() else {
            return Ok(());
        };
        let thread = std::thread::Builder::new().name("handfast-domain".into());
        thread
            .spawn(move || work(&receive, &local))
            .map_err(|_| Exhausted {
                what: "threads",
                advice: Some("raise RLIMIT_NPROC or the control group's limit"),
                limit: 0,
            })
            .map_err(BindError::Exhausted)?;
        // Relaxed: a count; the thread that drops this is the only one left.
        self.workers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The right to receive, for uses other than receiving: minting, revoking, its name.
    #[must_use]
    pub fn receive_right(&self) -> &ReceiveRight {
        &self.receive
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.receive.check().is_err() {
            return;
        }
        let port = self.receive.port();
        // Callers of requests that were received wait on.
        crate::guest::later(|| clearing::publish_heads(&mut polling::lock(&port.at), None));
        closing::tell_closing(&port.process, port);
        let Notice::Dead(number) = STOP else { return };
        (0..*self.workers.get_mut()).for_each(|_| notice::tell_death(port, number));
    }
}

/// Control thread: adds the new counts of calls here to the counters of `port`, unless a thread receives at this moment.
pub(crate) fn publish_calls(port: &Port) {
    let Some(local) = port.served.get() else {
        return;
    };
    let Some(poller) = polling::try_lock(&port.at) else {
        return port.process.schedule(Timer::DomainCalls);
    };
    let new = local.new_calls();
    let calls = counters::port_word(port.receiver, counters::CALLS);
    port.process.counting.tally.add(calls, new);
    polling::leave(&port.at, poller);
    // Once more after the mark is taken away: a call that has found it there may have been counted since.
    if new > 0 || local.was_due() {
        port.process.schedule(Timer::DomainCalls);
    }
}

/// Serves what comes by links, until the port is dropped.
fn work(receive: &ReceiveRight, local: &Local) {
    let (port, process) = (receive.port(), &receive.port().process);
    let mut room = vec![0; MESSAGE_BYTES_MAX];
    let mut next = receive.receive();
    while let Ok(mut request) = next {
        if request.notice() == Some(STOP) {
            return;
        }
        if request.member().is_some() {
            // A domain serves one port; others share its receiver in vain.
            drop(request);
            next = receive.receive();
            continue;
        }
        let rights = request.take_rights_held().into_iter();
        let rights = rights.map(|right| beside::incoming(process, port, right));
        let inside = Inside::enter(rights.collect());
        let message = Incoming {
            bytes: request.bytes(),
            badge: request.badge(),
            permissions: request.permissions(),
            is_call: request.is_call(),
        };
        let served = match request.notice() {
            None => local.by.serve(message, &mut room),
            Some(_) => Ok(0),
        };
        let (rights, on) = (inside.reply_rights(), inside.next());
        drop(inside);
        if let Some(on) = on.filter(|_| served.is_ok()) {
            go_on(request, on);
            next = receive.receive();
            continue;
        }
        next = match served.map(|len_bytes| room.get(..len_bytes)) {
            Ok(Some(reply)) if request.is_call() && rights.is_empty() => {
                receive.reply_and_receive(request, reply)
            }
            Ok(Some(reply)) if request.is_call() => {
                // The caller hears of a right that cannot be sent as of a dropped call.
                let _ = request.reply_with(reply, rights);
                receive.receive()
            }
            outcome => {
                let (_, right) = request.split();
                if let (Err(SendError::Domain(error)), Some(right)) = (outcome, right) {
                    right.fail(error);
                }
                receive.receive()
            }
        };
    }
}

/// Passes a message on that came by a link.
#[cold]
fn go_on(request: Request, mut on: Next) {
    let rights = core::mem::take(&mut on.rights);
    // If the message cannot be passed on, the caller is told as of a dropped call.
    if request.is_call() {
        let _ = request.forward_with(&on.to, on.bytes(), rights);
    } else {
        let _ = on.to.with(rights).send(on.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Has begun, and answers, when another thread comes to these.
    struct Slow([Barrier; 2]);

    impl Serve for Slow {
        fn serve(&self, _: Incoming<'_>, reply: &mut [u8]) -> Result<usize, SendError> {
            self.0[0].wait();
            self.0[1].wait();
            reply[0] = 7;
            Ok(1)
        }

        fn serve_until(
            &self,
            message: Incoming<'_>,
            reply: &mut [u8],
            _: u64,
        ) -> Result<usize, SendError> {
            self.serve(message, reply)
        }
    }

    /// Whether it does depended on whether another worker had said that the call's message was taken.
    #[test]
    fn a_call_that_is_under_way_outlives_its_port() {
        for workers in [1, 2] {
            let receive = crate::anonymous().unwrap();
            let own = receive.mint(1);
            let slow = Arc::new(Slow([Barrier::new(2), Barrier::new(2)]));
            let served = Served::start(receive, slow.clone(), workers).unwrap();
            let right = own.connect().unwrap();
            let call = right.try_call(b"").unwrap();
            slow.0[0].wait();
            drop(served);
            let call = call.try_wait().pending().expect("it is not answered yet");
            slow.0[1].wait();
            assert_eq!(&*call.wait().unwrap(), [7], "{workers} workers");
        }
    }
}
