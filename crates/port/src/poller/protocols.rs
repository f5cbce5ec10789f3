//! The protocols above ports: a poller hands them messages that are more than bytes for its port.

use crate::link::Link;
use crate::link::introductions::Named;
use crate::message::Message;
use crate::port::Port;
use crate::process::Process;
use crate::request::Mark;
use handfast_proto::rights::Handle;
use handfast_ring::Fault;
use handfast_ring::lane::{Consumer, Header};
use std::sync::Arc;

/// A message in a lane: the link, its header, its bytes.
pub(crate) type InLane<'a> = (&'a Arc<Link>, Header, &'a [u8]);

/// See the module text. A node has one for all its ports.
pub(crate) trait Protocols: Send + Sync {
    /// Makes rights of the parts of a message that has come through a link, behind those that were made already.
    ///
    /// # Errors
    /// The rule the peer broke.
    fn adopt(
        &self,
        process: &Arc<Process>,
        link: &Arc<Link>,
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

    /// Refuses what waits for a receiver without a port: a new port is empty. The caller holds the lock of the bound ports.
    fn clear_receiver(&self, process: &Arc<Process>, receiver: u32);

    /// The receive right of a port is dropped: tells those that have rights to it, but where it is quiet, and ends what shares its
    /// receiver.
    fn close(&self, port: &Port, is_quiet: bool);

    /// Takes and refuses what waits in a lane of a port that ends.
    fn refuse_waiting(&self, process: &Arc<Process>, link: &Arc<Link>, consumer: &mut Consumer);
}
