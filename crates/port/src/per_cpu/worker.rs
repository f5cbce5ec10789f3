//! Workers: their start, their work, their end.

use super::spare::AtDesk;
use super::{Bell, Desk, IDLE, Running, Server, Servers, State, Worker};
use crate::error::ReplyError;
use crate::guest;
use crate::poller::answered;
use crate::polling::{self, waits};
use crate::process::Process;
use crate::rank;
use crate::request::Request;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::task::Waker;
use handfast_layout::MESSAGE_BYTES_MAX;
use handfast_layout::link::Kind;
use handfast_proto::timers::Timer;
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{clock, cpu, signal};
use std::sync::Arc;
use std::task::Wake;

thread_local! {
    /// The server that this thread works for.
    pub(super) static WORKS_FOR: Cell<*const Server> = const { Cell::new(core::ptr::null()) };
    /// This thread answers a bell.
    static ANSWERS: Cell<bool> = const { Cell::new(false) };
}

impl<'a> Worker<'a> {
    pub(super) const fn at(desk: &'a Desk) -> Self {
        Self {
            desk,
            answered: Cell::new(None),
        }
    }

    /// No request of the next few is its.
    fn pool(&self) {
        if let Some(answered) = self.answered.take() {
            answered.pool();
        }
    }

    /// The CPU that the worker is pinned to; `None` for the worker that serves senders on none of the server's CPUs.
    #[must_use]
    pub const fn cpu(&self) -> Option<u32> {
        self.desk.cpu
    }

    /// Replies, as [`Request::reply`] does, and keeps the request's memory for the next request: nothing is allocated.
    ///
    /// # Errors
    /// The errors of [`Request::reply`].
    pub fn reply(&self, request: Request, bytes: &[u8]) -> Result<(), ReplyError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return request.reply(bytes);
        }
        let reply = request.reply_right().ok_or(ReplyError::NotACall)?;
        if reply.link.is_over() {
            return Err(ReplyError::Gone);
        }
        if reply.answer(Kind::Message, bytes) {
            self.desk.port().at.woke_caller();
        }
        if let Some(answered) = request.answered()
            && let Some(earlier) = self.answered.replace(Some(answered))
        {
            earlier.pool();
        }
        Ok(())
    }

    /// The next message, if one comes before it has been idle for long.
    fn next(&self) -> Option<Request> {
        let port = self.desk.port();
        let mut guard = polling::try_lock(&port.at);
        if let Some(answered) = self.answered.take() {
            match &mut guard {
                Some(poller) => answered::give_back(poller, answered),
                None => answered.pool(),
            }
        }
        polling::wait(
            &port.at,
            guard,
            Some(clock::deadline_ns(IDLE)),
            |_, request| request,
        )
        .ok()
    }
}

impl core::fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Worker")
            .field("cpu", &self.cpu())
            .finish_non_exhaustive()
    }
}

/// The next step of a worker that has found nothing for long.
enum Rest {
    /// The worker ends; the next message starts another.
    End,
    /// Something has come.
    GoOn(Request),
    /// Something has come, and another worker that was started for it.
    Last(Request),
}

impl Server {
    /// The server was dropped, or its node shut down.
    pub(super) fn is_over(&self) -> bool {
        // Acquire: pairs with the Release of `PerCpu::drop`.
        self.is_over.load(Ordering::Acquire) || self.process.is_over()
    }

    /// Leaves a desk, unless there is something: from now on its bell is answered.
    fn rest(self: &Arc<Self>, index: usize) -> Rest {
        let desk = &self.desks[index];
        let port = desk.port();
        let bell = guest::Value::new(Waker::from(Arc::new(Bell {
            server: self.clone(),
            desk: index,
        })));
        let mut state = desk.state();
        state.is_served = false;
        if self.is_over() {
            return Rest::End;
        }
        let number = waits::enter_takers(&port.at, bell);
        debug_assert!(state.number.is_none(), "whoever is served has left");
        state.number = Some(number);
        drop(state);
        let Some(mut poller) = waits::try_lock_again(&port.at) else {
            // Another thread looks.
            return Rest::End;
        };
        waits::resume(&port.at, &mut poller);
        let found = match waits::look(&port.at, &mut poller) {
            Some(request) => {
                let left = waits::leave_takers(&port.at, number);
                polling::leave(&port.at, poller);
                drop(left);
                Some(request)
            }
            None => waits::rest(&port.at, poller, Some(number), |_, request| request),
        };
        let Some(request) = found else {
            return Rest::End;
        };
        match self.is_taken_up_after(desk.state(), index) {
            true => Rest::GoOn(request),
            false => Rest::Last(request),
        }
    }

