use super::*;
use crate::descriptors::tests::link;
use crate::link::deaths::{DeathNotice, HearsOfDeaths};
use crate::receive_right::ReceiveRight;
use crate::{anonymous, guest, links, polling};
use handfast_ring::Rule;
use handfast_testing::within_patience;
use std::sync::Weak;
use std::task::Wake;

struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_whose_announcement_a_former_waker_takes_is_woken_to_make_it_again() {
    let (_process, link, _peer) = link();
    let (slot, lane) = (Slot::of(link.calls, 3), 2);
    let space = Place::of(link.calls, lane).space();
    for (what, at) in [
        (What::Reply(slot, 7), slot.wait()),
        (What::Space(lane), space),
    ] {
        let count = Arc::new(Count(AtomicU64::new(0)));
        let number = link.waiters.tasks.enter(what, count.clone().into());
        word::announce(&link.region, at, word::DESCRIPTOR);
        if matches!(what, What::Reply(..)) {
            wake_answered(&link);
            assert_eq!(count.0.load(Ordering::Relaxed), 0, "{what:?}");
        }
        assert_eq!(
            word::fence_then_taken(&link.region, at),
            Some(word::DESCRIPTOR)
        );
        wake_answered(&link);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "{what:?}");
        link.waiters.tasks.leave(number);
    }
}

/// Receives when it is woken, and counts what it hears in the control thread.
struct Receives(ReceiveRight, Count, Count);

impl Wake for Receives {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_receive();
        if guest::is_control() {
            self.1.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HearsOfDeaths for Receives {
    fn hear_death(&self, number: u64) {
        if guest::is_control() {
            self.2.0.fetch_add(number, Ordering::Relaxed);
        }
    }
}

/// They ran under the lock of the receiver that had found the fault, where a debug build ends the thread; and one that came back to
/// that receiver waited for itself.
#[test]
fn wakers_and_notices_of_a_link_that_a_receiver_cuts_are_the_control_threads() {
    let (process, link, _peer) = link();
    links::list(&process).push(Some(link.clone()));
    let count = || Count(AtomicU64::new(0));
    let receives = Arc::new(Receives(anonymous().unwrap(), count(), count()));
    let number = link
        .waiters
        .tasks
        .enter(What::Room, receives.clone().into());
    let told = Arc::downgrade(&receives) as Weak<dyn HearsOfDeaths>;
    link.death_notices().push(DeathNotice {
        of: 0x100,
        handle: 1 << 31,
        was: None,
        number: 7,
        told,
    });
    let receiver = polling::lock(&receives.0.port().at);
    link.poison(Rule::Part.broken());
    assert!(link.is_down());
    drop(receiver);
    let is_woken = || receives.1.0.load(Ordering::Relaxed) > 0;
    assert!(within_patience(is_woken));
    let is_told = || receives.2.0.load(Ordering::Relaxed) == 7;
    assert!(within_patience(is_told));
    link.waiters.tasks.leave(number);
}
