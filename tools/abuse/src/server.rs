//! A server: answers everything, waits for nobody that it does not trust.

use crate::Child;
use crate::caller::Slowest;
use crate::child::{self, Spec};
use crate::talk::{self, Op};
use handfast::error::{Gone, ReceiveError, SendError};
use handfast::{MemberPort, Memory, ReceiveRight, Request, Right, SendRight};
use handfast_cli::Outcome;
use handfast_cli::output::note;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// How many threads receive.
const THREADS: usize = 3;
/// How many use rights that come, which may lead to anybody.
const USERS: usize = 2;
/// How many such requests may wait for those.
const JOBS_MAX: usize = 64;
/// How long a right that came is waited for.
const USE: Duration = Duration::from_millis(300);
/// How often a thread that nobody calls looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
/// The longest memory or loan that is looked at.
const LOOKED_AT_BYTES: usize = 1 << 20;
/// Calls that are kept unanswered; of more, the first is dropped.
const HELD_MAX: usize = 64;
/// The longest that the next server is waited for.
const NEXT: Duration = Duration::from_secs(60);

/// The state that all threads of a server share.
pub(crate) struct Server<'a> {
    pub(crate) port: &'a ReceiveRight,
    /// To whom calls are passed on.
    pub(crate) next: Option<SendRight>,
    pub(crate) held: Mutex<VecDeque<Request>>,
    pub(crate) stop: &'a AtomicBool,
    /// The next server does not answer any more, and that was said.
    pub(crate) lost_next: AtomicBool,
}

/// How long a step of a server may take without a word about it.
const SLOW_US: u64 = 200_000;

/// A request that waits until a right that came with it has been used: to call, or to send a port home that came, too.
type Job = (Request, SendRight, Option<MemberPort>);

/// The role: binds the first word, with the second for next server; ends with its input.
pub(crate) fn run(spec: &Spec) -> Outcome {
    handfast_cli::descriptors::raise();
    let name = spec.word(0)?;
    let next = spec.word(1).ok().map(handfast::connect).transpose()?;
    let port = handfast::bind(name)?;
    MemberPort::accept_at(&port);
    child::say("ready");
    let stop = AtomicBool::new(false);
    let server = Server {
        port: &port,
        next,
        held: Mutex::default(),
        stop: &stop,
        lost_next: AtomicBool::new(false),
    };
    let (sender, jobs) = sync_channel(JOBS_MAX);
    let jobs = Mutex::new(jobs);
    std::thread::scope(|scope| {
        let started = server.start(scope, sender, &jobs);
        if started.is_ok() {
            while let Some(told) = child::told() {
                if told == "trim" {
                    child::trim();
                }
            }
        }
        // Relaxed: no more than a flag.
        stop.store(true, Ordering::Relaxed);
        Ok(started?)
    })
}

fn use_rights(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((request, right, port)) = next else {
            return;
        };
        if let Some(port) = port {
            let sent = right.with([port.into()]).send_timeout(&[], USE);
            let reply = match sent {
                Ok(()) => vec![talk::USED],
                Err(returned) => unused(&returned.error.to_string()),
            };
            // As below.
            let _ = request.reply(&reply);
            continue;
        }
        let payload = Op::of(request.bytes()).map_or(&[][..], |(_, payload)| payload);
        let message = Op::Echo.message(0, payload);
        let reply = match right.call_timeout(&message, USE) {
            Ok(answer) => [&[talk::USED], &*answer].concat(),
            Err(error) => unused(&error.to_string()),
        };
        // The caller may be gone.
        let _ = request.reply(&reply);
    }
}

/// Leaves a request to the threads that use rights. It comes back with the answer where they have too many.
fn later(job: Job, jobs: &SyncSender<Job>) -> Option<(Request, Vec<u8>)> {
    use std::sync::mpsc::TrySendError::{Disconnected, Full};
    match jobs.try_send(job) {
        Ok(()) => None,
        Err(Full((request, ..)) | Disconnected((request, ..))) => Some((request, unused("busy"))),
    }
}

fn unused(why: &str) -> Vec<u8> {
    [&[talk::UNUSED], why.as_bytes()].concat()
}

