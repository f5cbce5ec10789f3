//! The base of the code made by `#[handfast::service]`: encodings, errors, the loop of a server
//! and the call of a client.
//!
//! An application names only the errors ([`CallError`] and its parts) and derives, for its
//! own types, serde's traits, or zerocopy's where a method is marked `#[fixed]`. Everything else
//! here is for the generated code.
//!
//! # On the wire
//!
//! A request starts with one word of eight bytes: the method's number in the low 16 bits, the
//! service's fingerprint in the upper 48. A reply ends with one byte: zero, or the reason that the server
//! refused. The values follow one another, without names or types. Fixed-layout values
//! have their form in memory; all others the format of postcard. So 32 bytes of arguments and 39
//! of a result travel within a slot, and longer ones as other long messages do.
//!
//! All bytes were copied out of shared memory before this crate looks at them, and none is
//! trusted: lengths are checked, and values that nest too deep or leave bytes over are refused.
#![forbid(unsafe_code)]

mod client;
mod server;

mod at_once;

mod method;
mod within;

mod decode;
mod encode;

pub mod error;

pub use at_once::{serve_at_once, unless_given_up};
pub use client::Client;
pub use decode::Decoder;
pub use encode::{Encoder, Fixed, FixedRequest};
pub use error::{CallError, Malformed, Refusal, Unencodable};
pub use method::{Method, Service, fingerprint};
pub use server::{begin, dispatch, finish, serve, serve_async, serve_message};

pub use handfast_port as port;
