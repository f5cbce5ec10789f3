//! The threads that close what peers have sent, for each user its own.

use super::{Charge, Users};
use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_proto::users::Quota;
use handfast_sys::OwnedFd;
use handfast_sys::clock;
use handfast_sys::socket;
use handfast_sys::sync::Condvar;
use handfast_sys::thread;
use std::collections::VecDeque;
use std::sync::Arc;

/// How long a closing thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// How often it looks whether a peer has received what was sent to it before its connection ended.
const LINGER: Duration = Duration::from_millis(100);
/// More messages than a socket's queue holds.
const QUEUE_MAX: u32 = 1024;
/// Closing threads of one user: one slow descriptor holds up no other.
pub(super) const THREADS_MAX: u32 = 4;
/// Descriptors of one user that wait to be closed, beyond which a link that brings more than the user may have is cut.
pub(super) const CLOSING_MAX: usize = 64;

/// Links of one user that are unmapped by the thread that lets go of them, in some 0.3 ms each: a thread for one link of each of
/// a hundred users takes more memory than it saves time.
const FEW_LINKS: u64 = 8;

thread_local! {
    /// The user that this closing thread works for, when it is about to take the next job.
    static ENDS_FOR: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
}

/// The jobs that wait for the closing threads of one user.
#[derive(Default)]
pub(super) struct Closing {
    pub(super) jobs: VecDeque<Job>,
    /// A thread drops what takes long. One does at a time: that keeps a processor busy, and waits for nothing.
    is_freeing: bool,
    /// Sockets that have ended, through which descriptors were sent that the peer has not received.
    lingering: Vec<Ended>,
    /// Threads, and those of them that wait for more.
    pub(super) threads: u32,
    idle: u32,
    more: Arc<Condvar>,
}

pub(super) enum Job {
    /// Closes a descriptor.
    Close(Ended),
    /// Does something else that may block.
    Run(Box<dyn FnOnce() + Send>),
    /// Drops something that takes long.
    Free(Box<dyn Send>),
}

impl Closing {
    /// The jobs that may block, each of which may have a thread of its own.
    fn apart(&self) -> usize {
        let may_block = |job: &&Job| !matches!(job, Job::Free(_));
        self.jobs.iter().filter(may_block).count()
    }

    /// The idle threads that there is something to do for.
    fn wanted(&self) -> usize {
        let is_free = |job: &Job| matches!(job, Job::Free(_));
        self.apart() + usize::from(!self.is_freeing && self.jobs.iter().any(is_free))
    }

    /// The next job, unless another thread is at that.
    fn next(&mut self) -> Option<Job> {
        let may_begin = |job: &Job| !(self.is_freeing && matches!(job, Job::Free(_)));
        let job = self.jobs.remove(self.jobs.iter().position(may_begin)?)?;
        self.is_freeing |= matches!(job, Job::Free(_));
        Some(job)
    }
}

impl Users {
    /// Whether more of this user's descriptors wait to be closed than an honest peer's ever do.
    pub(crate) fn is_backed_up(&self, user: u32) -> bool {
        let state = self.state();
        let closing = state.closing.get(&user);
        // Regions are limited by their user's share of links.
        closing.is_some_and(|closing| closing.apart() >= CLOSING_MAX)
    }

    /// Has the user's closing thread do work that may block. A thread is started if there is none: some 20 us.
    pub(crate) fn expend(self: &Arc<Self>, user: u32, job: impl FnOnce() + Send + 'static) {
        self.enqueue(user, Job::Run(Box::new(job)));
    }

    /// Whether more of this user's links can end at once than the thread that lets go of them has time for.
    pub(crate) fn has_many_links(&self, user: u32) -> bool {
        self.state().table.held(user, Quota::Links) > FEW_LINKS
    }

    /// In a job for the user: does the last thing, which does not block. A job that comes of it has no thread started: this one is about
    /// to take it.
    pub(crate) fn at_end(self: &Arc<Self>, user: u32, last: impl FnOnce()) {
        ENDS_FOR.set(Some(self.name_of(user)));
        last();
        ENDS_FOR.set(None);
    }

    fn name_of(self: &Arc<Self>, user: u32) -> (usize, u32) {
        (Arc::as_ptr(self) as usize, user)
    }

    /// Has the user's closing thread drop what takes long, and what the user is charged for it.
    pub(crate) fn free(self: &Arc<Self>, user: u32, it: impl Send + 'static) {
        self.enqueue(user, Job::Free(Box::new(it)));
    }

