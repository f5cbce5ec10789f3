//! How users share the places of a rota.

use super::{Rota, User};

impl Rota {
    /// The place of a user, made if it has none.
    pub(super) fn place_of(&mut self, number: u32) -> usize {
        let is_it = |user: &User| user.lanes > 0 && user.number == number;
        let found = self.users.iter().position(is_it);
        let free = || self.users.iter().position(|user| user.lanes == 0);
        let place = found.or_else(free).unwrap_or(self.users.len());
        if place == self.users.len() {
            self.users.push(User::default());
        }
        self.users[place].number = number;
        place
    }

    /// After a user's active or waiting lanes have changed: who is present, and the share of each.
    pub(super) fn settle(&mut self, user: usize) {
        self.is_full = false;
        let user = &mut self.users[user];
        let is_present = !user.is_idle();
        if is_present != user.is_present {
            user.is_present = is_present;
            self.present = match is_present {
                true => self.present + 1,
                false => self.present - 1,
            };
            self.fit_share();
        }
    }

    pub(super) fn fit_share(&mut self) {
        self.is_full = false;
        self.share = self.cap.div_ceil(self.present.max(1));
    }

    /// Rule 1: whether a lane of this user is to go when its turn is over.
    pub(super) fn is_crowded(&self, user: usize) -> bool {
        let user = &self.users[user];
        let others_wait = self.present > self.cap && self.waiting > 0;
        user.active > self.share
            || user.active == self.share && (!user.queue.is_empty() || others_wait)
    }

    /// Rule 2: whose waiter is next.
    pub(super) fn next_user(&self) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let waiting = self.users.iter().enumerate();
        let waiting = waiting.filter(|(_, user)| !user.queue.is_empty());
        let next = waiting.min_by_key(|(_, user)| (user.active, user.activated));
        next.map(|(place, _)| place)
    }

    /// Rule 2: whether there is a place for a waiter of this user but for what others have above their shares.
    pub(super) fn is_below_share(&self, user: usize) -> bool {
        self.users[user].active < self.share && self.taken(self.share) < self.cap
    }

    /// Places that are taken, by each user up to its share.
    fn taken(&self, share: usize) -> usize {
        let users = self.users.iter();
        users.map(|user| user.active.min(share)).sum()
    }

    /// Rule 3: whether this user has a place for each processor already, and is not alone.
    pub(super) fn crowds(&self, user: usize) -> bool {
        let user = &self.users[user];
        user.active >= self.cap && self.present > usize::from(!user.is_idle())
    }

    /// Rule 3: whether a lane of this user that is out has not to wait.
    pub(super) fn has_room(&self, user: usize) -> bool {
        let user = &self.users[user];
        let present = self.present + usize::from(user.is_idle());
        let share = self.cap.div_ceil(present);
        let is_below = || user.active < share && self.taken(share) < self.cap;
        self.waiting == 0 && self.active < self.cap || user.queue.is_empty() && is_below()
    }

    /// Rule 4: whether this user takes no place from anybody.
    pub(super) fn is_modest(&self, user: usize) -> bool {
        let user = &self.users[user];
        let is_one_of_few = self.present > 1 && self.present <= self.cap;
        is_one_of_few && user.queue.is_empty() && user.active <= self.share
    }
}
