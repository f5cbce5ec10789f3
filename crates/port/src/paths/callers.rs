//! A process's paths as caller, and what it has asked callers for as replier.

use super::Path;
use super::caller::Root;
use crate::link::Link;
use crate::link::held::Held;
use crate::rank;
use crate::tables::{Table, Which};
use handfast_layout::link::OWN_SET;
use handfast_proto::paths::{PARTIES_MAX, Paths, Source};
use handfast_sys::sync::Mutex;
use std::sync::Arc;

/// A process's table as caller, and what it has asked callers for as replier.
#[derive(Default)]
pub(crate) struct Callers {
    pub(super) core: Paths,
    pub(super) live: Vec<Arc<Path>>,
    pub(super) wanted: Vec<Wanted>,
    pub(super) last_token: u32,
}

/// Replier: a path it has asked a caller for.
pub(super) struct Wanted {
    token: u32,
    /// The caller's link.
    of: Held,
    /// The forwarder's link, and its number for the path.
    pub(super) forwarder: Arc<Link>,
    pub(super) number: u32,
}

impl Callers {
    /// Replier: notes that a path is asked for, of a caller's link, on behalf of a forwarder. By which number it is asked for.
    pub(super) fn want(&mut self, of: Held, (forwarder, number): (Arc<Link>, u32)) -> u32 {
        self.last_token = self.last_token.wrapping_add(1);
        let token = self.last_token;
        self.wanted.push(Wanted {
            token,
            of,
            forwarder,
            number,
        });
        token
    }

    /// Forgets all paths, live ones and those it has asked for.
    pub(super) fn take_all(&mut self) -> (Vec<Arc<Path>>, Vec<Wanted>) {
        (
            core::mem::take(&mut self.live),
            core::mem::take(&mut self.wanted),
        )
    }

    pub(super) fn find(&self, numbers: &[u32]) -> Vec<Arc<Path>> {
        let live = self.live.iter();
        let its = live.filter(|path| numbers.contains(&path.number));
        its.cloned().collect()
    }

    /// Where what comes from `source` is awaited first.
    pub(super) fn root(&self, link: &Arc<Link>, source: Source) -> Option<Root> {
        if source.set <= OWN_SET {
            let link = Arc::downgrade(link);
            let is_own = source.set == OWN_SET;
            return Some(Root { link, is_own });
        }
        let before = self.core.to(source)?;
        let before = self.live.iter().find(|path| path.number == before.path);
        before.map(|path| path.root.clone())
    }

    /// Takes out what a token stands for, if it was the peer of `link` that was asked.
    pub(super) fn wanted(&mut self, token: u32, link: &Link) -> Option<Wanted> {
        let is_it = |wanted: &Wanted| wanted.token == token && wanted.of.serial == link.serial;
        let place = self.wanted.iter().position(is_it)?;
        Some(self.wanted.swap_remove(place))
    }

    /// For how many a forwarder waits.
    pub(super) fn wanted_by(&self, forwarder: &Link) -> usize {
        let its = |wanted: &&Wanted| wanted.forwarder.serial == forwarder.serial;
        self.wanted.iter().filter(its).count()
    }

    /// Takes out the requests to the caller behind an ended link. Requests by a peer that has ended stay: their
    /// caller may grant them still.
    pub(super) fn unwanted(&mut self, ended: &Arc<Link>) -> Vec<Wanted> {
        let is_its = |wanted: &mut Wanted| wanted.of.serial == ended.serial;
        self.wanted.extract_if(.., is_its).collect()
    }
}

/// Paths that callers are asked for on behalf of one forwarder, and have not answered: as many as it may have, and as
/// many again that it has dropped.
pub(super) const WANTED_MAX: usize = 2 * PARTIES_MAX;

#[derive(Default)]
pub(super) struct CallersTable(pub(super) Mutex<Callers, rank::Callers>);

impl Table for CallersTable {
    const WHICH: Which = Which::Callers;
}
