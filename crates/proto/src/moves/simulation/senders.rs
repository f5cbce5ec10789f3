//! Holders of rights: senders, and the trails of homes.

use super::*;

/// A right.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) sender: usize,
    pub(super) home: usize,
    pub(super) word: u32,
    pub(super) port: u32,
    pub(super) badge: u64,
    pub(super) uses: Vec<Use>,
    /// The right it has become, once it was used after.
    pub(super) moved: Option<Box<Self>>,
}

impl App {
    /// Another right of its process, like this one and not used yet.
    pub(super) fn like(&self) -> Self {
        let Self {
            sender,
            home,
            word,
            port,
            badge,
            ..
        } = *self;
        Self {
            sender,
            home,
            word,
            port,
            badge,
            ..Self::default()
        }
    }
}

const fn lane_of(port: u32, thread: usize) -> u32 {
    port * THREADS as u32 + thread as u32
}

impl World {
    pub(super) fn post(
        &mut self,
        (sender, home): (usize, usize),
        (port, thread): (u32, usize),
        said: Said,
    ) -> Use {
        let lane = self
            .side(sender, home)
            .lanes
            .entry((port, thread))
            .or_default();
        lane.queue.push_back(said);
        lane.posted += 1;
        let tail = lane.posted;
        Use {
            lane: lane_of(port, thread),
            tail,
        }
    }

    /// Where a right leads now: the home, the name there, and the port.
    pub(super) fn best(&self, app: &App) -> (usize, u32, u32) {
        let (mut home, mut word, mut port) = (app.home, app.word, app.port);
        loop {
            let side = &self.sides[app.sender * PROCESSES + home];
            match side.redirects.get(&word) {
                Some(Redirect::To(Moved {
                    direct: Some(direct),
                    ..
                })) => {
                    (home, word, port) = (direct.home, direct.word, direct.port);
                }
                _ => return (home, word, port),
            }
        }
    }

