//! Revocation: rights become dead, whoever holds them.
//!
//! Rights to a port are in three kinds of tables: the rights of this process, the provided and unclaimed ones, and
//! the exports of each link. A thread that moves a right from one table to another does so under the lock of the
//! destination, and only if no revocation has begun since the right was found, nor was under way then. A revocation
//! first announces that it has begun, and then looks at the tables one by one, so it finds each right in one of them,
//! or is seen.

use crate::link::{Link, revoked};
use crate::member::MemberPort;
use crate::port::{Port, notice, own};
use crate::receive_right::ReceiveRight;
use crate::request::Holder;
use crate::send::{SendRight, route};
use crate::{introduce, links};
use std::sync::Arc;

impl ReceiveRight {
    /// Revokes all rights to this port with this badge: those of other processes, of this one
    /// ([`OwnRight`](crate::OwnRight)), and in messages on their way. Processes that connected by name have rights with
    /// badge zero. A right that is [minted](Self::mint) afterwards with the same badge is another, and good. [Send-once
    /// rights](crate::SendOnceRight) are not revoked.
    ///
    /// A message that was received before this was called may be answered. A message looked at after this has
    /// returned is refused, whenever it was sent: a call ends as [`Gone::Right`](crate::error::Gone::Right), a
    /// one-way message is dropped. For messages in between it may go either way.
    ///
    /// Holders are told unasked: within some milliseconds their sends and calls fail, and each holder that has
    /// [asked](crate::SendRight::notify_death) gets a notice. A holder of many such rights is told of some 4,000 at once, the others
    /// by turns. For the receiver, a revoked right is gone at once
    /// ([`Notice::NoSenders`](crate::Notice::NoSenders)). In the tables of the holder and of this process it
    /// takes up room until the holder has dropped it.
    ///
    /// If this port has come from another process, this also revokes rights with this badge whose messages still go
    /// by that process.
    ///
    /// One system call for each process that holds such a right (for each 124 rights of one that holds many), and a look at the tables
    /// of all links.
    ///
    /// ```
    /// # use handfast_port as handfast;
    /// use handfast::Notice;
    /// let port = handfast::anonymous()?;
    /// let right = port.mint_with(7, 0b11);
    /// assert_eq!(right.attenuate(0b01).permissions(), 0b01);
    /// port.notify_no_senders_of(7);
    /// port.revoke(7);
    /// assert_eq!(port.receive()?.notice(), Some(Notice::NoSendersOf(7)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revoke(&self, badge: u64) {
        if self.check().is_ok() {
            revoke_those(self.port(), badge, None);
        }
    }

    /// Like [`Self::revoke`], for one holder: the rights with this badge that it has, and those that are on their way to
    /// it. Rights that the holder has passed on stay with their new holders, and this process's own rights stay, too. The holder may
    /// be given such a right again, by this process or by any process that has one. The process that this port has come from gets
    /// no such right for senders that still send to it. Nothing happens when the link with
    /// the holder has ended: its rights ended with the link.
    pub fn revoke_from(&self, holder: Holder, badge: u64) {
        if self.check().is_ok() {
            revoke_those(self.port(), badge, Some(holder));
        }
    }
}

impl MemberPort {
    /// Like [`ReceiveRight::revoke`].
    pub fn revoke(&self, badge: u64) {
        if self.is_there() {
            revoke_those(self.port(), badge, None);
        }
    }
}

impl SendRight {
    /// The process that holds the receive right, as a holder of rights to ports of this one: for
    /// [`ReceiveRight::revoke_from`](crate::ReceiveRight::revoke_from).
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder::of(route::best(self).link())
    }
}

pub(crate) fn revoke_those(port: &Port, badge: u64, from: Option<Holder>) {
    let process = &port.process;
    let target = (port.id, badge);
    let mut links = links::all(process).into_iter();
    let holder = from.map(|from| links.find(|link| Holder::of(link) == from));
    if let Some(None) = holder {
        return;
    }
    let holder = holder.flatten();
    let one = process.revocations.one();
    let recipient = holder.as_ref().map(|link| link.identity());
    let own = {
        let mut own = own::table(port);
        // Under the lock: see `OwnRight::home`.
        process.revocations.count();
        let known = holder.is_none().then(|| own.remove(&badge)).flatten();
        let known = known.and_then(|known| known.upgrade());
        known.inspect(|own| own.revoke())
    };
    let provided =
        introduce::provisions(process).revoke(recipient, |(of, _)| (of.port, of.badge) == target);
    let ended = own
        .iter()
        .map(|own| own.is_watched())
        .chain(provided.iter().map(|(_, is_watched)| *is_watched));
    let (mut ended, mut watched) = ended.fold((0, 0), |(ended, watched), is_watched| {
        (ended + 1, watched + u32::from(is_watched))
    });
    // All there are now, after the count.
    for link in links::all(process) {
        let is_of = |of: &Arc<Link>| of.serial == link.serial || link.is_with(of.identity());
        if holder.as_ref().is_none_or(is_of) {
            let revoked = revoked::revoke(&link, target);
            (ended, watched) = (ended + revoked.0, watched + revoked.1);
        }
    }
    process.revocations.count();
    drop(one);
    if watched > 0 {
        notice::watched_ended(port, [(badge, watched)]);
    }
    if ended > 0 {
        notice::rights_ended(port, ended);
    }
}
