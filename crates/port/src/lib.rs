//! Ports, rights and calls over links.
//!
//! Reading order: [`send`](SendRight) and [`receive`](ReceiveRight) are the two ends of a call;
//! `connect` and `control_thread` make the link between them; `poller` decides which lanes a receiver looks at.
#![forbid(unsafe_code)]

mod send;
mod send_once;

mod ahead;
mod binding;
mod body;
mod bound;
mod buffers;
mod call;
mod call_slots;
mod cancel;
mod closing;
mod forwarder;
mod future;
mod give_back;
mod giving_up;
mod guest;

mod adopt;
mod again;
mod announced;
mod arena;
mod arrivals;
mod arriving;
mod asked;
mod attenuate;
mod awaited;
mod describe;
mod descriptors;
mod door;
mod elsewhere;
mod event_count;
mod home;
mod imported;
mod introduce;
mod lending;
mod loan;
mod loops;
mod member;
mod memory;
mod moving;
mod owned_call;
mod parked;
mod passed;
mod passing;
mod paths;
mod peer_bells;
mod redirect;
mod relay;
mod revocations;
mod revoke;
mod right;
mod rows;
mod seal;
mod sending;
mod sent;
#[cfg(all(test, feature = "simulation"))]
mod simulation;
mod slots;
mod waiters;

mod batch;

mod per_cpu;
mod polling;
mod port;
mod receive;
mod receive_right;
mod receiving;
mod reply_right;
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

mod configuration;
mod connect;
mod control_thread;
pub mod error;
mod global;
mod inspect;
mod knock;
mod left_lanes;
mod lifecycle;
mod limits;
mod link;
mod link_end;
mod link_life;
mod links;
mod message;
mod node;
pub mod notify;
mod onward;
mod options;
mod pool;
mod process;
mod protocols;
mod quotas;
mod rank;
pub mod rendezvous;
mod tables;
mod turns;
mod upkeep;

pub use arena::{Block, SharedArena};
pub use batch::{BATCH_MESSAGES_MAX, Batch};
pub use call::{Call, TryWait};
pub use cancel::Cancelled;
/// For crates above.
pub use error::resource::Resource;
pub use future::Reply;
pub use global::{
    anonymous, anonymous_with, bind, bind_with, connect, connect_deadline, connect_timeout,
    connect_with, set_quotas, set_quotas_by, wait_moved_timeout,
};
#[doc(hidden)]
pub use global::{behind_descriptor, connect_by_descriptor};
pub use handfast_layout::{LONG_BYTES_MAX, MESSAGE_BYTES_MAX};
pub use handfast_sys::poll::Interest;
pub use handfast_sys::socket::Peer;
pub use handfast_wait::{Strategy, Target, Unsupported, handoff};
pub use inspect::Counters;
pub use loan::Loan;
pub use member::MemberPort;
pub use memory::{Memory, MemoryMut};
pub use message::Message;
pub use node::{Node, NodeBuilder};
pub use options::Options;
pub use passing::NotForwarded;
pub use per_cpu::{PerCpu, Place, Worker};
pub use port::notices::Notice;
pub use port::own::OwnRight;
pub use quotas::Quotas;
pub use receive::NotReceived;
pub use receive_right::ReceiveRight;
pub use receiving::Receive;
pub use reply_right::ReplyRight;
pub use request::{Holder, Request};
pub use right::{Returned, Right};
pub use send::{Identity, SendRight};
pub use send_once::SendOnceRight;
pub use sending::{NotSent, Sending};
pub use sent::Sent;
pub use set::{Event, Readiness, Token, WaitSet};
