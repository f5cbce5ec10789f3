//! A socket that accepts connections.

use crate::offer::Askers;
use crate::stream::Stream;
use handfast_sys::{AsFd, BorrowedFd};
use handfast_wait::Strategy;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Accepts connections, of peers with this library or without.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    askers: Option<Arc<Askers>>,
    strategy: Strategy,
}

impl Listener {
    /// Listens at an address. Its streams wait by the default strategy.
    ///
    /// # Errors
    /// The errors of [`TcpListener::bind`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(address, Strategy::default())
    }

    /// Like [`Self::bind`], with a strategy for waiting.
    ///
    /// # Errors
    /// As there.
    pub fn bind_with(address: SocketAddr, strategy: Strategy) -> io::Result<Self> {
        Self::of(TcpListener::bind(address)?, strategy)
    }

    fn of(socket: TcpListener, strategy: Strategy) -> io::Result<Self> {
        // Without them all connections stay with the kernel: `Reason::NameTaken`.
        let askers = Askers::new(socket.local_addr()?).ok().map(Arc::new);
        Ok(Self {
            socket,
            askers,
            strategy,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As [`TcpListener::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for a connection, in the kernel.
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (socket, peer) = self.socket.accept()?;
        let stream = Stream::accepted((socket, peer), self.askers.clone(), self.strategy)?;
        Ok((stream, peer))
    }
}

/// Of a socket that listens. Its streams wait by the default strategy.
impl TryFrom<TcpListener> for Listener {
    type Error = io::Error;

    fn try_from(socket: TcpListener) -> io::Result<Self> {
        Self::of(socket, Strategy::default())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
