//! Calls, and how they are passed on, taken from lanes and answered.

use super::outcomes::{Awaited, Wait};
use super::*;

/// In a lane: a message that wants an answer.
pub(super) struct Message {
    /// The forwarder's number, or zero for its own return slots. `None`: a call.
    number: Option<u32>,
    place: usize,
    generation: u32,
    call: usize,
}

/// A right that is on its way out. Others act between its steps.
pub(super) struct Pass {
    pub(super) right: Right,
    pub(super) to: usize,
    /// Number and path; or the own slot, and its generation.
    way: Result<(u32, u32), (usize, u32)>,
    is_posted: bool,
}

impl World {
    /// A link of this process's that is up, most often that with the next one.
    fn pick_up(&mut self, of: usize) -> Option<usize> {
        let next = self.find(of, |end| end.peer == of + 1);
        if next.is_some() && self.dice.roll(4) > 0 {
            return next;
        }
        let ends = &self.ends;
        let is_up = |end: &usize| ends[*end].of == of && !ends[*end].is_down;
        self.dice.pick((0..ends.len()).filter(is_up))
    }

    fn take_slot(&mut self, end: usize, set: u32) -> Option<(usize, u32)> {
        let used = &mut self.ends[end].used[set as usize];
        let place = used.iter().position(|(_, in_use)| !in_use)?;
        used[place].0 += 1;
        used[place].1 = true;
        Some((place, used[place].0))
    }

    pub(super) fn call(&mut self, of: usize) {
        if self.processes[of].is_dead {
            return;
        }
        let Some(end) = self.pick_up(of) else { return };
        let Some((place, generation)) = self.take_slot(end, 0) else {
            return;
        };
        let call = self.calls.len();
        self.calls.push(Call::default());
        self.need(call, end);
        self.post(
            end,
            Message {
                number: None,
                place,
                generation,
                call,
            },
        );
        let awaited = Awaited::new(end, 0, place, generation);
        let right = None;
        self.processes[of].waits.push(Wait {
            awaited,
            slot: (end, 0, place),
            call,
            right,
            is_given_up: false,
        });
    }

    fn post(&mut self, end: usize, message: Message) {
        let to = &mut self.ends[end ^ 1];
        to.is_granted = true;
        if !to.is_deaf {
            let lane = self.dice.roll(LANES);
            to.lanes[lane].push_back(message);
        }
    }

    pub(super) fn give_up(&mut self, of: usize) {
        let count = self.processes[of].waits.len();
        if count > 0 {
            let wait = self.dice.roll(count);
            self.processes[of].waits[wait].is_given_up = true;
        }
    }

    /// A message is taken from a lane; also from one of a link that has ended.
    pub(super) fn receive(&mut self, of: usize) {
        let ends = &self.ends;
        let has_some = |end: &usize| {
            ends[*end].of == of && ends[*end].lanes.iter().any(|lane| !lane.is_empty())
        };
        let Some(end) = self.dice.pick((0..ends.len()).filter(has_some)) else {
            return;
        };
        let lane = self.dice.roll(LANES);
        let Some(message) = self.ends[end].lanes[lane].pop_front() else {
            return;
        };
        let number = message.number.filter(|number| *number > 0);
        let party = number.map(|number| self.ends[end].parties.get(number).copied());
        if let Some(Some(party)) = party {
            self.parties[party].uses += 1;
        }
        if party == Some(None) {
            // Nobody waits for the answer.
            return;
        }
        let (call, party) = (message.call, party.flatten());
        let own = if message.number == Some(0) {
            OWN_SET
        } else {
            0
        };
        let (end, set) = party.map_or((end, own), |party| {
            (self.parties[party].end, self.parties[party].set)
        });
        if message.number.is_some() {
            self.calls[call].needs = vec![];
            self.need(call, end);
        }
        self.processes[of].rights.push(Right {
            end,
            set,
            place: message.place,
            generation: message.generation,
            party,
            call,
        });
    }

    /// From now on what ends `end` excuses the call.
    fn need(&mut self, call: usize, end: usize) {
        let is_over = self.ends[end].is_down || self.ends[end ^ 1].is_down;
        self.calls[call].is_excused |= is_over;
        self.calls[call].needs.push(end / 2);
    }