    pub(super) fn enqueue(self: &Arc<Self>, user: u32, job: Job) {
        let mut state = self.state();
        let closing = state.closing.entry(user).or_default();
        closing.jobs.push_back(job);
        if ENDS_FOR.get() == Some(self.name_of(user)) {
            return;
        }
        match closing.idle as usize >= closing.wanted() {
            true => closing.more.notify_one(),
            false => self.start(user, closing),
        }
    }

    /// Whether a closing thread could not be started, so that this is to be tried again.
    pub(crate) fn lacks_thread(&self) -> bool {
        // Relaxed: a hint; under the lock there is the truth.
        self.lacks_thread.load(Ordering::Relaxed)
    }

    /// Starts the closing threads that could not be started.
    pub(crate) fn start_again(self: &Arc<Self>) {
        let mut state = self.state();
        // Relaxed: as above.
        self.lacks_thread.store(false, Ordering::Relaxed);
        for (user, closing) in &mut state.closing {
            if closing.threads == 0 && !closing.jobs.is_empty() {
                self.start(*user, closing);
            }
        }
    }

    fn start(self: &Arc<Self>, user: u32, closing: &mut Closing) {
        if closing.threads == THREADS_MAX {
            return;
        }
        let (users, more) = (self.clone(), closing.more.clone());
        // Without a thread what waits goes on waiting, and counts: it is not closed where that may block.
        match thread::spawn("handfast-close", 128 * 1024, move || users.run(user, &more)) {
            Ok(_) => closing.threads += 1,
            // Relaxed: a hint.
            Err(_) if closing.threads == 0 => self.lacks_thread.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
    }

    fn run(self: &Arc<Self>, user: u32, more: &Condvar) {
        handfast_sys::signal::block_all();
        let mut state = self.state();
        let mut is_last = false;
        let mut looked_ns = clock::now_ns();
        while let Some(closing) = state.closing.get_mut(&user) {
            // Also while there is always something else to do.
            if !closing.lingering.is_empty()
                && clock::now_ns() >= looked_ns + LINGER.as_nanos() as u64
            {
                let lingering = core::mem::take(&mut closing.lingering);
                drop(state);
                lingering
                    .into_iter()
                    .for_each(|ended| self.close(user, ended));
                looked_ns = clock::now_ns();
                state = self.state();
                continue;
            }
            if let Some(job) = closing.next() {
                if closing.wanted() > closing.idle as usize {
                    // This one may be slow.
                    self.start(user, closing);
                }
                drop(state);
                let is_freeing = matches!(job, Job::Free(_));
                match job {
                    Job::Close(ended) => self.close(user, ended),
                    Job::Run(job) => job(),
                    Job::Free(it) => drop(it),
                }
                is_last = false;
                state = self.state();
                if is_freeing && let Some(closing) = state.closing.get_mut(&user) {
                    closing.is_freeing = false;
                }
                continue;
            }
            let lingers = !closing.lingering.is_empty();
            if is_last && (!lingers || closing.threads > 1) {
                closing.threads -= 1;
                if closing.threads == 0 {
                    state.closing.remove(&user);
                }
                return;
            }
            closing.idle += 1;
            let wait = match closing.lingering.is_empty() {
                true => IDLE,
                false => LINGER,
            };
            (state, is_last) = more.wait_timeout(state, wait);
            if let Some(closing) = state.closing.get_mut(&user) {
                closing.idle -= 1;
            }
        }
    }

    /// Closes a descriptor; or keeps it, if it is a socket with descriptors in flight: descriptors that its peer does not
    /// receive count against the user of this process as long as the peer has its end, and can be asked for through this socket
    /// only.
    fn close(&self, user: u32, ended: Ended) {
        ended.discard_unread();
        if self.has_received(user, ended.fd()) {
            return;
        }
        // The peer sees the end after all that was sent before it.
        socket::shutdown(ended.fd());
        // Its own end may lie in this one's queue, which alone keeps it open.
        for _ in 0..QUEUE_MAX {
            if socket::discard(ended.fd()).is_err() {
                break;
            }
        }
        let mut state = self.state();
        let closing = state.closing.entry(user).or_default();
        closing.lingering.push(ended);
    }
}

/// A descriptor that has been dropped, until it is closed.
pub(super) struct Ended {
    fd: Arc<OwnedFd>,
    has_unread: bool,
    _charge: Charge,
}

impl Ended {
    pub(super) const fn new(fd: Arc<OwnedFd>, has_unread: bool, charge: Charge) -> Self {
        Self {
            fd,
            has_unread,
            _charge: charge,
        }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn discard_unread(&self) {
        if self.has_unread {
            let _ = socket::discard(&self.fd);
        }
    }
}
