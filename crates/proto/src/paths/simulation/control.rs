//! The control messages between caller, forwarder and replier.

use super::*;

#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    Ask {
        number: u32,
        caller: usize,
        index: u32,
        set: u32,
    },
    Want {
        token: u32,
        forwarder: usize,
        index: u32,
        set: u32,
    },
    Granted {
        token: u32,
        path: u32,
        set: u32,
    },
    Denied {
        token: u32,
    },
    Ready {
        number: u32,
        path: u32,
    },
    Refused {
        number: u32,
    },
    Over {
        path: u32,
    },
    Drop {
        number: u32,
    },
}

impl World {
    pub(super) fn say(&mut self, end: usize, control: Control) {
        if !self.ends[end].is_down && !self.ends[end ^ 1].has_ended {
            self.ends[end ^ 1].socket.push_back(control);
        }
    }

    /// A process hears one control message, or of the end of a link. Returns whether there was one.
    pub(super) fn hear(&mut self, of: usize) -> Result<bool, String> {
        let ends = &self.ends;
        let has_some = |end: &usize| {
            let end = &ends[*end];
            let is_known = end.of == of && !end.has_ended;
            is_known && (!end.socket.is_empty() || end.peer_ended || end.is_down)
        };
        let Some(end) = self.dice.pick((0..ends.len()).filter(has_some)) else {
            return Ok(false);
        };
        // The end of a process may be heard of before its last statement.
        let peer_is_dead = self.processes[self.ends[end].peer].is_dead;
        let is_ended = self.ends[end].is_down || peer_is_dead && self.dice.roll(4) == 0;
        let control = match is_ended {
            true => None,
            false => self.ends[end].socket.pop_front(),
        };
        match control {
            None => self.end_link(end),
            Some(control) => self.control(of, end, control)?,
        }
        Ok(true)
    }

    fn control(&mut self, of: usize, end: usize, control: Control) -> Result<(), String> {
        match control {
            Control::Ask {
                number,
                caller,
                index,
                set,
            } => {
                if self.without == Without::NewNumbers {
                    self.forget_party(end, number);
                }
                let asked = self.ends[end].parties.asked(number);
                let has_room = asked.map_err(|_| format!("number {number} was used again"))?;
                self.asked(of, end, number, has_room.then_some((caller, index, set)));
            }
            Control::Want {
                token,
                forwarder,
                index,
                set,
            } => self.grant(of, end, token, (forwarder, index, set)),
            Control::Granted { token, path, set } => {
                let wanted = self.wanted(of, end, token);
                let wanted = wanted.ok_or(format!("{token} was not wanted"))?;
                self.granted(wanted, end, (path, set));
            }
            Control::Denied { token } => {
                if let Some(wanted) = self.wanted(of, end, token) {
                    self.refuse(wanted.forwarder, wanted.number);
                }
            }
            Control::Ready { number, path } => {
                if !self.ends[end].asks.ready(number, path) {
                    self.say(end, Control::Drop { number });
                }
            }
            Control::Refused { number } => {
                let now_ns = self.now_ns;
                self.ends[end].asks.refused(number, now_ns);
            }
            Control::Over { path } => {
                if self.processes[of].core.over(path, end as u32) {
                    let mut live = self.processes[of].live.iter();
                    let is_it = |known: &&usize| self.paths[**known].number == path;
                    if let Some(path) = live.find(is_it).copied() {
                        self.end_path(path);
                    }
                } else {
                    return Err(format!("path {path} is over, and was not granted"));
                }
            }
            Control::Drop { number } => self.forget_party(end, number),
        }
        Ok(())
    }

    /// Replier: has calls of another's passed on.
    fn asked(&mut self, of: usize, end: usize, number: u32, asked: Option<(usize, u32, u32)>) {
        let with = asked.and_then(|asked| {
            let with = self.find(of, |with| with.peer == asked.0)?;
            Some((with, asked))
        });
        let Some((with, (_, index, set))) = with else {
            self.refuse(end, number);
            return;
        };
        // Another thread gives up the last right to a port there.
        if self.dice.roll(64) == 0 {
            self.release_end(with);
        }
        let process = &mut self.processes[of];
        process.last_token += 1;
        let token = process.last_token;
        process.wanted.push(Wanted {
            token,
            of: with,
            forwarder: end,
            number,
        });
        let forwarder = self.ends[end].peer;
        if self.ends[with].is_down && self.without != Without::LateUnmet {
            // Nobody will answer that.
            if let Some(wanted) = self.wanted(of, with, token) {
                self.refuse(wanted.forwarder, wanted.number);
            }
        }
        self.say(
            with,
            Control::Want {
                token,
                forwarder,
                index,
                set,
            },
        );
    }