    pub(super) fn begin_pass(&mut self, of: usize) {
        let count = self.processes[of].rights.len();
        let Some(to) = self.pick_up(of).filter(|_| count > 0) else {
            return;
        };
        let right = self.dice.roll(count);
        let Right { end, set, .. } = self.processes[of].rights[right];
        if self.ends[end].is_down {
            return;
        }
        let source = Source {
            link: end as u32,
            set,
        };
        let way = match self.ends[to].asks.way(source, self.now_ns) {
            Way::Path { number, path } => Ok((number, path)),
            Way::Vine(number) => {
                if let Some(number) = number {
                    if self.without == Without::NewNumbers {
                        self.ends[to].asks.last = 0;
                    }
                    let (caller, index) = (self.ends[end].peer, self.ends[end].index);
                    self.say(
                        to,
                        Control::Ask {
                            number,
                            caller,
                            index,
                            set,
                        },
                    );
                }
                let Some(own) = self.take_slot(to, OWN_SET) else {
                    return;
                };
                Err(own)
            }
        };
        let right = self.processes[of].rights.swap_remove(right);
        let is_posted = false;
        self.processes[of].passes.push(Pass {
            right,
            to,
            way,
            is_posted,
        });
    }

    /// The next step of a right that is passed on.
    pub(super) fn pass(&mut self, of: usize) {
        let count = self.processes[of].passes.len();
        if count == 0 {
            return;
        }
        let at = self.dice.roll(count);
        let Pass {
            to, way, is_posted, ..
        } = self.processes[of].passes[at];
        let from = self.processes[of].passes[at].right.end;
        if !is_posted && !self.ends[to].is_down && !self.ends[from].is_down {
            self.processes[of].passes[at].is_posted = true;
            let right = &self.processes[of].passes[at].right;
            let call = right.call;
            let (number, (place, generation)) = match way {
                Ok((number, _)) => (number, (right.place, right.generation)),
                Err(own) => (0, own),
            };
            self.post(
                to,
                Message {
                    number: Some(number),
                    place,
                    generation,
                    call,
                },
            );
            self.need(call, to);
            match way {
                Ok((_, path)) => {
                    self.calls[call].moves.push(from / 2);
                    let caller = self.ends[from].peer;
                    let is_it = |known: &&Known| known.of == caller && known.number == path;
                    let known = self.paths.iter().find(is_it);
                    if let Some(end) = known.map(|known| known.end) {
                        self.need(call, end);
                    }
                }
                Err(_) => self.calls[call].vines.extend([to / 2, from / 2]),
            }
            return;
        }
        let Pass { right, way, .. } = self.processes[of].passes.swap_remove(at);
        match way {
            Err((place, _)) if !is_posted => {
                self.ends[to].used[OWN_SET as usize][place].1 = false;
                self.processes[of].rights.push(right);
            }
            Ok(_) if !is_posted => self.processes[of].rights.push(right),
            Ok((_, path)) => {
                self.write(&right, Outcome::Moved(path));
                let moves = &mut self.calls[right.call].moves;
                if let Some(place) = moves.iter().position(|link| *link == right.end / 2) {
                    moves.swap_remove(place);
                }
                self.used(&right);
            }
            Err((place, generation)) => {
                let call = right.call;
                self.processes[of].waits.push(Wait {
                    awaited: Awaited::new(to, OWN_SET, place, generation),
                    slot: (to, OWN_SET, place),
                    call,
                    right: Some(right),
                    is_given_up: false,
                });
            }
        }
    }

    /// A right is used, or dropped.
    pub(super) fn answer(&mut self, of: usize, is_answer: bool) {
        let count = self.processes[of].rights.len();
        if count == 0 {
            return;
        }
        let right = self.dice.roll(count);
        let right = self.processes[of].rights.swap_remove(right);
        let call = right.call;
        self.finish(right, is_answer.then_some(call));
    }

    pub(super) fn finish(&mut self, right: Right, answer: Option<usize>) {
        let call = right.call;
        match answer {
            Some(answer) if !self.ends[right.end].is_down => {
                self.write(&right, Outcome::Answer(answer));
            }
            Some(_) => {}
            None => {
                self.calls[call].is_excused = true;
                self.write(&right, Outcome::Dropped);
            }
        }
        self.used(&right);
    }

    fn write(&mut self, right: &Right, outcome: Outcome) {
        let slots = &mut self.ends[right.end ^ 1].slots[right.set as usize];
        slots[right.place] = Slot {
            generation: right.generation,
            outcome,
        };
    }

    pub(super) fn used(&mut self, right: &Right) {
        if let Some(party) = right.party {
            self.unuse_party(party);
        }
    }
}
