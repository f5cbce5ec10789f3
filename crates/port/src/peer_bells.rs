//! The bells of a peer, mapped.

use crate::error::Resource;
use handfast_layout::{PAGE, bell};
use handfast_region::Region;
use handfast_sys::memory::{self, Access, Mapping, is_sealed};
use handfast_sys::{AsFd, BorrowedFd, Errno, shared};

/// The bells of a peer.
pub(crate) struct PeerBells {
    pub(crate) region: Region,
    /// Only their owner writes the bells.
    pub(crate) is_published: bool,
}

/// Maps the bells that a peer of user `uid` sent, after checking that the file cannot shrink under us, nor lose pages by
/// another user's doing.
pub(crate) fn map_peer_bells(fd: impl AsFd, uid: u32) -> Result<PeerBells, Resource> {
    let os = |call| move |errno| Resource::of(call, errno);
    let fd = fd.as_fd();
    if !is_sealed(fd, bell::REGION_BYTES).map_err(os("fcntl(F_GET_SEALS)"))? {
        return Err(Resource::of("fcntl(F_GET_SEALS)", Errno::PERM));
    }
    let is_published = shared::is_whole(fd).map_err(os("fcntl(F_GET_SEALS)"))?;
    // A process that may stop this one need not be feared; and for root, a process that bound as root counts as
    // its own user's.
    let is_foreign = uid != 0 && uid != handfast_sys::process::uid();
    if !is_published && is_foreign {
        return Err(Resource::of("fcntl(F_GET_SEALS)", Errno::PERM));
    }
    if is_foreign && !has_pages(fd) {
        // Looking at them would make them, and pay for them.
        return Err(Resource::of("cachestat", Errno::NOMEM));
    }
    let access = match is_published {
        true => Access::Read,
        false => Access::ReadWrite,
    };
    let mapping = Mapping::new(fd, bell::REGION_BYTES, access).map_err(os("mmap"))?;
    Ok(PeerBells {
        region: Region::mapped(mapping),
        is_published,
    })
}

/// Whether the owner has touched all pages. Where the kernel does not tell, it is as between processes of one user.
fn has_pages(fd: BorrowedFd<'_>) -> bool {
    match memory::pages_in(fd, 0, bell::REGION_BYTES) {
        Ok(there) => there == (bell::REGION_BYTES / PAGE) as u64,
        Err(errno) => matches!(errno, Errno::NOSYS | Errno::PERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_region::Memory;

    /// The one that rang made the pages, and had them charged to it for as long as the owner kept them.
    #[test]
    fn bells_of_another_user_without_pages_are_refused() {
        const OTHER: u32 = 3_000_000_128;
        let refused = |touched: usize| {
            let (fd, mapping) = memory::create_owner_written("bells", bell::REGION_BYTES).unwrap();
            let region = Region::mapped(mapping);
            for page in 0..touched {
                region.store(page * PAGE, 0, core::sync::atomic::Ordering::Relaxed);
            }
            map_peer_bells(&fd, OTHER).is_err()
        };
        if memory::pages_in(memory::create_sealed("", PAGE).unwrap(), 0, PAGE).is_ok() {
            assert_eq!([0, 3, 4].map(refused), [true, true, false]);
        }
    }
}
