//! Calls of every kind, each with the content of its answer checked.

use crate::talk::{self, Op};
use handfast::error::{ConnectError, LoanError, MemoryError, ReceiveError, SendError};
use handfast::{MemberPort, Memory, Notice, ReceiveRight, Right, SendRight, SharedArena};
use handfast_sys::AsFd;
use handfast_testing::Random;
use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Why a call has no answer, or not the right one.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It ended with an error.
    Ended(SendError),
    /// No connection.
    Unconnected(ConnectError),
    /// Something was answered, and not what was asked for.
    Wrong(String),
    /// There was none to make: something of this process's own was not to be had.
    #[expect(dead_code, reason = "read where it is formatted")]
    Unmade(String),
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::Ended(error)
    }
}

impl From<handfast::Returned<SendError>> for Failure {
    fn from(returned: handfast::Returned<SendError>) -> Self {
        Self::Ended(returned.error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Unconnected(error)
    }
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Self {
        Self::Unmade(format!("{error:?}"))
    }
}

type Done = Result<(), Failure>;

/// Makes calls to one server.
pub(crate) struct Caller<'a> {
    pub(crate) right: SendRight,
    /// A port of this process's, which somebody serves; callbacks come there.
    pub(crate) own: &'a ReceiveRight,
    /// A right to a third process's port, used in its place where there is one.
    pub(crate) third: Option<SendRight>,
    pub(crate) arena: &'a SharedArena,
    pub(crate) random: Random,
    /// The deadline of each call.
    pub(crate) limit: Duration,
    /// The slowest calls of the last [`Caller::perform`].
    pub(crate) slowest: Slowest,
}

/// The step of an operation that took longest.
#[derive(Clone, Default)]
pub(crate) struct Slowest {
    pub(crate) step: &'static str,
    pub(crate) took_us: u64,
    /// How often the server was asked to call back before it could, and why not the last time.
    pub(crate) asked: usize,
    pub(crate) why: String,
}

impl Slowest {
    /// Does a step, and remembers it if it took longer than all before.
    pub(crate) fn step<T>(&mut self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        let took_us = begun.elapsed().as_micros() as u64;
        if took_us >= self.took_us {
            (self.step, self.took_us) = (step, took_us);
        }
        done
    }
}

/// How long to wait for a block to come back before another look.
const BACK: Duration = Duration::from_micros(100);
/// How often a server that says it is busy is asked again.
const ASKED_MAX: usize = 100;

