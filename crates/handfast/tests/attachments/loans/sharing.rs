//! Arenas that a forked child, several threads, or a caller in need of each block use.

use super::{all_back, filled, server};
use crate::common::{self, content};
use handfast::error::{LoanError, Misuse};
use handfast::{Request, SharedArena};
use std::time::Duration;

#[test]
fn a_forked_child_has_neither_arenas_nor_loans_and_gives_nothing_back() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        a_forked_child_has_neither_arenas_nor_loans_and_gives_nothing_back,
    ) {
        return;
    }
    let name = common::name("fork");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(64, 2).unwrap();
    right.with([filled(&arena, 9, 1).into()]).send(b"").unwrap();
    let loan = port.receive().unwrap().take_loan().unwrap();
    let block = arena.try_take(9).unwrap();
    // SAFETY: the child uses what a child may: its own copies, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = LoanError::Misuse(Misuse::Forked);
        let is_right = arena.try_take(1).map(drop) == Err(forked)
            && loan.to_vec() == Err(forked)
            && loan.write_to(std::io::stderr(), 0) == Err(forked)
            && std::panic::catch_unwind(|| block.first().copied()).is_err();
        drop((loan, block, arena));
        // SAFETY: ends this process and nothing else.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: `status` is ours.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(loan.to_vec().unwrap(), content(9, 1));
    assert!(arena.try_take(1).is_err());
    drop((loan, block));
    assert!(all_back(&arena, 2));
}

#[test]
fn threads_lend_blocks_of_one_arena_and_lose_none() {
    let (mut child, name) = server("echo", "threads");
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(4096, 5).unwrap();
    std::thread::scope(|scope| {
        for key in 0..4 {
            let (right, arena) = (&right, &arena);
            scope.spawn(move || {
                for turn in 0..2000 {
                    let key = key << 32 | turn;
                    let block = filled(arena, 500, key);
                    let mut reply = right.with([block.into()]).call(b"").unwrap();
                    let back = reply.take_loan().unwrap().to_vec().unwrap();
                    let expected = content(500, key).into_iter();
                    assert!(expected.map(|byte| byte.wrapping_add(1)).eq(back));
                }
            });
        }
    });
    assert!(all_back(&arena, 5));
    child.kill();
}

#[test]
fn a_process_that_waits_for_blocks_looks_after_each_call() {
    // A right that `take_rights` leaves out is given back with the message.
    let name = common::name("left-in");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(64, 1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut request: Request = port.receive().unwrap();
            for _ in 0..500 {
                let len = request.take_message().len();
                request = port.reply_and_receive(request, &[0; 8][..len]).unwrap();
            }
            request.reply(b"").unwrap();
        });
        for _ in 0..501 {
            let block = arena.try_take(8).unwrap();
            let call = right.with([block.into()]);
            call.call_timeout(b"12345678", Duration::from_secs(10))
                .unwrap();
        }
    });
    assert!(all_back(&arena, 1));
}
