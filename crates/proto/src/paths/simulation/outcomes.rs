//! Waiting for outcomes, along paths, and what a caller forgets when.

use super::*;

#[derive(Clone)]
pub(super) struct Awaited {
    pub(super) start: usize,
    set: u32,
    place: usize,
    generation: u32,
    pub(super) path: Option<usize>,
    /// The result of the look for an end, which comes before the look for the outcome.
    has_ended: Option<bool>,
}

/// Somebody waits for the outcome of a call, or passes it on when it comes.
pub(super) struct Wait {
    pub(super) awaited: Awaited,
    /// The slot that is in use meanwhile.
    pub(super) slot: (usize, u32, usize),
    pub(super) call: usize,
    pub(super) right: Option<Right>,
    /// Nobody takes the outcome but the control thread.
    pub(super) is_given_up: bool,
}

impl Awaited {
    pub(super) const fn new(start: usize, set: u32, place: usize, generation: u32) -> Self {
        Self {
            start,
            set,
            place,
            generation,
            path: None,
            has_ended: None,
        }
    }
}

impl World {
    /// Half a look of somebody who waits.
    pub(super) fn look(&mut self, of: usize) -> Result<(), String> {
        let count = self.processes[of].waits.len();
        if count == 0 {
            return Ok(());
        }
        let at = self.dice.roll(count);
        let awaited = self.processes[of].waits[at].awaited.clone();
        let end = awaited
            .path
            .map_or(awaited.start, |path| self.paths[path].end);
        let slot = self.ends[end].slots[awaited.set as usize][awaited.place];
        let is_answered = slot.generation == awaited.generation;
        let is_over = awaited.path.is_some_and(|path| self.paths[path].is_over);
        let is_over = is_over || self.ends[end].is_down;
        let Some(had_ended) = awaited.has_ended else {
            let first = if self.without == Without::SecondLook {
                is_answered
            } else {
                is_over
            };
            self.processes[of].waits[at].awaited.has_ended = Some(first);
            return Ok(());
        };
        self.processes[of].waits[at].awaited.has_ended = None;
        let (has_ended, is_answered) = if self.without == Without::SecondLook {
            (is_over, had_ended)
        } else {
            (had_ended, is_answered)
        };
        if !is_answered {
            return match has_ended {
                true => self.take(of, at, None),
                false => {
                    self.begin_again(of, at);
                    Ok(())
                }
            };
        }
        match slot.outcome {
            Outcome::Moved(number) => {
                let source = Source {
                    link: end as u32,
                    set: awaited.set,
                };
                let Some(path) = self.find_path(of, number, source) else {
                    return self.take(of, at, None);
                };
                self.paths[path].uses += 1;
                let set = self.paths[path].set;
                let last = awaited.path;
                let awaited = &mut self.processes[of].waits[at].awaited;
                (awaited.path, awaited.set) = (Some(path), set);
                if let Some(last) = last {
                    self.unuse_path(last);
                }
                Ok(())
            }
            Outcome::Answer(answer) => self.take(of, at, Some(answer)),
            Outcome::Dropped => self.take(of, at, None),
        }
    }

    /// A wait for an outcome that was given up remembers no path.
    fn begin_again(&mut self, of: usize, at: usize) {
        let wait = &mut self.processes[of].waits[at];
        if wait.is_given_up
            && let Some(path) = wait.awaited.path
        {
            let (start, set, place) = wait.slot;
            wait.awaited = Awaited::new(start, set, place, wait.awaited.generation);
            self.unuse_path(path);
        }
    }

    /// The path along which an outcome is awaited, or would be.
    pub(super) fn path_of(&self, wait: &Wait) -> Option<usize> {
        if wait.awaited.path.is_some() {
            return wait.awaited.path;
        }
        let (start, set, place) = wait.slot;
        let slot = self.ends[start].slots[set as usize][place];
        let (of, link) = (self.ends[start].of, start as u32);
        match slot.outcome {
            Outcome::Moved(number) if slot.generation == wait.awaited.generation => {
                self.find_path(of, number, Source { link, set })
            }
            _ => None,
        }
    }

    fn find_path(&self, of: usize, number: u32, source: Source) -> Option<usize> {
        let process = &self.processes[of];
        process.core.find(number, source)?;
        let mut live = process.live.iter();
        live.find(|path| self.paths[**path].number == number)
            .copied()
    }

    /// The outcome has come.
    fn take(&mut self, of: usize, at: usize, answer: Option<usize>) -> Result<(), String> {
        let wait = self.processes[of].waits.swap_remove(at);
        let (end, set, place) = wait.slot;
        self.ends[end].used[set as usize][place].1 = false;
        if let Some(path) = wait.awaited.path {
            self.unuse_path(path);
        }
        let call = wait.call;
        if let Some(answer) = answer {
            self.answers += 1;
            if answer != call {
                return Err(format!("call {call} got the answer of {answer}"));
            }
        } else if !self.calls[call].is_excused {
            return Err(format!("the answer to call {call} is lost"));
        }
        if let Some(right) = wait.right {
            self.finish(right, answer);
        }
        Ok(())
    }

    pub(super) fn unuse_path(&mut self, path: usize) {
        let known = &mut self.paths[path];
        known.uses -= 1;
        if known.uses == 0 {
            let (of, number) = (known.of, known.number);
            self.processes[of].core.left(number);
        }
    }

    /// The slots awaited where the outcomes of a path are awaited first.
    fn awaited(&self, (end, set): (usize, u32)) -> Vec<(usize, u32)> {
        if self.ends[end].is_gone {
            return Vec::new();
        }
        let used = self.ends[end].used[set as usize].iter().enumerate();
        used.filter(|(_, (_, in_use))| *in_use)
            .map(|(place, (generation, _))| (place, *generation))
            .collect()
    }

    pub(super) fn end_path(&mut self, path: usize) {
        let last = match self.without {
            Without::Followers | Without::Waiters => Vec::new(),
            _ => self.awaited(self.paths[path].root),
        };
        self.paths[path].last.get_or_insert(last);
        self.paths[path].is_over = true;
    }

    /// Forgets the paths that are over and that nobody waits for.
    pub(super) fn leave_paths(&mut self, of: usize) {
        let live = core::mem::take(&mut self.processes[of].live);
        for path in live {
            let awaited = self.awaited(self.paths[path].root);
            let last = self.paths[path].last.as_ref();
            if last.is_none_or(|last| last.iter().any(|call| awaited.contains(call))) {
                self.processes[of].live.push(path);
                continue;
            }
            if self.without == Without::Waiters {
                let number = self.paths[path].number;
                self.processes[of].core.left(number);
            }
            self.unuse_path(path);
        }
    }
}
