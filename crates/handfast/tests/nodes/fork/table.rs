//! Everything that a parent has, used and dropped in a forked child.

use super::{fork, wait_for};
use crate::common;
use handfast::error::{Misuse, ReplyError, SendError};

/// Whether what is done in a forked child is refused as it must be; it never ends the child by a signal, nor hangs.
type InChild<'a> = (&'static str, Box<dyn FnOnce() -> bool + 'a>);

fn is_forked<T>(outcome: Result<T, SendError>) -> bool {
    matches!(outcome, Err(SendError::Misuse(Misuse::Forked)))
}

fn poll<F: Future>(future: F) -> std::task::Poll<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::pin!(future).poll(&mut context)
}

/// Everything that a process can have, each used and dropped by a child of its own.
pub(crate) fn parent(echo: &str) {
    use handfast::{Right, SharedArena, WaitSet};
    use std::task::Poll;
    let (port, held, full) = (
        handfast::anonymous().unwrap(),
        handfast::anonymous().unwrap(),
        handfast::anonymous().unwrap(),
    );
    let own = port.mint(1);
    let [right, to_held, to_full] =
        [&port, &held, &full].map(|port| port.mint(1).connect().unwrap());
    let to_echo = handfast::connect(echo).unwrap();
    let call = || right.try_call(b"pending").unwrap();
    let reply = || {
        let mut reply = Box::pin(right.call_async(b"pending"));
        assert!(poll(&mut reply).is_pending());
        reply
    };
    let (calls, replies) = ([call(), call(), call(), call()], [reply(), reply()]);
    let [wait, wait_timeout, try_wait, dropped] = calls;
    let [mut polled, dropped_reply] = replies;
    while to_full.try_send(b"full").is_ok() {}
    let mut sent = Box::pin(to_full.send_async(b"no room"));
    assert!(poll(&mut sent).is_pending());
    let pending: Vec<_> = (0..8).map(|_| to_held.try_call(b"held").unwrap()).collect();
    let mut requests: Vec<_> = (0..8).map(|_| held.receive().unwrap()).collect();
    let mut request = || requests.pop().unwrap();
    let arena = SharedArena::create(4096, 4).unwrap();
    let loan = || {
        let mut block = arena.try_take(4096).unwrap();
        block.fill(1);
        to_held.with([Right::from(block)]).send(b"").unwrap();
        held.receive().unwrap().take_loan().unwrap()
    };
    let (loan, dropped_loan) = (loan(), loan());
    let block = arena.try_take(64).unwrap();
    let mut set = WaitSet::new().unwrap();
    set.add(handfast::anonymous().unwrap());
    let [
        replied,
        with,
        split,
        timed,
        cancelled,
        forwarded,
        through,
        gone,
    ] = std::array::from_fn(|_| request());
    let mut watched = Box::pin(cancelled.cancelled());
    assert!(poll(&mut watched).is_pending());
    let mut receive = Box::pin(port.receive_async());
    // It takes the calls that are pending, but for those.
    let taken: Vec<_> = std::iter::from_fn(|| port.try_receive().ok()).collect();
    assert!(poll(&mut receive).is_pending());
    let (port, right, to_echo, held) = (&port, &right, &to_echo, &held);
    let mut loan_of_lines = Some(&loan);
    let table: Vec<InChild<'_>> = vec![
        ("wait", Box::new(|| is_forked(wait.wait()))),
        (
            "wait_timeout",
            Box::new(|| is_forked(wait_timeout.wait_timeout(common::PATIENCE))),
        ),
        (
            "try_wait",
            Box::new(|| try_wait.try_wait().ready().is_some_and(is_forked)),
        ),
        ("drop a call", Box::new(|| (drop(dropped), true).1)),
        (
            "poll a reply",
            Box::new(|| match poll(&mut polled) {
                Poll::Ready(outcome) => is_forked(outcome),
                Poll::Pending => false,
            }),
        ),
        ("drop a reply", Box::new(|| (drop(dropped_reply), true).1)),
        (
            "poll a message",
            Box::new(|| match poll(&mut sent) {
                Poll::Ready(outcome) => is_forked(outcome),
                Poll::Pending => false,
            }),
        ),
        (
            "drop a message",
            Box::new(|| (drop(to_full.send_async(b"")), true).1),
        ),
        ("send", Box::new(|| is_forked(right.send(b"")))),
        (
            "send_timeout",
            Box::new(|| is_forked(right.send_timeout(b"", common::PATIENCE))),
        ),
        ("send_many", Box::new(|| right.send_many(&[b""]).is_err())),
        ("call", Box::new(|| is_forked(right.call(b"")))),
        (
            "call_into",
            Box::new(|| is_forked(right.call_into(b"", &mut []))),
        ),
        (
            "call_timeout",
            Box::new(|| is_forked(right.call_timeout(b"", common::PATIENCE))),
        ),
        (
            "call_async",
            Box::new(|| matches!(poll(right.call_async(b"")), Poll::Ready(Err(_)))),
        ),
        (
            "with rights",
            Box::new(|| right.with([own.clone().into()]).send(b"").is_err()),
        ),
        (
            "with rights called",
            Box::new(|| right.with([own.clone().into()]).call(b"").is_err()),
        ),
        ("attenuate", Box::new(|| is_forked(to_echo.attenuate(0)))),
        ("counters", Box::new(|| is_forked(to_echo.counters()))),
        ("identity", Box::new(|| (right.identity(to_echo), true).1)),
        ("clone", Box::new(|| is_forked(to_echo.clone().send(b"")))),
        (
            "peer and holder",
            Box::new(|| (right.peer(), right.holder(), true).2),
        ),
        (
            "options of a right",
            Box::new(|| (right.set_options(handfast::Options::new()), true).1),
        ),
        (
            "notify_death",
            Box::new(|| (right.notify_death(port, 1), true).1),
        ),
        ("connect", Box::new(|| own.connect().is_err())),
        ("mint", Box::new(|| (drop(port.mint(7)), true).1)),
        ("receive", Box::new(|| port.receive().is_err())),
        (
            "receive_timeout",
            Box::new(|| port.receive_timeout(common::PATIENCE).is_err()),
        ),
        (
            "receive_many",
            Box::new(|| port.receive_many(&mut handfast::Batch::new()).is_err()),
        ),
        ("try_receive", Box::new(|| port.try_receive().is_err())),
        ("readiness", Box::new(|| port.readiness().is_err())),
        (
            "poll what is received",
            Box::new(|| matches!(poll(&mut receive), Poll::Ready(Err(_)))),
        ),
        ("readiness", Box::new(|| (port.readiness().is_ok(), true).1)),
        (
            "options of a port",
            Box::new(|| (port.set_options(handfast::Options::new()), true).1),
        ),
        (
            "notify_no_senders",
            Box::new(|| (port.notify_no_senders(), true).1),
        ),
        (
            "notify_no_senders_of",
            Box::new(|| (port.notify_no_senders_of(1), true).1),
        ),
        ("revoke", Box::new(|| (port.revoke(1), true).1)),
        (
            "revoke_from",
            Box::new(|| (port.revoke_from(right.holder(), 1), true).1),
        ),
        ("receive from a set", Box::new(|| set.receive().is_err())),
        ("drop a set", Box::new(|| (drop(WaitSet::new()), true).1)),
        (
            "reply",
            Box::new(|| replied.reply(b"") == Err(ReplyError::Misuse(Misuse::Forked))),
        ),
        (
            "reply with rights",
            Box::new(|| with.reply_with(b"", [own.clone().into()]).is_err()),
        ),
        (
            "split and answer",
            Box::new(|| split.split().1.unwrap().call(b"").is_err()),
        ),
        (
            "time_left",
            Box::new(|| timed.time_left().is_none() && timed.is_cancelled()),
        ),
        (
            "poll for the end of a caller",
            Box::new(|| poll(&mut watched).is_ready()),
        ),
        (
            "forward",
            Box::new(|| forwarded.forward(to_echo, b"").is_err()),
        ),
        (
            "call through",
            Box::new(|| through.call_through(to_echo, b"").is_err()),
        ),
        ("drop a request", Box::new(|| (drop(gone), true).1)),
        (
            "reply and receive",
            Box::new(|| held.try_receive().is_err()),
        ),
        (
            "copy a loan",
            Box::new(|| loan.copy_to(0, &mut [0; 64]).is_err() && loan.to_vec().is_err()),
        ),
        (
            "write a loan",
            Box::new(|| loan.write_to(std::io::stderr(), 0).is_err()),
        ),
        (
            "lines of a loan",
            Box::new(|| loan.for_each_line(drop).is_err()),
        ),
        ("drop a loan", Box::new(|| (drop(dropped_loan), true).1)),
        ("take a block", Box::new(|| arena.try_take(64).is_err())),
        ("drop a block", Box::new(|| (drop(block), true).1)),
    ];
    for (name, work) in table {
        // The parent's part of each is dropped where it is whole.
        let mut work = Some(work);
        let status = wait_for(fork(|| i32::from(!work.take().is_some_and(|work| work()))));
        if status != 0 {
            common::say(&format!("{name}: {status}"));
        }
    }
    // In the middle of a closure that the library calls.
    let mut child = None;
    let lines = loan_of_lines.take().unwrap().for_each_line(|_| {
        if child.is_none() {
            // SAFETY: as in `fork`.
            child = Some(unsafe { libc::fork() });
        }
    });
    if child == Some(0) {
        let is_told = lines.is_err();
        // SAFETY: ends the process without its parent's exit handlers.
        unsafe { libc::_exit(i32::from(!is_told)) };
    }
    assert!(lines.is_ok());
    assert_eq!(wait_for(child.unwrap()), 0, "a fork among lines");
    drop((taken, pending));
    assert_eq!(
        &*to_echo.call_timeout(b"whole", common::PATIENCE).unwrap(),
        b"whole"
    );
    common::say("whole");
}

/// Soundness finding 2: some of these ended the child by a signal, or wrote where the parent's memory had been.
#[test]
fn everything_that_a_parent_has_is_refused_to_its_child_and_ends_there_unnoticed() {
    let name = common::name("fork-table");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let mut parent = common::start("table", &[&name]);
    let mut wrong = Vec::new();
    loop {
        match parent.line() {
            line if line == "whole" => break,
            line => wrong.push(line),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    parent.finish();
}
