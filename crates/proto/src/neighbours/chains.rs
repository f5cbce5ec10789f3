//! Chains on a machine that is simulated: processes that wait for each other in turn, each by the policies of `Strategy::Adaptive`. The message goes
//! round, as tail calls and one-way messages do, or to the last one and back, as nested calls do.
//!
//! Each processor runs the threads in its queue, one after the other. A thread that yields goes to the end of the queue, one that is woken comes
//! next. Steps take as long as on the machines that were measured.

use super::Neighbours;
use crate::spin::SpinPolicy;
use crate::yields::YieldPolicy;
use std::collections::VecDeque;

/// Costs in nanoseconds: a look; a message's way to another processor; a yield, and the change to another thread; a sleep; a
/// wake-up, for its caller; and the time until an idle processor runs; a time slice.
const LOOK: u64 = 50;
const LINE: u64 = 100;
const YIELD: u64 = 300;
const SWITCH: u64 = 400;
const SLEEP: u64 = 1_500;
const WAKE: u64 = 1_000;
const IDLE: u64 = 10_000;
const SLICE: u64 = 3_000_000;
/// T, and how much later a woken peer answers.
const T: u64 = 10_000;
const LATENCY: u64 = 7_000;
/// The work of each turn; and once in so many turns, a member is held up for so long.
const WORK: u64 = 300;
const HELD_UP: (u64, u64) = (5_000, 100_000);
/// Turns that are measured, after as many others.
const TURNS: u64 = 40_000;
/// Yields of one wait to a peer on the same processor, as `handfast-wait` has them.
const YIELDS: u32 = 8;

/// How members wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Adaptive,
    /// The same, as if nothing were known of neighbours: a member looks as long as its limit says.
    Unaware,
    /// The same, and yields that come late make nobody sleep.
    Patient,
    /// Each wait sleeps.
    Sleep,
    /// Each looks and yields, and never sleeps.
    Yield,
}

/// The way a wait begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Look,
    Yield,
    LookAndYield,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Work,
    /// A look, after so many yields of this wait.
    Look(u32),
    Yield(u32),
    Sleep,
    Asleep,
}

/// The way of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Ring,
    Nested,
}

/// Lessons of a member from its waits for one of its peers.
struct Waiter {
    spin: SpinPolicy,
    yields: YieldPolicy,
    neighbours: Neighbours,
}

struct Member {
    cpu: usize,
    step: Step,
    /// Where in the way of the message it has its next turn.
    turn: usize,
    /// For the way to it from the member before, and for the way back.
    waiters: [Waiter; 2],
    /// When the message that it waits for is there, if that has been posted.
    posted_ns: Option<u64>,
    began_ns: u64,
    limit_ns: u64,
    way: Way,
    /// When its yield began, if it yields, and how long the longest one of this wait took.
    yielded_ns: Option<u64>,
    longest_ns: u64,
    woke_peer: bool,
}

impl Member {
    fn waiter(&mut self, members: usize) -> &mut Waiter {
        &mut self.waiters[usize::from(self.turn >= members)]
    }
}

#[derive(Default)]
struct Cpu {
    /// The first one runs.
    queue: VecDeque<usize>,
    /// Until when its step takes, and since when it runs.
    until_ns: u64,
    since_ns: u64,
}

struct Machine {
    rule: Rule,
    form: Form,
    /// The members in the order of their turns.
    way: Vec<usize>,
    members: Vec<Member>,
    cpus: Vec<Cpu>,
    turns: u64,
    random: u64,
}

