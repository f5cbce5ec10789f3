//! Rights that go into a domain that is a process, and come back.

use super::{WRONG, load_of, table, value};
use crate::common;
use handfast::Right;
use handfast::domain::{CallContext, Domain, DomainOptions, Isolation, Port, Table, take_rights};
use std::sync::atomic::AtomicU64;

/// Keeps rights that come, and gives them back; calls the first of them with what else it is sent.
fn keeper(kept: &std::sync::Mutex<Vec<Right>>, call: &mut CallContext<'_>) {
    let mut kept = kept.lock().unwrap();
    match call.request() {
        b"keep" => kept.extend(take_rights()),
        b"back" => handfast::domain::reply_rights(std::mem::take(&mut *kept)).unwrap(),
        other => {
            let Some(Right::Send(right)) = kept.first() else {
                panic!("{kept:?}");
            };
            let len_bytes = right.call_into(other, call.reply()).unwrap();
            call.set_reply_len(len_bytes);
        }
    }
}

#[test]
fn a_function_calls_back_into_its_parent_and_rights_come_and_go() {
    let domain = load_of(
        &Table::new(|_| std::sync::Mutex::default()).entry(keeper),
        DomainOptions::new(),
    )
    .unwrap();
    let port = Port::new(handfast::anonymous().unwrap(), &domain, 0).unwrap();
    let right = port.connect().unwrap();
    let own = handfast::anonymous().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = own.receive().unwrap();
            assert_eq!(request.badge(), 4);
            let text = [b"you said ", request.bytes()].concat();
            request.reply(&text).unwrap();
        });
        let _ = right.with([own.mint(4).into()]).call(b"keep").unwrap();
        assert_eq!(&*right.call(b"what").unwrap(), b"you said what");
    });
    let (reader, writer) = std::io::pipe().unwrap();
    let _ = right
        .with([
            Right::Descriptor(writer.into()),
            own.mint_once(5).unwrap().into(),
        ])
        .call(b"keep")
        .unwrap();
    let mut back = right.call(b"back").unwrap().take_rights();
    let Some(Right::SendOnce(once)) = back.pop() else {
        panic!("{back:?}");
    };
    once.send(b"once").unwrap();
    assert!(own.receive().unwrap().is_send_once());
    let Some(Right::Descriptor(_)) = back.pop() else {
        panic!("{back:?}");
    };
    assert!(matches!(back.as_slice(), [Right::Send(_)]), "{back:?}");
    drop(reader);
    // A call of the domain itself has none.
    assert!(
        domain
            .call_bytes(0, &mut [0; 8], b"back", &mut [0; 8])
            .is_ok()
    );
}

/// Says how a call of the right that came has ended.
fn ask(_: &AtomicU64, call: &mut CallContext<'_>) {
    let to = common::send_rights(take_rights()).remove(0);
    let said = format!("{:?}", to.call(b"").map(drop));
    call.reply()[..said.len()].copy_from_slice(said.as_bytes());
    call.set_reply_len(said.len());
}

#[test]
fn a_function_is_told_how_another_domain_went_wrong_by_whatever_way() {
    let asking = load_of(&Table::new(value).entry(ask), DomainOptions::new()).unwrap();
    let name = common::name("asking");
    let port = Port::new(handfast::bind(&name).unwrap(), &asking, 0).unwrap();
    for isolation in [Isolation::Process, Isolation::Unprotected] {
        // SAFETY: as in `load_of`; it panics, and nothing else.
        let wrong =
            unsafe { Domain::new(&table(), DomainOptions::new().isolation(isolation)) }.unwrap();
        let wrong = Port::new(handfast::anonymous().unwrap(), &wrong, WRONG).unwrap();
        // The first call by a new right comes by the process in the middle.
        for by in [handfast::connect(&name).unwrap(), port.connect().unwrap()] {
            for _ in 0..3 {
                let to = wrong.mint(1).connect().unwrap();
                let said = by.with([to.into()]).call(b"").unwrap();
                assert_eq!(&*said, b"Err(Domain(Panic))", "{isolation:?}");
            }
        }
    }
}
