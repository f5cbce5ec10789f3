use super::*;
use crate::descriptors::tests::link;
use core::cell::RefCell;
use std::sync::OnceLock;

type Step = Box<dyn FnOnce()>;

thread_local! {
    static BETWEEN: RefCell<Option<Step>> = const { RefCell::new(None) };
}

/// What this thread's test does when the last use of a link has gone and the link has not.
pub(super) fn between() {
    if let Some(step) = BETWEEN.take() {
        step();
    }
}

#[test]
fn a_link_that_is_found_while_its_last_use_is_dropped_stays() {
    let (process, link, _peer) = link();
    process.links.lock().unwrap().push(Some(link.clone()));
    let (last, found) = (Held::new(&process, &link), Arc::new(OnceLock::new()));
    let (other, place) = (process.clone(), found.clone());
    let serial = link.serial;
    BETWEEN.set(Some(Box::new(move || {
        let held = other.hold_link(|link| link.serial == serial);
        assert!(place.set(held).is_ok());
    })));
    drop(last);
    let held = found.get().map(Option::is_some);
    assert!(held == Some(true) && !link.is_down());
    drop(found);
    assert!(link.is_down() && process.hold(&link).is_none());
}

#[test]
fn a_link_through_which_something_is_granted_while_its_last_use_is_dropped_stays() {
    let (process, link, _peer) = link();
    process.links.lock().unwrap().push(Some(link.clone()));
    let last = Held::new(&process, &link);
    let granting = link.clone();
    BETWEEN.set(Some(Box::new(move || {
        granting.granted.store(true, Ordering::Release);
    })));
    drop(last);
    assert!(!link.is_down());
    process.end_link(&link);
}
