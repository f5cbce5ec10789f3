//! Rights to a port that come to the tables of links, and end with them.

use crate::link::{Link, in_force};
use crate::port::Port;
use crate::port::notice::{rights_ended, watched_ended};
use crate::port::own::OwnRight;
use handfast_proto::rights::{Exports, Handle, Refused, Target};
use std::sync::Arc;

/// Gives the peer a right to `port`, or counts one it has as sent once more.
pub(crate) fn export(link: &Link, port: &Port, target: Target) -> Result<Handle, Refused> {
    export_to(link, &mut link.exports(), port, target)
}

/// As [`export`], of something that was found when the process had revoked so many rights. `None`: it
/// has begun to revoke another since, perhaps this one.
pub(crate) fn export_again(
    link: &Link,
    port: &Port,
    target: Target,
    revocations: u64,
) -> Option<Result<Handle, Refused>> {
    let mut exports = link.exports();
    // Under the lock: a revoking thread marks the right before looking here.
    let is_good = !port.process.revocations.have_begun_since(revocations);
    is_good.then(|| export_to(link, &mut exports, port, target))
}

/// As [`export`], of a right of this process. `None`: it was revoked.
#[inline(always)]
pub(crate) fn export_own(link: &Link, own: &OwnRight) -> Option<Result<Handle, Refused>> {
    let mut exports = link.exports();
    // Under the lock: a revoking thread marks the right before looking here.
    if !own.is_good() {
        return None;
    }
    Some(export_to(link, &mut exports, own.port(), own.target()))
}

/// As [`export`], to the old home of the port. `None`: rights with this badge were revoked since the port has come.
pub(crate) fn export_to_trail(
    link: &Link,
    port: &Port,
    target: Target,
) -> Option<Result<Handle, Refused>> {
    let mut exports = link.exports();
    // Under the lock: a revoking thread has the badge refused here, and finds the right otherwise.
    let is_good = exports.may_mint(port.id, target.badge);
    is_good.then(|| export_to(link, &mut exports, port, target))
}

/// Gives the peer its right as the old home of `port`, which has come from there.
pub(crate) fn export_trail(link: &Link, port: &Port) -> Result<Handle, Refused> {
    let mut exports = link.exports();
    let handle = exports.export_trail(port.id, link.quotas.rights())?;
    came_to_be(link, &mut exports, port, (handle, 0))?;
    Ok(handle)
}

#[inline(always)]
fn export_to(
    link: &Link,
    exports: &mut Exports,
    port: &Port,
    target: Target,
) -> Result<Handle, Refused> {
    // The link was granted when it went to the peer first.
    if let Some(handle) = exports.export_known(target) {
        return handle;
    }
    export_new(link, exports, port, target)
}

/// Exports a right that the peer does not have.
#[cold]
fn export_new(
    link: &Link,
    exports: &mut Exports,
    port: &Port,
    target: Target,
) -> Result<Handle, Refused> {
    let handle = exports.export_new(target, link.quotas.rights())?;
    came_to_be(link, exports, port, (handle, target.badge))?;
    if let Some(home) = port.home.get() {
        home.exported();
    }
    Ok(handle)
}

/// Counts a right that the peer has got.
fn came_to_be(
    link: &Link,
    exports: &mut Exports,
    port: &Port,
    (handle, badge): (Handle, u64),
) -> Result<(), Refused> {
    // Under the lock: the peer cannot have given it back before it was counted.
    if !port.notices.added() {
        // Its port has ended since it was found. Not sent yet.
        let _ = exports.release(handle, 1);
        let _ = exports.finish(handle);
        return Err(Refused::Full);
    }
    // From now on the link stays while the peer wants it.
    link.life.usage.grant();
    in_force::count_rights(link, exports);
    port.notices.begin(badge, || exports.watch_new(handle));
    Ok(())
}

/// The link has ended, and with it the peer's rights.
pub(crate) fn end_exports(link: &Link, port_of: impl Fn(u32) -> Option<Arc<Port>>) {
    let ended = link.exports().end();
    watched_have_ended(&ended.watched, &port_of);
    // After that: who has heard that there is no sender drops the port, and hears of no badge any more.
    for (id, count) in ended.ports {
        if let Some(port) = port_of(id) {
            rights_ended(&port, count);
        }
    }
}

/// Rights that were watched have ended in a table.
pub(crate) fn watched_have_ended(watched: &[Target], port_of: impl Fn(u32) -> Option<Arc<Port>>) {
    for watched in watched.chunk_by(|one, next| one.port == next.port) {
        if let Some(port) = port_of(watched[0].port) {
            watched_ended(&port, watched.iter().map(|target| (target.badge, 1)));
        }
    }
}
