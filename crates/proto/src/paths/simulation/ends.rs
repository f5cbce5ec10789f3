//! Links and processes: how they begin and end.

use super::*;

impl End {
    /// The number of the other side, whose last bit is other.
    pub(super) const fn other(&self) -> usize {
        self.number ^ 1
    }
}

impl World {
    pub(super) fn new(seed: u64, without: Without) -> Self {
        let mut world = Self {
            without,
            now_ns: 1,
            dice: Dice::new(seed),
            processes: (0..PROCESSES).map(|_| Process::default()).collect(),
            ends: Vec::new(),
            parties: Vec::new(),
            paths: Vec::new(),
            calls: Vec::new(),
            answers: 0,
        };
        for one in 0..PROCESSES {
            for other in 0..one {
                world.link(one, other);
            }
        }
        world
    }

    fn link(&mut self, one: usize, other: usize) {
        for (of, peer) in [(one, other), (other, one)] {
            let is_used = |index: u32| {
                let mut its = self.ends.iter().filter(|end| end.of == of);
                its.any(|end| !end.has_ended && end.index == index)
            };
            let index = (0..).find(|index| !is_used(*index)).unwrap_or_default();
            self.ends.push(End {
                number: self.ends.len(),
                of,
                peer,
                index,
                is_down: false,
                is_cut: false,
                has_ended: false,
                is_deaf: false,
                is_gone: false,
                peer_ended: false,
                is_held: self.dice.roll(2) == 0,
                is_granted: of == other,
                socket: VecDeque::new(),
                lanes: Default::default(),
                slots: Default::default(),
                used: Default::default(),
                asks: Asks::default(),
                parties: Parties::default(),
            });
        }
    }

    /// The process's link with this property; of several the oldest.
    pub(super) fn find(&self, of: usize, is_it: impl Fn(&End) -> bool) -> Option<usize> {
        let is_up = |end: &End| end.of == of && !end.is_down;
        self.ends.iter().position(|end| is_up(end) && is_it(end))
    }

    pub(super) fn connect(&mut self, of: usize) {
        let peer = self.dice.roll(PROCESSES);
        let is_new = self.find(of, |end| end.peer == peer).is_none();
        if peer != of && is_new && !self.processes[peer].is_dead && self.ends.len() < 40 {
            self.link(of, peer);
        }
    }

    /// The first caller connects anew to whom it calls most.
    pub(super) fn renew(&mut self) {
        if let Some(end) = self.find(0, |end| end.peer == 1)
            && self.ends.len() < 40
            && !self.processes[1].is_dead
        {
            self.end_link(end);
            self.end_link(end ^ 1);
            self.link(0, 1);
        }
    }

    pub(super) fn hold(&mut self, of: usize) {
        if let Some(end) = self.pick_of(of) {
            self.ends[end].is_held = !self.ends[end].is_held && !self.ends[end].is_down;
        }
    }

    fn pick_of(&mut self, of: usize) -> Option<usize> {
        let ends = &self.ends;
        let is_its = |end: &usize| ends[*end].of == of && !ends[*end].is_gone;
        self.dice.pick((0..ends.len()).filter(is_its))
    }

    /// The application drops its last right to a port of the peer.
    pub(super) fn release(&mut self, of: usize) {
        if let Some(end) = self.pick_of(of) {
            self.release_end(end);
        }
    }

    pub(super) fn release_end(&mut self, end: usize) {
        let End {
            is_held,
            is_granted,
            ..
        } = self.ends[end];
        if !is_held && !is_granted && !self.is_used(end) {
            self.end_link(end);
        }
    }

    /// Whether the process would not end the link by itself.
    fn is_used(&self, end: usize) -> bool {
        let process = &self.processes[self.ends[end].of];
        let waits = process.waits.iter();
        waits.map(|wait| wait.awaited.start).any(|of| of == end)
            || self.parties.iter().any(|of| of.uses > 0 && of.end == end)
            || self.paths.iter().any(|of| of.uses > 0 && of.end == end)
    }

    /// The peer has broken a rule.
    pub(super) fn cut(&mut self, of: usize) {
        if let Some(end) = self.pick_of(of) {
            self.cut_end(end);
        }
    }

