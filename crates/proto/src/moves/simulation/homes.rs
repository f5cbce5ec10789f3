//! Where the port is, and where it has been.

use super::instance::{Follow, Named};
use super::*;
use crate::introductions::Waiting;

impl World {
    fn export(&mut self, (to, home): (usize, usize), target: Target) -> Option<Handle> {
        let exports = &mut self.side(to, home).exports;
        let before = exports.len();
        let handle = exports.export(target).ok()?;
        let exports_now = exports.len();
        let instance = &mut self.instances[target.port as usize];
        instance.rights += i64::from(exports_now > before);
        instance.has_new = true;
        Some(handle)
    }

    pub(super) fn ended(&mut self, target: Target) {
        self.instances[target.port as usize].rights -= 1;
    }

    /// Gives a right to a sender.
    pub(super) fn grant(&mut self, to: usize, badge: u64) {
        let port = self.instances.len() - 1;
        let Instance {
            home, ref state, ..
        } = self.instances[port];
        if !matches!(state, State::Receiving) || self.is_dead[to] || self.is_dead[home] {
            return;
        }
        let target = Target::full(port as u32, badge);
        if let Some(handle) = self.export((to, home), target) {
            self.side(to, home).given.push_back((handle, target));
        }
    }

    /// The port leaves for another home.
    pub(super) fn depart(&mut self) {
        let of = self.instances.len() - 1;
        let home = self.instances[of].home;
        let to = (home + 1 + self.dice.roll(HOMES - 1)) % HOMES;
        let is_here = self.is_in(of, |state| matches!(state, State::Receiving));
        if is_here && !self.is_dead[home] && !self.is_dead[to] && self.instances.len() < 8 {
            self.instances[of].state = State::Leaving {
                to,
                has_arrived: false,
            };
        }
    }

    /// The message with the port is there.
    pub(super) fn arrive(&mut self) {
        let of = self.instances.len() - 1;
        let old = self.instances[of].home;
        let State::Leaving {
            to,
            ref mut has_arrived,
        } = self.instances[of].state
        else {
            return;
        };
        if *has_arrived || self.is_dead[to] {
            return;
        }
        *has_arrived = true;
        self.done += 1;
        let port = self.instances.len() as u32;
        self.instances.push(Instance::new(to));
        if let Some(handle) = self.export((old, to), Target::full(port, 0)) {
            let news = News::Arrived {
                instance: of,
                handle,
                port,
            };
            self.side(old, to).news.push_back(news);
        }
    }

    pub(super) fn begin_tail(&mut self, of: usize, to: App) {
        let (by_badge, trail) = (BTreeMap::new(), Trail::default());
        self.instances[of].state = State::Trail(Box::new(Follow {
            to,
            by_badge,
            trail,
        }));
        self.instances[of].has_new = true;
        self.tell_holders(of);
    }

