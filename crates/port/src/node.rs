//! Nodes: one process's ends of links, explicitly.

use crate::binding;
use crate::configuration::Configuration;
use crate::connect;
use crate::error::{BindError, ConnectError, Misuse, NodeError, SetError};
use crate::lifecycle;
use crate::limits;
use crate::moving;
use crate::options::Options;
use crate::process::Process;
use crate::quotas::{Quotas, of_peer};
use crate::receive_right::ReceiveRight;
use crate::send::SendRight;
use crate::set::WaitSet;
use core::time::Duration;
use handfast_sys::socket::Peer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A node: ports, links, a control thread and a configuration of their own.
///
/// The free functions ([`bind`](crate::bind), [`connect`](crate::connect) and others) use the [global](Self::global) node. A
/// program makes a node of its own where it must not share the global one: a plug-in, a language binding, a test with several nodes in one
/// process. Nodes of one process are strangers to each other, with the same protocols between them as between processes, except that
/// they do not share links, so each [`connect`](Self::connect) between them makes one.
///
/// A right belongs to the node that got it. Sent by a right of another node of the process, it is refused with
/// [`RightError::OtherNode`](crate::error::RightError::OtherNode).
///
/// A clone is the same node. A node ends by [`shutdown`](Self::shutdown), or with the process; dropping all handles does not end
/// it. In a forked child a parent's node fails as [`Misuse::Forked`](crate::error::Misuse::Forked).
///
/// ```
/// # let directory = std::env::temp_dir().join(format!("doc-node-{}", std::process::id()));
/// use handfast_port::Node;
///
/// let server = Node::builder().directory(&directory).start()?;
/// let client = Node::builder().directory(&directory).start()?;
/// let port = server.bind("shout")?;
/// let thread = std::thread::spawn(move || {
///     let request = port.receive().unwrap();
///     let shout = request.bytes().to_ascii_uppercase();
///     request.reply(&shout).unwrap();
/// });
/// assert_eq!(&*client.connect("shout")?.call(b"hello")?, b"HELLO");
/// # thread.join().unwrap();
/// client.shutdown();
/// server.shutdown();
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Node {
    process: Arc<Process>,
}

/// The configuration of a node to come: [`Node::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeBuilder {
    configuration: Configuration,
}

impl NodeBuilder {
    /// Sets the directory of the node's names; `/run/handfast` unless it is set, or set to an empty path. The permissions of the directory are the
    /// access control, see [`rendezvous::directory`](crate::rendezvous::directory).
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.configuration.set_directory(directory.into());
        self
    }

    /// Sets how those ports and rights of the node wait that have no options of their own.
    pub fn options(mut self, options: Options) -> Self {
        self.configuration.options = options;
        self
    }

    /// Sets whether the node makes links with processes that others introduce it to; `true` unless it is set. Without such links,
    /// the messages of rights to their ports go through the process that gave them.
    pub fn direct_introductions(mut self, direct: bool) -> Self {
        self.configuration.meets_strangers = direct;
        self
    }

    /// Starts the node, which takes a control thread and six descriptors, until it is shut down and its handles are dropped. The first node of a process also
    /// measures the machine, in about 5 ms, and registers for `membarrier`, in 10 to 20 ms more where the process has several threads by then.
    ///
    /// # Errors
    /// [`NodeError`], without descriptors, memory or threads.
    pub fn start(self) -> Result<Node, NodeError> {
        let process = lifecycle::start(self.configuration)?;
        Ok(Node { process })
    }
}

impl Node {
    /// The node of the free functions, configured by the environment. Started on the first use; after its
    /// [`shutdown`](Self::shutdown) the next use starts another.
    ///
    /// # Errors
    /// The errors of [`NodeBuilder::start`].
    pub fn global() -> Result<Self, NodeError> {
        let process = lifecycle::current()?;
        Ok(Self { process })
    }

    /// Builds a node that the environment does not configure.
    pub fn builder() -> NodeBuilder {
        NodeBuilder {
            configuration: Configuration::new(),
        }
    }

