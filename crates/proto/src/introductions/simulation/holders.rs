//! Introducers and recipients.

use super::*;

#[derive(Default)]
pub(super) struct Holder {
    pub(super) is_dead: bool,
    pub(super) imports: Imports,
    pub(super) rights: Vec<Right>,
    posted: [u32; LANES],
    last_number: u64,
    /// Rights from the exporter.
    pub(super) given: VecDeque<(Handle, Target)>,
    /// Introductions, by whom.
    pub(super) inbox: [VecDeque<usize>; HOLDERS],
    /// Numbers that were declined, by whom.
    declined: [VecDeque<u64>; HOLDERS],
    /// Said of late, with a rule left out.
    late: VecDeque<(usize, Said)>,
    /// What was provided to whom.
    unheard: Vec<(usize, u64)>,
}

impl Holder {
    /// Whether it has said all.
    pub(super) fn is_settled(&self) -> bool {
        self.late.is_empty() && self.declined.iter().all(VecDeque::is_empty)
    }
}

impl World {
    /// A right comes from the exporter.
    pub(super) fn arrive(&mut self, of: usize) -> Result<(), String> {
        let Some((handle, target)) = self.holders[of].given.pop_front() else {
            return Ok(());
        };
        let arrived = self.holders[of].imports.arrive(handle, target.port);
        arrived.map_err(|refused| format!("arrive: {refused:?}"))?;
        self.holders[of].rights.push(Right {
            word: handle,
            target,
            uses: Vec::new(),
            after: Vec::new(),
            introduction: None,
        });
        Ok(())
    }

    fn pick_right(&mut self, of: usize) -> Option<usize> {
        let count = self.holders[of].rights.len();
        (count > 0).then(|| self.dice.roll(count))
    }

    pub(super) fn copy_or_drop(&mut self, of: usize, is_copy: bool) {
        let Some(at) = self.pick_right(of) else {
            return;
        };
        let holder = &mut self.holders[of];
        if is_copy {
            let mut right = holder.rights[at].clone();
            right.uses = Vec::new();
            holder.imports.copied(right.word);
            holder.rights.push(right);
        } else {
            let right = holder.rights.swap_remove(at);
            holder.imports.dropped(right.word, &right.uses);
        }
    }

    fn post(&mut self, of: usize, lane: usize, said: Said) -> Use {
        let posted = &mut self.holders[of].posted[lane];
        *posted += 1;
        self.sides[of].lanes[lane].push_back(said);
        Use {
            lane: lane as u32,
            tail: *posted,
        }
    }

    fn uses(&mut self, of: usize, at: usize, used: Use) {
        let uses = &mut self.holders[of].rights[at].uses;
        uses.retain(|known| known.lane != used.lane);
        uses.push(used);
    }

    /// A message by a right; or one with the right in it, which goes home.
    pub(super) fn use_one(&mut self, of: usize) {
        let Some(at) = self.pick_right(of) else {
            return;
        };
        let mut right = self.holders[of].rights[at].clone();
        if self.dice.roll(3) == 0
            && let Some(handle) = self.sides[of].at_home(right.word)
        {
            right.word = handle;
        }
        let lane = self.dice.roll(LANES);
        let used = self.post(of, lane, Said::Use(right));
        self.uses(of, at, used);
    }

