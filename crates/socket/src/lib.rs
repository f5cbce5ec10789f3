//! Stream sockets whose bytes go through shared memory where both ends can: the stream sockets of paper 001, section 2.2, between processes of one machine.
//!
//! A [`Stream`] is a connected TCP socket of the kernel, for as long as it lives, and a peer without this library notices nothing else. Where both ends
//! have this library, on one machine, as one user, each direction turns to a ring in memory that both map, after a certain byte of the stream. From then on a
//! write is one copy into the ring and a read one copy out of it. Neither makes a system call while the other side is awake.
//!
//! The connector asks for memory when its stream has become a conversation: with the first write after a read, or once it has sent 4 KiB. So connections
//! for one request cost what they did. It asks at an abstract socket name that is made of the listener's address. The acceptor gives the memory with its next
//! read or write. Nobody waits for an answer: until both are ready, bytes go through the kernel.
//!
//! ```no_run
//! use handfast_socket::{Listener, Stream};
//! use std::io::{Read, Write};
//!
//! let listener = Listener::bind("127.0.0.1:7000".parse().unwrap())?;
//! std::thread::spawn(|| {
//!     let stream = Stream::connect("127.0.0.1:7000".parse().unwrap())?;
//!     (&stream).write_all(b"hello")?;
//!     std::io::Result::Ok(())
//! });
//! let (stream, _) = listener.accept()?;
//! let mut text = String::new();
//! (&stream).read_to_string(&mut text)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # What is not there yet
//!
//! There are no readiness descriptors: a non-blocking stream has to be tried. Unix sockets, and a fork or an `exec` with open streams, are not
//! supported: a child must not use the streams of its parent, unless they have [left](Stream::leave) the ring. Each connection has a region of its own, of
//! 132 KiB at most, and two more descriptors at each end.

#![forbid(unsafe_code)]

mod listener;
mod offer;
mod rank;
mod reading;
mod shared;
mod stream;
mod timeouts;
mod waiting;
mod writing;

pub use handfast_wait::Strategy;
pub use listener::Listener;
pub use stream::{LeaveError, Reason, Stream};
