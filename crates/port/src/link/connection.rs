//! The connection of a link: its control socket, and the process descriptor of the peer. A link that has ended, and whose messages
//! have all been received, has neither, however long the application holds it, by a right or by a request.

use super::Link;
use super::inbox::{self, DISCARD_NS_MAX};
use crate::process::token;
use crate::rank;
use crate::users::{Charge, Foreign, Users};
use core::time::Duration;
use handfast_sys::poll::{Poll, Trigger};
use handfast_sys::sync::Mutex;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, clock, process, socket};
use std::sync::Arc;

/// See the module text.
pub(crate) struct Connection {
    users: Arc<Users>,
    state: Mutex<State, rank::Connection>,
}

enum State {
    Open {
        socket: Arc<Foreign>,
        peer: Option<Arc<PeerProcess>>,
    },
    /// Whether the peer's process was there then.
    Closed { had_process: bool },
}

/// The process descriptor of a peer. Unlike others, it closes at once.
pub(crate) struct PeerProcess {
    fd: OwnedFd,
    /// To the peer's user.
    _charge: Option<Charge>,
}

impl PeerProcess {
    pub(crate) const fn new(fd: OwnedFd, charge: Option<Charge>) -> Self {
        let _charge = charge;
        Self { fd, _charge }
    }
}

impl AsFd for PeerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl State {
    /// Whether the peer's process is known to be there.
    fn has_process(&self) -> bool {
        match self {
            Self::Open { peer, .. } => {
                (peer.as_ref()).is_some_and(|peer| !process::has_ended(peer))
            }
            Self::Closed { had_process } => *had_process,
        }
    }
}

impl Connection {
    pub(super) fn new(socket: Foreign, peer: Option<PeerProcess>) -> Self {
        let users = socket.users().clone();
        let open = State::Open {
            socket: Arc::new(socket),
            peer: peer.map(Arc::new),
        };
        Self {
            users,
            state: Mutex::new(open),
        }
    }

    /// The control socket. `EPIPE`: it is closed.
    pub(crate) fn socket(&self) -> Result<Arc<Foreign>, Errno> {
        match &*self.state.lock() {
            State::Open { socket, .. } => Ok(socket.clone()),
            State::Closed { .. } => Err(Errno::PIPE),
        }
    }

    /// The peer's process, where the kernel has told, until the connection is closed.
    pub(crate) fn peer_process(&self) -> Option<Arc<PeerProcess>> {
        match &*self.state.lock() {
            State::Open { peer, .. } => peer.clone(),
            State::Closed { .. } => None,
        }
    }

    /// Whether the peer's process is there, or was when the connection was closed.
    pub(crate) fn has_process(&self) -> bool {
        self.state.lock().has_process()
    }

    /// Whether the peer has its end still.
    pub(crate) fn is_open(&self) -> bool {
        self.socket()
            .is_ok_and(|socket| !socket::is_closed(&socket))
    }

    /// Has the control thread hear what the peer says.
    pub(crate) fn hear(&self, poll: &Poll, serial: u32) -> Result<(), Errno> {
        let token = token::LINK | u64::from(serial);
        poll.add(&self.socket()?, token, Trigger::Level)
    }

    /// Has it hear nothing.
    pub(crate) fn unhear(&self, poll: &Poll) {
        if let Ok(socket) = self.socket() {
            poll.remove(&socket);
        }
    }

    /// The peer sees the end of what was sent. Takes only the lock of the connection.
    pub(super) fn shut_down(&self) {
        if let Ok(socket) = self.socket() {
            socket::shutdown(&socket);
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        let had_process = state.has_process();
        let open = core::mem::replace(&mut *state, State::Closed { had_process });
        drop(state);
        drop(open);
    }
}

/// The messages of a link that has ended are taken by no thread any more: closes its descriptors, once the control messages that lie
/// in its socket are read, in a thread that works for the peer's user. Answers may name descriptors in them.
pub(super) fn disconnect(link: &Arc<Link>) {
    // A forked child has copies of its parent's.
    if link.is_forked() {
        return;
    }
    let until_ns = clock::now_ns() + DISCARD_NS_MAX;
    // Nothing of a link that was cut is asked for. And links that end while all of their user's threads are held up are not kept.
    match link.is_cut() || link.users().is_backed_up(link.peer.uid) {
        true => close(link),
        false => disconnect_apart(link, until_ns),
    }
}

fn disconnect_apart(link: &Arc<Link>, until_ns: u64) {
    let (ended, users) = (link.clone(), link.users().clone());
    link.users().expend(link.peer.uid, move || {
        if !inbox::drain(&ended) && clock::now_ns() < until_ns {
            // A message is being taken away, perhaps by a job that waits for this one.
            clock::sleep(AGAIN);
            return disconnect_apart(&ended, until_ns);
        }
        users.at_end(ended.peer.uid, || close(&ended));
    });
}

/// How soon a socket is read again from which a message is being taken away.
const AGAIN: Duration = Duration::from_millis(1);

impl Link {
    /// Where the peer's user is charged.
    pub(crate) const fn users(&self) -> &Arc<Users> {
        &self.connection.users
    }
}

/// Closes the descriptors of a link that has ended: nothing is received by it any more. Threads that use one have it until they are
/// done.
fn close(link: &Link) {
    link.region.stop_looking();
    link.connection.close();
}

/// Sends bytes to the peer, unless the connection is closed (`EPIPE`). Does not block.
pub(crate) fn send_bytes(link: &Link, bytes: &[u8]) -> Result<(), Errno> {
    socket::send(&link.connection.socket()?, bytes, &[])
}