    /// A desk's bell has rung: starts a worker if there is something. Called by the thread that rang it, mostly the
    /// control thread; a peer that rings for nothing makes no threads.
    pub(super) fn answer(self: &Arc<Self>, index: usize) {
        if !self.is_taken_up(index) {
            return;
        }
        match self.rest(index) {
            Rest::End => {}
            Rest::GoOn(request) => self.start_soon(index, Some(request), false),
            Rest::Last(request) => self.start_soon(index, Some(request), true),
        }
    }

    /// A thread that looks for a worker is at the desk from now on, if none was, and no spare worker is there to be called, or is still
    /// to come.
    fn is_taken_up(&self, index: usize) -> bool {
        let desk = &self.desks[index];
        let mut state = desk.state();
        if self.is_over() || state.is_served {
            return false;
        }
        if state.workers.is_to_come() {
            drop(state);
            desk.calls.add_and_wake_one();
            return false;
        }
        self.is_taken_up_after(state, index)
    }

    /// No one is among the takers then: a taker that was called, and is not there to look, would keep others from being
    /// called.
    pub(super) fn is_taken_up_after(
        &self,
        mut state: MutexGuard<'_, State, rank::Desk>,
        index: usize,
    ) -> bool {
        if core::mem::replace(&mut state.is_served, true) {
            return false;
        }
        let number = state.number.take();
        state.workers.has_come();
        drop(state);
        drop(number.map(|number| waits::leave_takers(&self.desks[index].port().at, number)));
        true
    }

    /// As [`Self::start`]; where no thread can be made, the control thread tries again.
    fn start_soon(self: &Arc<Self>, index: usize, first: Option<Request>, is_last: bool) {
        self.start(index, first, is_last);
        if !self.desks[index].state().owed.is_empty() {
            self.process.schedule(Timer::Workers);
        }
    }

    /// Starts a worker with its first request, perhaps its only one: another is there then.
    fn start(self: &Arc<Self>, index: usize, first: Option<Request>, is_last: bool) {
        // There until the thread has it, or none can be made.
        let given = Arc::new(Mutex::new(first));
        self.desks[index].state().workers.comes();
        let first = given.clone();
        let work = move |server: &Arc<Self>| server.work(index, take(&first), is_last);
        self.start_thread(index, work, |state| {
            let owed = take(&given).map(|request| (request, is_last));
            state.owed.extend(owed);
        });
    }

    /// Starts a thread for a worker that is counted already. Where none can be made, `instead` is done: before the server's end may go on.
    pub(super) fn start_thread(
        self: &Arc<Self>,
        index: usize,
        work: impl FnOnce(&Arc<Self>) + Send + 'static,
        instead: impl FnOnce(&mut State),
    ) {
        let desk = &self.desks[index];
        self.running.add();
        let (server, running) = (self.clone(), self.running.clone());
        let thread = std::thread::Builder::new().name("handfast-worker".into());
        // Relaxed: a count. Before its first answer.
        desk.started.fetch_add(1, Ordering::Relaxed);
        let made = thread.spawn(move || {
            work(&server);
            server.desks[index].state().workers.goes();
            // Its end may be the end of the port, which a waiting thread wants to have seen.
            drop(server);
            running.sub();
        });
        if let Err(error) = made {
            // Relaxed: as above.
            desk.started.fetch_sub(1, Ordering::Relaxed);
            guest::tell!(warn, %error, "no thread for a worker");
            let mut state = desk.state();
            instead(&mut state);
            state.workers.goes();
            drop(state);
            self.running.sub();
        }
    }

    /// A worker's life.
    fn work(self: &Arc<Self>, index: usize, first: Option<Request>, is_last: bool) {
        self.begin(index);
        let desk = &self.desks[index];
        let worker = Worker::at(desk);
        if is_last {
            // Another is at the desk.
            return first.map_or((), |request| self.handle(&worker, request));
        }
        let at_desk = AtDesk::of(desk);
        let is_there = match first {
            Some(request) => self.handle_at(index, &worker, &at_desk, request),
            None => true,
        };
        self.stay(index, &worker, is_there.then_some(at_desk));
    }

