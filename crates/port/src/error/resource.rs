//! Errors of making descriptors and memory.

use super::{Errno, Exhausted, Os};

/// The errors of making descriptors and memory, sorted.
#[derive(Debug)]
pub enum Resource {
    /// Descriptors or memory ran out.
    Exhausted(Exhausted),
    /// The sandbox forbids memory files.
    NoMemoryFiles(Os),
    /// Anything else.
    Os(Os),
}

impl Resource {
    /// Sorts the error of a system call.
    #[must_use]
    pub fn of(call: &'static str, errno: impl Into<Errno>) -> Self {
        use handfast_sys::Errno;
        let os = Os {
            call,
            errno: errno.into(),
        };
        match Errno::from_raw_os_error(os.errno.raw_os_error()) {
            Errno::MFILE => Self::Exhausted(Exhausted {
                what: "descriptors of this process",
                advice: Some("raise RLIMIT_NOFILE"),
                limit: handfast_sys::process::descriptor_limit(),
            }),
            Errno::NFILE => Self::Exhausted(Exhausted {
                what: "descriptors of the system",
                advice: Some("raise fs.file-max"),
                limit: 0,
            }),
            Errno::NOSPC if call == "epoll_ctl" => Self::Exhausted(Exhausted {
                what: "descriptors that a user may wait for",
                advice: Some("raise fs.epoll.max_user_watches"),
                limit: 0,
            }),
            Errno::NOMEM | Errno::NOSPC => Self::Exhausted(MEMORY),
            Errno::NOSYS | Errno::PERM if call == "memfd_create" => Self::NoMemoryFiles(os),
            _ => Self::Os(os),
        }
    }
}

impl From<Resource> for Exhausted {
    /// For operations with no other errors: any other refusal of a system call counts as a lack of room.
    fn from(resource: Resource) -> Self {
        match resource {
            Resource::Exhausted(exhausted) => exhausted,
            Resource::NoMemoryFiles(_) => Self {
                what: "memory files, which this sandbox forbids",
                advice: Some("allow memfd_create in its filter"),
                limit: 0,
            },
            Resource::Os(_) => MEMORY,
        }
    }
}

const MEMORY: Exhausted = Exhausted {
    what: "memory",
    advice: Some("ask for less, or raise the control group's limit, RLIMIT_AS or vm.max_map_count"),
    limit: 0,
};
