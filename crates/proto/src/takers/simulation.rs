//! Tasks that wait at one port, come and go, against senders that post at any step: every message is taken,
//! as long as there are tasks that stay.

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use std::collections::BTreeSet;

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// A task that has taken a message calls the next one.
    CallAfterMessage,
    /// A task that goes without the look it was called for has another called.
    CallInItsPlace,
    /// A task that finds nothing has the next post ring.
    Announcement,
    /// It is entered before that.
    EntryFirst,
}

struct Port {
    takers: Takers<usize>,
    messages: usize,
    /// A post rings.
    is_announced: bool,
    /// Rings on their way through the control thread.
    rings: usize,
    /// Tasks with their numbers at the port; that were woken; that have looked and are about to be entered.
    tasks: Vec<Option<u64>>,
    woken: BTreeSet<usize>,
    late: BTreeSet<usize>,
    without: Without,
}

impl Port {
    fn post(&mut self) {
        self.messages += 1;
        self.rings += usize::from(core::mem::take(&mut self.is_announced));
    }

    fn call(&mut self) {
        self.woken.extend(self.takers.call());
    }

    fn deliver(&mut self) {
        if self.rings > 0 {
            self.rings -= 1;
            self.call();
        }
    }

    /// The executor polls a task: as `Receive::poll`.
    fn poll(&mut self, task: usize) {
        self.woken.remove(&task);
        if let Some(number) = self.tasks[task].take() {
            self.takers.leave(number);
        }
        if self.messages > 0 {
            self.messages -= 1;
            // It comes back at once.
            self.woken.insert(task);
            if self.without != Without::CallAfterMessage {
                self.call();
            }
            return;
        }
        if self.without == Without::EntryFirst {
            self.late.insert(task);
        } else {
            self.tasks[task] = Some(self.takers.enter(task));
        }
        self.is_announced |= self.without != Without::Announcement;
    }

    fn drop(&mut self, task: usize) {
        self.woken.remove(&task);
        if let Some(number) = self.tasks[task].take() {
            let left = self.takers.leave(number);
            if left == Left::Called && self.without != Without::CallInItsPlace {
                self.call();
            }
        }
    }

    fn settle(&mut self) {
        for task in core::mem::take(&mut self.late) {
            self.tasks[task] = Some(self.takers.enter(task));
        }
        while self.rings > 0 || !self.woken.is_empty() {
            self.deliver();
            if let Some(task) = self.woken.first().copied() {
                self.poll(task);
            }
        }
    }
}

const TASKS: usize = 4;
const STEPS: usize = 60;

fn run(seed: u64, without: Without) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut port = Port {
        takers: Takers::default(),
        messages: 0,
        is_announced: false,
        rings: 0,
        tasks: vec![None; TASKS],
        woken: (0..TASKS).collect(),
        late: BTreeSet::new(),
        without,
    };
    for _ in 0..STEPS {
        let task = dice.roll(TASKS);
        match dice.roll(8) {
            0 | 1 => port.post(),
            2 | 3 => port.deliver(),
            // The first one stays. A dropped one comes back as another.
            4 if task != 0 => {
                port.drop(task);
                if dice.roll(2) == 0 {
                    port.poll(task);
                }
            }
            5 => {
                if let Some(task) = port.late.pop_first() {
                    port.tasks[task] = Some(port.takers.enter(task));
                }
            }
            _ => {
                let woken = port.woken.iter().copied();
                if let Some(task) = dice.pick(woken) {
                    port.poll(task);
                }
            }
        }
        if port.takers.waiting() > TASKS {
            return Err("a task waits twice".into());
        }
    }
    port.settle();
    match port.messages {
        0 => Ok(()),
        left => Err(format!("{left} messages are left, and nobody looks")),
    }
}

#[test]
fn whatever_comes_and_goes_every_message_is_taken() {
    all_pass(50_000, &[], |seed| run(seed, Without::Nothing));
}

#[test]
fn without_any_of_the_rules_a_message_is_left() {
    for without in [
        Without::CallAfterMessage,
        Without::CallInItsPlace,
        Without::Announcement,
        Without::EntryFirst,
    ] {
        assert!(one_fails(50_000, "are left", |seed| run(seed, without)));
    }
}

#[test]
fn the_one_that_has_waited_longest_is_called_and_no_other_until_it_has_looked() {
    let mut takers = Takers::default();
    let first = takers.enter("first");
    takers.enter("second");
    assert_eq!(takers.call(), Some("first"));
    assert_eq!(takers.call(), None);
    assert_eq!(takers.leave(first), Left::Called);
    assert_eq!(takers.call(), Some("second"));
    assert_eq!(takers.waiting(), 0);
}
