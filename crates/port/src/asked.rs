//! Asking for notices (`notice`).

use crate::link::deaths::{self, DeathNotice, HearsOfDeaths};
use crate::member::MemberPort;
use crate::port::notice::{ask_no_senders, watched_ended};
use crate::port::{Port, own};
use crate::receive_right::ReceiveRight;
use crate::send::{self, SendRight, claimed, route};
use crate::{introduce, links};
use std::sync::{Arc, Weak};

/// As [`ask_no_senders`], of rights with this badge.
pub(crate) fn ask_no_senders_of(port: &Port, badge: u64) {
    let (process, notices) = (&port.process, &port.notices);
    notices.watch(badge);
    let own = {
        let own = own::table(port);
        let known = own.get(&badge).and_then(Weak::upgrade);
        known.inspect(|own| own.watch())
    };
    // Outside of the lock: it may be the last.
    drop(own);
    for (of, is_watched) in introduce::provisions(process).targets_mut() {
        if (of.port, of.badge) == (port.id, badge) && !*is_watched {
            *is_watched = notices.begin(badge, || 1);
        }
    }
    for link in links::all(process) {
        let mut exports = link.exports();
        notices.begin(badge, || exports.watch(port.id, badge));
    }
    // The search has counted as one.
    watched_ended(port, [(badge, 1)]);
}

impl ReceiveRight {
    /// Asks for one notice, when no right to send to this port is left:
    /// [`Request::notice`](crate::Request::notice). Rights that are under way count; the rights of a peer that
    /// dies end with it. A port that never had a sender gets no notice until it has had one. Comes at most some
    /// 10 ms after the last right has gone.
    ///
    /// A name goes on making rights for connectors, so the last sender may have a successor.
    pub fn notify_no_senders(&self) {
        if self.check().is_err() {
            return;
        }
        ask_no_senders(self.port());
    }

    /// Asks for one notice, when no right with this badge to send to this port is left: [`Notice::NoSendersOf`](crate::Notice::NoSendersOf), for
    /// any number of badges. Rights that are under way count; the rights of a peer that dies end with it. A right minted
    /// before the notice is taken makes the notice wait for the end of that right. Comes at most some 10 ms after the last
    /// such right has gone, and at once when there is none, so ask when there is one.
    ///
    /// A look at the tables of all links, and at rights provided and not claimed; 32 bytes, until the notice has
    /// come.
    pub fn notify_no_senders_of(&self, badge: u64) {
        if self.check().is_err() {
            return;
        }
        ask_no_senders_of(self.port(), badge);
    }
}

impl MemberPort {
    /// Like [`ReceiveRight::notify_no_senders`]; the notice says for [which port](crate::Request::member) it is.
    pub fn notify_no_senders(&self) {
        if self.is_there() {
            ask_no_senders(self.port());
        }
    }

    /// Like [`ReceiveRight::notify_no_senders_of`]; the notice says for [which port](crate::Request::member) it is.
    pub fn notify_no_senders_of(&self, badge: u64) {
        if self.is_there() {
            ask_no_senders_of(self.port(), badge);
        }
    }
}

impl SendRight {
    /// Asks for one notice at `told` when the port of this right is gone, because its receive
    /// right was dropped or its process has ended, or when this right was revoked: [`Request::notice`](crate::Request::notice) says
    /// [`Notice::Dead`](crate::Notice::Dead) with `number`. The notice comes at once if the port is gone already. It comes only
    /// while this process has a right to some port of that process. Each further call asks for a further notice.
    ///
    /// No system call, except to wake the receiver of a notice that comes at once; a lock of the link, and 48 bytes until the notice.
    pub fn notify_death(&self, told: &ReceiveRight, number: u64) {
        if !send::is_forked(self) && told.check().is_ok() {
            ask_death(self, told.port(), number);
        }
    }
}

/// As [`SendRight::notify_death`], of any port of this process.
pub(crate) fn ask_death(right: &SendRight, told: &Arc<Port>, number: u64) {
    let this = route::best(right);
    let asked = DeathNotice {
        of: this.port(),
        handle: this.handle(),
        was: None,
        number,
        told: Arc::downgrade(told) as Weak<dyn HearsOfDeaths>,
    };
    let mut notices = this.link().death_notices();
    // Before more room is needed, which keeps this cheap: notices whose ports are gone.
    if notices.len() == notices.capacity() {
        notices.retain(|asked| asked.told.strong_count() > 0);
    }
    notices.push(asked);
    drop(notices);
    // Before the look: a thread that takes it down after that finds it. So does one that moves it to a port's new home.
    tell_death(this);
    let now = route::best(right);
    if !Arc::ptr_eq(this.link(), now.link()) {
        let new = (&**now.link(), now.port(), now.handle());
        deaths::move_to((this.link(), this.port(), this.handle()), new);
        tell_death(now);
    }
}

/// Reports the end of its port, or of the right, to the ports that wait for it, if that is known.
pub(crate) fn tell_death(right: &SendRight) {
    let (link, handle) = (right.link(), right.handle());
    deaths::tell_death_of(link, right.port(), handle);
    if claimed::is_in_vain(right) {
        deaths::tell_in_vain(link, &[handle]);
    }
}
