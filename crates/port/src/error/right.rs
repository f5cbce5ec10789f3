//! Why rights do not go with a message.

use handfast_layout::PARTS_MAX;
use handfast_sys::error::Errno;

/// Why rights were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RightError {
    /// A message has more rights than it can carry: four, and fewer where ports with names move in it
    /// ([`Right::Receive`](crate::Right::Receive)).
    #[error(
        "the message has {count} rights and the limit is {PARTS_MAX}, or fewer where ports with names \
         move; send several messages"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// The right is to a port of a third process, and there is no port or thread left for the vine.
    #[error(
        "a right to a port of a third process cannot be passed on: this process has no port or thread \
         left for that; have the receiver connect to the port by its name"
    )]
    Third,
    /// The peer has as many rights as it may have of this process ([`Quotas::rights`](crate::Quotas::rights)).
    #[error("the peer has {limit} rights to ports of this process, the limit; have it drop some")]
    Exhausted {
        /// How many.
        limit: u32,
    },
    /// The right is to a port that has ended, or was revoked.
    #[error("the right is to a port that is no more, or was revoked; drop it")]
    Dead,
    /// The right came from a third process and is to be sent to the process of its port, which has not yet
    /// identified it: that process has not received at the port for 100 ms.
    #[error(
        "the peer has not received at the right's port since the right was got from a third process; send \
         it later"
    )]
    Unsettled,
    /// The right goes through another process, which does not support permissions.
    #[error(
        "the right goes through another process, for now at least, where none can be taken away; have its \
         giver do so"
    )]
    Indirect,
    /// The peer's process is gone.
    #[error("the peer's process is gone; give the right to another")]
    Gone,
    /// The call that the reply right is to answer came from a process that is gone, or has been
    /// answered.
    #[error("the reply right has nobody to answer any more: its caller is gone; drop it")]
    Answered,
    /// The limit of reply rights that answer to this process is reached at the peer.
    #[error("the peer holds {limit} reply rights of this process, the limit; have it answer some")]
    Returns {
        /// How many.
        limit: u32,
    },
    /// The limit of descriptors that wait in the peer's process for their messages to be received is reached.
    #[error(
        "{limit} descriptors, the limit, wait at the peer for their messages to be received; send more \
         once it has received some"
    )]
    Unclaimed {
        /// How many.
        limit: u32,
    },
    /// The peer's process does not read its control socket, which is full. Only replies return this: others
    /// wait, as for a full queue.
    #[error(
        "the peer does not read its control socket, and a reply does not wait; its process is stopped or \
         overloaded"
    )]
    Unread,
    /// There is no memory in which the bytes of a long message could be lent to the peer.
    #[error(
        "no memory for {len_bytes} bytes to be lent to the peer; send less at once, or raise the limits of this process"
    )]
    NoMemory {
        /// The length of the message.
        len_bytes: usize,
    },
    /// The limit of blocks lent to the peer's process and not given back is reached.
    #[error("{limit} blocks, the limit, are lent to the peer; have it drop some")]
    Loans {
        /// How many.
        limit: u32,
    },
    /// The limit of arenas whose blocks the peer's process has been lent, and which have not ended or have
    /// blocks not given back, is reached.
    #[error(
        "the peer has been lent blocks of {limit} arenas, the limit; lend blocks of those, or drop an \
         arena whose blocks have all been given back"
    )]
    Arenas {
        /// How many.
        limit: u32,
    },
    /// A loan cannot be sent on by its borrower.
    #[error(
        "a loan cannot be sent on; copy its bytes into a message, memory or a block of an arena of this process"
    )]
    Loan,
    /// The right belongs to another [node](crate::Node) of this process than the right by which it was to be sent.
    #[error("the right belongs to another node of this process; send it by a right of that node")]
    OtherNode,
    /// A block cannot be lent through a right that goes by the vine: the process in the middle could not send it
    /// on.
    #[error(
        "no link leads straight to the port's process yet, and blocks are lent to the process at the \
         other end of a link only; send the bytes or memory instead"
    )]
    Vine,
    /// The right, or the block's arena, was made before a `fork` and does not exist in the child.
    #[error(
        "the right or block was made before fork() and is not there in the child; connect, mint or make an arena there"
    )]
    Forked,
    /// The kernel does not send the descriptor.
    #[error("{}", why_refused(*.errno))]
    Refused {
        /// Its reason.
        errno: Errno,
    },
    /// The right was lost on its way here and cannot be sent on.
    #[error("what came with the message was lost for want of room in this process; drop it")]
    Lost,
    /// Ports that share the receiver of this one do not move yet.
    #[error(
        "other ports share the receiver of this one, or did; send a port whose receiver is its own"
    )]
    Shared,
    /// So many send-once rights to the port are not used: more do not move with it.
    #[error(
        "more than {limit} send-once rights to the port are not used, the limit of a port that moves; receive their messages first"
    )]
    SendOnce {
        /// How many may be.
        limit: u32,
    },
    /// Unused send-once rights to the port would go along, and so many ports that have moved from here wait for such rights still.
    #[error(
        "{limit} ports that moved from here wait for send-once rights that are not used, the limit; wait for some with wait_moved, or receive the messages of this port's first"
    )]
    SendOnceTrails {
        /// How many may wait.
        limit: u32,
    },
    /// The receive right is of the port that the message goes to, where nobody could receive it.
    #[error(
        "the message goes to the port of this receive right, where nobody could receive it then; send it to another port"
    )]
    Home,
}

fn why_refused(errno: Errno) -> String {
    if errno == handfast_sys::Errno::TOOMANYREFS.into() {
        return "this user has too many descriptors on their way between processes; raise RLIMIT_NOFILE, or have them received"
            .into();
    }
    format!(
        "the kernel does not send the descriptor ({errno}); it may be of a kind that stays with its process"
    )
}
