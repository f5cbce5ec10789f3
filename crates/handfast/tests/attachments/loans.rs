//! Blocks of arenas that are lent with messages and come back, whatever becomes of those who have them.

mod limits;
mod sharing;

use crate::common::{self, content, within_patience};
use handfast::error::{LoanError, RightError, SendError};
use handfast::{Block, Loan, Right, SharedArena};
use std::io::Read;

fn loans(rights: Vec<Right>) -> Vec<Loan> {
    let loans = rights.into_iter().map(|right| match right {
        Right::Loan(loan) => loan,
        other => panic!("{other:?}"),
    });
    loans.collect()
}

/// Answers loans with loans of its own: every byte one more. Gives back what it got first.
pub(crate) fn echo(name: &str) {
    let port = handfast::bind(name).unwrap();
    let arena = SharedArena::create(1 << 20, 4).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let came = loans(request.take_rights()).into_iter();
        let answers: Vec<Right> = came.map(|loan| more(&arena, &loan).into()).collect();
        request.reply_with(b"more", answers).unwrap();
    }
}

fn more(arena: &SharedArena, loan: &Loan) -> Block {
    let mut block = arena.try_take(loan.len()).unwrap();
    loan.copy_to(0, &mut block).unwrap();
    block
        .iter_mut()
        .for_each(|byte| *byte = byte.wrapping_add(1));
    block
}

/// Keeps what it gets until it is told otherwise.
pub(crate) fn holder(name: &str) {
    let port = handfast::bind(name).unwrap();
    let mut held: Vec<Loan> = Vec::new();
    common::say("ready");
    while let Some(told) = common::told() {
        match told.as_str() {
            "receive" => {
                let mut request = port.receive().unwrap();
                held.extend(loans(request.take_rights()));
                if request.is_call() {
                    request.reply(b"").unwrap();
                }
            }
            "drop" => held.clear(),
            "look" => {
                let read = held.last().unwrap().to_vec();
                let read = read.map(|bytes| bytes.iter().map(|byte| u32::from(*byte)).sum());
                common::say(&format!("{:?}", read as Result<u32, LoanError>));
            }
            other => panic!("{other}"),
        }
        common::say("done");
    }
}

/// Lends a block through the right that it gets, and says what comes of it.
pub(crate) fn recipient(name: &str) {
    let port = handfast::bind(name).unwrap();
    let arena = SharedArena::create(64, 1).unwrap();
    common::say("ready");
    let mut request = port.receive().unwrap();
    let Some(Right::Send(right)) = request.take_rights().pop() else {
        panic!("no right came");
    };
    let sent = right.with([filled(&arena, 5, 1).into()]).try_send(b"");
    common::say(&format!(
        "{:?}",
        sent.as_ref().map_err(|returned| returned.error)
    ));
    drop(sent);
    common::say(&format!("{}", all_back(&arena, 1)));
    // Without a block it goes.
    right.send(b"").unwrap();
    request.reply(b"").unwrap();
    common::told();
}

/// Lends a block of sevens to the port that it is told, and stays.
pub(crate) fn lender(to: &str, what: &str) {
    let right = handfast::connect(to).unwrap();
    let arena = SharedArena::create(4096, 1).unwrap();
    let mut block = arena.try_take(1000).unwrap();
    block.fill(7);
    right.with([block.into()]).call(b"").unwrap();
    common::say("lent");
    common::told();
    if what == "ends" {
        // The last right: the link ends, and the block is back.
        drop(right);
        assert!(within_patience(|| arena.try_take(1).is_ok()));
        arena.try_take(4096).unwrap().fill(9);
        common::say("ended");
    }
    common::told();
}

fn server(role: &'static str, what: &str) -> (common::Child, String) {
    let name = common::name(what);
    let child = common::start(role, &[&name]);
    child.expect("ready");
    (child, name)
}

/// Has a child do something.
fn ask(child: &mut common::Child, what: &str) {
    child.tell(what);
    child.expect("done");
}

