//! Ends of trails and processes, and of everything they had.

use super::instance::Follow;
use super::*;

impl World {
    /// Trails that nobody sends to any more end, and those whose port is gone.
    pub(super) fn end_tails(&mut self) -> Result<(), String> {
        for of in 0..self.instances.len() {
            let Instance {
                home,
                rights,
                ref state,
                ..
            } = self.instances[of];
            if self.is_dead[home] {
                continue;
            }
            match state {
                State::Trail(follow) => {
                    let is_gone = self.is_dead[follow.to.home]
                        || self.is_in(follow.to.port as usize, |state| {
                            matches!(state, State::Ended)
                        });
                    let its = |side: &Side| {
                        side.lanes
                            .iter()
                            .any(|(at, lane)| at.0 as usize == of && !lane.queue.is_empty())
                    };
                    let is_left =
                        (0..PROCESSES).any(|from| its(&self.sides[from * PROCESSES + home]));
                    let is_over = rights == 0 && !is_left || self.without == Without::Stay;
                    if is_gone || is_over {
                        self.end_instance(of);
                    }
                }
                State::Leaving { to, .. } if self.is_dead[*to] => self.end_instance(of),
                _ if rights < 0 => return Err(format!("{rights} rights to {of}")),
                _ => {}
            }
        }
        Ok(())
    }

    fn end_instance(&mut self, of: usize) {
        self.done += 1;
        let state = core::mem::replace(&mut self.instances[of].state, State::Ended);
        if let State::Trail(follow) = state {
            let Follow { to, by_badge, .. } = *follow;
            for right in by_badge.into_values().chain([to]) {
                self.dropped(right);
            }
        }
    }

    /// A home hears that a sender has ended.
    pub(super) fn hear_of_end(&mut self, of: usize, home: usize) -> Result<(), String> {
        if self.is_dead[home] || !self.is_dead[of] || self.side(of, home).has_ended {
            return Ok(());
        }
        self.done += 1;
        let side = self.side(of, home);
        side.has_ended = true;
        side.releases.clear();
        for (port, count) in side.exports.end().ports {
            self.instances[port as usize].rights -= count.cast_signed();
        }
        for target in self.provisions[home].ended(incarnation(of), true, 0) {
            self.ended(target);
        }
        for instance in self
            .instances
            .iter_mut()
            .filter(|instance| instance.home == home)
        {
            if let State::Trail(follow) = &mut instance.state {
                follow.trail.end(of as u32);
            }
        }
        Ok(())
    }

    pub(super) fn kill(&mut self, of: usize) {
        if core::mem::replace(&mut self.is_dead[of], true) {
            return;
        }
        self.has_died = true;
        self.apps.retain(|app| app.sender != of);
        for instance in self
            .instances
            .iter_mut()
            .filter(|instance| instance.home == of)
        {
            instance.state = State::Ended;
        }
        let drops = self.without != Without::Drops;
        // The messages it had taken, and the messages that wait in its lanes.
        let taken: Vec<_> = self.open.extract_if(.., |(_, home)| *home == of).collect();
        let mut dropped: Vec<_> = taken.into_iter().map(|(message, _)| message).collect();
        for from in 0..PROCESSES {
            let side = self.side(from, of);
            for lane in side.lanes.values_mut() {
                let waits = lane.queue.drain(..).filter_map(|said| match said {
                    Said::Use { message, .. } => Some(message),
                    _ => None,
                });
                dropped.extend(waits);
            }
            side.news.clear();
            side.given.clear();
        }
        for message in dropped.into_iter().filter(|_| drops) {
            self.messages[message].outcomes += 1;
        }
    }
}
