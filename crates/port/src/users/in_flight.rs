//! Descriptors in flight: sent to a peer, and not received.
//!
//! The kernel counts them against the user that this process runs as, in all processes of that user, until they are received, or
//! the peer's end is closed. It does not say when; but a socket knows whether all that was sent through it has been received.
//! So they count against the peer's user by socket, until the socket is seen to be empty.

use super::{State, Users};
use core::ops::RangeInclusive;
use handfast_proto::users::{Quota, Refused};
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, process, socket};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

/// Sockets that are looked at when there is no room for more.
const LOOKS: usize = 256;

/// By user and number. An entry keeps its socket open, so that the number stays its own; but it is never the last to do so.
#[derive(Default)]
pub(super) struct InFlight {
    sockets: BTreeMap<(u32, RawFd), Sent>,
    /// The next that is looked at.
    next: (u32, RawFd),
}

struct Sent {
    socket: Arc<OwnedFd>,
    count: u64,
    /// Threads that send just now: an empty socket does not show what they send.
    sending: u32,
}

impl State {
    /// Whether nothing is in flight through this socket. Returns the descriptors that were in flight to their
    /// user's quota.
    fn settle(&mut self, key: (u32, RawFd)) -> bool {
        let Some(sent) = self.in_flight.sockets.get(&key) else {
            return true;
        };
        if sent.sending > 0 || !socket::is_all_read(&sent.socket) {
            return false;
        }
        let count = sent.count;
        self.in_flight.sockets.remove(&key);
        self.table.refund(key.0, Quota::InFlight, count);
        true
    }

    /// Looks at sockets of those users through which something was sent before, in turn.
    fn settle_some(&mut self, users: RangeInclusive<u32>) {
        let (first, last) = ((*users.start(), RawFd::MIN), (*users.end(), RawFd::MAX));
        let next = self.in_flight.next.clamp(first, last);
        let sockets = &self.in_flight.sockets;
        let behind = sockets.range(next..=last);
        let keys: Vec<_> = behind
            .chain(sockets.range(first..next))
            .map(|(key, _)| *key)
            .take(LOOKS)
            .collect();
        if let Some(&(user, number)) = keys.last() {
            self.in_flight.next = (user, number.saturating_add(1));
        }
        keys.into_iter().for_each(|key| {
            self.settle(key);
        });
    }

    fn send(&mut self, user: u32, socket: &Arc<OwnedFd>, count: u64) -> Result<(), Refused> {
        let key = (user, socket.as_raw_fd());
        self.settle(key);
        if user == 0 || user == process::uid() {
            // Theirs are the kernel's limits.
            self.table.force(user, Quota::InFlight, count);
        } else if let Err(refused) = self.charge(user, Quota::InFlight, count) {
            // Descriptors that others have received long since count for no user.
            self.settle_some(match refused {
                Refused::User { .. } => user..=user,
                Refused::All { .. } => 0..=u32::MAX,
            });
            self.charge(user, Quota::InFlight, count)?;
        }
        let sent = self.in_flight.sockets.entry(key).or_insert_with(|| Sent {
            socket: socket.clone(),
            count: 0,
            sending: 0,
        });
        sent.count += count;
        sent.sending += 1;
        Ok(())
    }

    fn sent(&mut self, key: (u32, RawFd), count: u64, is_sent: bool) {
        let Some(sent) = self.in_flight.sockets.get_mut(&key) else {
            return;
        };
        sent.sending -= 1;
        if !is_sent {
            sent.count -= count;
            self.table.refund(key.0, Quota::InFlight, count);
            if sent.count == 0 && sent.sending == 0 {
                self.in_flight.sockets.remove(&key);
            }
        }
    }
}

impl Users {
    /// Sends a message with descriptors to a process of the user's: `ENOBUFS` where that has too many in flight already, or this
    /// process's user has.
    pub(super) fn send(
        &self,
        (user, socket): (u32, &Arc<OwnedFd>),
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let count = fds.len() as u64;
        let charged = self.state().send(user, socket, count);
        charged.map_err(|_| Errno::NOBUFS)?;
        let sent = socket::send(socket.as_fd(), bytes, fds);
        let key = (user, socket.as_raw_fd());
        self.state().sent(key, count, sent.is_ok());
        // So many are in flight of all processes of this one's user.
        sent.map_err(|errno| match errno {
            Errno::TOOMANYREFS => Errno::NOBUFS,
            errno => errno,
        })
    }

    /// Whether the peer has received all descriptors that were sent through this socket.
    pub(super) fn has_received(&self, user: u32, socket: &OwnedFd) -> bool {
        self.state().settle((user, socket.as_raw_fd()))
    }
}