impl Machine {
    /// `places`: each member's processor. The first one has the message. The others come in their order, or in the reverse one.
    fn new(rule: Rule, (form, places): (Form, &[usize]), is_reverse: bool) -> Self {
        let waiter = || Waiter {
            spin: SpinPolicy::new(T, LATENCY, u64::MAX),
            yields: YieldPolicy::default(),
            neighbours: Neighbours::new(T, YIELD),
        };
        let member = |(me, cpu): (usize, &usize)| Member {
            cpu: *cpu,
            step: Step::Look(0),
            turn: me,
            waiters: [waiter(), waiter()],
            posted_ns: None,
            began_ns: 0,
            limit_ns: 0,
            way: Way::Look,
            yielded_ns: None,
            longest_ns: 0,
            woke_peer: false,
        };
        let back = match form {
            Form::Ring => 0..0,
            Form::Nested => 1..places.len().saturating_sub(1),
        };
        let cpus = 1 + places.iter().max().expect("a chain");
        let mut machine = Self {
            rule,
            form,
            way: (0..places.len()).chain(back.rev()).collect(),
            members: places.iter().enumerate().map(member).collect(),
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            turns: 0,
            random: 0x5eed,
        };
        machine.members[0].posted_ns = Some(0);
        let mut order: Vec<_> = (0..places.len()).collect();
        if is_reverse {
            order[1..].reverse();
        }
        for me in order {
            machine.begin(me, 0, false);
            machine.cpus[places[me]].queue.push_back(me);
        }
        machine
    }

    fn work_ns(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let is_held_up = self.random.is_multiple_of(HELD_UP.0);
        if is_held_up { HELD_UP.1 } else { WORK }
    }

    /// Whether the members know that several take turns.
    fn is_chain(&self) -> bool {
        self.form == Form::Ring && self.members.len() > 2 && self.rule != Rule::Unaware
    }

    /// A wait begins.
    fn begin(&mut self, me: usize, now_ns: u64, woke_peer: bool) {
        let turn = self.members[me].turn;
        let before = self.way[(turn + self.way.len() - 1) % self.way.len()];
        let shares = self.members[before].cpu == self.members[me].cpu;
        let is_chain = self.is_chain();
        let (rule, members) = (self.rule, self.members.len());
        let member = &mut self.members[me];
        let waiter = member.waiter(members);
        let limit_ns = waiter.spin.limit_ns(woke_peer, now_ns);
        let (way, limit_ns) = match rule {
            Rule::Sleep => (Way::Look, 0),
            Rule::Yield => (Way::LookAndYield, u64::MAX),
            _ if shares && waiter.yields.is_worth() => (Way::Yield, 0),
            _ if shares => (Way::Look, 0),
            _ if is_chain && waiter.yields.is_worth() => (Way::LookAndYield, limit_ns),
            _ => (Way::Look, limit_ns),
        };
        waiter.neighbours.begins(now_ns);
        (member.way, member.limit_ns) = (way, limit_ns);
        (member.began_ns, member.woke_peer, member.longest_ns) = (now_ns, woke_peer, 0);
        member.step = Step::Look(0);
    }

    /// The yields of a wait are over, of which something was found by the last one, or not.
    fn learn(&mut self, me: usize, now_ns: u64, yields: u32, is_found: bool) {
        let (rule, members, is_chain) = (self.rule, self.members.len(), self.is_chain());
        let member = &mut self.members[me];
        let (took_ns, longest_ns) = (now_ns - member.began_ns, member.longest_ns);
        let way = member.way;
        let policy = &mut member.waiter(members).yields;
        match way {
            Way::Yield => {
                let yields = match rule {
                    Rule::Patient => yields.min(1),
                    _ => yields,
                };
                if is_found && yields > 0 && is_chain {
                    policy.found_by(yields);
                }
                policy.ended(is_found.then_some(yields), took_ns);
            }
            Way::LookAndYield => policy.ended(Some(0), longest_ns),
            Way::Look => {}
        }
    }

    /// After a look in vain.
    fn next_step(&mut self, me: usize, now_ns: u64, yields: u32) -> Step {
        let (is_free, members) = (self.rule == Rule::Yield, self.members.len());
        let member = &mut self.members[me];
        let took_ns = now_ns - member.began_ns;
        let is_within = took_ns < member.limit_ns;
        match member.way {
            Way::Yield if yields < YIELDS && !YieldPolicy::is_long(took_ns) => Step::Yield(yields),
            Way::Look if is_within => Step::Look(yields),
            Way::LookAndYield if is_within && !YieldPolicy::is_long(member.longest_ns) => {
                match is_free || member.waiter(members).neighbours.is_due(now_ns) {
                    true => Step::Yield(yields),
                    false => Step::Look(yields),
                }
            }
            _ => {
                self.learn(me, now_ns, yields, false);
                Step::Sleep
            }
        }
    }