    /// Brings a right to where its port is: it has one there, too, from now on.
    pub(super) fn follow<'a>(&mut self, app: &'a mut App) -> &'a mut App {
        let side = self.side(app.sender, app.home);
        if app.moved.is_none()
            && let Some(Redirect::To(Moved {
                direct: Some(direct),
                ..
            })) = side.redirects.get(&app.word)
        {
            let moved = App {
                sender: app.sender,
                badge: app.badge,
                ..direct.like()
            };
            self.side(moved.sender, moved.home)
                .imports
                .copied(moved.word);
            app.moved = Some(Box::new(moved));
        }
        match app.moved {
            Some(ref mut moved) => self.follow(moved),
            None => app,
        }
    }

    /// Posts by a right, in the lane of a thread.
    pub(super) fn post_by(&mut self, app: &mut App, thread: usize, said: impl FnOnce(u32) -> Said) {
        let app = self.follow(app);
        let used = self.post((app.sender, app.home), (app.port, thread), said(app.word));
        app.uses.retain(|known| known.lane != used.lane);
        app.uses.push(used);
    }

    /// Something by any of its rights, from any of its threads.
    pub(super) fn send(&mut self, sender: usize) {
        let its = (0..self.apps.len()).filter(|at| self.apps[*at].sender == sender);
        let its: Vec<_> = its.collect();
        let Some(place) = self.dice.pick(its.iter().copied()) else {
            return;
        };
        let thread = self.dice.roll(THREADS);
        let is_call = self.dice.roll(3) == 0;
        let app = &self.apps[place];
        let (by, badge) = ((sender, thread, app.home, app.word), app.badge);
        let number = self.sent.entry(by).or_default();
        *number += 1;
        let number = *number;
        let message = self.messages.len();
        let (arrived, outcomes) = (0, 0);
        self.messages.push(Message {
            by,
            badge,
            number,
            is_call,
            arrived,
            outcomes,
        });
        let mut app = self.apps.swap_remove(place);
        let (home, _, port) = self.best(&app);
        let is_gone =
            self.is_dead[home] || self.is_in(port as usize, |state| matches!(state, State::Ended));
        if is_gone {
            self.messages[message].outcomes += 1;
        } else {
            self.post_by(&mut app, thread, |word| Said::Use { word, message });
        }
        self.apps.push(app);
    }

    pub(super) fn copy(&mut self) {
        if let Some(place) = self.dice.pick(0..self.apps.len()) {
            let copy = self.apps[place].like();
            self.side(copy.sender, copy.home).imports.copied(copy.word);
            self.apps.push(copy);
        }
    }

    pub(super) fn drop_one(&mut self) {
        if let Some(place) = self.dice.pick(0..self.apps.len()) {
            let app = self.apps.swap_remove(place);
            self.dropped(app);
        }
    }

    pub(super) fn dropped(&mut self, app: App) {
        self.side(app.sender, app.home)
            .imports
            .dropped(app.word, &app.uses);
        self.forget((app.sender, app.home), app.word);
        if let Some(moved) = app.moved {
            self.dropped(*moved);
        }
    }

    /// Nothing is kept for a name that nobody has any more.
    fn forget(&mut self, (sender, home): (usize, usize), word: u32) {
        let without = self.without;
        let side = self.side(sender, home);
        if side.imports.port_of(word).is_some() {
            return;
        }
        if let Some(Redirect::To(mut moved)) = side.redirects.remove(&word) {
            match moved.direct.take() {
                Some(direct) => self.dropped(direct),
                None if without == Without::Dropped => {}
                // It may be under way once more.
                None => side.early.hear(word, moved),
            }
        }
    }

    /// A message with a right is taken.
    pub(super) fn take_given(&mut self, of: usize, home: usize) -> Result<(), String> {
        if self.is_dead[of] || self.is_dead[home] {
            return Ok(());
        }
        let side = self.side(of, home);
        let Some((handle, target)) = side.given.pop_front() else {
            return Ok(());
        };
        let Target { port, badge, .. } = target;
        let arrived = side.imports.arrive(handle, port);
        arrived.map_err(|refused| format!("arrive: {refused:?}"))?;
        let is_direct = matches!(
            side.redirects.get(&handle),
            Some(Redirect::To(Moved {
                direct: Some(_),
                ..
            }))
        );
        if is_direct {
            side.imports.moved(handle, &[]);
        } else if !side.redirects.contains_key(&handle)
            && let Some(moved) = side.early.arrived(handle)
        {
            side.redirects.insert(handle, Redirect::To(moved));
        }
        self.done += 1;
        let (sender, word) = (of, handle);
        self.apps.push(App {
            sender,
            home,
            word,
            port,
            badge,
            ..App::default()
        });
        Ok(())
    }

    /// Something comes over a socket.
    pub(super) fn hear(&mut self, of: usize, home: usize) -> Result<(), String> {
        if self.is_dead[of] {
            return Ok(());
        }
        let without = self.without;
        self.done += usize::from(!self.side(of, home).news.is_empty());
        let side = self.side(of, home);
        match side.news.pop_front() {
            None => {}
            Some(News::Moved {
                name,
                port,
                number,
                home: new,
            }) => {
                let is_held = side.imports.port_of(name).is_some();
                let is_pinned = matches!(side.redirects.get(&name), Some(Redirect::Stays));
                let is_known =
                    side.redirects.contains_key(&name) && !(is_pinned && without == Without::Pin);
                let (home, marked, direct) = (new, None, None);
                let moved = Moved {
                    home,
                    port,
                    number,
                    marked,
                    direct,
                };
                if new == of {
                } else if is_held && !is_known {
                    side.redirects.insert(name, Redirect::To(moved));
                } else if !is_pinned && without != Without::Early {
                    side.early.hear(name, moved);
                }
            }
            Some(News::Arrived {
                instance,
                handle,
                port,
            }) => {
                let arrived = side.imports.arrive(handle, port);
                arrived.map_err(|refused| format!("arrive: {refused:?}"))?;
                side.redirects.insert(handle, Redirect::Stays);
                let (sender, word) = (of, handle);
                let to = App {
                    sender,
                    home,
                    word,
                    port,
                    ..App::default()
                };
                self.begin_tail(instance, to);
            }
        }
        Ok(())
    }

    /// A right becomes another one, if there is room in the lanes for what is to be said.
    pub(super) fn switch(&mut self, of: usize, home: usize) -> Result<(), String> {
        let without = self.without;
        let place = of * PROCESSES + home;
        let is_due =
            |redirect: &Redirect| matches!(redirect, Redirect::To(Moved { direct: None, .. }));
        let due = self.sides[place].redirects.iter();
        let due: Vec<_> = due
            .filter(|(_, redirect)| is_due(redirect))
            .map(|(name, _)| *name)
            .collect();
        let Some(at) = self.dice.pick(0..due.len()) else {
            return Ok(());
        };
        let name = due[at];
        self.done += 1;
        let (is_full, in_one) = (self.dice.roll(3) == 0, self.dice.roll(THREADS));
        let side = &mut self.sides[place];
        let Some(old_port) = side.imports.port_of(name).filter(|_| !is_full) else {
            return Ok(());
        };
        let Some(Redirect::To(Moved {
            home: new,
            port,
            number,
            marked,
            ..
        })) = side.redirects.get_mut(&name)
        else {
            return Ok(());
        };
        let (new, port, number) = (*new, *port, *number);
        let uses = match marked.take() {
            Some(uses) => uses,
            None => {
                let mut lanes: Vec<_> = side
                    .lanes
                    .keys()
                    .filter(|lane| lane.0 == old_port)
                    .copied()
                    .collect();
                if lanes.is_empty() {
                    lanes.push((old_port, 0));
                }
                match without {
                    Without::Marks => lanes.clear(),
                    Without::AllLanes => lanes = vec![lanes[in_one % lanes.len()]],
                    _ => {}
                }
                let count = lanes.len() as u32;
                let said = Said::Mark {
                    word: name,
                    number,
                    lanes: count,
                };
                let uses: Vec<_> = lanes
                    .iter()
                    .map(|lane| self.post((of, home), *lane, said.clone()))
                    .collect();
                if without == Without::Locks
                    && let Some(Redirect::To(moved)) = self.sides[place].redirects.get_mut(&name)
                {
                    moved.marked = Some(uses);
                    return Ok(());
                }
                uses
            }
        };
        let word = self.side(of, new).imports.claim(port);
        let word = word.map_err(|refused| format!("claim: {refused:?}"))?;
        let thread = self.dice.roll(THREADS);
        let number = (incarnation(home), number);
        let used = self.post((of, new), (port, thread), Said::Claim { word, number });
        let side = &mut self.sides[place];
        if let Some(Redirect::To(moved)) = side.redirects.get_mut(&name) {
            let (sender, home, uses) = (of, new, vec![used]);
            moved.direct = Some(App {
                sender,
                home,
                word,
                port,
                uses,
                ..App::default()
            });
        }
        side.imports.moved(name, &uses);
        Ok(())
    }

    pub(super) fn give_back(&mut self, of: usize, home: usize) {
        let is_over = self.is_dead[home] || self.without == Without::Uses;
        let Side {
            imports,
            lanes,
            releases,
            ..
        } = self.side(of, home);
        let given = imports.give_back(|used| {
            let at = (used.lane / THREADS as u32, used.lane as usize % THREADS);
            is_over || lanes.get(&at).is_none_or(|lane| lane.consumed >= used.tail)
        });
        releases.extend(given.iter().copied());
        self.done += given.len();
        for (name, _) in given {
            self.forget((of, home), name);
        }
    }
}
