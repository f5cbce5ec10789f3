//! Descriptors that peers have sent, or whose queues they fill.

use super::closing::{Ended, Job};
use super::{Charge, Users};
use handfast_proto::users::Quota;
use handfast_sys::AsFd;
use handfast_sys::BorrowedFd;
use handfast_sys::Errno;
use handfast_sys::OwnedFd;
use std::sync::Arc;

/// A descriptor that has come from a peer, or one whose queue peers fill. Dropping it never blocks: it is closed by its
/// user's closing thread, and counts against the user until then.
pub(crate) struct Foreign {
    fd: Option<Arc<OwnedFd>>,
    users: Arc<Users>,
    user: u32,
    charge: Option<Charge>,
    /// A message is taken from its queue before it is closed, so that its peer reads what it was answered.
    has_unread: bool,
}

impl Foreign {
    pub(crate) fn new(users: &Arc<Users>, user: u32, fd: OwnedFd) -> Self {
        Self {
            fd: Some(Arc::new(fd)),
            users: users.clone(),
            user,
            charge: None,
            has_unread: false,
        }
    }

    /// A descriptor that counts already.
    pub(crate) fn charged(fd: OwnedFd, charge: Charge) -> Self {
        let mut foreign = Self::new(&charge.users, charge.user, fd);
        foreign.charge = Some(charge);
        foreign
    }

    /// A message was left in its queue, because of the descriptors that came with it.
    pub(crate) const fn has_unread(&mut self) {
        self.has_unread = true;
    }

    /// Another one of the same peer.
    pub(crate) fn beside(&self, fd: OwnedFd) -> Self {
        Self::new(&self.users, self.user, fd)
    }

    /// Another one of the same peer, which counts against its user. `None`, and it is closed, where that has too many.
    pub(crate) fn charged_beside(&self, fd: OwnedFd) -> Option<Self> {
        match self.users.charge(self.user, Quota::Descriptors, 1) {
            Ok(charge) => Some(Self::charged(fd, charge)),
            Err(_) => {
                drop(self.beside(fd));
                None
            }
        }
    }

    /// The descriptor is the application's from now on, and does not count any more until it is closed.
    pub(crate) fn uncharged(mut self) -> Self {
        self.charge = None;
        self
    }

    /// Where its user's descriptors are counted.
    pub(crate) const fn users(&self) -> &Arc<Users> {
        &self.users
    }

    fn fd(&self) -> &Arc<OwnedFd> {
        self.fd.as_ref().expect("it is there until the end")
    }

    /// A socket: sends a message with descriptors, which count against the user until its process has received them. `ENOBUFS`
    /// where the user has too many in flight already. One system call more than a message without.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.users.send((self.user, self.fd()), bytes, fds)
    }

    /// A socket: whether the peer has received all descriptors that were sent through it.
    pub(crate) fn has_received(&self) -> bool {
        self.users.has_received(self.user, self.fd())
    }

    /// The descriptor, whose end is up to the caller from now on. No message has been sent through it.
    pub(crate) fn into_inner(mut self) -> OwnedFd {
        self.charge = None;
        let fd = self.fd.take().expect("it is there until the end");
        Arc::into_inner(fd).expect("only sockets of links send")
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // In a forked child it is a copy: its parent has the last one.
        let Some(fd) = self.fd.take().filter(|_| !self.users.is_forked()) else {
            return;
        };
        let charge = self.charge.take().unwrap_or_else(|| {
            let mut charge = self.users.nothing(self.user, Quota::Descriptors);
            charge.force(1);
            charge
        });
        let ended = Ended::new(fd, self.has_unread, charge);
        self.users.enqueue(self.user, Job::Close(ended));
    }
}

/// Memory from this size on is freed where that holds up no thread: 1 GiB takes some 70 ms.
const MUCH_BYTES: usize = 1 << 20;

/// Memory that a peer may have sent. Whichever thread drops it, a peer's pages, if they are many, are freed by its user's closing
/// thread.
pub(crate) struct ForeignMemory<T: Send + 'static> {
    memory: Option<T>,
    from: Option<(Arc<Users>, u32)>,
}

impl<T: Send + 'static> ForeignMemory<T> {
    /// Memory of this process.
    pub(crate) const fn own(memory: T) -> Self {
        Self {
            memory: Some(memory),
            from: None,
        }
    }

    /// Memory that came by that socket.
    pub(crate) fn from(socket: &Foreign, memory: T, len_bytes: usize) -> Self {
        let is_much = len_bytes >= MUCH_BYTES;
        Self {
            memory: Some(memory),
            from: is_much.then(|| (socket.users.clone(), socket.user)),
        }
    }

    pub(crate) const fn get(&self) -> &T {
        self.memory.as_ref().expect("it is there until the end")
    }

    pub(crate) const fn get_mut(&mut self) -> &mut T {
        self.memory.as_mut().expect("it is there until the end")
    }

    /// Memory made of this. The calling thread frees what it is not made of.
    pub(crate) fn try_map<U: Send + 'static, E>(
        mut self,
        make: impl FnOnce(T) -> Result<U, E>,
    ) -> Result<ForeignMemory<U>, E> {
        let memory = self.memory.take().expect("it is there until the end");
        let from = self.from.take();
        make(memory).map(|memory| ForeignMemory {
            memory: Some(memory),
            from,
        })
    }
}

impl<T: Send + 'static> Drop for ForeignMemory<T> {
    fn drop(&mut self) {
        let memory = self.memory.take();
        if let Some((users, user)) = self.from.take()
            && !users.is_forked()
        {
            users.expend(user, move || drop(memory));
        }
    }
}