impl Caller<'_> {
    /// One call of this kind, or the few that belong together.
    pub(crate) fn perform(&mut self, op: Op) -> Done {
        let key = self.random.next();
        match op {
            Op::Echo | Op::Tail | Op::Nested | Op::Async => self.echo(op, key),
            Op::Mint | Op::Badge => self.mint(key),
            Op::Inode => self.inode(key),
            Op::Memory => self.memory(key),
            Op::Loan => self.loan(key),
            Op::Use => self.use_right(key),
            Op::Bounce => self.bounce(key),
            Op::Travel => self.travel(key),
            Op::Once => self.once(key),
            Op::Descriptors => self.descriptors(key),
            Op::Hold => {
                let _ = self.right.call_timeout(&op.message(key, &[]), self.limit)?;
                Ok(())
            }
        }
    }

    fn payload(&mut self, key: u64) -> Vec<u8> {
        let len_bytes = match self.random.below(20) {
            0 => self
                .random
                .below((handfast::MESSAGE_BYTES_MAX - talk::HEAD_BYTES) as u64),
            1..4 => self.random.below(5000),
            _ => self.random.below(200),
        };
        talk::content(len_bytes as usize, key)
    }

    fn echo(&mut self, op: Op, key: u64) -> Done {
        let payload = self.payload(key);
        let message = op.message(key, &payload);
        let reply = self.slowest.step("the call", || match op {
            Op::Async => within(self.limit, self.right.call_async(&message)),
            _ => self.right.call_timeout(&message, self.limit),
        })?;
        same(op, &reply, &talk::answer(&payload))
    }

    fn mint(&mut self, key: u64) -> Done {
        let mint = || {
            self.right
                .call_timeout(&Op::Mint.message(key, &[]), self.limit)
        };
        let mut reply = self.slowest.step("the call that mints", mint)?;
        let right = match reply.take_rights().pop() {
            Some(Right::Send(right)) => right,
            other => return Err(wrong(Op::Mint, &format!("{other:?}"))),
        };
        let badge = || right.call_timeout(&Op::Badge.message(0, &[]), self.limit);
        let badge = self.slowest.step("the call by the minted right", badge)?;
        same(Op::Badge, &badge, &key.to_le_bytes())
    }

    fn inode(&mut self, key: u64) -> Done {
        let made = handfast_sys::memory::create_sealed("handfast abuse", 4096)
            .and_then(|fd| Ok((handfast_sys::memory::identity(fd.as_fd())?, fd)));
        let ((device, inode), fd) = made.map_err(|errno| Failure::Unmade(errno.to_string()))?;
        let message = Op::Inode.message(key, &[]);
        let sending = self.right.with([fd.into()]);
        let call = || sending.call_timeout(&message, self.limit);
        let reply = self.slowest.step("the call", call)?;
        let expected = [device.to_le_bytes(), inode.to_le_bytes()].concat();
        same(Op::Inode, &reply, &expected)
    }

    fn memory(&mut self, key: u64) -> Done {
        let content = talk::content(1 + self.random.below(20_000) as usize, key);
        let made = || Memory::create(content.len());
        let mut memory = self.slowest.step("making memory", made)?;
        memory.copy_from_slice(&content);
        let memory = self.slowest.step("sealing memory", || memory.seal())?;
        let message = Op::Memory.message(key, &[]);
        let sending = self.right.with([Right::Memory(memory)]);
        let call = || sending.call_timeout(&message, self.limit);
        let mut reply = self.slowest.step("the call", call)?;
        match reply.take_rights().pop() {
            Some(Right::Memory(memory)) => {
                same(Op::Memory, memory.bytes(), &talk::answer(&content))
            }
            Some(Right::Lost(what)) => Err(Failure::Unmade(what.to_string())),
            other => Err(wrong(Op::Memory, &format!("{other:?}"))),
        }
    }

    fn loan(&mut self, key: u64) -> Done {
        let content = talk::content(1 + self.random.below(10_000) as usize, key);
        let end = Instant::now() + self.limit;
        let mut block = self.slowest.step("waiting for a block", || {
            loop {
                match self.arena.try_take(content.len()) {
                    Ok(block) => return Ok(block),
                    Err(LoanError::Lent { .. }) if Instant::now() < end => std::thread::sleep(BACK),
                    Err(error) => return Err(Failure::Unmade(format!("{error:?}"))),
                }
            }
        })?;
        block.copy_from_slice(&content);
        let message = Op::Loan.message(key, &[]);
        let sending = self.right.with([block.into()]);
        let call = || sending.call_timeout(&message, self.limit);
        let reply = self.slowest.step("the call", call)?;
        same(Op::Loan, &reply, &talk::answer(&content))
    }

    fn use_right(&mut self, key: u64) -> Done {
        let (third, own) = (self.third.clone(), self.own);
        self.used(key, || match &third {
            Some(right) => right.clone().into(),
            None => own.mint(key).into(),
        })
    }

    /// The server calls through a right that it is given.
    fn used(&mut self, key: u64, right: impl Fn() -> Right) -> Done {
        let payload = talk::content(key as usize % 300, key);
        let message = Op::Use.message(key, &payload);
        for _ in 0..ASKED_MAX {
            self.slowest.asked += 1;
            let sending = self.right.with([right()]);
            let call = || sending.call_timeout(&message, self.limit);
            let reply = self.slowest.step("the call to be called back", call)?;
            match reply.split_first() {
                Some((&talk::USED, reply)) => {
                    return same(Op::Use, reply, &talk::answer(&payload));
                }
                Some((&talk::UNUSED, reason)) => {
                    self.slowest.why = String::from_utf8_lossy(reason).into_owned();
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => return Err(wrong(Op::Use, &format!("{reply:?}"))),
            }
        }
        let why = &self.slowest.why;
        Err(Failure::Unmade(format!("not called back: {why}")))
    }

    /// A send-once right has one outcome: the server's message, or the notice that there will be none.
    fn once(&mut self, key: u64) -> Done {
        // One at a time: each port that is there at once takes a lane of the server's.
        static ALONE: Mutex<()> = Mutex::new(());
        let Ok(_alone) = ALONE.try_lock() else {
            return self.echo(Op::Echo, key);
        };
        let port = handfast::anonymous().map_err(unmade)?;
        let right = port.mint_once(key).map_err(unmade)?;
        let payload = talk::content(key as usize % 300, key);
        let sending = self.right.with([right.into()]);
        let message = Op::Once.message(key, &payload);
        let call = || sending.call_timeout(&message, self.limit);
        self.slowest
            .step("the call with the send-once right", call)?;
        let receive = || port.receive_timeout(self.limit);
        let outcome = self.slowest.step("the right's outcome", receive);
        let outcome = outcome.map_err(|error| wrong(Op::Once, &format!("no outcome: {error}")))?;
        match outcome.notice() {
            Some(Notice::SendOnceUnused(badge)) if badge == key => {}
            Some(notice) => return Err(wrong(Op::Once, &format!("{notice:?}"))),
            None if outcome.is_send_once() && outcome.badge() == key => {
                same(Op::Once, outcome.bytes(), &talk::answer(&payload))?;
            }
            None => return Err(wrong(Op::Once, "a message of another right")),
        }
        match port.try_receive() {
            Err(ReceiveError::Empty) => Ok(()),
            second => Err(wrong(Op::Once, &format!("a second outcome: {second:?}"))),
        }
    }

    /// A port goes to the server and comes home, and is as it was.
    fn bounce(&mut self, key: u64) -> Done {
        // One at a time: each port that is there at once takes lanes of the server's for good.
        static ALONE: Mutex<()> = Mutex::new(());
        let Ok(_alone) = ALONE.try_lock() else {
            return self.echo(Op::Echo, key);
        };
        let port = handfast::anonymous().map_err(unmade)?;
        let message = Op::Bounce.message(key, &[]);
        let sending = self.right.with([port.into()]);
        let call = || sending.call_timeout(&message, self.limit);
        let mut reply = self.slowest.step("the call with the port", call)?;
        match reply.take_rights().pop() {
            Some(Right::Receive(port)) => {
                self.at_home(key, &port)?;
                drop(port);
                self.is_left()
            }
            // The process that had it died before it was here.
            Some(Right::Dead) => Err(Failure::Unmade("a port died on its way".to_owned())),
            other => Err(wrong(Op::Bounce, &format!("{other:?}"))),
        }
    }

    /// The server calls a port that has come home.
    fn at_home(&mut self, key: u64, port: &ReceiveRight) -> Done {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let serves = || serve(port, &done, drop);
            let receiver = std::thread::Builder::new().spawn_scoped(scope, serves);
            // A victim may have no room for a thread.
            let spawned = receiver.map_err(unmade);
            let outcome = spawned.and_then(|_| self.used(key, || port.mint(key).into()));
            // Relaxed: as above.
            done.store(true, Relaxed);
            outcome
        })
    }

    /// A port that shares a receiver goes to the server's and comes home to its own, and is called all the while.
    fn travel(&mut self, key: u64) -> Done {
        // As for [`Self::bounce`].
        static ALONE: Mutex<()> = Mutex::new(());
        let Ok(_alone) = ALONE.try_lock() else {
            return self.echo(Op::Echo, key);
        };
        let home = handfast::anonymous().map_err(unmade)?;
        MemberPort::accept_at(&home);
        let port = home.member().map_err(unmade)?;
        let right = port.mint(key).connect()?;
        let (sender, comes) = channel();
        let (home, served, called) = (&home, AtomicBool::new(false), AtomicBool::new(false));
        let limit = self.limit;
        std::thread::scope(|scope| {
            let serves = || serve(home, &served, |port| drop(sender.send(port)));
            let is_called = &called;
            let calls = move || call_until(&right, key, is_called, limit);
            // A victim may have no room for a thread.
            let threads = std::thread::Builder::new()
                .spawn_scoped(scope, serves)
                .and_then(|_| std::thread::Builder::new().spawn_scoped(scope, calls));
            let outcome = match &threads {
                Ok(_) => self.goes_home(key, (port, home), &comes),
                Err(error) => Err(unmade(error)),
            };
            // The port is there until it is not called any more. Relaxed: no more than a flag.
            called.store(true, Relaxed);
            let all = threads.map_or(Ok(()), |calls| {
                let panicked = |_| Err(wrong(Op::Travel, "a panic"));
                calls.join().unwrap_or_else(panicked)
            });
            let outcome = outcome.and_then(|port| {
                all?;
                drop(port);
                self.is_left()
            });
            // Senders that have not followed need it. Relaxed: as above.
            served.store(true, Relaxed);
            outcome
        })
    }

    /// Not all senders have left the home it had before; the next port would be one more.
    fn is_left(&mut self) -> Done {
        let left = || handfast::wait_moved_timeout(self.limit);
        match self.slowest.step("the old home's being left", left) {
            true => Ok(()),
            false => Err(Failure::Unmade("a port that moved is not left".to_owned())),
        }
    }

    /// Sends the port to the server, takes it when it is home, and has the server call it there.
    fn goes_home(
        &mut self,
        key: u64,
        (port, home): (MemberPort, &ReceiveRight),
        comes: &Receiver<MemberPort>,
    ) -> Result<MemberPort, Failure> {
        let message = Op::Travel.message(key, &[]);
        let sending = self.right.with([port.into(), home.mint(0).into()]);
        let call = || sending.call_timeout(&message, self.limit);
        let reply = self.slowest.step("the call with the port", call)?;
        match reply.split_first() {
            Some((&talk::USED, [])) => {}
            Some((&talk::UNUSED, why)) => {
                return Err(Failure::Unmade(String::from_utf8_lossy(why).into_owned()));
            }
            _ => return Err(wrong(Op::Travel, &format!("{reply:?}"))),
        }
        let limit = self.limit;
        let came = self
            .slowest
            .step("the port's way home", || comes.recv_timeout(limit));
        let port = came.map_err(|_| Failure::Unmade("a port died on its way".to_owned()))?;
        self.used(key, || port.mint(key).into())?;
        Ok(port)
    }

    fn descriptors(&mut self, key: u64) -> Done {
        let message = Op::Descriptors.message(key, &[4]);
        let mut reply = self.right.call_timeout(&message, self.limit)?;
        match reply.take_rights().len() {
            // Without room for them at the server, none.
            0 | 4 => Ok(()),
            other => Err(wrong(Op::Descriptors, &format!("{other} descriptors"))),
        }
    }
}