fn filled(arena: &SharedArena, len_bytes: usize, key: u64) -> Block {
    let mut block = arena.try_take(len_bytes).unwrap();
    block.copy_from_slice(&content(len_bytes, key));
    block
}

/// All blocks of an arena are there, each once.
fn all_back(arena: &SharedArena, count: u32) -> bool {
    let taken: Vec<_> = std::iter::from_fn(|| arena.try_take(1).ok()).collect();
    assert!(taken.len() <= count as usize, "a block came back twice");
    taken.len() == count as usize
}

#[test]
fn what_is_lent_is_seen_and_comes_back_both_ways() {
    let (mut child, name) = server("echo", "loans");
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(1 << 20, 4).unwrap();
    assert_eq!(arena.block_bytes(), 1 << 20);
    for (key, len_bytes) in (0..).zip([0, 1, 63, 64, 4096, 65_537, 1 << 20]) {
        let block = filled(&arena, len_bytes, key);
        let mut reply = right.with([block.into()]).call(b"more").unwrap();
        let back = reply.take_loan().unwrap();
        assert!(reply.take_loan().is_none());
        assert_eq!((back.len(), back.is_empty()), (len_bytes, len_bytes == 0));
        let expected = content(len_bytes, key).into_iter();
        let expected: Vec<u8> = expected.map(|byte| byte.wrapping_add(1)).collect();
        assert_eq!(back.to_vec().unwrap(), expected);
        let middle = len_bytes / 2;
        let mut half = vec![0; len_bytes - middle];
        back.copy_to(middle, &mut half).unwrap();
        assert_eq!(half, expected[middle..]);
    }
    // Four at once, in their order, many times: all of them come back each time.
    for turn in 0..1000 {
        let four = (0..4).map(|place| filled(&arena, 100 + place, turn).into());
        let mut reply = right.with(four).call(b"more").unwrap();
        let back = loans(reply.take_rights());
        assert_eq!(back.len(), 4);
        assert!(back.iter().zip(100..).all(|(loan, len)| loan.len() == len));
    }
    assert!(all_back(&arena, 4));
    child.kill();
}

#[test]
fn a_block_can_be_taken_again_once_it_is_dropped_and_not_before() {
    let (mut child, name) = server("holder", "held");
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(4096, 2).unwrap();
    for _ in 0..3 {
        for key in 0..2 {
            right
                .with([filled(&arena, 10, key).into()])
                .send(b"")
                .unwrap();
            ask(&mut child, "receive");
            let refused = arena.try_take(1).map(drop);
            let is_lent = refused == Err(LoanError::Lent { blocks: 2 });
            assert_eq!(is_lent, key == 1);
        }
        ask(&mut child, "drop");
        assert!(all_back(&arena, 2));
    }
    assert_eq!(
        arena.try_take(4097).unwrap_err(),
        LoanError::TooLong {
            len_bytes: 4097,
            room_bytes: 4096
        }
    );
    child.kill();
}

#[test]
fn a_loan_is_bounded_and_can_be_handed_to_a_descriptor_unseen() {
    let name = common::name("bounds");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(200_000, 1).unwrap();
    let mut block = filled(&arena, 200_000, 3);
    block.truncate(150_000);
    block.truncate(160_000);
    assert_eq!(block.len(), 150_000);
    right.with([block.into()]).send(b"").unwrap();
    let loan = port.receive().unwrap().take_loan().unwrap();
    let outside = |end| {
        let len_bytes = 150_000;
        LoanError::Outside { end, len_bytes }
    };
    let mut two = [0; 2];
    assert_eq!(loan.copy_to(149_999, &mut two), Err(outside(150_001)));
    assert_eq!(loan.copy_to(usize::MAX, &mut two), Err(outside(usize::MAX)));
    assert_eq!(loan.copy_to(150_000, &mut []), Ok(()));
    let (mut reader, writer) = std::io::pipe().unwrap();
    assert_eq!(loan.write_to(&writer, 150_001), Err(outside(150_001)));
    assert_eq!(loan.write_to(&writer, 150_000), Ok(0));
    let read = std::thread::spawn(move || {
        let mut read = Vec::new();
        reader.read_to_end(&mut read).map(|_| read)
    });
    let mut from = 0;
    while from < loan.len() {
        from += loan.write_to(&writer, from).unwrap();
    }
    drop(writer);
    let expected = &content(200_000, 3)[..150_000];
    assert_eq!(read.join().unwrap().unwrap(), expected);
    let mut lines = Vec::new();
    loan.for_each_line(|line| lines.extend(line.map(u64::to_le_bytes)))
        .unwrap();
    assert_eq!(lines.as_flattened()[..150_000], *expected);
    assert!(
        lines.as_flattened()[150_000..]
            .iter()
            .all(|byte| *byte == 0)
    );
    assert_eq!(lines.as_flattened().len(), 150_016);
}