    /// The state of a trail, for as long as it works with that.
    fn take_follow(&mut self, of: usize) -> Option<Box<Follow>> {
        let state = &mut self.instances[of].state;
        match core::mem::replace(state, State::Ended) {
            State::Trail(follow) => Some(follow),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Tells those who have rights here where the port is now, and have not been told.
    pub(super) fn tell_holders(&mut self, of: usize) {
        if !core::mem::take(&mut self.instances[of].has_new) {
            return;
        }
        let home = self.instances[of].home;
        let Some(mut follow) = self.take_follow(of) else {
            return;
        };
        let (new, port) = (follow.to.home, follow.to.port);
        for to in (0..PROCESSES).filter(|to| *to != new) {
            if self.is_dead[to] {
                continue;
            }
            let side = self.side(to, home);
            let mut names: Vec<_> = side.exports.handles_of(of as u32).collect();
            let handles: BTreeMap<_, _> = names.iter().copied().collect();
            let claimed = side.claims.granted();
            names.extend(claimed.filter_map(|(word, handle)| Some((word, *handles.get(&handle)?))));
            names.sort_unstable();
            for (name, badge) in names {
                self.numbers[home] += 1;
                let number = self.numbers[home];
                if !follow.trail.tell((to as u32, name), number) {
                    continue;
                }
                let moved = News::Moved {
                    name,
                    port,
                    number,
                    home: new,
                };
                self.side(to, home).news.push_back(moved);
                if self.without == Without::Marks {
                    self.provide(&mut follow, (badge, number), to);
                }
            }
        }
        self.instances[of].state = State::Trail(follow);
    }

    /// A right with this badge at the new home.
    fn with_right(
        &mut self,
        follow: &mut Follow,
        badge: u64,
        post: impl FnOnce(&mut Self, &mut App),
    ) {
        if !follow.by_badge.contains_key(&badge) {
            let like = follow.to.like();
            let side = self.side(like.sender, like.home);
            let Ok(word) = side.imports.claim(like.port) else {
                return;
            };
            side.redirects.insert(word, Redirect::Stays);
            self.post_by(&mut follow.to, 0, |by| Said::Mint { by, word, badge });
            let right = App {
                word,
                badge,
                ..like
            };
            follow.by_badge.insert(badge, right);
        }
        if let Some(right) = follow.by_badge.get_mut(&badge) {
            post(self, right);
        }
    }

    fn provide(&mut self, follow: &mut Follow, (badge, number): (u64, u64), to: usize) {
        let thread = usize::from(self.without == Without::Order);
        self.with_right(follow, badge, |world, right| {
            world.post_by(right, thread, |word| Said::Provide { word, number, to });
        });
    }

    fn named(&mut self, (of, home): (usize, usize), word: u32) -> Named {
        if let Some(Meaning::To(target)) = self.side(of, home).exports.resolve(word) {
            return Named::To(target);
        }
        let claim = match self.side(of, home).claims.get(word) {
            Some(Claim::Waiting(waiting)) => {
                let claim = self.redeem((of, home), waiting.number);
                self.side(of, home).claims.settle(word, claim);
                Some(claim)
            }
            claim => claim,
        };
        match claim {
            Some(Claim::Granted(handle)) => match self.side(of, home).exports.resolve(handle) {
                Some(Meaning::To(target)) => Named::To(target),
                _ => Named::Unknown,
            },
            Some(Claim::Dead | Claim::Revoked) => Named::Dead,
            Some(Claim::Waiting(_)) => Named::NotYet,
            None if word >> 31 == 0 => Named::NotYet,
            None => Named::Unknown,
        }
    }

    fn redeem(&mut self, (of, home): (usize, usize), number: Number) -> Claim {
        match self.provisions[home].redeem(number, incarnation(of)) {
            Redeemed::To(target) => {
                let is_there =
                    !self.is_in(target.port as usize, |state| matches!(state, State::Ended));
                let granted = is_there.then(|| self.export((of, home), target)).flatten();
                self.ended(target);
                granted.map_or(Claim::Dead, Claim::Granted)
            }
            Redeemed::Dead | Redeemed::Revoked => Claim::Dead,
            Redeemed::NotYet => {
                let by = process_of(number.0);
                // Messages that the dead have left are consumed first; then nothing more comes.
                let left = &self.sides[by * PROCESSES + home].lanes;
                let is_left = left.values().any(|lane| !lane.queue.is_empty());
                // And a process that has ended is not provided for.
                let is_heard = self.sides[of * PROCESSES + by].has_ended;
                if (self.is_dead[by] || is_heard) && !is_left {
                    return Claim::Dead;
                }
                Claim::Waiting(Waiting {
                    number,
                    ..Waiting::default()
                })
            }
        }
    }

    /// The thread that receives, or the trail, takes what is next in one of the lanes.
    pub(super) fn take(
        &mut self,
        instance: usize,
        (of, thread): (usize, usize),
    ) -> Result<(), String> {
        let home = self.instances[instance].home;
        if self.is_dead[home]
            || self.is_in(instance, |state| matches!(state, State::Leaving { .. }))
        {
            return Ok(());
        }
        let at = (instance as u32, thread);
        let side = self.side(of, home);
        let Some(said) = side
            .lanes
            .get(&at)
            .and_then(|lane| lane.queue.front().cloned())
        else {
            return Ok(());
        };
        let word = match said {
            Said::Claim { .. } => None,
            Said::Mint { by: word, .. }
            | Said::Use { word, .. }
            | Said::Provide { word, .. }
            | Said::Mark { word, .. } => Some(word),
        };
        let is_over = self.is_in(instance, |state| matches!(state, State::Ended));
        let target = match word.map(|word| self.named((of, home), word)) {
            None | Some(Named::Dead) => None,
            // Nobody waits there.
            Some(Named::NotYet) if is_over => None,
            Some(Named::NotYet) => return Ok(()),
            Some(Named::To(target)) if target.port as usize == instance => Some(target),
            Some(_) => return Err(format!("{said:?} of {of} means something else")),
        };
        if let Some(lane) = self.side(of, home).lanes.get_mut(&at) {
            lane.queue.pop_front();
            lane.consumed += 1;
        }
        self.done += 1;
        match said {
            Said::Use { message, .. } => self.received(instance, message, target)?,
            Said::Provide { number, to, .. } => {
                let is_there = !self.is_in(instance, |state| matches!(state, State::Ended));
                let target = target.filter(|_| is_there);
                if target.is_some() {
                    self.instances[instance].rights += 1;
                }
                let number = (incarnation(of), number);
                let refused = self.provisions[home].provide(number, target, incarnation(to), 0);
                if let Some(target) = refused {
                    self.ended(target);
                }
                if let Some(word) = self.side(to, home).claims.waits_for(number) {
                    let _ = self.named((to, home), word);
                }
            }
            Said::Claim { word, number } => {
                let claim = self.redeem((of, home), number);
                if !self.side(of, home).claims.claim(word, claim) {
                    return Err(format!("{word} is claimed twice"));
                }
            }
            Said::Mint { word, badge, .. } => {
                let is_there = !self.is_in(instance, |state| matches!(state, State::Ended));
                let port = instance as u32;
                let handle = is_there
                    .then(|| self.export((of, home), Target::full(port, badge)))
                    .flatten();
                let claim = handle.map_or(Claim::Dead, Claim::Granted);
                if !self.side(of, home).claims.claim(word, claim) {
                    return Err(format!("{word} is minted twice"));
                }
            }
            Said::Mark {
                word,
                number,
                lanes,
            } => self.marked(instance, (of, word), (number, lanes), target)?,
        }
        Ok(())
    }

    fn received(
        &mut self,
        instance: usize,
        at: usize,
        target: Option<Target>,
    ) -> Result<(), String> {
        let home = self.instances[instance].home;
        match (
            core::mem::replace(&mut self.instances[instance].state, State::Ended),
            target,
        ) {
            (State::Receiving, Some(target)) => {
                self.instances[instance].state = State::Receiving;
                let message = &mut self.messages[at];
                message.arrived += 1;
                let last = self.seen.entry(message.by).or_default();
                if message.arrived > 1 {
                    return Err(format!(
                        "message {} of {:?} came twice",
                        message.number, message.by
                    ));
                }
                if target.badge != message.badge {
                    return Err(format!(
                        "a message of {:?} means something else",
                        message.by
                    ));
                }
                let is_next =
                    message.number == *last + 1 || self.has_died && message.number > *last;
                if !is_next {
                    return Err(format!(
                        "{} of {:?} came out of order, after {last}",
                        message.number, message.by
                    ));
                }
                *last = message.number;
                if message.is_call {
                    self.open.push((at, home));
                }
            }
            (State::Trail(mut follow), Some(target)) => {
                let is_gone = self.is_dead[follow.to.home]
                    || self.is_in(follow.to.port as usize, |state| {
                        matches!(state, State::Ended)
                    });
                if is_gone {
                    self.messages[at].outcomes += 1;
                } else {
                    self.with_right(&mut follow, target.badge, |world, right| {
                        world.post_by(right, 0, |word| Said::Use { word, message: at });
                    });
                }
                self.instances[instance].state = State::Trail(follow);
            }
            (state, _) => {
                self.instances[instance].state = state;
                self.messages[at].outcomes += 1;
            }
        }
        Ok(())
    }

    fn marked(
        &mut self,
        instance: usize,
        (of, word): (usize, u32),
        (number, lanes): (u64, u32),
        target: Option<Target>,
    ) -> Result<(), String> {
        let Some(mut follow) = self.take_follow(instance) else {
            return match self.without == Without::LateMarks && !self.is_dead[of] {
                true => Err(format!("the link of {of} is cut, which has broken no rule")),
                false => Ok(()),
            };
        };
        let known = follow.trail.mark((of as u32, word), number, lanes);
        let is_first = self.without == Without::LastMark && known == Marked::More;
        if known == Marked::Unknown && !self.is_dead[of] {
            return Err(format!("a mark of {of} is unknown"));
        }
        let is_all = matches!(known, Marked::All { .. });
        self.instances[instance].has_new |= known == Marked::All { again: true };
        if let Some(target) = target
            && (is_all || is_first)
        {
            self.provide(&mut follow, (target.badge, number), of);
        }
        self.instances[instance].state = State::Trail(follow);
        Ok(())
    }

    /// Somebody answers.
    pub(super) fn answer(&mut self) {
        if let Some(place) = self.dice.pick(0..self.open.len()) {
            let (message, _) = self.open.swap_remove(place);
            self.done += 1;
            self.messages[message].outcomes += 1;
        }
    }

    pub(super) fn hear_releases(&mut self, of: usize, home: usize) -> Result<(), String> {
        let is_over = self.is_dead[home];
        let side = self.side(of, home);
        if side.has_ended || is_over {
            return Ok(());
        }
        let Some((word, count)) = side.releases.pop_front() else {
            return Ok(());
        };
        self.done += 1;
        let side = self.side(of, home);
        let handle = match word >> 31 {
            1 => word,
            _ => match side.claims.release(word) {
                Some(Claim::Granted(handle)) => handle,
                Some(Claim::Waiting(Waiting { number, .. })) => {
                    let given_up = self.provisions[home].forgo(number, incarnation(of), 0);
                    if let Some(target) = given_up {
                        self.ended(target);
                    }
                    return Ok(());
                }
                Some(Claim::Dead | Claim::Revoked) => return Ok(()),
                None => return Err(format!("{word} was never claimed")),
            },
        };
        let exports = &mut side.exports;
        let released = exports.release(handle, count);
        match released.map_err(|refused| format!("release: {refused:?}"))? {
            true => {
                if let Some((target, _)) = exports.finish(handle) {
                    self.ended(target);
                }
            }
            false => {
                let meaning = exports.resolve(handle);
                self.under_way(meaning, (of as u32, handle));
            }
        }
        Ok(())
    }

    /// More is under way by this name.
    fn under_way(&mut self, meaning: Option<Meaning>, name: (u32, Handle)) {
        let without = self.without;
        if let Some(Meaning::To(target)) = meaning
            && let instance = &mut self.instances[target.port as usize]
            && let State::Trail(follow) = &mut instance.state
            && without != Without::Again
        {
            if without == Without::Before {
                follow.trail.forget(name);
                instance.has_new = true;
            }
            instance.has_new |= follow.trail.tell_again(name);
        }
    }
}
