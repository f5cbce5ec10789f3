//! The rights of a link that are about to end.

use crate::rank;
use handfast_proto::rights::Handle;
use handfast_sys::sync::Mutex;
use std::collections::VecDeque;

/// Rights a peer has given back, which end once these calls' replies have been read.
pub(crate) struct GivenBack {
    pub(crate) after: Vec<(u32, u32)>,
    pub(crate) ending: Vec<Handle>,
}

/// The rights of a link that are about to end.
#[derive(Default)]
pub(crate) struct Releases {
    /// Rights of this process to be given back, as soon as the socket takes it.
    pub(crate) owed: Mutex<VecDeque<(Handle, u32)>, rank::Owed>,
    /// Rights the peer has given back, until unread replies have been read.
    pub(crate) back: Mutex<VecDeque<GivenBack>, rank::GivenBack>,
}