    pub(super) fn cut_end(&mut self, end: usize) {
        if !self.ends[end].is_down {
            self.ends[end].is_cut = true;
            self.take_down(end);
        }
    }

    fn take_down(&mut self, end: usize) {
        self.ends[end].is_down = true;
        self.ends[end ^ 1].peer_ended = true;
        for call in &mut self.calls {
            let mut needs = call.needs.iter().chain(&call.vines).chain(&call.moves);
            call.is_excused |= needs.any(|link| *link == end / 2);
        }
    }

    pub(super) fn kill(&mut self, of: usize) {
        self.processes[of] = Process {
            is_dead: true,
            ..Default::default()
        };
        for end in 0..self.ends.len() {
            if self.ends[end].of == of && !self.ends[end].is_gone {
                self.take_down(end);
                let end = &mut self.ends[end];
                end.socket.clear();
                end.lanes = Default::default();
                (end.has_ended, end.is_deaf, end.is_gone) = (true, true, true);
                (end.asks, end.parties) = Default::default();
            }
        }
        self.parties.iter_mut().for_each(|party| {
            if self.ends[party.end].of == of {
                party.uses = 0;
            }
        });
        let its = self.paths.iter_mut().filter(|path| path.of == of);
        its.for_each(|path| path.uses = 0);
    }

    /// A process forgets a link.
    pub(super) fn end_link(&mut self, end: usize) {
        self.take_down(end);
        if core::mem::replace(&mut self.ends[end].has_ended, true) {
            return;
        }
        let of = self.ends[end].of;
        if self.ends[end].is_cut {
            self.deafen(end);
        }
        for number in self.processes[of].core.link_ended(end as u32) {
            let mut live = self.processes[of].live.iter();
            let is_it = |path: &&usize| self.paths[**path].number == number;
            if let Some(path) = live.find(is_it).copied() {
                self.end_path(path);
            }
        }
        let without = self.without;
        let is_its = |wanted: &mut Wanted| {
            wanted.of == end || without == Without::Tokens && wanted.forwarder == end
        };
        let unmet: Vec<_> = self.processes[of].wanted.extract_if(.., is_its).collect();
        for wanted in unmet {
            if self.without != Without::Unmet {
                self.refuse(wanted.forwarder, wanted.number);
            }
        }
        for link in 0..self.ends.len() {
            if self.ends[link].of != of || self.ends[link].has_ended {
                continue;
            }
            let parties = &self.parties;
            let is_its = |party: &usize| parties[*party].end == end;
            let gone = self.ends[link].parties.drop_those(is_its);
            if self.without != Without::Drops {
                for number in self.ends[link].asks.source_ended(end as u32) {
                    self.say(link, Control::Drop { number });
                }
            }
            for (number, party) in gone {
                self.unuse_party(party);
                if self.without != Without::Refusal {
                    self.refuse(link, number);
                }
            }
        }
    }

    /// Nothing more is taken from the lanes of a link that has ended.
    fn deafen(&mut self, end: usize) {
        self.ends[end].is_deaf = true;
        self.ends[end].lanes = Default::default();
        if self.without != Without::DeafParties {
            self.drop_parties(end);
        }
    }

    fn drop_parties(&mut self, end: usize) {
        for (_, party) in self.ends[end].parties.drop_those(|_| true) {
            self.unuse_party(party);
        }
    }

    /// Ends everything that nobody uses any more.
    pub(super) fn collect(&mut self, of: usize) {
        let Some(end) = self.pick_of(of).filter(|end| self.ends[*end].has_ended) else {
            return;
        };
        if self.ends[end].lanes.iter().any(|lane| !lane.is_empty()) {
            return;
        }
        self.deafen(end);
        let process = &self.processes[of];
        let mut rights = process.rights.iter();
        let mut passes = process.passes.iter();
        let mut wanted = process.wanted.iter();
        if !self.ends[end].is_held
            && !self.is_used(end)
            && !rights.any(|right| right.end == end)
            && !passes.any(|pass| pass.to == end || pass.right.end == end)
            && !wanted.any(|wanted| wanted.forwarder == end)
        {
            self.ends[end].is_gone = true;
            self.drop_parties(end);
        }
    }
}
