//! Calls between protected parts of a program: one port, three distances.
//!
//! A program [`bind`]s a port by name; others [`connect`] to it and [`call`](SendRight::call).
//! Messages go through shared memory without a system call while both sides are busy; whoever has
//! nothing to do sleeps; and neither side trusts a byte the other can write.
//!
//! ```
//! // Somewhere: a server.
//! # let name = format!("doc-{}", std::process::id());
//! # let server = name.clone();
//! let port = handfast::bind(&server)?;
//! std::thread::spawn(move || {
//!     let mut request = port.receive().unwrap();
//!     loop {
//!         let shout = request.bytes().to_ascii_uppercase();
//!         request = port.reply_and_receive(request, &shout).unwrap();
//!     }
//! });
//! // Elsewhere, in another process or the same one: a client.
//! let port = handfast::connect(&name)?;
//! assert_eq!(&*port.call(b"hello")?, b"HELLO");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is not there yet is listed in `CAVEATS.md`.
#![forbid(unsafe_code)]

pub mod domain;

handfast_domain::at_start!(domain::at_start);

pub use handfast_port::*;

#[cfg(feature = "service")]
pub use handfast_macros::service;
#[cfg(feature = "service")]
pub mod service;