    /// Gives a right to another one.
    pub(super) fn introduce(&mut self, by: usize) {
        let to = (by + 1 + self.dice.roll(HOLDERS - 1)) % HOLDERS;
        let Some(at) = self.pick_right(by).filter(|_| !self.holders[to].is_dead) else {
            return;
        };
        let lane = self.dice.roll(LANES);
        let before = self.holders[by].posted[lane];
        let right = self.holders[by].rights[at].clone();
        let mut after = right.after.clone();
        after.retain(|(of, its, _)| (*of, *its) != (by, lane));
        after.push((by, lane, before));
        self.holders[by].last_number += 1;
        let number = self.holders[by].last_number;
        let introduction = self.introductions.len();
        self.introductions.push(Introduction {
            by,
            to,
            number,
            target: right.target,
            after,
            from: right.introduction,
            is_excused: false,
            is_redeemed: false,
        });
        self.holders[by].unheard.push((to, number));
        let said = Said::Provide {
            right,
            recipient: to,
            introduction,
        };
        match self.without {
            Without::ProvidedFirst => self.holders[by].late.push_back((lane, said)),
            Without::Order => {
                let used = self.post(by, (lane + 1) % LANES, said);
                self.uses(by, at, used);
            }
            _ => {
                let used = self.post(by, lane, said);
                self.uses(by, at, used);
            }
        }
        if self.dice.roll(8) == 0 {
            // There was no room for the message after all.
            self.introductions[introduction].is_excused = true;
            self.void(by, number);
        } else {
            self.holders[to].inbox[by].push_back(introduction);
        }
    }

    pub(super) fn post_late(&mut self, of: usize) {
        if let Some((lane, said)) = self.holders[of].late.pop_front() {
            self.post(of, lane, said);
        }
    }

    fn void(&mut self, of: usize, number: u64) {
        self.sides[of].socket.push_back(Control::Void { number });
    }

    /// Hears of a right that was provided: claims it, or declines.
    pub(super) fn hear_of(&mut self, of: usize) -> Result<(), String> {
        let by = self.dice.roll(HOLDERS);
        let Some(introduction) = self.holders[of].inbox[by].pop_front() else {
            return Ok(());
        };
        let Introduction { number, target, .. } = self.introductions[introduction];
        if self.dice.roll(8) == 0 {
            self.introductions[introduction].is_excused = true;
            if !self.holders[by].is_dead && self.without != Without::Declined {
                self.holders[by].declined[of].push_back(number);
            }
            return Ok(());
        }
        if self.dice.roll(8) == 0 {
            return self.come_home(of, introduction);
        }
        let claimed = self.holders[of].imports.claim(target.port);
        let word = claimed.map_err(|refused| format!("claim: {refused:?}"))?;
        let lane = self.dice.roll(LANES);
        let used = self.post(of, lane, Said::Claim { word, introduction });
        let after = self.introductions[introduction].after.clone();
        self.holders[of].rights.push(Right {
            word,
            target,
            uses: vec![used],
            after,
            introduction: Some(introduction),
        });
        Ok(())
    }

    pub(super) fn hear_declined(&mut self, of: usize) {
        let by = self.dice.roll(HOLDERS);
        if let Some(number) = self.holders[of].declined[by].pop_front() {
            self.void(of, number);
        }
    }

    pub(super) fn give_back(&mut self, of: usize) {
        let Self { holders, sides, .. } = self;
        let consumed = sides[of].consumed;
        let is_consumed = |used: Use| consumed[used.lane as usize] >= used.tail;
        for (word, count) in holders[of].imports.give_back(is_consumed) {
            let release = Control::Release { word, count };
            sides[of].socket.push_back(release);
        }
    }

    /// Hears that others have ended.
    pub(super) fn notice_ends(&mut self, of: usize) {
        if self.holders[of].is_dead || self.without == Without::Unheard {
            return;
        }
        let Self { holders, .. } = self;
        let is_dead: Vec<_> = holders.iter().map(|holder| holder.is_dead).collect();
        let is_its = |unheard: &mut (usize, u64)| is_dead[unheard.0];
        let unheard: Vec<_> = holders[of].unheard.extract_if(.., is_its).collect();
        for (_, number) in unheard {
            self.void(of, number);
        }
    }

    pub(super) fn kill(&mut self, of: usize) {
        if self.holders[of].is_dead {
            return;
        }
        for introduction in &mut self.introductions {
            introduction.is_excused |= introduction.to == of && !introduction.is_redeemed;
        }
        let posted = self.holders[of].posted;
        self.holders[of] = Holder {
            is_dead: true,
            posted,
            ..Default::default()
        };
        self.sides[of].peer_ended = true;
    }
}