#[test]
fn a_holder_that_is_killed_gives_everything_back_once() {
    let arena = SharedArena::create(4096, 8).unwrap();
    for _ in 0..3 {
        let (mut child, name) = server("holder", "killed");
        let right = handfast::connect(&name).unwrap();
        // Some of them received, some given back, some still in the queue.
        for key in 0..6 {
            right
                .with([filled(&arena, 10, key).into()])
                .send(b"")
                .unwrap();
        }
        for told in ["receive", "receive", "drop", "receive", "receive"] {
            ask(&mut child, told);
        }
        child.kill();
        assert!(within_patience(|| all_back(&arena, 8)));
        assert!(all_back(&arena, 8));
        let gone = right.with([filled(&arena, 10, 0).into()]).send(b"");
        let mut gone = gone.unwrap_err();
        assert!(matches!(gone.error, SendError::Gone(_)));
        // A block that was not sent comes back as it was.
        let Some(Right::Block(block)) = gone.rights.pop() else {
            panic!("the block is lost");
        };
        assert_eq!(*block, *content(10, 0));
    }
}

#[test]
fn messages_that_nobody_takes_give_their_loans_back() {
    let arena = SharedArena::create(4096, 8).unwrap();
    let name = common::name("refused");
    let port = handfast::bind(&name).unwrap();
    let other = handfast::bind(&format!("{name}-other")).unwrap();
    let right = handfast::connect(&name).unwrap();
    let keeps = handfast::connect(&format!("{name}-other")).unwrap();
    // Dropped unread by its receiver.
    right
        .with([filled(&arena, 10, 1).into()])
        .send(b"")
        .unwrap();
    drop(port.receive().unwrap());
    assert!(all_back(&arena, 8));
    // In the queue of a port that is dropped, and behind that.
    right
        .with([filled(&arena, 10, 1).into()])
        .send(b"")
        .unwrap();
    let call = right.with([filled(&arena, 10, 1).into()]).try_call(b"");
    drop(port);
    assert!(call.unwrap().wait().is_err());
    assert!(within_patience(|| all_back(&arena, 8)));
    // In a reply to a call that was given up.
    let given_up = keeps.try_call(b"").unwrap();
    let request = other.receive().unwrap();
    drop(given_up);
    let block = filled(&arena, 10, 1);
    request.reply_with(b"", [block.into()]).unwrap();
    assert!(within_patience(|| all_back(&arena, 8)));
    // In a reply that nobody looks for, once the call is dropped.
    let call = keeps.try_call(b"").unwrap();
    let request = other.receive().unwrap();
    request
        .reply_with(b"", [filled(&arena, 10, 1).into()])
        .unwrap();
    assert!(!all_back(&arena, 8));
    drop(call);
    assert!(within_patience(|| all_back(&arena, 8)));
    // Into a buffer that has no place for it.
    let served = std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = other.receive().unwrap();
            let block = filled(&arena, 10, 1);
            request.reply_with(b"12", [block.into()]).unwrap();
        });
        keeps.call_into(b"", &mut [0; 2])
    });
    assert_eq!(served, Ok(2));
    assert!(all_back(&arena, 8));
    // A message that could not be sent, and one taken and not sent.
    assert!(
        keeps
            .with([filled(&arena, 1, 1).into()])
            .send(&vec![0; handfast::LONG_BYTES_MAX + 1])
            .is_err()
    );
    drop(filled(&arena, 1, 1));
    assert!(all_back(&arena, 8));
}

