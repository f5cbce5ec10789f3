//! The bells of a peer, mapped.

use crate::error::Resource;
use handfast_layout::bell;
use handfast_region::Region;
use handfast_sys::memory::{Access, Mapping, is_sealed};
use handfast_sys::{AsFd, Errno, shared};

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
    if !is_published && uid != 0 && uid != handfast_sys::process::uid() {
        return Err(Resource::of("fcntl(F_GET_SEALS)", Errno::PERM));
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
