//! Two tasks that wait to receive from one port, one of which goes, while a message is posted.

use super::{Task, side};
use crate::tests::{Buffer, HEADER};
use crate::{arm, bell};
use handfast_layout::bell as layout;
use handfast_layout::link::Side;
use handfast_proto::takers::{Left, Takers};
use handfast_region::model::{ModelMemory, must_fail};
use handfast_ring::lane::{Consumer, Place, Producer};
use handfast_wait::word::{DESCRIPTOR, announce, withdraw};
use loom::sync::{Arc, Mutex};

const SIDE: Side = Side::Connector;

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    ReceiverFence,
    SenderFence,
    /// A task is among the takers before the announcement.
    EntryFirst,
    /// A task that goes without the look it was called for has another called.
    CallInItsPlace,
}

/// The state that the poller's lock covers.
struct Poller {
    consumer: Consumer,
    /// The lane is polled, not armed.
    is_active: bool,
    is_received: bool,
}

struct Port {
    link: Arc<ModelMemory>,
    bells: Arc<ModelMemory>,
    poller: Mutex<Poller>,
    takers: Mutex<Takers<Arc<Task>>>,
    without: Without,
}

impl Port {
    /// As `Port::call_takers`.
    fn call(&self) {
        let called = self.takers.lock().unwrap().call();
        called.iter().for_each(|task| task.wake());
    }

    /// As `Receive::poll`. The task's number if it waits.
    fn poll(&self, task: &Arc<Task>, number: Option<u64>) -> Result<u64, ()> {
        let fences = self.without != Without::ReceiverFence;
        let (link, bells) = (side(&self.link, fences), side(&self.bells, fences));
        let enter = || self.takers.lock().unwrap().enter(task.clone());
        if let Some(number) = number {
            self.takers.lock().unwrap().leave(number);
        }
        let mut poller = self.poller.lock().unwrap();
        let mut number = None;
        loop {
            if bell::rang(&*self.bells, 0) {
                bell::take(&*self.bells, 0, |_| {});
                bell::take_lanes(&*self.link, SIDE, 0, |_| poller.is_active = true);
                arm::disarm(&*self.link, poller.consumer.place());
            }
            if poller.is_active && poller.consumer.is_ready(&*self.link) {
                let taken = poller.consumer.take(&*self.link, &mut Buffer::default());
                assert!(taken.is_ok_and(|(header, _)| header == HEADER));
                poller.is_received = true;
            }
            if poller.is_received {
                if let Some(number) = number {
                    self.takers.lock().unwrap().leave(number);
                }
                drop(poller);
                self.call();
                return Err(());
            }
            if self.without != Without::EntryFirst {
                number = number.or_else(|| Some(enter()));
            }
            // As `bells::prepare_sleep`.
            if poller.is_active && !arm::arm(&link, &mut poller.consumer) {
                continue;
            }
            poller.is_active = false;
            announce(&bells, layout::SLEEP, DESCRIPTOR);
            if !bell::link_rang(&*self.link, SIDE, 0) {
                drop(poller);
                return Ok(number.unwrap_or_else(enter));
            }
            withdraw(&*self.bells, layout::SLEEP);
            bell::take_lanes(&*self.link, SIDE, 0, |_| poller.is_active = true);
            arm::disarm(&*self.link, poller.consumer.place());
        }
    }
}

fn two_tasks(without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let place = Place::small(SIDE.lane(0), 2);
        let (mut words, areas) = ModelMemory::lane(SIDE.lane(0), 2);
        words.push(SIDE.ready(0));
        let bell_words = [layout::SLEEP, layout::SUMMARY, layout::READY];
        let port = Arc::new(Port {
            link: Arc::new(ModelMemory::new(&words, &areas)),
            bells: Arc::new(ModelMemory::new(&bell_words, &[])),
            poller: Mutex::new(Poller {
                consumer: Consumer::new(place),
                is_active: true,
                is_received: false,
            }),
            takers: Mutex::default(),
            without,
        });
        arm::disarm(&*port.link, place);
        let theirs = port.clone();
        let sender = loom::thread::spawn(move || {
            let fences = without != Without::SenderFence;
            let (link, bells) = (side(&theirs.link, fences), side(&theirs.bells, fences));
            let mut producer = Producer::new(place);
            producer.post(&link, HEADER, b"hello").unwrap();
            if arm::must_ring(&link, place, false)
                && bell::ring(&link, &bells, (SIDE, 0), 0, 0).is_some()
            {
                // The control thread.
                theirs.call();
            }
        });
        let theirs = port.clone();
        let goes = loom::thread::spawn(move || {
            let task = Arc::new(Task::default());
            // Dropped after one poll: as `Port::taker_gone`.
            if let Ok(number) = theirs.poll(&task, None) {
                let left = theirs.takers.lock().unwrap().leave(number);
                let is_called = matches!(left, Left::Called);
                if is_called && theirs.without != Without::CallInItsPlace {
                    theirs.call();
                }
            }
        });
        let task = Arc::new(Task::default());
        let mut number = None;
        while let Ok(waiting) = port.poll(&task, number) {
            number = Some(waiting);
            task.sleep();
        }
        goes.join().unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn e15_a_message_reaches_one_of_two_tasks_though_the_other_goes() {
    two_tasks(Without::Nothing);
}

#[test]
fn e15_without_the_receivers_fences_the_message_is_lost() {
    must_fail("deadlock", || two_tasks(Without::ReceiverFence));
}

#[test]
fn e15_without_the_senders_fences_the_message_is_lost() {
    must_fail("deadlock", || two_tasks(Without::SenderFence));
}

#[test]
fn e15_a_ring_that_comes_before_the_task_is_entered_finds_nobody() {
    must_fail("deadlock", || two_tasks(Without::EntryFirst));
}

#[test]
fn e15_one_that_goes_without_its_look_leaves_the_other_asleep() {
    must_fail("deadlock", || two_tasks(Without::CallInItsPlace));
}
