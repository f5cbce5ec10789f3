//! A bound port.

use crate::port::local::Local;
use crate::port::notices::Notices;
use crate::process::Process;
use crate::rank;
use crate::seal::Seal;
use crate::users::Foreign;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use handfast_proto::rights::Handle;
use handfast_sys::sync::Mutex;
use receiver::Receiver;
use std::sync::{Arc, OnceLock};

pub(crate) mod exported;
pub(crate) mod local;
pub(crate) mod notice;
pub(crate) mod notices;
pub(crate) mod own;
pub(crate) mod ports;
pub(crate) mod receiver;

/// A bound port: the state its receive right and the control thread share. On lines of its own: its receiver writes
/// there.
pub(crate) struct Port {
    /// Where its messages are received, and the number of that.
    pub(crate) at: Arc<Receiver>,
    pub(crate) receiver: u32,
    /// Index that messages name: the receiver and a generation.
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) process: Arc<Process>,
    /// The notices for its receiver. The poller has them too.
    pub(crate) notices: Arc<Notices>,
    /// The rights of this process to it.
    own: Mutex<own::Table, rank::OwnRights>,
    /// Where it has moved to; and by which link it has come.
    pub(crate) home: OnceLock<Arc<dyn NewHome>>,
    /// The port is on its way there.
    pub(crate) is_leaving: AtomicBool,
    pub(crate) came_from: OnceLock<u32>,
    /// The socket behind a name that came with the port, once a thread accepts there.
    pub(crate) taken_up: OnceLock<Arc<Foreign>>,
    /// The server of the port inside this process.
    pub(crate) served: OnceLock<Arc<Local>>,
    /// The port's receive right is being dropped.
    pub(crate) is_closing: AtomicBool,
    /// It is the hidden port of the node's vine.
    pub(crate) is_vine: AtomicBool,
    /// It is the port of one send-once right.
    pub(crate) once: Option<Once>,
    /// The send-once rights that have come with it from its old home.
    pub(crate) once_came: AtomicU32,
}

/// Send-once rights that are not used and move with their port.
pub(crate) const ONCE_MOVED_MAX: u32 = 4096;

/// The port of a send-once right: it shares the receiver of the port that the right is to, and takes one message for that port.
pub(crate) struct Once {
    pub(crate) badge: u64,
    is_used: AtomicBool,
}

impl Once {
    pub(crate) const fn new(badge: u64) -> Self {
        Self {
            badge,
            is_used: AtomicBool::new(false),
        }
    }

    /// Its message has come.
    pub(crate) fn set_used(&self) {
        // Relaxed, here and below: the poller's lock orders those that take a message or a notice. A thread without that lock
        // leaves to them what it does not see yet.
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Whether its message has come.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }
}

/// Why there is no right to a port that has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRight {
    /// It has ended at its new home, the link there has, or the right was revoked.
    Over,
    /// The process of its new home takes nothing.
    NotYet,
}

/// Where a port has moved to, as the node that it has left knows that (`moving`).
pub(crate) trait NewHome: Send + Sync {
    /// A right to the old port has been given to a peer, or it has got a name for one: the control thread tells it.
    fn exported(&self);

    /// Control thread: tells the peers that have got a right to `port` since it moved, if there are some.
    fn tell_new_holders(&self, port: &Port);

    /// The right by which what came here with this seal goes on: a `SendRight`, which may itself hold a port, so that this module does
    /// not know the type. Waits for room in the lane to the new home, if it `may_wait` and this is not the control thread: as long as for
    /// that process's word on a right.
    fn right(&self, seal: Seal, may_wait: bool) -> Result<Arc<dyn Any + Send + Sync>, NoRight>;

    /// The link with this number has ended.
    fn link_ended(&self, link: u32);

    /// A peer has given back what it has got by a handle, on the link with that number, and more is under way: whether it is to be
    /// told again.
    fn tell_again(&self, right: (u32, Handle)) -> bool;
}

impl Port {
    /// The number of the port of a receiver with a generation.
    pub(crate) const fn number((receiver, generation): (u32, u32)) -> u32 {
        receiver | generation << 8
    }

    /// The port with this number, of a receiver of its own.
    pub(crate) fn new(at: Arc<Receiver>, id: u32, name: &str, notices: Arc<Notices>) -> Self {
        Self {
            receiver: at.index,
            process: at.process.clone(),
            at,
            id,
            name: name.to_owned(),
            notices,
            own: Mutex::default(),
            home: OnceLock::new(),
            taken_up: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            came_from: OnceLock::new(),
            served: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            is_vine: AtomicBool::new(false),
            once: None,
            once_came: AtomicU32::new(0),
        }
    }

    /// A port with this number that shares the receiver of `port`; that of a send-once right, if it is one.
    pub(crate) fn member(port: &Self, id: u32, once: Option<Once>) -> Self {
        Self {
            at: port.at.clone(),
            receiver: port.receiver,
            id,
            name: String::new(),
            notices: Arc::default(),
            own: Mutex::default(),
            process: port.process.clone(),
            home: OnceLock::new(),
            taken_up: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            came_from: OnceLock::new(),
            served: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            is_vine: AtomicBool::new(false),
            once,
            once_came: AtomicU32::new(0),
        }
    }
}