/// Answers what comes to a receiver of this process, and hands on the ports that do.
fn serve(receiver: &ReceiveRight, done: &AtomicBool, mut came: impl FnMut(MemberPort)) {
    // Relaxed: no more than a flag.
    while !done.load(Relaxed) {
        let Ok(mut request) = receiver.receive_timeout(Duration::from_millis(50)) else {
            continue;
        };
        for right in request.take_rights() {
            if let Right::Member(port) = right {
                came(port);
            }
        }
        let payload = Op::of(request.bytes()).map(|(_, payload)| payload);
        let answer = talk::answer(payload.unwrap_or_default());
        // A caller that was late asks again; a message is none.
        let _ = request.reply(&answer);
    }
}

/// Calls a port of this process on and on, wherever it is.
fn call_until(right: &SendRight, key: u64, done: &AtomicBool, limit: Duration) -> Done {
    let mut random = Random::of(key);
    // Relaxed: no more than a flag.
    while !done.load(Relaxed) {
        let payload = talk::content(random.below(300) as usize, random.next());
        let reply = right.call_timeout(&Op::Echo.message(key, &payload), limit)?;
        same(Op::Travel, &reply, &talk::answer(&payload))?;
    }
    Ok(())
}

fn unmade(error: impl Display) -> Failure {
    Failure::Unmade(error.to_string())
}

fn wrong(op: Op, what: &str) -> Failure {
    Failure::Wrong(format!("{op:?} was answered by {what}"))
}

fn same(op: Op, found: &[u8], expected: &[u8]) -> Done {
    if found == expected {
        return Ok(());
    }
    let at = found
        .iter()
        .zip(expected)
        .position(|(one, other)| one != other);
    let (found, expected) = (found.len(), expected.len());
    let what = format!("{found} bytes instead of {expected}, the first other one at {at:?}");
    Err(wrong(op, &what))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a reply as the smallest of all executors.
fn within<T>(
    limit: Duration,
    reply: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut reply, end) = (pin!(reply), Instant::now() + limit);
    loop {
        if let Poll::Ready(outcome) = reply.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(SendError::TimedOut);
        }
        std::thread::park_timeout(left);
    }
}