    /// The directory of the node's names.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.process.configuration.directory()
    }

    /// Like [`bind`](crate::bind), by this node.
    ///
    /// # Errors
    /// The errors of [`bind_with`](crate::bind_with).
    pub fn bind(&self, name: &str) -> Result<ReceiveRight, BindError> {
        self.bind_with(name, Options::new())
    }

    /// Like [`bind_with`](crate::bind_with), by this node.
    ///
    /// # Errors
    /// The errors of [`bind_with`](crate::bind_with).
    pub fn bind_with(&self, name: &str, options: Options) -> Result<ReceiveRight, BindError> {
        binding::bind_at(&self.process, name, options)
    }

    /// Like [`anonymous`](crate::anonymous), by this node.
    ///
    /// # Errors
    /// The errors of [`anonymous_with`](crate::anonymous_with).
    pub fn anonymous(&self) -> Result<ReceiveRight, BindError> {
        self.anonymous_with(Options::new())
    }

    /// Like [`anonymous_with`](crate::anonymous_with), by this node.
    ///
    /// # Errors
    /// The errors of [`anonymous_with`](crate::anonymous_with).
    pub fn anonymous_with(&self, options: Options) -> Result<ReceiveRight, BindError> {
        self.process.check()?;
        Ok(binding::nameless(&self.process, options)?)
    }

    /// Like [`connect`](crate::connect), by this node.
    ///
    /// # Errors
    /// The errors of [`connect_with`](crate::connect_with).
    pub fn connect(&self, name: &str) -> Result<SendRight, ConnectError> {
        self.connect_with(name, Options::new())
    }

    /// Like [`connect_with`](crate::connect_with), by this node.
    ///
    /// # Errors
    /// The errors of [`connect_with`](crate::connect_with).
    pub fn connect_with(&self, name: &str, options: Options) -> Result<SendRight, ConnectError> {
        connect::connect_at(&self.process, name, (options, None))
    }

    /// Like [`connect_timeout`](crate::connect_timeout), by this node.
    ///
    /// # Errors
    /// The errors of [`connect_timeout`](crate::connect_timeout).
    pub fn connect_timeout(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<SendRight, ConnectError> {
        connect::connect_at(&self.process, name, (Options::new(), Some(timeout)))
    }

    /// As [`connect_deadline`](crate::connect_deadline), by this node.
    ///
    /// # Errors
    /// As there.
    pub fn connect_deadline(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<SendRight, ConnectError> {
        self.connect_timeout(name, connect::left_until(deadline))
    }

    /// Like [`WaitSet::with`], for ports of this node.
    ///
    /// # Errors
    /// The errors of [`WaitSet::with`].
    pub fn wait_set(&self, options: Options) -> Result<WaitSet, SetError> {
        WaitSet::of(self.process.clone(), options)
    }

    /// Like [`set_quotas`](crate::set_quotas), for peers of this node.
    ///
    /// # Errors
    /// In a forked child, or once the node was shut down. No [`NodeError`]: the node has started.
    pub fn set_quotas(&self, quotas: Quotas) -> Result<(), Misuse> {
        self.set_quotas_by(move |_| quotas)
    }

    /// Like [`set_quotas_by`](crate::set_quotas_by), for peers of this node.
    ///
    /// # Errors
    /// The errors of [`Self::set_quotas`].
    pub fn set_quotas_by(
        &self,
        quotas_of: impl Fn(&Peer) -> Quotas + Send + Sync + 'static,
    ) -> Result<(), Misuse> {
        limits::set_at(&self.process, of_peer(quotas_of))
    }

    /// Like [`wait_moved_timeout`](crate::wait_moved_timeout), for ports of this node. `false` in a forked child, and once the node was shut
    /// down while a port needed it.
    #[must_use]
    pub fn wait_moved_timeout(&self, timeout: Duration) -> bool {
        moving::wait_moved_at(&self.process, timeout)
    }

    /// Ends the node, in this order: nobody can connect any more; its links end, so that peers find
    /// [`Gone::Process`](crate::error::Gone::Process) (senders that have not followed a port which has moved here may find [`Gone::Reply`](crate::error::Gone::Reply)); calls of this node and its receivers
    /// wake, and fail with [`Misuse::Shutdown`](crate::error::Misuse::Shutdown), as does all further use of its handles that needs the node; its
    /// control thread ends, and this waits for that end. A connect under way ends with its own error, within its time limit.
    ///
    /// Messages that wait in its ports can still be received, until their receive rights are dropped. Calls among them have ended at
    /// their callers with [`Gone::Process`](crate::error::Gone::Process), and are not answered any more. Names are removed when their [`ReceiveRight`]s are dropped, and can be bound again before. Memory and descriptors of the node are given
    /// back when its handles have been dropped. Blocks for some milliseconds; a waker or a subscriber that the control thread
    /// runs does not wait for that thread. Once is enough; a second call does nothing.
    pub fn shutdown(&self) {
        lifecycle::shutdown(&self.process);
    }

    #[cfg(all(test, feature = "simulation"))]
    pub(crate) const fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl core::fmt::Debug for Node {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Node")
            .field("directory", &self.directory())
            .finish_non_exhaustive()
    }
}
