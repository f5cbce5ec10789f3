//! Crowds on the simulated machine: one server and its clients, each of which calls again as soon as it has its reply,
//! by the policies of `Strategy::Adaptive`, with the rota or without.

use super::machine::{Cpu, LINE, LOOK, Rule, SLEEP, SWITCH, Step, WAKE, Wait, Waits, Way, YIELD};
use crate::rota::{Admitted, Rang, Rota, Verdict, Wake};
use alloc::vec;
use alloc::vec::Vec;

/// The work of a client for a call.
const WORK: u64 = 300;
/// The work of the server for a call.
const SERVICE: u64 = 100;
/// How long an overloaded server asks its clients to spin.
const ASKED: u64 = 20_000;
/// An active lane without a message for so long is looked at no more; one of a client that was woken, for so long.
const QUIET: u64 = 20_000;
const WAKING: u64 = 2_000_000;
/// Looks of the server at all its lanes between two at those that rang.
const LOOKS_PER_BELL: u32 = 16;
/// A time at which no yields are tried again.
const NEVER: u64 = 1 << 26;
/// The time that is measured, after half as much.
const WINDOW: u64 = 60_000_000;

pub(super) fn calls(waits: Waits, cpus: usize, clients: usize) -> u64 {
    Crowd::new(waits.into(), cpus, clients).outcome().total()
}

/// The first one is the server, which has lane N of client N + 1.
struct Thread {
    cpu: usize,
    step: Step,
    wait: Wait,
}

/// A client's lane.
#[derive(Clone, Default)]
struct Lane {
    /// When its request is seen, and its reply.
    posted_ns: Option<u64>,
    replied_ns: Option<u64>,
    is_put_off: bool,
    /// The reply is there, and the client is woken later.
    is_held: bool,
    /// When it was last served, woken, and found busy.
    served: u64,
    asked_ns: u64,
    longest_ns: u64,
    busy_ns: u64,
    woken_ns: u64,
}

struct Crowd {
    rule: Rule,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    lanes: Vec<Lane>,
    rota: Rota,
    active: Vec<usize>,
    next: usize,
    looks: u32,
    checked_ns: u64,
    /// The processor of the client served last, and whether the last window had no other.
    last_cpu: usize,
    is_overloaded: bool,
    /// From then on calls count.
    begin_ns: u64,
}

/// The calls of a crowd in the time that was measured, by client, and the longest wait.
struct Outcome {
    served: Vec<u64>,
    #[cfg_attr(not(test), expect(dead_code, reason = "a law of the tests alone"))]
    longest_ns: u64,
}

impl Outcome {
    fn total(&self) -> u64 {
        self.served.iter().sum()
    }

    #[cfg(test)]
    fn fairness(&self) -> f64 {
        let squares: f64 = self
            .served
            .iter()
            .map(|served| (*served as f64).powi(2))
            .sum();
        (self.total() as f64).powi(2) / (self.served.len() as f64 * squares)
    }
}

impl Crowd {
    /// The server on the first processor, the clients on all in turn, the second one first.
    fn new(rule: Rule, cpus: usize, clients: usize) -> Self {
        let thread = |place: usize| Thread {
            cpu: place % cpus,
            step: if place == 0 {
                Step::Look(0)
            } else {
                Step::Work
            },
            wait: Wait::new(),
        };
        let cap = match (cpus, rule) {
            // All may be active where no client runs while the server looks.
            (1, _) => clients,
            (2, _) => 2,
            (more, _) => more - 1,
        };
        let mut rota = Rota::new(cap);
        (0..clients).for_each(|key| rota.add(key, 0));
        let mut crowd = Self {
            rule,
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            threads: (0..=clients).map(thread).collect(),
            lanes: vec![Lane::default(); clients],
            rota,
            active: Vec::new(),
            next: 0,
            looks: 0,
            checked_ns: 0,
            last_cpu: usize::MAX,
            is_overloaded: false,
            begin_ns: 0,
        };
        for place in 0..=clients {
            crowd.cpus[place % cpus].queue.push_back(place);
        }
        crowd
    }

