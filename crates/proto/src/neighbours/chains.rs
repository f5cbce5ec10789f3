//! Chains on a machine that is simulated: processes that wait for each other in turn, each by the policies of `Strategy::Adaptive`. The message goes
//! round, as tail calls and one-way messages do, or to the last one and back, as nested calls do.
//!
//! Each processor runs the threads in its queue, one after the other. A thread that yields goes to the end of the queue, one that is woken comes
//! next. Steps take as long as on the machines that were measured.

use super::machine::{Cpu, LINE, LOOK, Rule, SLEEP, SWITCH, Step, WAKE, Wait, Waits, Way, YIELD};
use alloc::vec::Vec;

/// The work of each turn; and once in so many turns, a member is held up for so long.
const WORK: u64 = 300;
const HELD_UP: (u64, u64) = (5_000, 100_000);
/// Turns that are measured, after as many others.
const TURNS: u64 = 40_000;
/// The way of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Ring,
    Nested,
}

struct Member {
    cpu: usize,
    step: Step,
    /// Where in the way of the message it has its next turn.
    turn: usize,
    /// For the way to it from the member before, and for the way back.
    waits: [Wait; 2],
    /// When the message that it waits for is there, if that has been posted.
    posted_ns: Option<u64>,
}

impl Member {
    fn wait(&mut self, members: usize) -> &mut Wait {
        &mut self.waits[usize::from(self.turn >= members)]
    }
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
        let member = |(me, cpu): (usize, &usize)| Member {
            cpu: *cpu,
            step: Step::Look(0),
            turn: me,
            waits: [Wait::new(), Wait::new()],
            posted_ns: None,
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
        member.step = Step::Look(0);
        let wait = member.wait(members);
        let way = match rule {
            Rule::Sleep => Way::Sleep,
            Rule::Yield => Way::Free,
            _ => wait.adaptive(now_ns, shares, is_chain),
        };
        wait.begin(way, now_ns, woke_peer, None);
    }

    /// The looks of a wait are over: something was found after so many yields, or nothing.
    fn learn(&mut self, me: usize, now_ns: u64, found: Option<u32>) {
        let (members, is_chain) = (self.members.len(), self.is_chain());
        let found = match self.rule {
            Rule::Patient => found.map(|yields| yields.min(1)),
            _ => found,
        };
        self.members[me]
            .wait(members)
            .looked(now_ns, found, is_chain);
    }

    /// Begins the step of the thread that has this processor.
    fn run(&mut self, at: usize) {
        let now_ns = self.cpus[at].until_ns;
        let me = self.cpus[at].queue[0];
        let is_there = self.members[me].posted_ns.is_some_and(|ns| ns <= now_ns);
        let (is_alone, members) = (self.cpus[at].queue.len() == 1, self.members.len());
        let (mut took_ns, mut goes) = (LOOK, false);
        match self.members[me].step {
            Step::Work => took_ns = self.pass_on(me, now_ns),
            Step::Look(yields) => {
                let wait = self.members[me].wait(members);
                wait.looks(now_ns);
                if is_there {
                    self.takes(me, now_ns, yields);
                } else {
                    let next = wait.next(now_ns, yields, false);
                    self.members[me].step = next;
                    if next == Step::Sleep {
                        self.learn(me, now_ns, None);
                    }
                }
            }
            Step::Yield(yields) => {
                let member = &mut self.members[me];
                member.step = Step::Look(yields + 1);
                member.wait(members).yielded_ns = Some(now_ns);
                self.cpus[at].queue.rotate_left(1);
                (took_ns, goes) = (YIELD + if is_alone { 0 } else { SWITCH }, true);
            }
            // Its second look, after it has announced the sleep.
            Step::Sleep if self.members[me].posted_ns.is_some() => {
                self.members[me].step = Step::Look(0);
            }
            Step::Sleep => {
                self.members[me].step = Step::Asleep;
                self.cpus[at].queue.pop_front();
                (took_ns, goes) = (SLEEP + SWITCH, true);
            }
            Step::Asleep => unreachable!("in no queue"),
        }
        self.cpus[at].takes(took_ns, goes);
    }

    /// The message has come.
    fn takes(&mut self, me: usize, now_ns: u64, yields: u32) {
        self.learn(me, now_ns, Some(yields));
        let members = self.members.len();
        let member = &mut self.members[me];
        let posted_ns = member.posted_ns.take().unwrap_or(now_ns);
        member.wait(members).ended(now_ns, posted_ns);
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
            self.cpus[there].wakes(next, 1, now_ns + took_ns);
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

pub(super) fn turn_of(waits: Waits, places: &[usize], is_nested: bool) -> u64 {
    let form = match is_nested {
        true => Form::Nested,
        false => Form::Ring,
    };
    turn_ns(waits.into(), (form, places), false)
}

fn turn_ns(rule: Rule, chain: (Form, &[usize]), is_reverse: bool) -> u64 {
    Machine::new(rule, chain, is_reverse).turn_ns()
}

/// Chains of two to six members, on one to four processors: one after the other, or the first one, as a client, on one of its own.
pub(super) fn chains() -> Vec<Vec<usize>> {
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