    /// Begins the step of the thread that has this processor.
    fn run(&mut self, at: usize) {
        let now_ns = self.cpus[at].until_ns;
        let me = self.cpus[at].queue[0];
        let is_there = self.members[me].posted_ns.is_some_and(|ns| ns <= now_ns);
        let (is_alone, members) = (self.cpus[at].queue.len() == 1, self.members.len());
        let mut took_ns = LOOK;
        match self.members[me].step {
            Step::Work => took_ns = self.pass_on(me, now_ns),
            Step::Look(yields) => {
                let member = &mut self.members[me];
                if let Some(yielded_ns) = member.yielded_ns.take() {
                    let lasted_ns = now_ns - yielded_ns;
                    let waiter = member.waiter(members);
                    waiter.neighbours.yielded(now_ns, lasted_ns);
                    member.longest_ns = member.longest_ns.max(lasted_ns);
                }
                match is_there {
                    true => self.takes(me, now_ns, yields),
                    false => self.members[me].step = self.next_step(me, now_ns, yields),
                }
            }
            Step::Yield(yields) => {
                let member = &mut self.members[me];
                (member.step, member.yielded_ns) = (Step::Look(yields + 1), Some(now_ns));
                self.cpus[at].queue.rotate_left(1);
                took_ns = YIELD + if is_alone { 0 } else { SWITCH };
                self.cpus[at].since_ns = now_ns + took_ns;
            }
            // Its second look, after it has announced the sleep.
            Step::Sleep if self.members[me].posted_ns.is_some() => {
                self.members[me].step = Step::Look(0);
            }
            Step::Sleep => {
                self.members[me].step = Step::Asleep;
                self.cpus[at].queue.pop_front();
                took_ns = SLEEP + SWITCH;
                self.cpus[at].since_ns = now_ns + took_ns;
            }
            Step::Asleep => unreachable!("in no queue"),
        }
        let cpu = &mut self.cpus[at];
        cpu.until_ns = now_ns + took_ns;
        if cpu.queue.len() > 1 && cpu.until_ns.saturating_sub(cpu.since_ns) > SLICE {
            cpu.queue.rotate_left(1);
            cpu.since_ns = cpu.until_ns;
        }
    }

    /// The message has come.
    fn takes(&mut self, me: usize, now_ns: u64, yields: u32) {
        self.learn(me, now_ns, yields, true);
        let members = self.members.len();
        let member = &mut self.members[me];
        let posted_ns = member.posted_ns.take().unwrap_or(now_ns);
        let delay_ns = posted_ns.saturating_sub(member.began_ns);
        let woke_peer = member.woke_peer;
        member.waiter(members).spin.ended(delay_ns, woke_peer);
        member.step = Step::Work;
    }

    /// Works, and posts the message to the next one. Returns how long that takes.
    fn pass_on(&mut self, me: usize, now_ns: u64) -> u64 {
        self.turns += 1;
        let mut took_ns = self.work_ns();
        let turn = self.members[me].turn;
        let next = self.way[(turn + 1) % self.way.len()];
        let mut turns = (1..=self.way.len()).map(|turns| (turn + turns) % self.way.len());
        let again = turns.find(|turn| self.way[*turn] == me);
        self.members[me].turn = again.expect("its own turn");
        let (here, there) = (self.members[me].cpu, self.members[next].cpu);
        let line_ns = if here == there { 0 } else { LINE };
        self.members[next].posted_ns = Some(now_ns + took_ns + line_ns);
        let is_asleep = self.members[next].step == Step::Asleep;
        if is_asleep {
            took_ns += WAKE;
            self.members[next].step = Step::Look(0);
            let cpu = &mut self.cpus[there];
            if cpu.queue.is_empty() {
                cpu.until_ns = now_ns + took_ns + IDLE;
                cpu.since_ns = cpu.until_ns;
            }
            cpu.queue.insert(cpu.queue.len().min(1), next);
        }
        self.begin(me, now_ns + took_ns, is_asleep);
        took_ns
    }