    /// A wait of this thread begins.
    fn begin(&mut self, me: usize, now_ns: u64, woke_peer: bool) {
        let shares = match me {
            0 => {
                self.cpus.len() == 1
                    || self.active.len() <= 1 && self.last_cpu == self.threads[0].cpu
            }
            client => self.threads[client].cpu == self.threads[0].cpu,
        };
        let asked_ns = (me > 0 && self.is_overloaded).then_some(ASKED);
        let thread = &mut self.threads[me];
        let way = match self.rule {
            Rule::Sleep => Way::Sleep,
            Rule::Yield => Way::Free,
            Rule::Resigned => thread.wait.adaptive(NEVER, shares, false),
            _ => thread.wait.adaptive(now_ns, shares, false),
        };
        thread.wait.begin(way, now_ns, woke_peer, asked_ns);
        thread.step = Step::Look(0);
    }

    /// A thread has looked in vain.
    fn goes_on(&mut self, me: usize, now_ns: u64, yields: u32) {
        let is_put_off = me > 0 && self.lanes[me - 1].is_put_off;
        // A server does not sleep while somebody waits.
        let stays = me == 0 && self.rota.waiting() > 0;
        let thread = &mut self.threads[me];
        thread.step = match thread.wait.next(now_ns, yields, is_put_off) {
            Step::Sleep if stays => Step::Look(yields),
            Step::Sleep => {
                thread.wait.looked(now_ns, None, false);
                Step::Sleep
            }
            next => next,
        };
    }

    /// A thread has found what it waits for, after so many yields.
    fn found(&mut self, me: usize, now_ns: u64, posted_ns: u64, yields: u32) {
        let wait = &mut self.threads[me].wait;
        wait.looked(now_ns, Some(yields), false);
        wait.ended(now_ns, posted_ns);
    }

    /// Runs the first thread of this processor for a step.
    fn run(&mut self, at: usize) {
        let now_ns = self.cpus[at].until_ns;
        let me = self.cpus[at].queue[0];
        let is_alone = self.cpus[at].queue.len() == 1;
        let (mut took_ns, mut goes) = (LOOK, false);
        match self.threads[me].step {
            Step::Work => took_ns = self.call(me, now_ns),
            Step::Look(yields) => {
                self.threads[me].wait.looks(now_ns);
                match me {
                    0 => took_ns = self.serve(now_ns, yields),
                    client => self.look(client, now_ns, yields),
                }
            }
            Step::Yield(yields) => {
                let thread = &mut self.threads[me];
                thread.step = Step::Look(yields + 1);
                thread.wait.yielded_ns = Some(now_ns);
                self.cpus[at].queue.rotate_left(1);
                (took_ns, goes) = (YIELD + if is_alone { 0 } else { SWITCH }, true);
            }
            Step::Sleep if self.may_not_sleep(me) => self.threads[me].step = Step::Look(0),
            Step::Sleep => {
                if me == 0 {
                    self.rests(now_ns);
                }
                self.threads[me].step = Step::Asleep;
                self.cpus[at].queue.pop_front();
                (took_ns, goes) = (SLEEP + SWITCH, true);
            }
            Step::Asleep => unreachable!("in no queue"),
        }
        self.cpus[at].takes(took_ns, goes);
        if self.cpus[at].queue.is_empty() {
            self.takes_over(at);
        }
    }

    /// An idle processor takes a thread that waits for another one.
    fn takes_over(&mut self, at: usize) {
        let longest = (0..self.cpus.len()).max_by_key(|at| self.cpus[*at].queue.len());
        let from = longest.expect("a processor");
        if self.cpus[from].queue.len() > 1
            && let Some(me) = self.cpus[from].queue.pop_back()
        {
            self.threads[me].cpu = at;
            self.cpus[at].queue.push_back(me);
        }
    }

    /// The server sleeps.
    fn rests(&mut self, now_ns: u64) {
        for key in core::mem::take(&mut self.active) {
            self.rota.quiet(key, now_ns);
        }
        self.rota.slept();
        self.is_overloaded = false;
    }

    /// The second look, after the sleep has been announced.
    fn may_not_sleep(&self, me: usize) -> bool {
        match me {
            0 => self.rota.waiting() > 0 || self.lanes.iter().any(|lane| lane.posted_ns.is_some()),
            client => {
                let lane = &self.lanes[client - 1];
                lane.replied_ns.is_some() && !lane.is_held
            }
        }
    }

