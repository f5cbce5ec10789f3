//! Rights that the peer has as the old home of ports which have come from it.
//!
//! By such a right the peer asks for the rights of those who still send to the old home, and tells what was to be told there. It is
//! no sender's, so revoking a badge does not end it. Rights with a badge that was revoked since the port has come are
//! refused to it: they would be the revoked ones, made once more.
//!
//! Senders that the exporter does not know of may have rights with any badge there. So a badge that is asked after, and not refused,
//! has a sender as long as the old home has its right.

use super::exports::{Exports, Revoked, Standing};
use super::target::Target;
use super::trail::{REFUSED_MAX, Trail};
use super::{Handle, Refused, index};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Exports {
    /// Gives the peer, from which `port` has come, its right as the old home of that port. It is counted and given back as
    /// others, and counts as one with each badge until that badge is revoked; but it is no right to send.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::Over`].
    pub fn export_trail(&mut self, port: u32, limit: u32) -> Result<Handle, Refused> {
        let (place, handle) = self.enter(Target::full(port, 0), Standing::Trail, limit)?;
        self.trails.push(Trail {
            place,
            port,
            refused: Some(BTreeSet::new()),
            watched: BTreeSet::new(),
        });
        Ok(handle)
    }

    /// Whether the peer, as the old home of `port`, may have a right with this badge.
    #[must_use]
    pub fn may_mint(&self, port: u32, badge: u64) -> bool {
        let trail = self.trails.iter().find(|trail| trail.port == port);
        trail.is_some_and(|trail| !trail.refuses(badge))
    }

    /// Rights to `port` with this badge are refused to its old home from now on.
    pub(super) fn refuse_trail(&mut self, port: u32, badge: u64, revoked: &mut Option<Revoked>) {
        let Some(trail) = self.trails.iter_mut().find(|trail| trail.port == port) else {
            return;
        };
        let has_room = |refused: &mut BTreeSet<u64>| {
            refused.insert(badge);
            refused.len() <= REFUSED_MAX
        };
        if !trail.refused.as_mut().is_some_and(has_room) {
            trail.refused = None;
        }
        if trail.watched.remove(&badge) {
            revoked.get_or_insert_default().watched += 1;
        }
    }

    /// The ports for which `is_one` holds have ended: the places of their old homes' rights.
    pub(super) fn end_trails(&mut self, is_one: impl Fn(u32) -> bool) -> Vec<u32> {
        let ended = self.trails.extract_if(.., |trail| is_one(trail.port));
        ended.map(|trail| trail.place).collect()
    }

    /// The right of the old home of `port`, if there is one, is told of when it ends, as one with this badge. Whether that was not so
    /// before.
    pub(super) fn watch_trail(&mut self, port: u32, badge: u64) -> bool {
        let trail = self.trails.iter_mut().find(|trail| trail.port == port);
        trail.is_some_and(|trail| !trail.refuses(badge) && trail.watched.insert(badge))
    }

    /// The targets whose ends are told of, if the handle is an old home's: of none from now on.
    pub fn take_watched(&mut self, of: Handle) -> Vec<Target> {
        let place = index(of);
        let trail = self.trails.iter_mut().find(|trail| trail.place == place);
        trail.map_or_else(Vec::new, |trail| trail.take_watched().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Meaning;
    use super::*;

    const PORT: u32 = 3;

    fn home() -> (Exports, Handle) {
        let mut exports = Exports::default();
        let home = exports.export_trail(PORT, 16).unwrap();
        (exports, home)
    }

    #[test]
    fn a_revocation_leaves_an_old_home_its_right_and_refuses_it_the_badge() {
        let (mut exports, home) = home();
        let zero = exports.export(Target::full(PORT, 0)).unwrap();
        assert_ne!(zero, home, "rights to send are others");
        assert!(exports.may_mint(PORT, 0) && exports.may_mint(PORT, 5));
        let revoked = exports.revoke(PORT, 0).unwrap();
        assert_eq!((revoked.handles, revoked.ended), (vec![zero], 1));
        assert_eq!(exports.resolve(home), Some(Meaning::Trail(PORT)));
        assert!(!exports.may_mint(PORT, 0) && exports.may_mint(PORT, 5));
        assert_eq!(exports.revoke(PORT, 5), None);
        assert!(!exports.may_mint(PORT, 5));
        assert!(
            !exports.may_mint(PORT + 1, 7),
            "it is no port of the peer's"
        );
        // One that is made now is another, and good.
        let again = exports.export(Target::full(PORT, 0)).unwrap();
        assert_ne!(again, home);
        assert!(!exports.may_mint(PORT, 0));
    }

    #[test]
    fn an_old_homes_right_ends_once_when_it_is_given_back() {
        let (mut exports, home) = home();
        exports.revoke(PORT, 0);
        assert_eq!(exports.len(), 1);
        assert_eq!(exports.release(home, 1), Ok(true));
        assert_eq!(exports.finish(home), Some((Target::full(PORT, 0), false)));
        assert!(exports.is_empty() && !exports.may_mint(PORT, 5));
        let next = exports.export(Target::full(PORT, 0)).unwrap();
        assert_eq!(
            exports.resolve(next),
            Some(Meaning::To(Target::full(PORT, 0)))
        );
        let (mut exports, _) = self::home();
        assert_eq!(exports.end().ports, [(PORT, 1)]);
    }

    #[test]
    fn an_old_homes_right_is_revoked_when_its_port_ends() {
        let (mut exports, home) = home();
        let other = exports.export_trail(PORT + 1, 16).unwrap();
        let revoked = exports.revoke_all(|port| port == PORT).unwrap();
        assert_eq!((revoked.handles, revoked.ended), (vec![home], 1));
        assert_eq!(exports.resolve(home), Some(Meaning::Revoked));
        assert!(!exports.may_mint(PORT, 5) && exports.may_mint(PORT + 1, 5));
        assert_eq!(exports.resolve(other), Some(Meaning::Trail(PORT + 1)));
        assert_eq!(exports.revoke_all(|port| port == PORT), None);
        assert_eq!((exports.len(), exports.used()), (1, 2));
        assert_eq!(exports.release(home, 1), Ok(true));
        assert_eq!(exports.finish(home), None);
        assert_eq!(exports.used(), 1);
        assert_eq!(exports.end().ports, [(PORT + 1, 1)]);
    }

    #[test]
    fn an_old_homes_right_counts_as_one_with_each_badge_until_that_is_revoked() {
        let (mut exports, home) = home();
        assert_eq!((exports.watch(PORT, 0), exports.watch(PORT, 0)), (1, 0));
        assert_eq!((exports.watch(PORT, 5), exports.watch(PORT, 5)), (1, 0));
        assert_eq!(exports.watch(PORT + 1, 5), 0);
        let revoked = exports.revoke(PORT, 0).unwrap();
        assert_eq!((revoked.ended, revoked.watched), (0, 1));
        assert_eq!((exports.watch(PORT, 0), exports.revoke(PORT, 0)), (0, None));
        assert_eq!(exports.release(home, 1), Ok(true));
        assert_eq!(exports.take_watched(home), [Target::full(PORT, 5)]);
        assert_eq!(exports.finish(home), Some((Target::full(PORT, 0), false)));
        let (mut exports, home) = self::home();
        exports.watch(PORT, 0);
        exports.watch(PORT, 5);
        let revoked = exports.revoke(PORT, 5).unwrap();
        assert_eq!((revoked.ended, revoked.watched), (0, 1));
        assert_eq!(exports.release(home, 1), Ok(true));
        assert_eq!(exports.take_watched(home), [Target::full(PORT, 0)]);
        assert_eq!(exports.finish(home), Some((Target::full(PORT, 0), false)));
        // Its end with its link tells of all, too.
        let (mut exports, _) = self::home();
        for badge in [0, 5, 7] {
            exports.watch(PORT, badge);
        }
        let told = exports.end().watched;
        assert_eq!(told, [0, 5, 7].map(|badge| Target::full(PORT, badge)));
    }

    #[test]
    fn an_old_home_is_refused_everything_after_too_many_revocations() {
        let (mut exports, _) = home();
        for badge in 0..REFUSED_MAX as u64 {
            exports.revoke(PORT, badge);
        }
        assert!(exports.may_mint(PORT, u64::MAX));
        exports.revoke(PORT, 0);
        assert!(exports.may_mint(PORT, u64::MAX), "a badge counts once");
        exports.revoke(PORT, 1 << 40);
        assert!(!exports.may_mint(PORT, u64::MAX));
    }
}
