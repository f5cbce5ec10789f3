use super::closing::{CLOSING_MAX, THREADS_MAX};
use super::*;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use handfast_sys::{AsFd, OwnedFd, socket};
use std::sync::mpsc;

/// Some user; only this test uses its resources.
fn users() -> (Arc<Users>, u32) {
    (Users::new(), 4711)
}

fn held(users: &Users, user: u32) -> u64 {
    users.state().table.held(user, Quota::Descriptors)
}

/// Waits for another thread's step, which comes soon.
fn soon(is_so: impl Fn() -> bool) -> bool {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    is_so()
}

/// All closing threads of a user are held up, as by descriptors whose ends take long, until the other end of this is dropped.
fn hold_up(users: &Arc<Users>, user: u32, stopped: mpsc::Receiver<()>) {
    let stopped = Arc::new(std::sync::Mutex::new(stopped));
    for _ in 0..THREADS_MAX {
        let stopped = stopped.clone();
        users.expend(user, move || {
            assert!(stopped.lock().unwrap().recv().is_err())
        });
    }
    assert!(soon(|| users.state().closing[&user].jobs.is_empty()));
}

#[test]
fn one_descriptor_that_is_not_closed_holds_up_no_other() {
    let (users, user) = users();
    let (stop, stopped) = mpsc::channel::<()>();
    users.expend(user, move || assert!(stopped.recv().is_err()));
    let (near, far) = socket::pair().unwrap();
    drop(Foreign::new(&users, user, near));
    assert!(soon(|| socket::is_closed(&far)));
    drop(stop);
}

