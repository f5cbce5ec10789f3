use super::*;
use crate::descriptors::tests::link;
use core::cell::RefCell;

type Step = Box<dyn FnOnce()>;

thread_local! {
    static BETWEEN: RefCell<Option<Step>> = const { RefCell::new(None) };
}

/// What this thread's test does when a right has been found that is to be provided.
pub(super) fn between() {
    if let Some(step) = BETWEEN.take() {
        step();
    }
}

#[test]
fn what_is_provided_while_its_right_is_revoked_comes_to_nothing() {
    let (process, link, _peer) = link();
    process.links.lock().unwrap().push(Some(link.clone()));
    let receive = crate::anonymous().unwrap();
    let port = receive.port().clone();
    let handle = link.export(&port, Target::full(port.id, 5)).unwrap();
    let (number, recipient) = (u64::from(port.id), [9; 20]);
    BETWEEN.set(Some(Box::new(move || receive.revoke(5))));
    let header = Header {
        kind: Kind::CONTROL,
        port: handle,
        reply: 0,
        generation: 0,
        units: 0,
        cpu: 0,
    };
    let said = Said::Provide { number, recipient }.to_bytes();
    link.hear_said(&process, (header, &said), Some(0)).unwrap();
    let redeemed = process
        .provisions()
        .redeem((link.identity(), number), recipient);
    assert!(matches!(redeemed, Redeemed::Dead | Redeemed::Revoked));
    process.end_link(&link);
}