    /// How long a turn takes.
    fn turn_ns(mut self) -> u64 {
        let mut began_ns = None;
        while self.turns < 2 * TURNS {
            let busy = (0..self.cpus.len()).filter(|at| !self.cpus[*at].queue.is_empty());
            let at = busy.min_by_key(|at| self.cpus[*at].until_ns);
            let at = at.expect("the message is lost");
            self.run(at);
            if self.turns == TURNS && began_ns.is_none() {
                began_ns = Some(self.cpus[at].until_ns);
            }
        }
        let now_ns = self.cpus.iter().map(|cpu| cpu.until_ns).max();
        (now_ns.expect("processors") - began_ns.expect("turns")) / TURNS
    }
}

fn turn_ns(rule: Rule, chain: (Form, &[usize]), is_reverse: bool) -> u64 {
    Machine::new(rule, chain, is_reverse).turn_ns()
}

/// Chains of two to six members, on one to four processors: one after the other, or the first one, as a client, on one of its own.
fn chains() -> Vec<Vec<usize>> {
    let mut chains = Vec::new();
    for members in 2..=6_usize {
        for cpus in 1..=members.min(4) {
            chains.push((0..members).map(|me| me % cpus).collect());
            let of_servers = |me: usize| 1 + (me - 1) % (cpus - 1);
            let place = |me: usize| if me == 0 { 0 } else { of_servers(me) };
            if cpus > 1 {
                chains.push((0..members).map(place).collect());
            }
        }
    }
    chains.dedup();
    chains
}

#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn no_chain_takes_longer_than_asleep_or_far_longer_than_where_all_yield() {
    for (form, chain) in chains()
        .iter()
        .flat_map(|chain| [(Form::Ring, chain), (Form::Nested, chain)])
    {
        for is_reverse in [false, true] {
            let of = |rule| turn_ns(rule, (form, chain), is_reverse);
            let (ours, asleep) = (of(Rule::Adaptive), of(Rule::Sleep));
            let best = of(Rule::Yield).min(asleep);
            println!(
                "{form:?} {chain:?}, reverse {is_reverse}: {ours} ns a turn; asleep {asleep}, best {best}"
            );
            assert!(
                ours * 100 <= asleep * 105,
                "{form:?} {chain:?} {is_reverse}: {ours}, asleep {asleep}"
            );
            // The members of nested calls do not know of one another: where they have several processors they may be asleep.
            let is_bound = form == Form::Ring || chain.iter().all(|cpu| *cpu == 0);
            assert!(
                !is_bound || ours <= 2 * best,
                "{form:?} {chain:?} {is_reverse}: {ours}, best {best}"
            );
        }
    }
}

/// The controls of the test above.
#[test]
#[cfg_attr(miri, ignore = "a long simulation of safe code")]
fn each_rule_has_its_chain() {
    let ring = |rule, chain: &[usize], is_reverse| turn_ns(rule, (Form::Ring, chain), is_reverse);
    // Three on two processors, and six on four.
    for chain in [&[0, 1, 1][..], &[0, 1, 2, 3, 0, 1]] {
        let [with, without] = [Rule::Adaptive, Rule::Unaware].map(|rule| ring(rule, chain, false));
        assert!(without > 3 * with, "{chain:?}: {with} and {without}");
    }
    // All on one, in the reverse order.
    let [with, without] = [Rule::Adaptive, Rule::Patient].map(|rule| ring(rule, &[0; 4], true));
    assert!(without > 2 * with, "{with} and {without}");
}
