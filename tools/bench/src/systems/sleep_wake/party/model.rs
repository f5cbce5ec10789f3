//! loom: the protocols with the paper's counting semaphore, and the four interleavings of its Figure 4. Each is excluded by one step, which is left out once: the count (1), the
//! test-and-set (2), the wake-up that is taken back (3), the second look (4).

use super::*;
use handfast_region::model::must_fail;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Arc, Condvar, Mutex};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Count,
    TestAndSet,
    TakeBack,
    SecondLook,
}

/// A queue, and its owner's flag and semaphore.
struct Queue {
    messages: Mutex<VecDeque<Message>>,
    is_awake: AtomicBool,
    count: Mutex<u32>,
    risen: Condvar,
}

/// One side's way to it.
struct Side {
    without: Without,
    is_owner: bool,
    /// The owner has said that it sleeps, and is to look once more.
    looks_again: Cell<bool>,
}

impl Memory for Side {
    type End = Arc<Queue>;

    fn try_enqueue(&self, to: &Arc<Queue>, message: &Message) -> io::Result<bool> {
        to.messages.lock().unwrap().push_back(*message);
        Ok(true)
    }

    fn dequeue(&self, own: &Arc<Queue>) -> io::Result<Option<Message>> {
        if self.looks_again.take() && self.without == Without::SecondLook {
            return Ok(None);
        }
        Ok(own.messages.lock().unwrap().pop_front())
    }

    fn looks_empty(&self, own: &Arc<Queue>) -> bool {
        own.messages.lock().unwrap().is_empty()
    }

    fn set_awake(&self, of: &Arc<Queue>, is_awake: bool) -> bool {
        self.looks_again.set(self.is_owner && !is_awake);
        if self.without == Without::TestAndSet && !self.is_owner {
            // As the paper's first version: looks, and leaves the flag to its owner.
            return of.is_awake.load(Acquire);
        }
        let was_awake = of.is_awake.swap(is_awake, AcqRel);
        // As if nobody had seen it asleep.
        was_awake && !(self.is_owner && self.without == Without::TakeBack)
    }

    fn down(&self, own: &Arc<Queue>) -> io::Result<()> {
        let mut count = own.count.lock().unwrap();
        if self.without == Without::Count {
            drop(own.risen.wait(count).unwrap());
            return Ok(());
        }
        while *count == 0 {
            count = own.risen.wait(count).unwrap();
        }
        *count -= 1;
        Ok(())
    }

    fn up(&self, to: &Arc<Queue>) -> io::Result<()> {
        let mut count = to.count.lock().unwrap();
        if self.without != Without::Count {
            *count += 1;
        }
        assert!(*count <= 1, "wake-ups add up");
        to.risen.notify_one();
        Ok(())
    }

    fn busy_wait(&self) {}

    fn let_run(&self) {}

    fn poll_queue(&self, _: &Arc<Queue>) {}

    fn sleep_long(&self) {
        unreachable!("there is room");
    }
}

fn side(kind: Kind, without: Without, is_owner: bool, tally: &'static Tally) -> Party<Side> {
    Party {
        kind,
        memory: Side {
            without,
            is_owner,
            looks_again: Cell::new(false),
        },
        max_spin: 1,
        tally,
    }
}

/// So many producers send so many messages each; all come, and no wake-up is left.
fn receive(kind: Kind, (producers, messages): (usize, usize), without: Without) {
    let tally: &'static Tally = Box::leak(Box::default());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let queue = Arc::new(Queue {
            messages: Mutex::new(VecDeque::new()),
            is_awake: AtomicBool::new(true),
            count: Mutex::new(0),
            risen: Condvar::new(),
        });
        let threads: Vec<_> = (0..producers)
            .map(|_| {
                let queue = queue.clone();
                loom::thread::spawn(move || {
                    let party = side(kind, without, false, tally);
                    for _ in 0..messages {
                        party.reply(&queue, &Message::default()).unwrap();
                    }
                })
            })
            .collect();
        let party = side(kind, without, true, tally);
        for _ in 0..producers * messages {
            party.receive(&queue).unwrap();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*queue.count.lock().unwrap(), 0, "wake-ups add up");
    });
}

#[test]
fn all_messages_come_and_no_wake_up_is_left() {
    for kind in [Kind::Bsw, Kind::Bswy, Kind::Bsls] {
        receive(kind, (1, 2), Without::Nothing);
        receive(kind, (2, 1), Without::Nothing);
    }
}

#[test]
fn interleaving_1_without_the_count_a_wake_up_before_the_sleep_is_lost() {
    must_fail("deadlock", || receive(Kind::Bsw, (1, 1), Without::Count));
}

#[test]
fn interleaving_2_without_the_test_and_set_wake_ups_add_up() {
    must_fail("wake-ups add up", || {
        receive(Kind::Bsw, (2, 1), Without::TestAndSet);
    });
}

#[test]
fn interleaving_3_without_taking_it_back_a_wake_up_without_a_sleep_is_left() {
    must_fail("wake-ups add up", || {
        receive(Kind::Bsw, (1, 1), Without::TakeBack);
    });
}

#[test]
fn interleaving_4_without_the_second_look_the_wake_up_is_lost() {
    must_fail("deadlock", || {
        receive(Kind::Bsw, (1, 1), Without::SecondLook);
    });
}
