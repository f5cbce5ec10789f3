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
        "the message has {count} rights and the limit is {PARTS_MAX}, or fewer where one is a receive \
         right to a port with a name; send several messages"
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// The right is to a port of a third process, and this process has no port or no thread left with which to relay its messages.
    #[error(
        "a right to a port of a third process cannot be passed on: this process has no port or thread \
         left to forward its messages; have the recipient connect to that port by name"
    )]
    Third,
    /// The peer has as many rights as it may have of this process ([`Quotas::rights`](crate::Quotas::rights)).
    #[error(
        "the peer holds {limit} rights to ports of this process, the limit; have the peer drop some, or raise the quota (set_quotas)"
    )]
    Exhausted {
        /// How many.
        limit: u32,
    },
    /// The right is to a port that has ended, or was revoked.
    #[error("the right was revoked, or its port has ended; drop it")]
    Dead,
    /// The right came from a third process and is to be sent to the process of its port, which has not yet
    /// identified it; or it is to a port of this process that has moved, and the port's new process has not made room for one
    /// more right: that process has not received at the port for 100 ms.
    #[error(
        "the right's process has not received at its port since a third process gave this process the right, or since the port moved \
         there; have that process receive there, and send the right later"
    )]
    Unsettled,
    /// The right goes through another process, which does not support permissions.
    #[error(
        "permissions cannot be taken from an indirect right, one whose messages pass through another \
         process; have that process attenuate it"
    )]
    Indirect,
    /// The peer's process is gone.
    #[error("the peer's process has ended; the right was not sent")]
    Gone,
    /// The call that the reply right is to answer came from a process that is gone, or has been
    /// answered.
    #[error(
        "the call of the reply right was answered, or its caller has ended; drop the reply right"
    )]
    Answered,
    /// The limit of reply rights that answer to this process is reached at the peer.
    #[error(
        "the peer holds {limit} reply rights of this process, the limit; have the peer answer some calls"
    )]
    Returns {
        /// How many.
        limit: u32,
    },
    /// The limit of descriptors that wait in the peer's process for their messages to be received is reached.
    #[error(
        "{limit} descriptors, the limit, are in messages that the peer has not received; send more once the \
         peer has received some"
    )]
    Unclaimed {
        /// How many.
        limit: u32,
    },
    /// The peer's process does not read its control socket, which is full. Only replies return this: others
    /// wait, as for a full queue.
    #[error(
        "the peer's control socket is full, and a reply does not wait; see whether the peer's process is \
         stopped or overloaded"
    )]
    Unread,
    /// There is no memory in which the bytes of a long message could be lent to the peer, or no descriptor for that memory.
    #[error(
        "no memory, or no descriptor for it, for a message of {len_bytes} bytes; send less at once, or raise RLIMIT_AS, RLIMIT_NOFILE or the \
         memory limit of this process"
    )]
    NoMemory {
        /// The length of the message.
        len_bytes: usize,
    },
    /// The limit of blocks lent to the peer's process and not given back is reached.
    #[error("{limit} blocks, the limit, are lent to the peer; have the peer drop some loans")]
    Loans {
        /// How many.
        limit: u32,
    },
    /// The limit of arenas whose blocks the peer's process has been lent, and which have not ended or have
    /// blocks not given back, is reached.
    #[error(
        "the peer has been lent blocks of {limit} arenas, the limit; lend blocks of those arenas, or drop an \
         arena whose blocks have all come back"
    )]
    Arenas {
        /// How many.
        limit: u32,
    },
    /// A loan cannot be sent on by its borrower.
    #[error(
        "a borrower cannot send a loan on; copy its bytes into a message, memory or a block of an arena of this process"
    )]
    Loan,
    /// The right belongs to another [node](crate::Node) of this process than the right by which it was to be sent.
    #[error(
        "the right belongs to another node of this process; send it by a send right of that node"
    )]
    OtherNode,
    /// A block cannot be lent through an indirect right: the process that relays the messages of the right could not send the block
    /// on.
    #[error(
        "a block, or a port that shares a receiver, cannot go through an indirect right, one whose messages pass through another process; \
         send the bytes, memory or a port with a receiver of its own instead"
    )]
    Vine,
    /// The right, or the block's arena, was made before a `fork` and does not exist in the child.
    #[error(
        "the right or block was made before fork() and does not exist in the child; connect, mint or make an arena in the child"
    )]
    Forked,
    /// The kernel does not send the descriptor.
    #[error("{}", why_refused(*.errno))]
    Refused {
        /// Its reason.
        errno: Errno,
    },
    /// The right was lost on its way here and cannot be sent on.
    #[error(
        "a placeholder (Right::Lost) cannot be sent: this process had no free descriptor, mapping or port to receive the attachment; drop it"
    )]
    Lost,
    /// Ports share the receiver of this one, or have shared it.
    #[error(
        "a port whose receiver others share, or have shared, does not move; send the ports that share it, or a port with a receiver of its own"
    )]
    Shared,
    /// The port shares a receiver, and an answer comes to no receiver that it could share.
    #[error(
        "a port that shares a receiver cannot go with an answer, which comes to no receiver; send the port with a message"
    )]
    NoReceiver,
    /// So many ports have moved from this process and have senders that still go through it: ports that shared receivers, or others that
    /// went to the same process.
    #[error(
        "{limit} ports that moved from this process the same way have senders that still go through it, the limit; receive, and wait for some with wait_moved_timeout"
    )]
    Trails {
        /// How many may have.
        limit: u32,
    },
    /// So many send-once rights to the port are not used: more do not move with it.
    #[error(
        "the port has more than {limit} unused send-once rights, the limit of a port that moves; receive their messages first"
    )]
    SendOnce {
        /// How many may be.
        limit: u32,
    },
    /// Unused send-once rights to the port would go along, and so many ports that have moved from here wait for such rights still.
    #[error(
        "{limit} ports that moved from this process have unused send-once rights, the limit; wait for some with wait_moved_timeout, or receive the messages of this port's send-once rights first"
    )]
    SendOnceTrails {
        /// How many may wait.
        limit: u32,
    },
    /// The receive right is of the port that the message goes to, where nobody could receive it.
    #[error(
        "a receive right cannot be sent to its own port, where nobody could receive the message; send it to another port"
    )]
    Home,
}

fn why_refused(errno: Errno) -> String {
    if errno == handfast_sys::Errno::TOOMANYREFS.into() {
        return "too many descriptors of this user are in messages that were not received (RLIMIT_NOFILE); raise it, or have them received"
            .into();
    }
    format!(
        "the kernel refused to send the descriptor ({errno}); some kinds cannot leave their process"
    )
}
