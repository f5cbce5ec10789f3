//! Introducers and recipients.

use super::*;
use crate::rights::Handle;

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
    /// Statements of the others.
    said: [VecDeque<Between>; HOLDERS],
    /// Rights it has given to the others.
    told: [Remembered<u32>; HOLDERS],
    /// Rights it keeps for the others.
    keeping: [Keeping<Right>; HOLDERS],
    /// Said of late, with a rule left out.
    late: VecDeque<(usize, Said)>,
    /// Provisions made, and to whom.
    unheard: Vec<(usize, u64)>,
}

impl Holder {
    /// Whether it has said all.
    pub(super) fn is_settled(&self) -> bool {
        self.late.is_empty() && self.said.iter().all(VecDeque::is_empty)
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
        let count = if self.is_narrow { count.min(2) } else { count };
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
        let step = if self.is_narrow { 1 } else { HOLDERS - 1 };
        let to = (by + 1 + self.dice.roll(step)) % HOLDERS;
        let Some(at) = self.pick_right(by).filter(|_| !self.holders[to].is_dead) else {
            return;
        };
        let lane = self.dice.roll(LANES);
        let before = self.holders[by].posted[lane];
        let right = self.holders[by].rights[at].clone();
        let mut after = right.after.clone();
        after.retain(|(of, its, _)| (*of, *its) != (by, lane));
        after.push((by, lane, before));
        let is_next = self.sides[by].consumed[lane] == before;
        let mut keep = false;
        if is_next || self.without == Without::AgainInOrder {
            match self.holders[by].told[to].give(right.word) {
                How::Again(number) => return self.introduce_again(by, to, (number, &right, after)),
                How::Provide { keep: asked } => keep = asked,
            }
        }
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
            keep,
            again: None,
        });
        if keep {
            self.holders[by].told[to].offered(right.word, number);
        }
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

    /// By what its recipient keeps.
    fn introduce_again(
        &mut self,
        by: usize,
        to: usize,
        (number, right, after): (u64, &Right, Vec<(usize, usize, u32)>),
    ) {
        let is_it = |one: &Introduction| (one.by, one.to, one.number) == (by, to, number);
        let from = self.introductions.iter().position(is_it);
        let is_sent = self.dice.roll(8) > 0;
        self.introductions.push(Introduction {
            by,
            to,
            number: 0,
            target: right.target,
            after,
            from,
            is_excused: !is_sent,
            is_redeemed: false,
            keep: false,
            again: Some(number),
        });
        if is_sent {
            self.holders[to].inbox[by].push_back(self.introductions.len() - 1);
        } else if self.without != Without::Unsent && self.holders[by].told[to].unsent(number) {
            self.say(by, to, Between::Left(number));
        }
    }

    fn say(&mut self, from: usize, to: usize, said: Between) {
        if !self.holders[to].is_dead {
            self.holders[to].said[from].push_back(said);
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
        let Introduction {
            number,
            target,
            keep,
            again,
            ..
        } = self.introductions[introduction];
        if let Some(number) = again {
            return self.take_again(of, by, (number, introduction));
        }
        if self.dice.roll(8) == 0 {
            self.introductions[introduction].is_excused = true;
            if !self.holders[by].is_dead && self.without != Without::Declined {
                self.say(of, by, Between::Declined(number));
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
        let right = Right {
            word,
            target,
            uses: vec![used],
            after,
            introduction: Some(introduction),
        };
        if keep && !self.holders[by].is_dead {
            let mut kept = right.clone();
            kept.uses = Vec::new();
            let holder = &mut self.holders[of];
            if holder.keeping[by].keep(number, kept).is_err() {
                return Err(format!("{number} is kept twice"));
            }
            holder.imports.copied(word);
            holder.imports.keep(word, Some((by as u32, number)));
            self.say(of, by, Between::Kept(number));
        }
        self.holders[of].rights.push(right);
        Ok(())
    }

    fn take_again(
        &mut self,
        of: usize,
        by: usize,
        (number, introduction): (u64, usize),
    ) -> Result<(), String> {
        let Introduction { target, after, .. } = &self.introductions[introduction];
        let is_dead = self.holders[by].is_dead;
        let holder = &mut self.holders[of];
        let kept = holder.keeping[by].again(number);
        let mut right = match kept {
            Some(Came::Right(kept)) if kept.target == *target => kept.clone(),
            Some(Came::Right(kept)) => {
                return Err(format!("{:?} came for {target:?}", kept.target));
            }
            None if is_dead => return Ok(()),
            Some(Came::Ended { .. }) | None => {
                return Err(format!("nobody keeps {number}, which has come again"));
            }
        };
        holder.imports.copied(right.word);
        right.after.extend(after.iter().copied());
        holder.rights.push(right);
        Ok(())
    }

    pub(super) fn hear_between(&mut self, of: usize) {
        let waits = |by: &usize| !self.holders[of].said[*by].is_empty();
        let Some(by) = (0..HOLDERS).find(waits) else {
            return;
        };
        let Some(said) = self.holders[of].said[by].pop_front() else {
            return;
        };
        let told = &mut self.holders[of].told[by];
        match said {
            Between::Declined(number) => self.void(of, number),
            Between::Kept(number) => {
                if !told.kept(number) {
                    self.say(of, by, Between::Left(number));
                }
            }
            Between::Leave(number, came) => {
                if told.leave(number, came) || self.without == Without::Comparing {
                    self.say(of, by, Between::Left(number));
                }
            }
            Between::Left(number) => self.let_go(of, by, number),
        }
    }

    fn let_go(&mut self, of: usize, by: usize, number: u64) {
        let holder = &mut self.holders[of];
        if let Some(right) = holder.keeping[by].left(number) {
            self.left += 1;
            holder.imports.keep(right.word, None);
            holder.imports.dropped(right.word, &[]);
        }
    }

    pub(super) fn give_back(&mut self, of: usize) {
        for (word, (by, number)) in self.holders[of].imports.unused() {
            let by = by as usize;
            match self.holders[of].keeping[by].quiet(number) {
                Some(_) if self.without == Without::Asking => self.let_go(of, by, number),
                Some(came) => self.say(of, by, Between::Leave(number, came)),
                None => {
                    self.holders[of].imports.may_be_unused(word);
                }
            }
        }
        let Self { holders, sides, .. } = self;
        let consumed = sides[of].consumed;
        let is_consumed = |used: Use| consumed[used.lane as usize] >= used.tail;
        for (word, count) in holders[of].imports.give_back(is_consumed) {
            for told in &mut holders[of].told {
                told.forget(word);
            }
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
        let Holder {
            inbox,
            said,
            told,
            keeping,
            imports,
            ..
        } = &mut holders[of];
        for dead in (0..HOLDERS).filter(|by| is_dead[*by]) {
            said[dead].clear();
            told[dead] = Remembered::default();
            if self.without == Without::KeptForDead {
                continue;
            }
            // Rights it has named again that have not come yet are lost.
            for at in &inbox[dead] {
                let lost = &mut self.introductions[*at];
                lost.is_excused |= lost.again.is_some();
            }
            for right in keeping[dead].end() {
                imports.keep(right.word, None);
                imports.dropped(right.word, &[]);
            }
        }
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
