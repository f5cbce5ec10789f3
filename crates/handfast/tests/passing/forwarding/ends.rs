//! Tail calls to ports that go, and for callers that die.

use crate::common;
use handfast::error::{Gone, SendError};

/// Binds its name, serves a while, drops the port with whatever waits there, and begins anew.
pub(crate) fn phoenix(name: &str) {
    let _stays = handfast::bind(&format!("{name}-stays")).unwrap();
    for round in 0u32.. {
        let port = handfast::bind(name).unwrap();
        if round == 0 {
            common::say("ready");
        }
        for _ in 0..20 {
            port.receive().unwrap().reply(b"served").unwrap();
        }
    }
}

/// Passes calls on, and looks for the port anew when it is gone.
pub(crate) fn patient_middle(name: &str, to: &str) {
    let port = handfast::bind(name).unwrap();
    let stays = handfast::connect(&format!("{to}-stays")).unwrap();
    let mut right = handfast::connect(to).ok();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        if right.is_none() {
            right = handfast::connect(to).ok();
        }
        let failed = match &right {
            Some(right) => request.forward(right, b"serve").err(),
            None => {
                request.reply(b"unbound").unwrap();
                continue;
            }
        };
        if let Some(failed) = failed {
            assert_eq!(failed.error, SendError::Gone(Gone::Port));
            request = failed.request;
            request.reply(b"gone").unwrap();
            right = None;
        }
        let _ = &stays;
    }
}

#[test]
fn a_tail_call_to_a_port_that_goes_is_answered_once_and_soon() {
    let (name, last) = (common::name("patient"), common::name("phoenix"));
    let phoenix = common::start("phoenix", &[&last]);
    phoenix.expect("ready");
    let middle = common::start("patient middle", &[&name, &last]);
    middle.expect("ready");
    for direct in [false, true] {
        let _link = direct.then(|| handfast::connect(&format!("{last}-stays")).unwrap());
        let outcomes = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    let right = handfast::connect(&name).unwrap();
                    scope.spawn(move || {
                        let mut outcomes = [0u32; 4];
                        for _ in 0..700 {
                            let answer = right.call_timeout(b"", common::PATIENCE);
                            let place = match answer.as_ref().map(|answer| &**answer) {
                                Ok(b"served") => 0,
                                Ok(b"gone") => 1,
                                Ok(b"unbound") => 2,
                                Err(SendError::Gone(Gone::Reply)) => 3,
                                other => panic!("{other:?}"),
                            };
                            outcomes[place] += 1;
                        }
                        outcomes
                    })
                })
                .collect();
            let callers = callers.into_iter().map(|caller| caller.join().unwrap());
            callers.collect::<Vec<_>>()
        });
        println!("served, gone, unbound, dropped: {outcomes:?}");
        assert!(outcomes.iter().all(|outcomes| outcomes[0] > 0));
    }
}

/// Holds one call, which it answers when another tells it to.
pub(crate) fn late_last(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut held = None;
    let mut next = port.receive().unwrap();
    loop {
        let text = next.bytes().to_vec();
        next = match &*text {
            b"hold" => {
                held = Some(next);
                common::say("held");
                port.receive()
            }
            b"answer" => {
                next.reply(b"").unwrap();
                port.reply_and_receive(held.take().unwrap(), b"late")
            }
            _ => port.reply_and_receive(next, &text),
        }
        .unwrap();
    }
}

/// Calls `middle`, which passes that on to `last`, with which it has a link.
pub(crate) fn impatient(middle: &str, last: &str) {
    let _direct = handfast::connect(last).unwrap();
    let right = handfast::connect(middle).unwrap();
    common::warm(&right);
    let _ = right.call(b"hold");
    common::told();
}

/// A server that answered a call after its caller had died kept that caller's link, until the next call was passed on to the
/// lane that had the number of the one by which it had come.
#[test]
fn an_answer_to_a_dead_caller_keeps_nothing_of_it() {
    let names = ["late-last", "late-middle"].map(common::name);
    let last = common::start("late last", &[&names[0]]);
    last.expect("ready");
    let right = handfast::connect(&names[0]).unwrap();
    let _ = right.call(b"first lane").unwrap();
    common::at_rest(last.pid());
    let holdings = || common::holdings(last.pid());
    let before = holdings();
    let mut middle = common::start("middle of a chain", &[&names[1], &names[0]]);
    middle.expect("ready");
    let with_middle = common::at_rest(last.pid());
    let mut caller = common::start("impatient", &[&names[1], &names[0]]);
    last.expect("held");
    let with_both = common::at_rest(last.pid());
    assert!(with_both > with_middle, "there is no path");
    caller.kill();
    middle.kill();
    // The call that is held keeps its caller's link; the other one has ended.
    let link = with_middle - before.0;
    assert!(common::within_patience(|| holdings().0 + link <= with_both));
    let _ = right.call(b"a look").unwrap();
    // The lane of another thread, in the place of the one that is gone.
    std::thread::scope(|scope| {
        scope.spawn(|| drop(right.call(b"second lane").unwrap()));
    });
    let _ = right.call(b"answer").unwrap();
    assert!(
        common::within_patience(|| holdings() == before),
        "{before:?}, then {:?}",
        holdings()
    );
}