    /// Caller: is asked for a path.
    fn grant(
        &mut self,
        of: usize,
        end: usize,
        token: u32,
        (forwarder, index, set): (usize, u32, u32),
    ) {
        let ends = &self.ends;
        let source = self.find(of, |source| {
            source.peer == forwarder && ends[source.other()].index == index
        });
        let granted = source.and_then(|with| {
            let source = Source {
                link: with as u32,
                set,
            };
            let root = self.root(of, source)?;
            Some((source, root, self.grant_core(of, source, end)?))
        });
        let Some((source, root, granted)) = granted else {
            self.say(end, Control::Denied { token });
            return;
        };
        let _ = source;
        self.paths.push(Known {
            of,
            end,
            number: granted.path,
            set: granted.to.set,
            root,
            is_over: false,
            last: None,
            uses: 1,
        });
        self.processes[of].live.push(self.paths.len() - 1);
        self.say(
            end,
            Control::Granted {
                token,
                path: granted.path,
                set: granted.to.set,
            },
        );
    }

    fn grant_core(&mut self, of: usize, source: Source, end: usize) -> Option<Granted> {
        let core = &mut self.processes[of].core;
        let elsewhere = |granted: &mut Granted| granted.source.link ^= 1 << 31;
        let leads_on = |path: &&mut Granted| path.source.set > OWN_SET;
        if self.without == Without::LeadingOn {
            let paths = core.granted.iter_mut().flatten();
            paths.filter(leads_on).for_each(elsewhere);
        }
        let granted = core.grant(source, end as u32, OWN_SET + 1..SETS);
        if self.without == Without::LeadingOn {
            let new = granted.map(|granted| granted.path);
            let paths = core.granted.iter_mut().flatten();
            let old = paths.filter(|path| Some(path.path) != new);
            old.filter(leads_on).for_each(elsewhere);
        }
        granted
    }

    fn root(&self, of: usize, source: Source) -> Option<(usize, u32)> {
        if source.set <= OWN_SET {
            return Some((source.link as usize, source.set));
        }
        let before = self.processes[of].core.to(source)?.path;
        let mut live = self.processes[of].live.iter();
        let before = live.find(|path| self.paths[**path].number == before)?;
        Some(self.paths[*before].root)
    }

    /// Replier: has got a path.
    fn granted(&mut self, wanted: Wanted, end: usize, (path, set): (u32, u32)) {
        if self.without != Without::Clearing {
            self.ends[end ^ 1].slots[set as usize] = Default::default();
        }
        self.parties.push(Party {
            end,
            set,
            path,
            uses: 1,
        });
        let party = self.parties.len() - 1;
        let (forwarder, number) = (wanted.forwarder, wanted.number);
        // Another thread finds that the peer has broken a rule.
        if self.dice.roll(64) == 0 {
            self.cut_end(end);
        }
        match self.ends[forwarder].parties.granted(number, party) {
            Ok(()) => self.say(forwarder, Control::Ready { number, path }),
            Err(party) => self.unuse_party(party),
        }
        if self.ends[forwarder].is_down || self.ends[end].is_down {
            if self.without == Without::LateRefusal {
                self.forget_party(forwarder, number);
            } else {
                self.refuse(forwarder, number);
            }
        }
    }

    fn wanted(&mut self, of: usize, end: usize, token: u32) -> Option<Wanted> {
        let wanted = &mut self.processes[of].wanted;
        let is_it = |wanted: &Wanted| wanted.token == token && wanted.of == end;
        let place = wanted.iter().position(is_it)?;
        Some(wanted.swap_remove(place))
    }

    pub(super) fn refuse(&mut self, forwarder: usize, number: u32) {
        self.forget_party(forwarder, number);
        self.say(forwarder, Control::Refused { number });
    }

    pub(super) fn forget_party(&mut self, forwarder: usize, number: u32) {
        if let Some(party) = self.ends[forwarder].parties.dropped(number) {
            if self.without == Without::LastRight {
                self.end_party(party);
            }
            self.unuse_party(party);
        }
    }

    pub(super) fn unuse_party(&mut self, party: usize) {
        self.parties[party].uses -= 1;
        if self.parties[party].uses == 0 && self.without != Without::LastRight {
            self.end_party(party);
        }
    }

    fn end_party(&mut self, party: usize) {
        let Party { end, path, .. } = self.parties[party];
        self.say(end, Control::Over { path });
    }
}
