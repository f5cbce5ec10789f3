//! Calls in flight and timers in wait sets, beside ports and descriptors.

use crate::common;
use handfast::error::{Gone, ReceiveError, SendError};
use handfast::{Event, Interest, Notice, Options, Right, Strategy, Token, WaitSet};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Keeps what is called, and is told by lines of its standard input what to do: "keep" receives a call, "answer N" answers the N-th that
/// is kept, "drop N" drops it, "pass N NAME" passes it on, "use N" sends a message by the send-once right that came with it.
pub(crate) fn keeper(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    let mut kept = Vec::new();
    while let Some(line) = common::told() {
        let words: Vec<_> = line.split(' ').collect();
        let mut nth = || kept.remove(words[1].parse().unwrap());
        match words[0] {
            "keep" => kept.push(port.receive().unwrap()),
            "answer" => {
                let request: handfast::Request = nth();
                let bytes = request.bytes().to_vec();
                request.reply(&bytes).unwrap();
            }
            "drop" => drop(nth()),
            "use" => match nth().take_rights().pop() {
                Some(Right::SendOnce(right)) => right.send(b"once").unwrap(),
                other => panic!("{other:?}"),
            },
            "pass" => {
                let to = handfast::connect(words[2]).unwrap();
                let request = nth();
                let bytes = request.bytes().to_vec();
                request.forward(&to, &bytes).unwrap();
            }
            other => panic!("{other}"),
        }
        common::say("done");
    }
}

fn do_this(keeper: &mut common::Child, what: &str) {
    keeper.tell(what);
    keeper.expect("done");
}

/// Runs `act` on another thread while `set` waits, asleep if its strategy sleeps.
fn while_it_waits(set: &mut WaitSet, act: impl FnOnce() + Send) -> Event {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Sleep: longer than any spinning but `spin`, so that the set sleeps.
            std::thread::sleep(Duration::from_millis(2));
            act();
        });
        set.receive_timeout(common::PATIENCE).unwrap()
    })
}

fn reply_of(event: Event) -> (Token, Result<Vec<u8>, SendError>) {
    match event {
        Event::Reply(token, outcome) => (token, outcome.map(|message| message.to_vec())),
        other => panic!("{other:?}"),
    }
}

const STRATEGIES: [Strategy; 4] = [
    Strategy::Block,
    Strategy::Spin,
    Strategy::Adaptive,
    Strategy::Notify,
];

#[test]
fn one_wait_is_for_replies_ports_timers_and_descriptors() {
    let _alone = common::alone();
    handfast::notify::notify(|| {}).unwrap();
    for (strategy, has_descriptor) in STRATEGIES
        .map(|of| [(of, false), (of, true)])
        .as_flattened()
    {
        let case = format!("{strategy:?}, descriptor: {has_descriptor}");
        let names = ["kept", "own", "far"].map(|what| common::name(&format!("set-calls-{what}")));
        let [mut near, mut far] = [&names[0], &names[2]].map(|name| {
            let keeper = common::start("keeper", &[name]);
            keeper.expect("ready");
            keeper
        });
        let right = handfast::connect(&names[0]).unwrap();
        let mut set = WaitSet::with(Options::new().strategy(*strategy)).unwrap();
        let port = set.add(handfast::bind(&names[1]).unwrap());
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let descriptor =
            has_descriptor.then(|| set.add_descriptor(&reader, Interest::Read).unwrap());
        let calls: Vec<_> = (0..6u8)
            .map(|number| {
                let token = set.add_call(right.try_call(&[number]).unwrap());
                do_this(&mut near, "keep");
                token
            })
            .collect();
        assert!(
            matches!(set.try_receive(), Err(ReceiveError::Empty)),
            "{case}"
        );

        // In another order than they were made.
        let event = while_it_waits(&mut set, || do_this(&mut near, "answer 1"));
        assert_eq!(reply_of(event), (calls[1], Ok(vec![1])), "{case}");
        let event = while_it_waits(&mut set, || do_this(&mut near, "answer 0"));
        assert_eq!(reply_of(event), (calls[0], Ok(vec![0])), "{case}");
        let event = while_it_waits(&mut set, || do_this(&mut near, "drop 0"));
        let dropped = Err(SendError::Gone(Gone::Reply));
        assert_eq!(reply_of(event), (calls[2], dropped), "{case}");

        // A message to the port in between: a call of its own, which is passed on to it.
        let event = while_it_waits(&mut set, || {
            let request = format!("pass 0 {}", names[1]);
            do_this(&mut near, &request);
        });
        let Event::Message(token, request) = event else {
            panic!("{case}: {event:?}");
        };
        assert_eq!((token, request.bytes()), (port, &[3u8][..]), "{case}");
        request.reply(b"own").unwrap();
        let event = set.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(reply_of(event), (calls[3], Ok(b"own".to_vec())), "{case}");

        // Answered where it has been passed on to.
        do_this(&mut near, &format!("pass 0 {}", names[2]));
        do_this(&mut far, "keep");
        assert!(
            matches!(set.try_receive(), Err(ReceiveError::Empty)),
            "{case}"
        );
        let event = while_it_waits(&mut set, || do_this(&mut far, "answer 0"));
        assert_eq!(reply_of(event), (calls[4], Ok(vec![4])), "{case}");

        if let Some(descriptor) = descriptor {
            let event = while_it_waits(&mut set, || writer.write_all(b".").unwrap());
            assert!(
                matches!(event, Event::Descriptor(of, _) if of == descriptor),
                "{case}"
            );
            set.remove(descriptor);
        }

        let end = Instant::now() + Duration::from_millis(3);
        let late = set.add_timer(end + Duration::from_secs(3600));
        let timer = set.add_timer(end);
        let event = set.receive_timeout(common::PATIENCE).unwrap();
        assert!(
            matches!(event, Event::Timer(of) if of == timer),
            "{case}: {event:?}"
        );
        assert!(Instant::now() >= end, "{case}");
        let none = set.receive_timeout(Duration::from_millis(1));
        assert!(matches!(none, Err(ReceiveError::TimedOut)), "{case}");
        set.remove(late);

        // The server dies.
        let event = while_it_waits(&mut set, || near.kill());
        let gone = Err(SendError::Gone(Gone::Process));
        assert_eq!(reply_of(event), (calls[5], gone), "{case}");
        assert!(
            matches!(set.try_receive(), Err(ReceiveError::Empty)),
            "{case}"
        );
        far.finish();
    }
}

