//! The protocols above ports: a poller hands them messages that are more than bytes for its port.

use crate::link::Link;
use crate::link::introductions::Named;
use crate::message::Message;
use crate::process::Process;
use crate::request::Mark;
use crate::tables::{Table, Which};
use handfast_proto::rights::Handle;
use handfast_ring::Fault;
use handfast_ring::lane::{Consumer, Header};
use std::sync::{Arc, OnceLock};

/// A message in a lane: the link, its header, its bytes.
pub(crate) type InLane<'a> = (&'a Arc<Link>, Header, &'a [u8]);

/// See the module text. A node has one for all its ports.
pub(crate) trait Protocols: Send + Sync {
    /// Makes rights of the parts of a message that has come to a receiver through a link, behind those that were made already. Without the
    /// receiver's number the message goes on.
    ///
    /// # Errors
    /// The rule the peer broke.
    fn adopt(
        &self,
        process: &Arc<Process>,
        at: (&Arc<Link>, Option<u32>),
        message: &mut Message,
    ) -> Result<(), Fault>;

    /// A right of this name has come, whose port may have moved.
    fn arrived_moved(&self, process: &Process, link: &Arc<Link>, name: Handle);

    /// The right that the peer names by a word which is no handle, at a receiver where it is this late.
    fn claimed(&self, link: &Arc<Link>, process: &Process, word: u32, now_ns: u64) -> Named;

    /// A statement about introductions, at a receiver where it is this late.
    ///
    /// # Errors
    /// As [`Self::adopt`].
    fn hear_said(&self, process: &Process, said: InLane<'_>, now_ns: u64) -> Result<(), Fault>;

    /// The contents of a mark, lanes and a number, that came through a link with this header for a port. `None` if the right was revoked.
    ///
    /// # Errors
    /// As [`Self::adopt`].
    fn marked(
        &self,
        process: &Process,
        said: (&Arc<Link>, Header, u32),
        mark: (u32, u64),
    ) -> Result<Option<Mark>, Fault>;

    /// Takes and refuses what waits in a lane of a port that ends.
    fn refuse_waiting(&self, process: &Arc<Process>, link: &Arc<Link>, consumer: &mut Consumer);
}

/// Set when the node starts.
#[derive(Default)]
struct Served(OnceLock<&'static dyn Protocols>);

impl Table for Served {
    const WHICH: Which = Which::Protocols;
}

/// A node starts: its pollers hand these what is more than bytes.
pub(crate) fn serve_by(process: &Process, protocols: &'static dyn Protocols) {
    let _ = process.tables.get::<Served>().0.set(protocols);
}

pub(super) fn of(process: &Process) -> &'static dyn Protocols {
    match process.tables.get::<Served>().0.get() {
        Some(protocols) => *protocols,
        None => unreachable!("a node starts with them"),
    }
}
