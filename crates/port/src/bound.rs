//! The listener behind a port's name, here or at the port's old home.
//!
//! The socket behind a name that has come with its port is its old home's, too: the old home may turn it into one that
//! blocks at any moment. So it is not used before the application takes the name up. Then a thread of its own accepts
//! there, and hands over to the control thread.

use crate::error::Resource;
use crate::port::Port;
use crate::port::ports;
use crate::process::{Process, token};
use crate::rank;
use crate::rendezvous::{self, SocketFile};
use crate::tables::{Table, Which};
use crate::users::Foreign;
use core::time::Duration;
use handfast_layout::part::Bound as BoundName;
use handfast_proto::users::Quota;
use handfast_sys::poll::{Flag, Poll, Trigger};
use handfast_sys::sync::{Mutex, MutexGuard};
use handfast_sys::{Errno, OwnedFd, clock, socket, thread};
use std::sync::Arc;

/// A name that has come with a receive right, and the socket that listens there.
pub(crate) struct Moving {
    pub(crate) name: BoundName,
    pub(crate) listener: Foreign,
}

/// See the module text.
pub(crate) struct Bound {
    listener: Arc<Foreign>,
    file: SocketFile,
    by: By,
}

/// Takes the connections.
enum By {
    /// The control thread: no other process has the socket.
    ControlThread,
    /// No thread, until the name is taken up; the file it is said to be.
    Nobody((u64, u64)),
    /// A thread, until this is raised.
    Thread(Arc<Flag>),
}

/// Connections to names that have come with their ports, and those ports.
#[derive(Default)]
struct Accepted(Mutex<Vec<(Arc<Port>, Foreign)>, rank::Accepted>);

impl Table for Accepted {
    const WHICH: Which = Which::Accepted;
}

/// The connections that wait for the control thread.
pub(crate) fn accepted(
    process: &Process,
) -> MutexGuard<'_, Vec<(Arc<Port>, Foreign)>, rank::Accepted> {
    process.tables.get::<Accepted>().0.lock()
}

/// So many connections wait for the control thread.
const ACCEPTED_MAX: usize = 64;
/// How long a thread waits where there is no descriptor.
const AGAIN: Duration = Duration::from_millis(10);

impl Bound {
    /// A socket of this process.
    pub(crate) fn own(process: &Process, listener: OwnedFd, file: SocketFile) -> Self {
        let uid = handfast_sys::process::uid();
        Self {
            listener: Arc::new(Foreign::new(&process.users, uid, listener)),
            file,
            by: By::ControlThread,
        }
    }

    /// A listener that has come with its port.
    pub(crate) fn moved(moving: Moving) -> Self {
        Self {
            listener: Arc::new(moving.listener),
            file: SocketFile::none(),
            by: By::Nobody(moving.name.file),
        }
    }

    pub(crate) fn listener(&self) -> &Foreign {
        &self.listener
    }

    /// The description of the file for the next home.
    pub(crate) fn identity(&self) -> (u64, u64) {
        match self.by {
            By::Nobody(file) => file,
            By::ControlThread | By::Thread(_) => self.file.identity(),
        }
    }

    pub(crate) fn remove_file(&self) {
        self.file.remove();
    }

    /// Has the control thread take connections, if it is this process's.
    pub(crate) fn listen(&self, process: &Process, receiver: u32) -> Result<(), Resource> {
        if !matches!(self.by, By::ControlThread) {
            return Ok(());
        }
        let mut listeners = process.listeners.lock();
        if process.is_over() {
            // Connectors are told that nobody listens.
            socket::shutdown(&*self.listener);
            return Ok(());
        }
        listeners.push((receiver, self.listener.clone()));
        // Under the lock: the control thread adds those that it had taken out.
        let listening = token::LISTENER | u64::from(receiver);
        let added = (process.poll).add(&*self.listener, listening, Trigger::Level);
        added.map_err(|errno| Resource::of("epoll_ctl", errno))
    }

    /// No more connections are taken.
    pub(crate) fn deafen(&self, process: &Process, receiver: u32) {
        match &self.by {
            By::ControlThread => {
                let mut listeners = process.listeners.lock();
                listeners.retain(|(of, _)| *of != receiver);
                // Under the lock, as in `listen`.
                process.poll.remove(&*self.listener);
            }
            By::Nobody(_) => {}
            By::Thread(stop) => stop.raise(),
        }
    }