#[test]
fn a_call_that_is_removed_is_given_up_and_its_slot_comes_back() {
    let name = common::name("set-calls-removed");
    let mut keeper = common::start("keeper", &[&name]);
    keeper.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let mut set = WaitSet::new().unwrap();
    // More than a thread's lane has slots for.
    for number in 0..40u8 {
        let token = set.add_call(right.try_call(&[number]).unwrap());
        assert!(set.remove(token).is_none());
        do_this(&mut keeper, "keep");
        do_this(&mut keeper, "answer 0");
    }
    assert!(matches!(set.try_receive(), Err(ReceiveError::Empty)));
    let token = set.add_call(right.try_call(b"last").unwrap());
    do_this(&mut keeper, "keep");
    do_this(&mut keeper, "answer 0");
    let event = set.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!(reply_of(event), (token, Ok(b"last".to_vec())));
    keeper.finish();
}

#[test]
fn calls_that_are_answered_at_once_keep_no_port_waiting() {
    let names = ["served", "waits"].map(|what| common::name(&format!("set-calls-{what}")));
    let echo = common::start("echo", &[&names[0]]);
    echo.expect("ready");
    let mut set = WaitSet::new().unwrap();
    let port = set.add(handfast::bind(&names[1]).unwrap());
    let caller = common::start("caller", &[&names[1]]);
    caller.expect("calling");
    let right = handfast::connect(&names[0]).unwrap();
    let mut others = [0; 2];
    for _ in 0..4 {
        set.add_call(right.try_call(b"x").unwrap());
    }
    let now = Instant::now();
    set.add_timer(now);
    while others.iter().any(|count| *count < 100) {
        match set.receive_timeout(common::PATIENCE).unwrap() {
            Event::Reply(_, outcome) => {
                outcome.unwrap();
                set.add_call(right.try_call(b"x").unwrap());
            }
            Event::Message(of, request) => {
                assert_eq!(of, port);
                others[0] += 1;
                let _ = request.reply(b"x1");
            }
            Event::Timer(_) => {
                others[1] += 1;
                set.add_timer(now);
            }
            other => panic!("{other:?}"),
        }
    }
    drop(caller);
}

#[test]
fn a_timer_is_an_event_at_every_moment_of_a_wait() {
    for strategy in [Strategy::Spin, Strategy::Adaptive, Strategy::Block] {
        let mut set = WaitSet::with(Options::new().strategy(strategy)).unwrap();
        for round in 0..1000u64 {
            let timer = set.add_timer(Instant::now() + Duration::from_nanos(round * 30));
            let event = set.receive_timeout(common::PATIENCE);
            assert!(
                matches!(event, Ok(Event::Timer(of)) if of == timer),
                "{event:?}"
            );
        }
    }
}

#[test]
fn the_message_of_a_send_once_right_and_the_notice_of_its_end_are_events_of_a_set() {
    for strategy in STRATEGIES {
        let names = ["kept", "own"].map(|what| common::name(&format!("set-once-{what}")));
        let mut near = common::start("keeper", &[&names[0]]);
        near.expect("ready");
        handfast::notify::notify(|| {}).unwrap();
        let right = handfast::connect(&names[0]).unwrap();
        let mut set = WaitSet::with(Options::new().strategy(strategy)).unwrap();
        let port = handfast::bind(&names[1]).unwrap();
        for badge in 1..=2 {
            let once = port.mint_once(badge).unwrap();
            right.with([once.into()]).send(b"").unwrap();
            do_this(&mut near, "keep");
        }
        let token = set.add(port);
        let event = while_it_waits(&mut set, || do_this(&mut near, "use 0"));
        let Event::Message(of, request) = event else {
            panic!("{strategy:?}: {event:?}");
        };
        assert_eq!(
            (of, request.badge(), request.bytes()),
            (token, 1, &b"once"[..])
        );
        let event = while_it_waits(&mut set, || do_this(&mut near, "drop 0"));
        let Event::Message(of, request) = event else {
            panic!("{strategy:?}: {event:?}");
        };
        assert_eq!(
            (of, request.notice()),
            (token, Some(Notice::SendOnceUnused(2)))
        );
        near.finish();
    }
}
