//! Stream sockets whose bytes go through shared memory.

use super::{Bundle, Caller, Named, System, Waits};
use crate::plan::Plan;
use crate::systems::child::Seat;
use handfast_socket::{Listener, Stream};
use handfast_sys::OwnedFd;
use std::io::{self, Read, Write};
use std::net::TcpListener;

/// One connection, blocking reads and writes by the default strategy.
pub(crate) struct Streams;

/// The listening socket, which each side has.
fn listener(fds: &[OwnedFd]) -> io::Result<TcpListener> {
    let fd = fds.first().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(fd.try_clone()?.into())
}

impl Named for Streams {
    fn name(&self) -> &'static str {
        "handfast-stream"
    }

    fn waits(&self) -> Waits {
        Waits::Adapts
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        match plan.clients {
            1 => Ok(()),
            _ => Err("its server accepts one connection".to_owned()),
        }
    }

    fn prepare(&self, _: &Plan) -> io::Result<Bundle> {
        let socket = TcpListener::bind("127.0.0.1:0")?;
        let mut bundle = Bundle::default();
        bundle.clients.push(vec![socket.try_clone()?.into()]);
        bundle.server.push(socket.into());
        Ok(bundle)
    }
}

impl System for Streams {
    type Caller = Stream;

    fn serve(&self, seat: &Seat, mut handler: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let listener = Listener::try_from(listener(&seat.fds)?)?;
        let mut private = vec![0; seat.plan.payload_bytes];
        seat.ready();
        let (mut stream, _) = listener.accept()?;
        loop {
            stream.read_exact(&mut private)?;
            let len = handler(&mut private);
            stream.write_all(&private[..len])?;
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<Stream> {
        Stream::connect(listener(&seat.fds)?.local_addr()?)
    }
}

impl Caller for Stream {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        self.write_all(request)?;
        self.read_exact(reply)
    }
}