#[test]
fn a_message_behind_one_that_tells_of_an_arena_may_come_first() {
    let name = common::name("order");
    let (first, second) = (format!("{name}-1"), format!("{name}-2"));
    let ports = [&first, &second].map(|name| handfast::bind(name).unwrap());
    let rights = [&first, &second].map(|name| handfast::connect(name).unwrap());
    for key in 0..50 {
        let arena = SharedArena::create(4096, 2).unwrap();
        for right in &rights {
            right
                .with([filled(&arena, 100, key).into()])
                .send(b"")
                .unwrap();
        }
        // The arena may end before either has been looked at.
        drop(arena);
        for port in ports.iter().rev() {
            let loan = port.receive().unwrap().take_loan().unwrap();
            assert_eq!(loan.to_vec().unwrap(), content(100, key));
        }
    }
}

#[test]
fn the_last_block_of_an_arena_that_was_dropped_is_lent_like_any_other() {
    let (mut child, name) = server("echo", "last-block");
    let right = handfast::connect(&name).unwrap();
    for key in 0..100 {
        let arena = SharedArena::create(64, 3).unwrap();
        let mut blocks = [0, 1, 2].map(|_| Some(filled(&arena, 20, key)));
        drop(arena);
        for block in &mut blocks {
            let block = block.take().unwrap();
            let mut reply = right.with([block.into()]).call(b"").unwrap();
            let back = reply.take_loan().unwrap().to_vec().unwrap();
            assert_eq!(back[19], content(20, key)[19].wrapping_add(1));
        }
    }
    child.kill();
}

#[test]
fn loans_stay_with_whom_they_were_lent_to() {
    let name = common::name("on");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    let arena = SharedArena::create(64, 1).unwrap();
    right
        .with([arena.try_take(1).unwrap().into()])
        .send(b"")
        .unwrap();
    let loan = port.receive().unwrap().take_loan().unwrap();
    let mut refused = right.with([loan.into()]).send(b"").unwrap_err();
    assert_eq!(refused.error, SendError::Right(RightError::Loan));
    assert!(!all_back(&arena, 1));
    // It comes back, and is a loan still.
    let loan = loans(std::mem::take(&mut refused.rights)).pop().unwrap();
    assert_eq!(loan.to_vec().unwrap(), [0]);
    drop(loan);
    assert!(all_back(&arena, 1));
}

#[test]
fn a_block_is_not_lent_to_a_process_in_the_middle() {
    let (mut child, name) = server("holder", "behind");
    let recipient_name = common::name("middle");
    let mut recipient = common::start_with("recipient", &[&recipient_name], |command| {
        command.env("HANDFAST_INTRODUCTIONS", "vine");
    });
    recipient.expect("ready");
    let behind = handfast::connect(&name).unwrap();
    let right = handfast::connect(&recipient_name).unwrap();
    right.with([behind.into()]).call(b"").unwrap();
    recipient.expect("Err(Right(Vine))");
    recipient.expect("true");
    ask(&mut child, "receive");
    recipient.kill();
    child.kill();
}

#[test]
fn what_a_lender_left_stays_and_what_it_took_back_is_found_out() {
    let (mut child, name) = server("holder", "left");
    let mut dies = common::start("lender", &[&name, "dies"]);
    ask(&mut child, "receive");
    dies.expect("lent");
    child.tell("look");
    child.expect("Ok(7000)");
    child.expect("done");
    dies.kill();
    child.tell("look");
    child.expect("Ok(7000)");
    child.expect("done");
    let mut ends = common::start("lender", &[&name, "ends"]);
    ask(&mut child, "receive");
    ends.expect("lent");
    child.tell("look");
    child.expect("Ok(7000)");
    child.expect("done");
    ends.tell("end");
    ends.expect("ended");
    child.tell("look");
    child.expect("Err(Gone)");
    child.expect("done");
    ends.kill();
    child.kill();
}
