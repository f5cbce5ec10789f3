//! Notices to be given when a port of the peer is gone, or a right to it was revoked.

use super::{Link, revoked};
use handfast_proto::rights::Handle;
use std::sync::Weak;

/// A port that is told of the deaths of others.
pub(crate) trait HearsOfDeaths: Send + Sync {
    /// The port that was asked after with this number is gone, or the right to it was revoked.
    fn hear_death(&self, number: u64);
}

/// A request to be told of the death of a port of a peer.
pub(crate) struct DeathNotice {
    /// The peer's port.
    pub(crate) of: u32,
    /// The right to it, or [`OF_MOVED`].
    pub(crate) handle: Handle,
    /// For the latter: the link, and the right there that was asked by.
    pub(crate) was: Option<(u32, Handle)>,
    pub(crate) number: u64,
    pub(crate) told: Weak<dyn HearsOfDeaths>,
}

/// In the place of a right that has not become another at the new home of its port yet.
const OF_MOVED: Handle = 0;

/// Reports the death of a port that is gone, or of a right that was revoked, to the ports that wait for it.
pub(crate) fn tell(link: &Link) {
    tell_of(link, |asked| {
        link.failure(asked.of).is_some() || revoked::is_revoked(link, asked.handle)
    });
}

/// As [`tell`], if one of a port and a right to it is to be reported.
pub(crate) fn tell_death_of(link: &Link, port: u32, handle: Handle) {
    if link.failure(port).is_some() || revoked::is_revoked(link, handle) {
        tell(link);
    }
}

/// As [`tell`], of these rights.
pub(crate) fn tell_by(link: &Link, handles: &[Handle]) {
    tell_of(link, |asked| handles.contains(&asked.handle));
}

/// As [`tell_by`], of rights that were claimed in vain: one to a port that has moved stands for all.
pub(crate) fn tell_in_vain(link: &Link, words: &[Handle]) {
    let imports = link.imports();
    let ports: Vec<_> = words.iter().map(|word| imports.port_of(*word)).collect();
    drop(imports);
    tell_of(link, |asked| match asked.handle {
        OF_MOVED => ports.contains(&Some(asked.of)),
        handle => words.contains(&handle),
    });
}

/// Control thread: the peer says which rights of this process were revoked, or which it has claimed in vain.
pub(crate) fn hear_revoked(link: &Link, in_vain: bool, names: impl Iterator<Item = u32>) {
    let words: Vec<_> = names.collect();
    match in_vain {
        // Messages by them find out themselves, as the port's end.
        true => tell_in_vain(link, &words),
        false => was_revoked(link, &words),
    }
}

/// Rights of this process, to ports of the peer, were revoked.
pub(crate) fn was_revoked(link: &Link, words: &[u32]) {
    let news = revoked::note(link, words);
    if news.is_empty() {
        return;
    }
    // A thread that sends through one of them, or waits for room, looks again.
    link.disturb();
    tell_by(link, &news);
}

fn tell_of(link: &Link, is_gone: impl Fn(&DeathNotice) -> bool) {
    let mut asked = link.death_notices();
    let gone: Vec<_> = asked.extract_if(.., |asked| is_gone(asked)).collect();
    drop(asked);
    for asked in gone {
        if let Some(port) = asked.told.upgrade() {
            port.hear_death(asked.number);
        }
    }
}

/// A port of the peer has moved to where the peer of `to` is, and the right with this name has become the one named there: its death
/// is heard of there, and so is what was asked after by other rights to the port, which become rights there later. Looked for after that.
pub(crate) fn move_to(
    (link, port, name): (&Link, u32, Handle),
    (to, of, new): (&Link, u32, Handle),
) {
    let is_its = |asked: &mut DeathNotice| asked.of == port;
    let mut moved: Vec<_> = link.death_notices().extract_if(.., is_its).collect();
    for asked in &mut moved {
        let was = (link.serial, core::mem::replace(&mut asked.handle, OF_MOVED));
        asked.was.get_or_insert(was);
        asked.of = of;
    }
    let mut there = to.death_notices();
    there.append(&mut moved);
    let has_become = |asked: &&mut DeathNotice| asked.was == Some((link.serial, name));
    for asked in there.iter_mut().filter(has_become) {
        (asked.handle, asked.was) = (new, None);
    }
}