impl Server<'_> {
    /// Starts its threads, if there is room for all of them: others are made without end meanwhile.
    fn start<'a>(
        &'a self,
        scope: &'a Scope<'a, '_>,
        sender: SyncSender<Job>,
        jobs: &'a Mutex<Receiver<Job>>,
    ) -> std::io::Result<()> {
        for _ in 0..USERS {
            Builder::new().spawn_scoped(scope, || use_rights(jobs))?;
        }
        for _ in 0..THREADS {
            let sender = sender.clone();
            Builder::new().spawn_scoped(scope, move || self.serve(&sender))?;
        }
        Ok(())
    }

    pub(crate) fn serve(&self, jobs: &SyncSender<Job>) {
        let mut received = self.port.receive_timeout(LOOK);
        loop {
            received = match received {
                Ok(request) => match self.answer(request, jobs) {
                    Some((request, bytes)) => {
                        self.port.reply_and_receive_timeout(request, &bytes, LOOK)
                    }
                    None => self.port.receive_timeout(LOOK),
                },
                // Relaxed: no more than a flag.
                Err(ReceiveError::TimedOut) if self.stop.load(Ordering::Relaxed) => return,
                Err(ReceiveError::TimedOut) => {
                    self.held().retain(|held| !held.is_cancelled());
                    self.port.receive_timeout(LOOK)
                }
                Err(error) => panic!("a server cannot receive: {error}"),
            }
        }
    }

    /// The next server lives as long as this one does: says once why the way to it has ended.
    fn has_failed(&self, error: &SendError) {
        let ends = !matches!(error, SendError::Gone(Gone::Reply))
            && matches!(error, SendError::Gone(_) | SendError::Fault(_));
        // Relaxed: no more than a flag.
        if ends && !self.lost_next.swap(true, Ordering::Relaxed) {
            note(format_args!("a server lost the next one: {error}"));
        }
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<Request>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call until its caller is gone, or others have come.
    fn hold(&self, request: Request) {
        let mut held = self.held();
        held.push_back(request);
        if held.len() > HELD_MAX {
            held.pop_front();
        }
    }

    /// Does what a request asks for. It comes back with the answer, where that is all that is left to do.
    fn answer(&self, mut request: Request, jobs: &SyncSender<Job>) -> Option<(Request, Vec<u8>)> {
        let mut rights = request.take_rights();
        if !request.is_call() {
            return None;
        }
        let Some((op, payload)) = Op::of(request.bytes()) else {
            return Some((request, Vec::new()));
        };
        let key = talk::key_of(request.bytes());
        let bytes = match (op, rights.pop()) {
            (Op::Mint, _) => {
                let right = self.port.mint(key);
                let _ = request.reply_with(&[], [right.into()]);
                return None;
            }
            (Op::Badge, _) => request.badge().to_le_bytes().to_vec(),
            (Op::Inode, Some(Right::Descriptor(fd))) => match handfast_sys::memory::identity(&fd) {
                Ok((device, inode)) => [device.to_le_bytes(), inode.to_le_bytes()].concat(),
                Err(_) => return None,
            },
            (Op::Memory, Some(Right::Memory(memory)))
                if memory.bytes().len() <= LOOKED_AT_BYTES =>
            {
                let bytes = talk::answer(memory.bytes());
                let mut slowest = Slowest::default();
                // Without memory for it, there is no answer.
                if let Ok(answer) = slowest.step("making memory", || Memory::from_bytes(&bytes)) {
                    let reply = || request.reply_with(&[], [Right::Memory(answer)]);
                    let _ = slowest.step("answering with memory", reply);
                }
                let Slowest { step, took_us, .. } = slowest;
                if took_us >= SLOW_US {
                    note(format_args!("a server: {step} took {took_us} us"));
                }
                return None;
            }
            (Op::Loan, Some(Right::Loan(loan))) if loan.len() <= LOOKED_AT_BYTES => {
                match loan.to_vec() {
                    Ok(bytes) => talk::answer(&bytes),
                    Err(_) => return None,
                }
            }
            (Op::Tail, _) if let Some(next) = &self.next => {
                let message = Op::Echo.message(key, payload);
                // A message that cannot be passed on is dropped, and its caller told.
                if let Err(failed) = request.forward_timeout(next, &message, USE) {
                    self.has_failed(&failed.error);
                }
                return None;
            }
            (Op::Nested, _) if let Some(next) = &self.next => {
                let limit = request.time_left().unwrap_or(USE);
                let message = Op::Echo.message(key, payload);
                match next.call_timeout(&message, limit) {
                    Ok(answer) => answer.to_vec(),
                    Err(error) => {
                        self.has_failed(&error);
                        return None;
                    }
                }
            }
            (Op::Use, Some(Right::Send(right))) => return later((request, right, None), jobs),
            (Op::Use, _) => unused("no right came"),
            (Op::Travel, Some(Right::Send(right))) => match rights.pop() {
                Some(Right::Member(port)) => return later((request, right, Some(port)), jobs),
                other => unused(&format!("no port came, but {other:?}")),
            },
            (Op::Travel, _) => unused("no right came"),
            (Op::Bounce, Some(right @ Right::Receive(_))) => {
                let _ = request.reply_with(&[], [right]);
                return None;
            }
            (Op::Once, Some(Right::SendOnce(right))) => {
                // Where there is no room, the right is dropped, and its maker told.
                let _ = right.try_send_with(&talk::answer(payload), []);
                Vec::new()
            }
            (Op::Descriptors, _) => {
                let count = payload.first().map_or(0, |count| count % 16);
                let rights = (0..count).filter_map(|_| {
                    let fd = handfast_sys::memory::create_sealed("handfast abuse", 4096);
                    fd.ok().map(Right::Descriptor)
                });
                // A caller that does not take them is told so.
                let _ = request.reply_with(&[], rights);
                return None;
            }
            (Op::Hold, _) => {
                self.hold(request);
                return None;
            }
            // Its attachment has not come, for want of descriptors: no answer.
            (Op::Inode | Op::Memory | Op::Loan | Op::Bounce | Op::Once, _) => return None,
            (Op::Echo | Op::Async | Op::Tail | Op::Nested, _) => talk::answer(payload),
        };
        Some((request, bytes))
    }
}

/// Whether a server has begun to listen.
pub(crate) fn is_ready(server: &mut Child) -> bool {
    server.line(NEXT).as_deref() == Some("ready")
}
