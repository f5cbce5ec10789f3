//! A connection.

use crate::offer::{self, Askers, Offer};
use crate::rank;
use crate::reading::{Got, Incoming, broken, has_passed};
use crate::shared::Shared;
use crate::timeouts::{Operation, Timeouts};
use crate::writing::Outgoing;
use handfast_layout::link::Side as End;
use handfast_sys::poll::wait_any;
use handfast_sys::sync::Mutex;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, tcp};
use handfast_wait::Strategy;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A connector that has sent so much asks for memory, also where nothing has come back.
const BYTES_BEFORE: u64 = 4096;
/// Reads and writes of an acceptor that look for an asker: those of a connection that is to be upgraded come soon.
const LOOKS_MAX: u32 = 1000;

/// Why the bytes of a stream go through the kernel's socket, or do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// This end's bytes go through shared memory.
    Upgraded,
    /// The connection is young: no conversation yet.
    Young,
    /// This end is ready, and the peer is not, or this end has not written since.
    Asked,
    /// The peer is on another machine.
    OtherMachine,
    /// The peer is without this library, or of another version of it.
    NoPeer,
    /// The peer runs as another user.
    OtherUser,
    /// Another listener has the name by which connectors ask at this address.
    NameTaken,
    /// This end has no memory or descriptors for it.
    NoResources,
    /// One of the two ends has left the shared memory: see [`Stream::leave`].
    Left,
}

/// Why a stream has not left its shared memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// The peer had left before, or has ended the stream.
    #[error(
        "{0} bytes of the peer are in shared memory, which it has left: read them first, and leave then"
    )]
    Unread(usize),
    /// The peer has broken the protocol, or the kernel's socket takes nothing.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connected stream. Any number of threads may read and write by references; those that read take turns, and so do those that write.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    peer: SocketAddr,
    /// Of an acceptor, where it finds who asks for memory.
    askers: Option<Arc<Askers>>,
    /// Of a connector that has asked.
    asked: OnceLock<OwnedFd>,
    /// The last reason.
    reason: Mutex<Reason, rank::Reason>,
    shared: OnceLock<Shared>,
    incoming: Mutex<Incoming, rank::Incoming>,
    outgoing: Mutex<Outgoing, rank::Outgoing>,
    /// Something has come from the peer.
    has_come: AtomicBool,
    strategy: Strategy,
    timeouts: Timeouts,
}

