//! loom: two links end, each after its peer has left a message and with it a right to the port, while the
//! receiver asks for a notice when there is no right any more. Whatever the interleaving, the notice comes,
//! once, and only after the receiver has received both messages.
//!
//! The steps are taken from `link_end::end_link`, `rights_ended`, `ask_no_senders`, `clearing::has_heard` and `Notices::take`,
//! written out with loom's atomics. The messages are a relaxed word each.

use crate::port::notices::{HAD, ONE};
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use handfast_region::model::must_panic;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use loom::sync::{Arc, Mutex};

const LINKS: usize = 2;
/// One right that has been made since; for the model alone.
const MADE: u64 = 1 << 32;

#[derive(Clone, Copy, PartialEq)]
enum Without {
    Nothing,
    /// E13, store half.
    Release,
    /// E13, load half.
    Acquire,
    /// The asking thread looks at the count.
    LookOfAsker,
    /// The thread that ends the last right looks whether a notice is asked for.
    LookOfLast,
    /// The receiver has heard of as many links that have ended as had when the last right went.
    HasHeard,
}

struct Notices {
    without: Without,
    deaths: AtomicU32,
    messages: [AtomicU32; LINKS],
    rights: AtomicU64,
    lost_at: AtomicU32,
    is_due: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    due: u32,
    asks: bool,
}

impl Notices {
    fn order(&self, without: Without, order: Ordering) -> Ordering {
        match self.without == without {
            true => Relaxed,
            false => order,
        }
    }

    /// A peer that has left a message is gone: `link_end::end_link`.
    fn end_link(&self, link: usize) {
        self.messages[link].store(1, Relaxed);
        self.deaths.fetch_add(1, Release);
        self.rights_ended();
    }

    fn rights_ended(&self) {
        // `Notices::loses_at`.
        self.lost_at.fetch_max(self.deaths.load(Acquire), Relaxed);
        let order = self.order(Without::Release, Release);
        let before = self.rights.fetch_sub(ONE, order);
        if before % MADE != ONE + HAD || self.without == Without::LookOfLast {
            return;
        }
        let mut state = self.state.lock().unwrap();
        self.look(&mut state);
    }

    /// When there is none: how many have been made.
    fn has_lost_all(&self) -> Option<u64> {
        let rights = self.rights.load(self.order(Without::Acquire, Acquire));
        (rights % MADE == HAD).then_some(rights / MADE)
    }

    fn look(&self, state: &mut State) {
        if state.asks && self.has_lost_all().is_some() {
            state.asks = false;
            state.due += 1;
            self.is_due.store(true, Release);
        }
    }

    fn notify_no_senders(&self) {
        let mut state = self.state.lock().unwrap();
        state.asks = true;
        if self.without != Without::LookOfAsker {
            self.look(&mut state);
        }
    }

    /// A right is made, by a thread that has one: it ends with its link.
    fn added(&self) {
        self.rights.fetch_add(ONE + MADE, Relaxed);
    }

    /// `Poller::take_notice`: whether the receiver is told, and how many rights have been made by then.
    /// `received` is what it has got before.
    fn take_notice(&self, received: &mut [bool; LINKS]) -> Option<u64> {
        if !self.is_due.load(Acquire) {
            return None;
        }
        loop {
            let deaths = self.deaths.load(Acquire);
            for (link, received) in received.iter_mut().enumerate() {
                *received |= self.messages[link].load(Relaxed) == 1;
            }
            // Relaxed: behind the load in `has_lost_all`.
            let has_heard =
                || deaths >= self.lost_at.load(Relaxed) || self.without == Without::HasHeard;
            let mut state = self.state.lock().unwrap();
            if state.due == 0 {
                self.is_due.store(false, Release);
                return None;
            }
            let Some(made) = self.has_lost_all() else {
                (state.due, state.asks) = (0, true);
                continue;
            };
            // Where it has not, the receiver looks again.
            return has_heard().then(|| {
                state.due -= 1;
                made
            });
        }
    }
}

/// Both links end at once.
fn two_links_end(without: Without) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let notices = Arc::new(new(without, LINKS as u64));
        let threads: Vec<_> = (0..LINKS)
            .map(|link| {
                let notices = notices.clone();
                loom::thread::spawn(move || notices.end_link(link))
            })
            .collect();
        notices.notify_no_senders();
        let mut received = [false; LINKS];
        let mut is_told = notices.take_notice(&mut received).is_some();
        let before = received;
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        if is_told {
            assert_eq!(before, [true; LINKS], "a message is overtaken");
        } else {
            is_told = notices.take_notice(&mut received).is_some();
        }
        assert!(is_told, "it is not told");
        assert!(notices.take_notice(&mut received).is_none(), "told twice");
    });
}

/// The first has ended, and while the receiver is told of that a second comes, sends, and is gone.
fn one_comes_and_goes(without: Without) {
    loom::model(move || {
        let notices = Arc::new(new(without, 1));
        notices.notify_no_senders();
        notices.end_link(0);
        let theirs = notices.clone();
        let thread = loom::thread::spawn(move || {
            theirs.added();
            theirs.end_link(1);
        });
        let mut received = [false; LINKS];
        let told = notices.take_notice(&mut received);
        if let Some(made) = told {
            assert!(received[0], "a message is overtaken");
            assert!(made == 0 || received[1], "a message is overtaken");
        }
        thread.join().unwrap();
        let told_then = notices.take_notice(&mut received);
        assert!(told.is_some() != told_then.is_some(), "it is told once");
        assert!(
            told.is_some() || received == [true; LINKS],
            "a message is overtaken"
        );
    });
}

fn new(without: Without, rights: u64) -> Notices {
    Notices {
        without,
        deaths: AtomicU32::new(0),
        messages: [AtomicU32::new(0), AtomicU32::new(0)],
        rights: AtomicU64::new(HAD + rights * ONE),
        lost_at: AtomicU32::new(0),
        is_due: AtomicBool::new(false),
        state: Mutex::new(State::default()),
    }
}

#[test]
fn e13_a_notice_comes_once_and_after_the_messages() {
    two_links_end(Without::Nothing);
}

#[test]
fn e13_a_notice_comes_after_the_messages_of_who_has_come_since() {
    one_comes_and_goes(Without::Nothing);
}

#[test]
fn e13_without_the_release_a_message_is_overtaken() {
    must_panic("overtaken", || two_links_end(Without::Release));
}

#[test]
fn e13_without_the_acquire_a_message_is_overtaken() {
    must_panic("overtaken", || two_links_end(Without::Acquire));
}

#[test]
fn e13_without_the_look_of_who_asks_nothing_is_told() {
    must_panic("not told", || two_links_end(Without::LookOfAsker));
}

#[test]
fn e13_without_the_look_of_the_last_nothing_is_told() {
    must_panic("not told", || two_links_end(Without::LookOfLast));
}

#[test]
fn e13_without_a_look_at_the_last_links_that_ended_a_message_is_overtaken() {
    must_panic("overtaken", || one_comes_and_goes(Without::HasHeard));
}
