//! Ports, rights and calls over links.
//!
//! Reading order: [`send`](SendRight) and [`receive`](ReceiveRight) are the two ends of a call;
//! `connect` and `keeper` make the link between them; `poller` decides what a receiver looks at.
#![forbid(unsafe_code)]

mod send;

mod bound;
mod call;
mod cancel;
mod future;
mod give_back;
mod guest;

mod adopt;
mod again;
mod arena;
mod arrivals;
mod attenuate;
mod awaited;
mod describe;
mod descriptors;
mod door;
mod elsewhere;
mod home;
mod introduce;
mod lending;
mod loan;
mod loops;
mod member;
mod memory;
mod moving;
mod notice;
mod origin;
mod own;
mod parked;
mod passing;
mod paths;
mod peer_bells;
mod redirect;
mod relay;
mod revocations;
mod revoke;
mod right;
mod room;
mod rows;
mod sending;
mod sent;
#[cfg(all(test, feature = "simulation"))]
mod simulation;
mod slots;
mod spread;
mod waiters;

mod batch;

mod per_cpu;
mod port;
mod ports;
mod receive;
mod receiver;
mod receiving;
mod reply_slot;
mod request;
#[doc(hidden)]
pub mod served;
mod set;

mod poller;
mod unbound;
mod unused;
mod users;
mod vine;
mod waits;

mod configuration;
mod connect;
pub mod error;
mod inspect;
mod keeper;
mod left_lanes;
mod lifecycle;
mod limits;
mod link;
mod link_life;
mod links;
mod message;
mod node;
pub mod notify;
mod options;
mod pool;
mod process;
mod quotas;
mod rank;
pub mod rendezvous;
mod tables;
mod turns;
mod upkeep;

pub use arena::{Arena, Block};
pub use batch::{BATCH_MESSAGES_MAX, Batch};
pub use call::Call;
pub use cancel::Cancelled;
pub use connect::{connect, connect_timeout, connect_with};
/// For crates above.
pub use error::resource::Resource;
pub use future::Reply;
pub use handfast_layout::MESSAGE_BYTES_MAX;
pub use handfast_sys::poll::Interest;
pub use handfast_sys::socket::Peer;
pub use handfast_wait::{Strategy, Target, handoff};
pub use inspect::Counters;
pub use limits::{set_quotas, set_quotas_by};
pub use loan::Loan;
pub use member::MemberPort;
pub use memory::{Memory, MemoryMut};
pub use message::Message;
pub use moving::wait_moved;
pub use node::{Node, NodeBuilder};
pub use notice::Notice;
pub use options::Options;
pub use origin::Identity;
pub use own::OwnRight;
pub use passing::{NotForwarded, ReplyRight};
pub use per_cpu::{PerCpu, Place, Worker};
pub use quotas::Quotas;
pub use receive::{ReceiveRight, anonymous, anonymous_with, bind, bind_with};
pub use receiving::Receive;
pub use request::Request;
pub use revoke::Holder;
pub use right::{Returned, Right};
pub use send::SendRight;
pub use sending::Sending;
pub use sent::Sent;
pub use set::{Event, Readiness, Token, WaitSet};