impl Stream {
    /// Connects to a listener, of this library or not. Waits by the default strategy.
    ///
    /// # Errors
    /// The errors of [`TcpStream::connect`].
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        Self::connect_with(to, Strategy::default())
    }

    /// Like [`Self::connect`], with a strategy for waiting.
    ///
    /// # Errors
    /// As there.
    pub fn connect_with(to: SocketAddr, strategy: Strategy) -> io::Result<Self> {
        let socket = TcpStream::connect(to)?;
        socket.set_nodelay(true)?;
        let peer = socket.peer_addr()?;
        let reason = match peer.ip().to_canonical().is_loopback() {
            true => Reason::Young,
            false => Reason::OtherMachine,
        };
        Ok(Self::of((socket, peer), None, (reason, strategy)))
    }

    pub(crate) fn accepted(
        (socket, peer): (TcpStream, SocketAddr),
        askers: Option<Arc<Askers>>,
        strategy: Strategy,
    ) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let reason = match (&askers, peer.ip().to_canonical().is_loopback()) {
            (None, _) => Reason::NameTaken,
            (_, false) => Reason::OtherMachine,
            _ => Reason::Young,
        };
        Ok(Self::of((socket, peer), askers, (reason, strategy)))
    }

    fn of(
        (socket, peer): (TcpStream, SocketAddr),
        askers: Option<Arc<Askers>>,
        (reason, strategy): (Reason, Strategy),
    ) -> Self {
        Self {
            socket,
            peer,
            askers,
            asked: OnceLock::new(),
            reason: Mutex::new(reason),
            shared: OnceLock::new(),
            incoming: Mutex::new(Incoming::new()),
            outgoing: Mutex::new(Outgoing::new()),
            has_come: AtomicBool::new(false),
            strategy,
            timeouts: Timeouts::default(),
        }
    }

    /// Where this end's bytes go, and why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        *self.reason.lock()
    }

    /// Address of the other end.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Ends one direction or both, as [`TcpStream::shutdown`]. The peer reads what was written before, and then the end. Waits for a write
    /// that is under way, also for room.
    ///
    /// # Errors
    /// As there.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            let shared = self.shared.get();
            self.outgoing.lock().end(shared, &self.socket)?;
        }
        self.socket.shutdown(how)
    }

    /// Leaves the shared memory for good: from now on all bytes of both directions go through the kernel's socket, so that another program may have it, or a child
    /// that knows nothing of this library. Nothing is lost, doubled or overtaken: of the bytes that this end has not read, the peer's next read or write of
    /// the stream gives those to the kernel's socket that lie in shared memory. A peer that is in the middle of one does it at once; one that dies before takes
    /// them with it. A few system calls; waits for reads and writes of other threads that are under way, and for room in the kernel's socket.
    ///
    /// # Errors
    /// [`LeaveError::Unread`]: this end still reads and writes as before; [`LeaveError::Io`].
    pub fn leave(&self) -> Result<(), LeaveError> {
        // First what comes in: where a write waits for room while the peer leaves, too, and its writes wait, both go on.
        let mut incoming = self.incoming.lock();
        let shared = self.shared.get();
        if let Some(shared) = shared {
            let left = incoming.leave(shared).map_err(broken)?;
            left.map_err(LeaveError::Unread)?;
        }
        self.say(Reason::Left);
        drop(incoming);
        let mut outgoing = self.outgoing.lock();
        let left = outgoing.leave(shared, &self.socket);
        self.note_way(&outgoing);
        Ok(left?)
    }

    /// How long reads wait; `None`: for ever.
    ///
    /// # Errors
    /// As [`TcpStream::set_read_timeout`].
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)?;
        self.timeouts.set(Operation::Read, timeout);
        Ok(())
    }

    /// How long writes wait for room; `None`: for ever.
    ///
    /// # Errors
    /// As [`TcpStream::set_write_timeout`].
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(timeout)?;
        self.timeouts.set(Operation::Write, timeout);
        Ok(())
    }

    /// Whether reads and writes fail with [`WouldBlock`](io::ErrorKind::WouldBlock) in the place of waiting.
    ///
    /// # Errors
    /// As [`TcpStream::set_nonblocking`].
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(is_nonblocking)?;
        self.timeouts.set_nonblocking(is_nonblocking);
        Ok(())
    }

    /// Acceptor: gives memory to the connector, if that has asked. By a thread that reads, or that keeps others from it: none sleeps
    /// at the kernel's socket then.
    fn give(&self, askers: &Askers, incoming: &mut Incoming) {
        let is_over = incoming.looks >= LOOKS_MAX || self.reason() == Reason::Left;
        if self.shared.get().is_some() || is_over {
            return;
        }
        incoming.looks += 1;
        if let Some(asker) = askers.take(self.peer) {
            self.share(offer::give(asker), End::Acceptor, incoming);
        }
    }

    /// Connector: asks for memory, once this has become a conversation.
    fn ask(&self, sent: u64) {
        // Relaxed: a hint.
        let has_come = self.has_come.load(Ordering::Relaxed);
        let is_conversation = sent > 0 && has_come || sent >= BYTES_BEFORE;
        if self.reason() != Reason::Young || !is_conversation {
            return;
        }
        let from = self.socket.local_addr().map_err(|_| Errno::IO);
        match from.and_then(|from| offer::ask(self.peer, from)) {
            Ok(asked) => {
                self.asked.get_or_init(|| asked);
                self.say(Reason::Asked);
            }
            Err(Errno::CONNREFUSED) => self.say(Reason::NoPeer),
            Err(Errno::PERM) => self.say(Reason::OtherUser),
            Err(_) => self.say(Reason::NoResources),
        }
    }

    /// Connector: maps the memory that it has asked for, once that has come.
    fn hear(&self, asked: &OwnedFd, incoming: &mut Incoming) {
        // Another thread may have left it since the caller looked.
        if self.reason() == Reason::Left {
            return;
        }
        match offer::given(asked) {
            Err(Errno::AGAIN) => {}
            given => self.share(given, End::Connector, incoming),
        }
    }

    fn share(&self, offer: Result<Offer, Errno>, end: End, incoming: &mut Incoming) {
        match offer {
            Ok(offer) => {
                let shared = self.shared.get_or_init(|| Shared::new(offer, end));
                incoming.upgrade(shared, self.strategy);
                self.say(Reason::Asked);
            }
            Err(Errno::PIPE | Errno::CONNRESET) => self.say(Reason::NoPeer),
            Err(_) => self.say(Reason::NoResources),
        }
    }

    fn say(&self, reason: Reason) {
        let mut last = self.reason.lock();
        // A stream that has left does not come back.
        if *last != Reason::Left {
            *last = reason;
        }
    }

    /// Whether the connector waits for memory, by the socket of [`offer::ask`].
    fn awaits(&self) -> Option<&OwnedFd> {
        let asked = self.asked.get()?;
        (self.shared.get().is_none() && self.reason() == Reason::Asked).then_some(asked)
    }

    /// Before a write goes to the kernel: whether it may go to the ring instead.
    fn may_turn(&self, outgoing: &Outgoing) -> Option<&Shared> {
        if self.shared.get().is_none() {
            // Where a thread reads at this moment, it hears of the memory itself, and an acceptor's next read or write looks.
            let reading = || self.incoming.try_lock();
            match (&self.askers, self.awaits()) {
                (None, None) => self.ask(outgoing.by_kernel()),
                (Some(askers), _) => {
                    if let Some(mut incoming) = reading() {
                        self.give(askers, &mut incoming);
                    }
                }
                (None, Some(asked)) => {
                    if let Some(mut incoming) = reading() {
                        self.hear(asked, &mut incoming);
                    }
                }
            }
        }
        self.shared.get().filter(|shared| shared.is_accepted())
    }

    /// Before a read from the kernel's socket: waits until that has something, or the connection is upgraded.
    fn before_kernel(&self, incoming: &mut Incoming, deadline_ns: Option<u64>) -> io::Result<()> {
        if let Some(askers) = &self.askers {
            self.give(askers, incoming);
        }
        while let Some(asked) = self.awaits() {
            let descriptors = [(self.socket.as_fd(), true), (asked.as_fd(), true)];
            let [kernel, given] = wait_any(descriptors, deadline_ns);
            if given.is_readable || given.has_hung_up {
                self.hear(asked, incoming);
            } else if kernel.is_readable || kernel.has_hung_up {
                return Ok(());
            } else if has_passed(deadline_ns) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Ok(())
    }

    /// The peer has left the ring that this end writes, and waits for the bytes there.
    fn give_again(&self, shared: &Shared) {
        // Else a thread writes, and does so itself.
        if let Some(mut outgoing) = self.outgoing.try_lock() {
            let give = |bytes: &[u8]| Ok(tcp::send_now(&self.socket, bytes)?);
            let _ = outgoing.give_again(shared, give);
            self.note_way(&outgoing);
        }
        shared.note_given();
    }

    /// Notes where the bytes of this end go, after it has written, or has left the ring.
    fn note_way(&self, outgoing: &Outgoing) {
        if let Some(shared) = self.shared.get()
            && outgoing.is_done_with_ring()
        {
            shared.note_written();
            if self.reason() == Reason::Upgraded {
                self.say(Reason::Left);
            }
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let deadline_ns = self.timeouts.deadline_ns(Operation::Read);
        loop {
            let mut incoming = self.incoming.lock();
            if self.shared.get().is_none() {
                self.before_kernel(&mut incoming, deadline_ns)?;
            }
            let Some(shared) = self.shared.get() else {
                let len_bytes = incoming.read_kernel(&self.socket, into)?;
                // Relaxed: a hint.
                self.has_come.store(true, Ordering::Relaxed);
                return Ok(len_bytes);
            };
            match incoming.read(shared, (&self.socket, deadline_ns), into)? {
                Got::Bytes(len_bytes) => return Ok(len_bytes),
                Got::PeerHasLeft => {
                    drop(incoming);
                    self.give_again(shared);
                }
            }
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let deadline_ns = self.timeouts.deadline_ns(Operation::Write);
        let mut outgoing = self.outgoing.lock();
        if outgoing.may_turn()
            && let Some(shared) = self.may_turn(&outgoing)
        {
            outgoing.turn(shared, self.strategy).map_err(broken)?;
            self.say(Reason::Upgraded);
        }
        let way = (&self.socket, deadline_ns);
        let written = outgoing.write(self.shared.get(), way, bytes);
        self.note_way(&outgoing);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            // An error is the peer's, and nobody can be told.
            let _ = self.outgoing.lock().end(Some(shared), &self.socket);
            shared.close();
        }
    }
}

#[cfg(test)]
mod tests;
