//! The kernel's byte channels: pipes, Unix stream sockets, TCP and UDP over loopback.

use super::{Bundle, Caller, Named, System, Waits};
use crate::plan::Plan;
use crate::systems::child::Seat;
use handfast_sys::OwnedFd;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

pub(crate) const PIPE: Bytes = Bytes(Kind::Pipe);
pub(crate) const UNIX: Bytes = Bytes(Kind::Unix);
pub(crate) const TCP: Bytes = Bytes(Kind::Tcp);
pub(crate) const TCP_NAGLE: Bytes = Bytes(Kind::TcpNagle);
pub(crate) const UDP: Bytes = Bytes(Kind::Udp);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One each way per client.
    Pipe,
    Unix,
    /// With `TCP_NODELAY`.
    Tcp,
    /// Without.
    TcpNagle,
    /// Connected sockets. A lost datagram would end the measurement by its deadline; with one
    /// message under way none is.
    Udp,
}

/// One channel per client, blocking reads and writes.
pub(crate) struct Bytes(Kind);

/// The two descriptors a side reads from and writes to.
type Ends = (OwnedFd, OwnedFd);

impl Bytes {
    /// One client's channel: the server's ends and the client's.
    fn channel(&self) -> io::Result<(Ends, Ends)> {
        let duplex = |server: OwnedFd, client: OwnedFd| {
            let written = (server.try_clone()?, client.try_clone()?);
            Ok(((server, written.0), (client, written.1)))
        };
        match self.0 {
            Kind::Pipe => {
                let (request_out, request_in) = io::pipe()?;
                let (reply_out, reply_in) = io::pipe()?;
                let server = (request_out.into(), reply_in.into());
                Ok((server, (reply_out.into(), request_in.into())))
            }
            Kind::Unix => {
                let (server, client) = UnixStream::pair()?;
                duplex(server.into(), client.into())
            }
            Kind::Tcp | Kind::TcpNagle => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let client = TcpStream::connect(listener.local_addr()?)?;
                let (server, _) = listener.accept()?;
                let no_delay = self.0 == Kind::Tcp;
                server.set_nodelay(no_delay)?;
                client.set_nodelay(no_delay)?;
                duplex(server.into(), client.into())
            }
            Kind::Udp => {
                let (server, client) = (
                    UdpSocket::bind("127.0.0.1:0")?,
                    UdpSocket::bind("127.0.0.1:0")?,
                );
                server.connect(client.local_addr()?)?;
                client.connect(server.local_addr()?)?;
                duplex(server.into(), client.into())
            }
        }
    }
}

impl Named for Bytes {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Pipe => "pipe",
            Kind::Unix => "unix-stream",
            Kind::Tcp => "tcp",
            Kind::TcpNagle => "tcp-nagle",
            Kind::Udp => "udp",
        }
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        if self.0 == Kind::Udp && plan.payload_bytes > DATAGRAM_BYTES_MAX {
            return Err(format!(
                "a datagram holds at most {DATAGRAM_BYTES_MAX} bytes"
            ));
        }
        Ok(())
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let mut bundle = Bundle::default();
        for _ in 0..plan.clients {
            let (server, client) = self.channel()?;
            bundle.server.extend([server.0, server.1]);
            bundle.clients.push(vec![client.0, client.1]);
        }
        Ok(bundle)
    }
}

/// Largest payload of UDP over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;

impl System for Bytes {
    type Caller = BytesCaller;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let mut channels = seat
            .fds
            .chunks_exact(2)
            .map(BytesCaller::new)
            .collect::<io::Result<Vec<_>>>()?;
        let mut private = vec![0; seat.plan.payload_bytes];
        seat.ready();
        let mut answer = |channel: &mut BytesCaller| {
            channel.from.read_exact(&mut private)?;
            let len = handler(&mut private);
            channel.to.write_all(&private[..len])
        };
        if let [channel] = channels.as_mut_slice() {
            loop {
                answer(channel)?;
            }
        }
        let ready = |channels: &[BytesCaller]| -> io::Result<Vec<bool>> {
            let mut fds: Vec<PollFd<'_>> = channels
                .iter()
                .map(|channel| PollFd::new(&channel.from, PollFlags::IN))
                .collect();
            poll(&mut fds, None)?;
            Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
        };
        while !channels.is_empty() {
            let mut ready = ready(&channels)?.into_iter();
            // A channel that fails is its client's end: the others are served on.
            channels.retain_mut(|channel| {
                let ready = ready.next().unwrap_or(false);
                !ready || answer(channel).is_ok()
            });
        }
        Ok(())
    }

    fn connect(&self, seat: &Seat) -> io::Result<Self::Caller> {
        BytesCaller::new(&seat.fds)
    }
}

/// One end of a channel. Plain `read` and `write` on all kinds.
pub(crate) struct BytesCaller {
    from: File,
    to: File,
}

impl BytesCaller {
    fn new(ends: &[OwnedFd]) -> io::Result<Self> {
        let [from, to] = ends else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(Self {
            from: from.try_clone()?.into(),
            to: to.try_clone()?.into(),
        })
    }
}

impl Caller for BytesCaller {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        self.to.write_all(request)?;
        self.from.read_exact(reply)
    }
}
