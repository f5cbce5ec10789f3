//! Invariants at every step, once all is quiet, and at the end.

use super::*;

impl World {
    /// The invariants at every step.
    pub(super) fn check(&self) -> Result<(), String> {
        for end in self.ends.iter().filter(|end| !end.is_gone) {
            if end.asks.asked.len() > PARTIES_MAX || end.parties.known.len() > PARTIES_MAX {
                return Err("a table grows".into());
            }
        }
        Ok(())
    }

    /// Everybody does what there is to do, and asks for nothing more.
    /// Returns whether all is quiet; if not, some wait in a circle.
    fn settle(&mut self) -> Result<bool, String> {
        for round in 0..2_000 {
            for of in 0..PROCESSES {
                if self.processes[of].is_dead {
                    continue;
                }
                for _ in 0..6 {
                    self.work(of)?;
                }
                let is_answer = self.dice.roll(4) > 0;
                self.answer(of, is_answer);
                self.leave_paths(of);
            }
            if round % 8 == 7 && self.is_quiet() {
                return Ok(true);
            }
        }
        match self.is_circle() {
            true => Ok(false),
            false => Err(self.describe()),
        }
    }

    fn is_quiet(&self) -> bool {
        let is_idle = |process: &Process| {
            process.rights.is_empty() && process.passes.is_empty() && process.waits.is_empty()
        };
        let ends = self
            .ends
            .iter()
            .filter(|end| !self.processes[end.of].is_dead);
        self.processes.iter().all(is_idle)
            && ends.clone().all(|end| {
                let is_heard = end.socket.is_empty() && !end.peer_ended;
                (end.has_ended || is_heard && !end.is_down)
                    && end.lanes.iter().all(VecDeque::is_empty)
            })
    }

    /// Whether all who wait do so for each other. The replier says that a path is over when all its
    /// rights are used; when a message was lost, its caller hears of that only then, and the right may be
    /// one that waits for the same call, which has come in a circle.
    fn is_circle(&self) -> bool {
        let waits = || self.processes.iter().flat_map(|process| &process.waits);
        let is_used = |path: &Known| {
            let party = |party: usize| &self.parties[party];
            let mut parties = waits().filter_map(|wait| wait.right.as_ref()?.party);
            !path.is_over
                && parties.any(|of| party(of).end == path.end ^ 1 && party(of).path == path.number)
        };
        let mut paths = waits().filter_map(|wait| self.path_of(wait));
        paths.any(|path| is_used(&self.paths[path]))
    }

    fn describe(&self) -> String {
        let mut waits = self.processes.iter().flat_map(|process| &process.waits);
        match waits.next() {
            Some(wait) => format!("call {} waits for ever", wait.call),
            None => "it never gets quiet".into(),
        }
    }

    /// Once all is quiet nobody waits, and the tables of the three agree.
    pub(super) fn end(&mut self) -> Result<(), String> {
        if !self.settle()? {
            return Ok(());
        }
        self.agree()?;
        // The application lets go of what has ended, and at last of all but one link.
        self.ends.iter_mut().for_each(|end| end.is_held = false);
        for of in 2..PROCESSES {
            self.kill(of);
        }
        self.settle()?;
        self.agree()?;
        self.kill(1);
        self.settle()?;
        for _ in 0..60 {
            self.collect(0);
            self.leave_paths(0);
        }
        let process = &self.processes[0];
        let is_left = process.core.granted.iter().flatten().count();
        if is_left + process.live.len() + process.wanted.len() > 0 {
            return Err(format!(
                "{is_left} paths, {} of them known, {} wanted are left",
                process.live.len(),
                process.wanted.len()
            ));
        }
        match self.parties.iter().any(|party| party.uses > 0) {
            true => Err("a party is left".into()),
            false => Ok(()),
        }
    }

    fn agree(&self) -> Result<(), String> {
        for end in self.ends.iter().filter(|end| !end.has_ended) {
            for ask in &end.asks.asked {
                let number = ask.number;
                if self.ends[ask.source.link as usize].has_ended {
                    return Err(format!("ask {number} is left of a link that has ended"));
                }
                let party = self.ends[end.other()].parties.get(number);
                match ask.state {
                    State::Asked { .. } => return Err(format!("ask {number} is never answered")),
                    State::Ready { .. } if party.is_none() => {
                        return Err(format!("number {number} means nothing to the replier"));
                    }
                    _ => {}
                }
            }
            let mut known = end.parties.known.iter();
            let asks = &self.ends[end.other()].asks.asked;
            let is_lost = |known: &&(u32, _)| asks.iter().all(|ask| ask.number != known.0);
            if let Some((number, _)) = known.find(is_lost) {
                return Err(format!("party {number} is left"));
            }
        }
        Ok(())
    }
}
