//! A connection.

use crate::offer::{self, Askers, Offer};
use crate::rank;
use crate::reading::Incoming;
use crate::shared::Shared;
use crate::writing::Outgoing;
use handfast_layout::link::Side as End;
use handfast_sys::poll::wait_any;
use handfast_sys::sync::Mutex;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd};
use handfast_wait::Strategy;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
        if how != Shutdown::Read
            && let Some(shared) = self.shared.get()
        {
            self.outgoing.lock().end(shared);
        }
        self.socket.shutdown(how)
    }

    /// Acceptor: gives memory to the connector, if that has asked. By a thread that reads, or that keeps others from it: none sleeps
    /// at the kernel's socket then.
    fn give(&self, askers: &Askers, incoming: &mut Incoming) {
        if self.shared.get().is_some() || incoming.looks >= LOOKS_MAX {
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
        *self.reason.lock() = reason;
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

    /// Before the first upgrade. Returns whether the kernel has something, or whether that may be waited for there.
    fn is_for_kernel(&self, incoming: &mut Incoming) -> bool {
        if let Some(askers) = &self.askers {
            self.give(askers, incoming);
            return self.shared.get().is_none();
        }
        while let Some(asked) = self.awaits() {
            let [kernel, given] =
                wait_any([(self.socket.as_fd(), true), (asked.as_fd(), true)], None);
            if given.is_readable || given.has_hung_up {
                self.hear(asked, incoming);
            } else if kernel.is_readable || kernel.has_hung_up {
                return true;
            }
        }
        self.shared.get().is_none()
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let mut incoming = self.incoming.lock();
        if self.shared.get().is_none() && self.is_for_kernel(&mut incoming) {
            let len_bytes = incoming.read_kernel(&self.socket, into)?;
            self.has_come.store(true, Ordering::Relaxed);
            return Ok(len_bytes);
        }
        match self.shared.get() {
            Some(shared) => incoming.read(shared, &self.socket, into),
            None => incoming.read_kernel(&self.socket, into),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut outgoing = self.outgoing.lock();
        if !outgoing.has_turned() {
            let Some(shared) = self.may_turn(&outgoing) else {
                return outgoing.write_kernel(&self.socket, bytes);
            };
            outgoing.turn(shared, self.strategy);
            self.say(Reason::Upgraded);
        }
        match self.shared.get() {
            Some(shared) => outgoing.write(shared, bytes),
            None => outgoing.write_kernel(&self.socket, bytes),
        }
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
            self.outgoing.lock().end(shared);
            shared.close();
        }
    }
}

#[cfg(test)]
mod tests;