    /// A thread that sleeps runs again: on a processor that is idle, or on its own, before those that yield; a client of an overloaded server on
    /// one of the others. Returns how long that takes its waker.
    fn wake(&mut self, me: usize, now_ns: u64) -> u64 {
        let own = self.threads[me].cpu;
        let mut places = (0..self.cpus.len()).map(|step| (own + step) % self.cpus.len());
        let at = places
            .find(|at| self.cpus[*at].queue.is_empty())
            .unwrap_or(own);
        self.threads[me].step = Step::Look(0);
        self.threads[me].cpu = at;
        let others = self.cpus[at].queue.iter().skip(1);
        let before = others.take_while(|other| self.threads[**other].wait.yielded_ns.is_none());
        let place = 1 + before.count();
        self.cpus[at].wakes(me, place, now_ns + WAKE);
        WAKE
    }

    /// A client works, and posts its request.
    fn call(&mut self, me: usize, now_ns: u64) -> u64 {
        let mut took_ns = WORK;
        let line_ns = if self.threads[me].cpu == self.threads[0].cpu {
            0
        } else {
            LINE
        };
        let lane = &mut self.lanes[me - 1];
        lane.posted_ns = Some(now_ns + took_ns + line_ns);
        lane.asked_ns = now_ns + took_ns;
        lane.is_put_off = false;
        let is_asleep = self.threads[0].step == Step::Asleep;
        if is_asleep {
            took_ns += self.wake(0, now_ns + took_ns);
        }
        self.begin(me, now_ns + took_ns, is_asleep);
        took_ns
    }

    /// A client looks for its reply.
    fn look(&mut self, me: usize, now_ns: u64, yields: u32) {
        let lane = &mut self.lanes[me - 1];
        let Some(replied_ns) = lane.replied_ns.filter(|ns| *ns <= now_ns) else {
            return self.goes_on(me, now_ns, yields);
        };
        lane.replied_ns = None;
        lane.is_held = false;
        if now_ns >= self.begin_ns {
            lane.served += 1;
            lane.longest_ns = lane.longest_ns.max(now_ns - lane.asked_ns);
        }
        self.found(me, now_ns, replied_ns, yields);
        self.threads[me].step = Step::Work;
    }