    /// Takes up a name that has come: a thread accepts from now on.
    pub(crate) fn take_up(&mut self, port: &Arc<Port>) -> Result<(), Resource> {
        let By::Nobody(file) = self.by else {
            return Ok(());
        };
        let os = |call| move |errno| Resource::of(call, errno);
        socket::listen_again(&*self.listener, rendezvous::BACKLOG).map_err(os("listen"))?;
        let stop = Arc::new(Flag::new().map_err(os("eventfd"))?);
        let poll = Poll::new().map_err(os("epoll_create1"))?;
        let added = poll.add(&*stop, STOP, Trigger::Level);
        let added = added.and_then(|()| poll.add(&*self.listener, CONNECTION, Trigger::Level));
        added.map_err(os("epoll_ctl"))?;
        let acceptor = Acceptor {
            port: port.clone(),
            _stop: stop.clone(),
            listener: self.listener.clone(),
            poll,
        };
        thread::spawn("handfast-accept", 128 * 1024, move || acceptor.run())
            .map_err(|_| Resource::of("clone", Errno::AGAIN))?;
        self.by = By::Thread(stop);
        let _ = port.taken_up.set(self.listener.clone());
        if port.process.is_over() {
            socket::shutdown(&*self.listener);
        }
        // A name that a port of this process has is not this one's.
        let is_named_so = |other: &Port| {
            other.name == port.name && other.receiver != port.receiver && other.home.get().is_none()
        };
        let own = ports::those(&port.process, is_named_so);
        self.file = SocketFile::moved(
            &port.process.configuration.directory(),
            &port.name,
            if own.is_empty() { file } else { (0, 0) },
        );
        Ok(())
    }
}

const STOP: u64 = 0;
const CONNECTION: u64 = 1;

/// Accepts connections where that may block.
struct Acceptor {
    port: Arc<Port>,
    /// Kept open: a poll set forgets what is closed, and that it was raised.
    _stop: Arc<Flag>,
    listener: Arc<Foreign>,
    poll: Poll,
}

impl Acceptor {
    fn run(&self) {
        handfast_sys::signal::block_all();
        // Connectors so far were told that the old home listens: they try again.
        for _ in 0..rendezvous::BACKLOG {
            if self.wait(Some(0)) != Some(CONNECTION) {
                break;
            }
            if let Ok(early) = socket::accept(&*self.listener) {
                drop(self.listener.beside(early));
            }
        }
        while self.wait(None) == Some(CONNECTION) {
            match socket::accept(&*self.listener) {
                Ok(socket) => self.hand_over(socket),
                // The socket was shut down, by this process's node or by the old home: no connection comes any more.
                Err(Errno::AGAIN) if socket::is_closed(&*self.listener) => return,
                // Another thread was faster.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // The socket listens no more.
                Err(Errno::INVAL | Errno::BADF | Errno::NOTSOCK) => return,
                // No descriptor, no memory.
                Err(_) => clock::sleep(AGAIN),
            }
        }
    }

    /// The first thing to do, if there is any by then.
    fn wait(&self, deadline_ns: Option<u64>) -> Option<u64> {
        let mut events = Vec::new();
        while events.is_empty() {
            self.poll.wait(deadline_ns, &mut events);
            if deadline_ns.is_some() {
                break;
            }
        }
        events.iter().map(|event| event.token).min()
    }

    /// Gives a connection to the control thread, or ends it: its maker tries again.
    fn hand_over(&self, socket: OwnedFd) {
        let Ok(peer) = socket::peer(&socket) else {
            return drop(self.listener.beside(socket));
        };
        let process = &self.port.process;
        let users = &process.users;
        let socket = match users.charge(peer.uid, Quota::Descriptors, 1) {
            Ok(charge) => Foreign::charged(socket, charge),
            Err(_) => return drop(Foreign::new(users, peer.uid, socket)),
        };
        let mut accepted = accepted(process);
        if accepted.len() < ACCEPTED_MAX {
            accepted.push((self.port.clone(), socket));
            drop(accepted);
            process.attention.raise();
        }
    }
}
