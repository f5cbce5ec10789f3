//! How much there can be of loans and arenas.

use super::{ask, server};
use crate::common::{self, within_patience};
use handfast::SharedArena;
use handfast::error::{MemoryError, RightError, SendError};

#[test]
fn loans_and_arenas_have_limits_that_errors_name_and_room_is_there_again() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        loans_and_arenas_have_limits_that_errors_name_and_room_is_there_again,
    ) {
        return;
    }
    let (mut child, name) = server("holder", "limits");
    let right = handfast::connect(&name).unwrap();
    let before = common::holdings(child.pid());
    let lend = |arena: &SharedArena| {
        right
            .with([arena.try_take(1).unwrap().into()])
            .try_send(b"")
    };
    let arena = SharedArena::create(64, 300).unwrap();
    for _ in 0..256 {
        lend(&arena).unwrap();
        ask(&mut child, "receive");
    }
    let refused = lend(&arena).unwrap_err();
    let limit = SendError::Right(RightError::Loans { limit: 256 });
    assert_eq!(refused.error, limit);
    assert_eq!(refused.rights.len(), 1);
    drop(refused);
    ask(&mut child, "drop");
    lend(&arena).unwrap();
    ask(&mut child, "receive");
    let mut arenas: Vec<_> = (1..16)
        .map(|_| SharedArena::create(64, 1).unwrap())
        .collect();
    for arena in &arenas {
        lend(arena).unwrap();
        ask(&mut child, "receive");
    }
    let one_more = SharedArena::create(64, 1).unwrap();
    let refused = lend(&one_more).unwrap_err().error;
    assert_eq!(refused, SendError::Right(RightError::Arenas { limit: 16 }));
    // One that has ended counts as long as a block of it is lent.
    arenas.pop();
    assert!(lend(&one_more).is_err());
    ask(&mut child, "drop");
    lend(&one_more).unwrap();
    ask(&mut child, "receive");
    drop(one_more);
    ask(&mut child, "drop");
    // Arenas come and go.
    for _ in 0..200 {
        let arena = SharedArena::create(64, 1).unwrap();
        lend(&arena).unwrap();
        ask(&mut child, "receive");
        ask(&mut child, "drop");
    }
    drop((arena, arenas));
    let at_rest = || common::holdings(child.pid()) <= before;
    assert!(within_patience(at_rest), "{before:?}");
    drop(right);
    assert!(within_patience(|| common::holdings_alone().1 <= 8));
    child.kill();
}

#[test]
fn nothing_that_cannot_be_an_arena_is_made() {
    assert_eq!(SharedArena::create(0, 1).unwrap_err(), MemoryError::Empty);
    assert_eq!(SharedArena::create(1, 0).unwrap_err(), MemoryError::Empty);
    for (block_bytes, blocks) in [
        (64, 65_537),
        (usize::MAX, 1),
        (1 << 60, 60_000),
        (1 << 39, 2),
    ] {
        let refused = SharedArena::create(block_bytes, blocks).unwrap_err();
        assert!(matches!(refused, MemoryError::Exhausted(_)), "{refused}");
    }
}