    /// The server looks at its lanes, and serves a request.
    fn serve(&mut self, now_ns: u64, yields: u32) -> u64 {
        let is_posted = |lane: &Lane| lane.posted_ns.is_some_and(|posted_ns| posted_ns <= now_ns);
        if self.rule == Rule::Yield {
            let lanes = self.lanes.len();
            let mut keys = (0..lanes).map(|step| (self.next + step) % lanes);
            let Some(key) = keys.find(|key| is_posted(&self.lanes[*key])) else {
                self.goes_on(0, now_ns, yields);
                return LOOK;
            };
            self.next = key + 1;
            return self.reply(key, now_ns, yields);
        }
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_BELL) {
            self.look_around(now_ns);
        }
        let count = self.active.len();
        let mut places = (0..count).map(|step| (self.next + step) % count);
        let found = places.find(|place| is_posted(&self.lanes[self.active[*place]]));
        if let Some(place) = found {
            let key = self.active[place];
            if self.rota.request(key, now_ns) == Verdict::Serve {
                self.next = place + 1;
                return self.reply(key, now_ns, yields);
            }
            self.active.remove(place);
            self.lanes[key].is_put_off = true;
            self.is_overloaded = true;
            return LOOK + self.admit(now_ns);
        }
        let heard = self.hear(now_ns);
        let took_ns = LOOK + self.admit(now_ns);
        if !heard && took_ns == LOOK {
            self.goes_on(0, now_ns, yields);
        }
        took_ns
    }

    /// Lanes that are looked at by no thread ring. Whether one is active now.
    fn hear(&mut self, now_ns: u64) -> bool {
        let mut heard = false;
        for key in 0..self.lanes.len() {
            let is_posted = self.lanes[key].posted_ns.is_some_and(|ns| ns <= now_ns);
            if is_posted && !self.rota.is_active(key) {
                let is_asleep = self.threads[key + 1].step == Step::Asleep;
                if self.rota.rang(key, now_ns, is_asleep) == Rang::Poll {
                    self.active.push(key);
                    self.lanes[key].busy_ns = now_ns;
                    heard = true;
                }
            }
        }
        heard
    }

    fn look_around(&mut self, now_ns: u64) {
        self.hear(now_ns);
        if now_ns.saturating_sub(self.checked_ns) < QUIET {
            return;
        }
        self.checked_ns = now_ns;
        let (lanes, rota) = (&self.lanes, &mut self.rota);
        self.active.retain(|key| {
            let lane = &lanes[*key];
            let stays = lane.posted_ns.is_some()
                || now_ns.saturating_sub(lane.busy_ns) < QUIET
                || now_ns.saturating_sub(lane.woken_ns) < WAKING;
            if !stays {
                rota.quiet(*key, now_ns);
            }
            stays
        });
        self.is_overloaded = self.rota.is_overloaded(now_ns);
    }

    /// Makes waiters active while there is room.
    fn admit(&mut self, now_ns: u64) -> u64 {
        let mut took_ns = 0;
        while let Some(admitted) = self.rota.admit(now_ns) {
            let (Admitted::Request(key) | Admitted::Reply(key)) = admitted;
            self.active.push(key);
            self.lanes[key].busy_ns = now_ns;
            if matches!(admitted, Admitted::Reply(_)) {
                self.lanes[key].is_held = false;
                took_ns += self.wake_client(key, now_ns + took_ns);
            }
        }
        took_ns
    }

    fn wake_client(&mut self, key: usize, now_ns: u64) -> u64 {
        self.lanes[key].woken_ns = now_ns;
        self.rota.woke(key, now_ns);
        match self.threads[key + 1].step {
            Step::Asleep => self.wake(key + 1, now_ns),
            _ => 0,
        }
    }

    /// Serves the request of a lane.
    fn reply(&mut self, key: usize, now_ns: u64, yields: u32) -> u64 {
        let client = key + 1;
        let shares = self.threads[client].cpu == self.threads[0].cpu;
        let posted_ns = self.lanes[key].posted_ns.take().unwrap_or(now_ns);
        self.found(0, now_ns, posted_ns, yields);
        self.last_cpu = self.threads[client].cpu;
        let mut took_ns = SERVICE;
        let line_ns = if shares { 0 } else { LINE };
        let lane = &mut self.lanes[key];
        lane.replied_ns = Some(now_ns + took_ns + line_ns);
        lane.busy_ns = now_ns;
        let mut has_woken = false;
        if self.threads[client].step == Step::Asleep {
            match self.rota.asleep_at_reply(key, now_ns) {
                Wake::Now => {
                    took_ns += self.wake_client(key, now_ns + took_ns);
                    has_woken = true;
                }
                Wake::Later => {
                    self.lanes[key].is_held = true;
                    self.active.retain(|active| *active != key);
                }
            }
        } else if self.rule != Rule::Yield {
            self.rota.awake_at_reply(key);
        }
        self.begin(0, now_ns + took_ns, has_woken);
        took_ns
    }

    fn outcome(self) -> Outcome {
        self.outcome_after(WINDOW / 2)
    }

    fn outcome_after(mut self, begin_ns: u64) -> Outcome {
        self.begin_ns = begin_ns;
        let end_ns = begin_ns + WINDOW;
        loop {
            let busy = (0..self.cpus.len()).filter(|at| !self.cpus[*at].queue.is_empty());
            let at = busy.min_by_key(|at| self.cpus[*at].until_ns);
            let at = at.expect("a thread that runs");
            if self.cpus[at].until_ns >= end_ns {
                break;
            }
            self.run(at);
        }
        let waits = self
            .lanes
            .iter()
            .map(|lane| match lane.posted_ns.or(lane.replied_ns) {
                Some(_) => lane.longest_ns.max(end_ns.saturating_sub(lane.asked_ns)),
                None => lane.longest_ns,
            });
        Outcome {
            longest_ns: waits.max().expect("clients"),
            served: self.lanes.iter().map(|lane| lane.served).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