/// Regions of links that ended together were unmapped by four threads, beside which calls waited for a processor.
#[test]
fn one_thread_at_a_time_frees_also_while_another_is_held_up() {
    /// Threads that are at it, and drops so far.
    static AT_IT: AtomicU32 = AtomicU32::new(0);
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Long;
    impl Drop for Long {
        fn drop(&mut self) {
            assert_eq!(AT_IT.fetch_add(1, Ordering::Relaxed), 0);
            (0..1_000).for_each(|_| std::thread::yield_now());
            AT_IT.fetch_sub(1, Ordering::Relaxed);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (users, user) = users();
    let (stop, stopped) = mpsc::channel::<()>();
    users.expend(user, move || assert!(stopped.recv().is_err()));
    for _ in 0..50 {
        users.free(user, Long);
    }
    assert!(soon(|| DROPPED.load(Ordering::Relaxed) == 50));
    drop(stop);
}

/// The last step of a job leaves another one, which needs no thread of its own.
#[test]
fn a_job_that_the_end_of_another_leaves_is_done_by_the_same_thread() {
    let (users, user) = users();
    let (near, far) = socket::pair().unwrap();
    let (foreign, of) = (Foreign::new(&users, user, near), users.clone());
    let (told, threads) = mpsc::channel();
    users.expend(user, move || {
        of.at_end(user, || drop(foreign));
        told.send(of.state().closing[&user].threads).unwrap();
    });
    assert_eq!(threads.recv(), Ok(1));
    assert!(soon(|| socket::is_closed(&far)));
}

#[test]
fn a_descriptor_counts_until_it_is_closed_and_is_closed_by_its_users_thread() {
    let (users, user) = users();
    let (stop, stopped) = mpsc::channel::<()>();
    hold_up(&users, user, stopped);
    let (near, far) = socket::pair().unwrap();
    let charge = users.charge(user, Quota::Descriptors, 1).ok().unwrap();
    drop(Foreign::charged(near, charge));
    let (other, _far) = socket::pair().unwrap();
    drop(Foreign::new(&users, user, other));
    assert_eq!(held(&users, user), 2);
    assert!(!socket::is_closed(&far));
    // Another user's thread goes on.
    let (own, end) = socket::pair().unwrap();
    drop(Foreign::new(&users, user + 1, own));
    assert!(soon(|| socket::is_closed(&end)));
    assert_eq!(held(&users, user), 2);
    drop(stop);
    assert!(soon(|| held(&users, user) == 0));
    assert!(socket::is_closed(&far));
}

#[test]
fn a_user_whose_descriptors_are_not_closed_is_backed_up() {
    let (users, user) = users();
    let (stop, stopped) = mpsc::channel::<()>();
    hold_up(&users, user, stopped);
    for _ in 0..CLOSING_MAX {
        assert!(!users.is_backed_up(user));
        users.expend(user, || {});
    }
    assert!(users.is_backed_up(user));
    assert!(!users.is_backed_up(user + 1));
    drop(stop);
    assert!(soon(|| !users.is_backed_up(user)));
}

#[test]
fn what_a_user_may_hold_follows_the_limit_of_descriptors() {
    let limit = limit_of(Quota::Descriptors, 1024);
    assert_eq!((limit.total, limit.per_user, limit.modest), (896, 672, 28));
    assert_eq!(limit_of(Quota::InFlight, 1024).total, 512);
}

fn in_flight(users: &Users, user: u32) -> u64 {
    users.state().table.held(user, Quota::InFlight)
}

/// A socket of a user's, with so many descriptors in flight, and the end that has not received them.
fn sent_through(users: &Arc<Users>, user: u32, count: usize) -> (Foreign, OwnedFd) {
    let (near, far) = socket::pair().unwrap();
    let near = Foreign::new(users, user, near);
    let (fd, _other) = socket::pair().unwrap();
    (0..count).for_each(|_| near.send(b"take it", &[fd.as_fd()]).unwrap());
    (near, far)
}

#[test]
fn descriptors_in_flight_count_until_they_are_received() {
    let (users, user) = users();
    let (near, far) = sent_through(&users, user, 3);
    assert_eq!(in_flight(&users, user), 3);
    assert!(!near.has_received());
    let mut bytes = [0; 16];
    for _ in 0..3 {
        assert!(!near.has_received());
        drop(socket::receive(&far, &mut bytes, 1).unwrap());
    }
    assert!(near.has_received());
    assert_eq!(in_flight(&users, user), 0);
}

#[test]
fn descriptors_in_flight_outlive_the_end_of_their_connection() {
    let (users, user) = users();
    let (near, far) = sent_through(&users, user, 2);
    drop(near);
    assert!(soon(|| socket::is_closed(&far)));
    assert_eq!((in_flight(&users, user), held(&users, user)), (2, 1));
    // The peer receives what was sent before the end.
    let mut bytes = [0; 16];
    for _ in 0..2 {
        assert_eq!(socket::receive(&far, &mut bytes, 1).unwrap().1.len(), 1);
    }
    assert!(soon(|| held(&users, user) == 0));
    assert_eq!(in_flight(&users, user), 0);
    // A socket that is closed without reading.
    let (near, far) = sent_through(&users, user, 2);
    drop((near, far));
    assert!(soon(|| held(&users, user) == 0));
    assert_eq!(in_flight(&users, user), 0);
}

#[test]
fn idle_connections_that_have_received_all_give_their_share_back() {
    let (users, user) = users();
    let limit = users.limit(Quota::InFlight);
    users.state().table.force(user, Quota::InFlight, limit - 4);
    let mut kept = Vec::new();
    for _ in 0..10 {
        let (near, far) = sent_through(&users, user, 1);
        drop(socket::receive(&far, &mut [0; 16], 1).unwrap());
        kept.push((near, far));
    }
    assert!(in_flight(&users, user) <= limit);
}

/// A user that has received all takes no place of others that come later.
#[test]
fn many_users_that_have_received_all_give_their_shares_back() {
    let (users, user) = users();
    let total = users.state().table.limit(Quota::InFlight).total;
    let kept: Vec<_> = (0..total as u32 / 2 + 8)
        .map(|number| {
            let (near, far) = sent_through(&users, user + number, 2);
            for _ in 0..2 {
                drop(socket::receive(&far, &mut [0; 16], 1).unwrap());
            }
            (near, far)
        })
        .collect();
    drop(kept);
}

#[test]
fn an_end_that_lies_in_its_own_connection_keeps_nothing_open() {
    let (users, user) = users();
    let (near, far) = sent_through(&users, user, 1);
    socket::send(&far, b"me", &[far.as_fd()]).unwrap();
    drop((near, far));
    assert!(soon(|| held(&users, user) == 0));
    assert_eq!(in_flight(&users, user), 0);
}
