//! The steps of the product's strategies of these names are those of the figures, one by one.

use super::*;
use handfast_wait::place::{Parked, Sleep, Start};
use handfast_wait::sleep_wake::{BUSY_PAUSES, SleepWake};
use handfast_wait::{Ended, Place, Strategy};
use std::cell::{Cell, RefCell};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Pause,
    Yield,
    Poll,
    Announce,
    Sleep,
    Withdraw,
}

/// Queue and processor of one side, which write down what it does.
struct Recorder {
    steps: RefCell<Vec<Step>>,
    /// Looks that find nothing yet.
    vain: Cell<u32>,
    one_cpu: bool,
    /// Whether the server is asleep when a caller posts.
    server_sleeps: bool,
}

impl Recorder {
    fn say(&self, step: Step) {
        self.steps.borrow_mut().push(step);
    }

    fn finds(&self) -> bool {
        self.say(Step::Look);
        let left = self.vain.get();
        self.vain.set(left.saturating_sub(1));
        left == 0
    }
}

/// The side's own queue, or its peer's.
#[derive(PartialEq, Eq)]
enum End {
    Own,
    Peer,
}

impl Memory for Recorder {
    type End = End;

    fn try_enqueue(&self, _: &End, _: &Message) -> io::Result<bool> {
        Ok(true)
    }

    fn dequeue(&self, own: &End) -> io::Result<Option<Message>> {
        assert!(*own == End::Own);
        Ok(self.finds().then(Message::default))
    }

    fn looks_empty(&self, own: &End) -> bool {
        assert!(*own == End::Own);
        !self.finds()
    }

    fn set_awake(&self, of: &End, is_awake: bool) -> bool {
        if *of == End::Peer {
            return !self.server_sleeps;
        }
        self.say(match is_awake {
            true => Step::Withdraw,
            false => Step::Announce,
        });
        // Nobody has seen it asleep.
        false
    }

    fn down(&self, own: &End) -> io::Result<()> {
        assert!(*own == End::Own);
        self.say(Step::Sleep);
        Ok(())
    }

    fn up(&self, to: &End) -> io::Result<()> {
        assert!(*to == End::Peer);
        Ok(())
    }

    fn busy_wait(&self) {
        self.say(match self.one_cpu {
            true => Step::Yield,
            false => Step::Pause,
        });
    }

    fn let_run(&self) {
        self.say(Step::Yield);
    }

    fn poll_queue(&self, _: &End) {
        self.say(match self.one_cpu {
            true => Step::Yield,
            false => Step::Poll,
        });
    }

    fn sleep_long(&self) {
        unreachable!("there is room");
    }
}

/// The product's end, which sees the same.
struct AtProduct<'a> {
    recorder: &'a Recorder,
    is_caller: bool,
}

impl Place for AtProduct<'_> {
    fn look(&mut self) -> bool {
        self.recorder.finds()
    }

    fn is_caller(&self) -> bool {
        self.is_caller
    }

    fn pause(&mut self, pauses: u32) {
        assert_eq!(pauses, BUSY_PAUSES);
        self.recorder.say(Step::Pause);
    }

    fn poll(&mut self, _: u64) {
        self.recorder.say(Step::Poll);
    }

    fn give_way(&mut self) {
        self.recorder.say(Step::Yield);
    }

    fn park(&mut self, how: Sleep, _: Option<u64>, _: Option<Start>) -> Parked {
        assert_eq!(how, Sleep::Block);
        self.recorder.say(Step::Announce);
        let ready = self.recorder.finds();
        if !ready {
            self.recorder.say(Step::Sleep);
        }
        self.recorder.say(Step::Withdraw);
        Parked {
            ready,
            posted_after_ns: None,
        }
    }
}

const STRATEGIES: [(Kind, Strategy); 4] = [
    (Kind::Bss, Strategy::Bss),
    (Kind::Bsw, Strategy::Bsw),
    (Kind::Bswy, Strategy::Bswy),
    (Kind::Bsls, Strategy::Bsls { max_spin: MAX_SPIN }),
];
const MAX_SPIN: u32 = 3;

fn recorder(vain: u32, (one_cpu, server_sleeps): (bool, bool)) -> Recorder {
    Recorder {
        steps: RefCell::default(),
        vain: Cell::new(vain),
        one_cpu,
        server_sleeps,
    }
}

fn harness(kind: Kind, memory: Recorder, is_caller: bool) -> Vec<Step> {
    let party = Party {
        kind,
        memory,
        max_spin: MAX_SPIN,
        tally: Box::leak(Box::default()),
    };
    let outcome = match is_caller {
        true => party.send(&End::Peer, &End::Own, &Message::default()),
        false => party.receive(&End::Own),
    };
    assert!(outcome.is_ok());
    party.memory.steps.into_inner()
}

fn product(strategy: Strategy, memory: Recorder, is_caller: bool) -> Vec<Step> {
    let mut place = AtProduct {
        recorder: &memory,
        is_caller,
    };
    // A spinning caller's peer is never asleep.
    let woke_peer = is_caller && memory.server_sleeps && strategy != Strategy::Bss;
    let protocol = SleepWake::of(strategy).expect("one of the four");
    let (ended, _) = protocol.wait(&mut place, None, (memory.one_cpu, woke_peer));
    assert_eq!(ended, Ended::Ready);
    memory.steps.into_inner()
}

#[test]
fn the_strategies_of_paper_000_take_the_steps_of_its_figures() {
    let both = [false, true];
    for (kind, strategy) in STRATEGIES {
        for (is_caller, one_cpu) in both.into_iter().flat_map(|a| both.map(|b| (a, b))) {
            for server_sleeps in both {
                for vain in 0..12 {
                    let of = || recorder(vain, (one_cpu, server_sleeps));
                    let expected = harness(kind, of(), is_caller);
                    let found = product(strategy, of(), is_caller);
                    let case = (strategy, is_caller, one_cpu, server_sleeps, vain);
                    assert_eq!(found, expected, "{case:?}");
                }
            }
        }
    }
}

/// Figures 5, 7 and 9 as the paper prints them, so that both are not wrong in the same way.
#[test]
fn the_figures_steps_are_the_papers() {
    use Step::{Announce, Look, Pause, Poll, Sleep, Withdraw, Yield};
    let steps =
        |kind, vain, one_cpu, is_caller| harness(kind, recorder(vain, (one_cpu, true)), is_caller);
    let asleep = [Announce, Look, Sleep, Withdraw];
    let then = |first: &[Step], last: &[Step]| [first, &asleep, last].concat();
    assert_eq!(
        steps(Kind::Bss, 2, false, true),
        [Look, Pause, Look, Pause, Look]
    );
    assert_eq!(steps(Kind::Bsw, 2, false, true), then(&[Look], &[Look]));
    assert_eq!(
        steps(Kind::Bsw, 1, false, false),
        [Look, Announce, Look, Withdraw]
    );
    let caller = [Yield, Look, Yield];
    assert_eq!(steps(Kind::Bswy, 2, true, true), then(&caller, &[Look]));
    let server = [Look, Yield, Look];
    assert_eq!(steps(Kind::Bswy, 3, true, false), then(&server, &[Look]));
    // Three polls, the look that ends them, and the first attempt.
    let polls = [Look, Poll, Look, Poll, Look, Poll, Look, Look];
    assert_eq!(steps(Kind::Bsls, 6, false, false), then(&polls, &[Look]));
    let caller = [&polls[..], &[Pause]].concat();
    assert_eq!(steps(Kind::Bsls, 6, false, true), then(&caller, &[Look]));
}
