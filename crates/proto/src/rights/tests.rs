use super::*;

#[test]
fn what_no_honest_peer_does_is_refused() {
    let target = |port| Target::full(port, 7);
    let mut exports = Exports::default();
    let handle = exports.export(target(1)).unwrap();
    assert_eq!(
        exports.export(target(1)),
        Ok(handle),
        "one handle for one right"
    );
    assert_eq!(exports.release(handle, 3), Err(Refused::Release));
    assert_eq!(exports.release(handle ^ 1, 1), Err(Refused::Unknown));
    assert_eq!(
        exports.release(handle ^ 1 << INDEX_BITS, 1),
        Err(Refused::Unknown)
    );
    assert_eq!(
        exports.release(handle & !IS_HANDLE, 1),
        Err(Refused::Unknown)
    );
    assert_eq!(exports.release(handle, 0), Err(Refused::Release));
    assert_eq!(exports.finish(handle), None);
    assert_eq!(exports.release(handle, 2), Ok(true));
    assert_eq!(exports.release(handle, 1), Err(Refused::Unknown));
    assert_eq!(exports.resolve(handle), Some(Meaning::To(target(1))));
    assert_eq!(exports.finish(handle), Some((target(1), false)));
    assert_eq!(exports.finish(handle), None);
    assert_eq!(exports.resolve(handle), None);
    let again = exports.export(target(2)).unwrap();
    assert_ne!(again, handle, "the same index, another generation");

    // Rights left behind by the dead are revoked, too.
    assert_eq!((exports.watch(2, 7), exports.watch(2, 7)), (1, 0));
    let ended = Ended {
        ports: vec![(2, 1)],
        watched: vec![target(2)],
    };
    assert_eq!(exports.end(), ended);
    assert_eq!(exports.watch(2, 7), 0);
    assert_eq!(exports.revoke(2, 7), Some(Revoked::default()));
    assert_eq!(exports.revoke(2, 7), None);
    assert_eq!(exports.resolve(again), Some(Meaning::Revoked));

    let mut imports = Imports::default();
    assert_eq!(imports.arrive(5, 1), Err(Refused::Unknown));
    assert_eq!(imports.arrive(handle, 1), Ok(()));
    assert_eq!(imports.arrive(handle, 2), Err(Refused::Port));
    assert_eq!(imports.len(), 1);
}

#[test]
fn what_was_sent_last_is_another_right_once_it_was_revoked_or_given_back() {
    let target = Target::full(1, 7);
    let mut exports = Exports::default();
    let first = exports.export(target).unwrap();
    assert_eq!(exports.revoke(1, 7).unwrap().handles, [first]);
    let second = exports.export(target).unwrap();
    assert_ne!(second, first, "the first one stands for nothing");
    assert_eq!(exports.release(second, 1), Ok(true));
    let third = exports.export(target).unwrap();
    assert!(
        third != first && third != second,
        "the second one is ending"
    );
    assert_eq!(exports.finish(second), Some((target, false)));
    assert_eq!(exports.export(target), Ok(third));
    assert_eq!(
        exports.export(Target::full(1, 8)).map(index),
        Ok(1),
        "used again"
    );
    assert_eq!(exports.export(target), Ok(third));
}

#[test]
#[cfg_attr(miri, ignore = "a million steps")]
fn the_table_holds_a_million_rights_and_says_when_it_is_full() {
    let target = |badge| Target::full(0, badge);
    let mut exports = Exports::default();
    for badge in 0..u64::from(EXPORTS_MAX) {
        exports.export(target(badge)).unwrap();
    }
    assert_eq!(exports.export(target(u64::MAX)), Err(Refused::Full));
    assert_eq!(exports.end().ports, [(0, u64::from(EXPORTS_MAX))]);
    assert_eq!(exports.end(), Ended::default(), "told once");
    assert_eq!(exports.export(target(0)), Err(Refused::Over));
    let handle = handle(5, 0);
    assert_eq!(
        exports.resolve(handle),
        Some(Meaning::To(target(5))),
        "for what was left behind"
    );
    assert_eq!(exports.release(handle, 1), Ok(true));
    assert_eq!(exports.finish(handle), None, "it has been told of");

    // A peer that makes up handles finds an end, too.
    let mut imports = Imports::default();
    let made_up = (0..).map(|number| IS_HANDLE | number);
    let taken = made_up.take_while(|handle| imports.arrive(*handle, 1).is_ok());
    assert_eq!(taken.count(), EXPORTS_MAX as usize);
}