    /// This thread works for the server from now on.
    pub(super) fn begin(self: &Arc<Self>, index: usize) {
        WORKS_FOR.set(Arc::as_ptr(self));
        signal::set_mask(&self.signals);
        // Each may be spare later.
        handfast_sys::thread::wakes_in_time();
        let cpu = self.desks[index].cpu;
        // The CPU may have been taken away from the process since: then it serves from another.
        let pinned = match &cpu {
            Some(cpu) => cpu::pin(core::slice::from_ref(cpu)),
            None => cpu::pin(&self.cpus),
        };
        if let Err(errno) = pinned {
            guest::tell!(debug, cpu, %errno, "a worker is not pinned");
        }
    }

    /// A worker's life at the desk, and as a spare one while another is there.
    pub(super) fn stay(
        self: &Arc<Self>,
        index: usize,
        worker: &Worker<'_>,
        mut at_desk: Option<AtDesk>,
    ) {
        while let Some(own) = at_desk.take().or_else(|| self.spare(index)) {
            if self.serve(index, worker, &own) {
                return;
            }
        }
    }

    /// Serves at the desk until nothing has come for long; `false`: until another worker is there.
    fn serve(self: &Arc<Self>, index: usize, worker: &Worker<'_>, at_desk: &AtDesk) -> bool {
        loop {
            while !self.is_over()
                && let Some(request) = worker.next()
            {
                if !self.handle_at(index, worker, at_desk, request) {
                    return false;
                }
            }
            worker.pool();
            let request = match self.rest(index) {
                Rest::GoOn(request) => request,
                Rest::Last(request) => {
                    self.handle(worker, request);
                    return true;
                }
                Rest::End => return true,
            };
            if !self.handle_at(index, worker, at_desk, request) {
                return false;
            }
        }
    }

    /// The handler's own words say what it was when it panics; its request has ended.
    fn handle(&self, worker: &Worker<'_>, request: Request) {
        let _ = guest::guarded(|| (self.handler)(worker, request));
    }

    /// Handles a request at the desk. Whether this worker is still there: always after a one-way message, since its sender's next one
    /// would otherwise be handled before it.
    fn handle_at(
        self: &Arc<Self>,
        index: usize,
        worker: &Worker<'_>,
        at_desk: &AtDesk,
        request: Request,
    ) -> bool {
        if !request.is_call() {
            self.handle(worker, request);
            return true;
        }
        self.begins(index);
        self.handle(worker, request);
        let is_there = at_desk.ends(&self.desks[index]);
        if !is_there {
            worker.pool();
        }
        is_there
    }
}

fn take(given: &Mutex<Option<Request>, rank::FirstRequest>) -> Option<Request> {
    given.lock().take()
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Counted as a worker: the end of the server waits for it.
        let running = self.server.running.clone();
        running.add();
        if ANSWERS.replace(true) {
            // Within an answer, which has found something that it cannot take: one with a thread looks again.
            if self.server.is_taken_up(self.desk) {
                self.server.start_soon(self.desk, None, false);
            }
        } else {
            self.server.answer(self.desk);
            ANSWERS.set(false);
        }
        drop(self);
        running.sub();
    }
}

impl Running {
    fn count(&self) -> MutexGuard<'_, u32, rank::Running> {
        self.count.lock()
    }

    fn add(&self) {
        *self.count() += 1;
    }

    fn sub(&self) {
        *self.count() -= 1;
        self.ended.notify_all();
    }

    /// Until there are none.
    pub(super) fn wait(&self) {
        let count = self.count();
        let ended = self.ended.wait_while(count, |count| *count > 0);
        drop(ended);
    }
}

/// Control thread: starts workers for which no thread could be started before. Returns whether some still lack one.
pub(crate) fn start_workers(process: &Process) -> bool {
    let servers: Vec<_> = {
        let known = process.tables.get::<Servers>().known();
        known
            .iter()
            .filter_map(|known| known.server.upgrade())
            .collect()
    };
    let mut is_owed = false;
    for server in servers {
        for (index, desk) in server.desks.iter().enumerate() {
            let owed = core::mem::take(&mut desk.state().owed);
            for (request, is_last) in owed {
                server.start(index, Some(request), is_last);
            }
            is_owed |= !desk.state().owed.is_empty();
        }
    }
    is_owed
}
