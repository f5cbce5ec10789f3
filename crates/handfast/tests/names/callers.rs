//! Callers: answered while the server does something else, impatient, and threads that end.

use crate::common;
use handfast::{Options, SendRight, Strategy};
use std::cell::RefCell;
use std::time::{Duration, Instant};

const CALLERS: u64 = 12;

/// Sleeping callers, each on a lane of its own.
pub(crate) fn callers(name: &str, strategy: &str) {
    if strategy == "notify" {
        handfast::notify::notify(|| {}).unwrap();
    }
    let options = Options::new().strategy(strategy.parse().unwrap());
    let right = handfast::connect_with(name, options).unwrap();
    let returned = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                while right.call(b"again").is_ok() {
                    returned.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
        while common::told().is_some() {
            let returned = returned.load(std::sync::atomic::Ordering::Relaxed);
            common::say(&returned.to_string());
        }
        std::process::exit(0);
    });
}

#[test]
fn callers_that_were_answered_return_also_when_the_server_does_something_else() {
    let _alone = common::alone();
    answered_callers_return("block");
    answered_callers_return("notify");
}

fn answered_callers_return(strategy: &'static str) {
    let name = common::name(&format!("elsewhere-{strategy}"));
    let port = handfast::bind(&name).unwrap();
    let mut clients = [(); 2].map(|()| common::start("callers", &[&name, strategy]));
    let mut answered = 0;
    for _ in 0..10 {
        let end = Instant::now() + Duration::from_millis(30);
        let mut request = port.receive_timeout(common::PATIENCE).unwrap();
        while Instant::now() < end {
            answered += 1;
            request = port
                .reply_and_receive_timeout(request, b"", common::PATIENCE)
                .unwrap();
        }
        // Nobody receives now; the last caller waits on.
        let mut returned = || -> u64 {
            let count = |client: &mut common::Child| {
                client.tell("how many?");
                client.line().parse::<u64>().unwrap()
            };
            clients.iter_mut().map(count).sum()
        };
        assert!(
            common::within_patience(|| returned() == answered),
            "{answered} answered, {} returned",
            returned()
        );
        answered += 1;
        request.reply(b"").unwrap();
    }
    for client in &mut clients {
        client.kill();
    }
}

/// Gives calls up: by a deadline, by dropping one, by dying.
pub(crate) fn impatient(name: &str) {
    let right = handfast::connect(name).unwrap();
    right.call(b"first").unwrap();
    let late = right.call_timeout(b"deadline", Duration::from_millis(5));
    common::say(&format!("{:?}", late.unwrap_err()));
    drop(right.try_call(b"dropped").unwrap());
    common::say("dropped");
    let kept = right.try_call(b"kept").unwrap();
    common::say("kept");
    common::told().unwrap();
    kept.wait().unwrap();
    right.call(b"never").unwrap();
}

#[test]
fn a_server_can_ask_whether_its_caller_still_waits() {
    let name = common::name("impatient");
    let port = handfast::bind(&name).unwrap();
    let mut client = common::start("impatient", &[&name]);
    let next = |bytes: &[u8]| {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(request.bytes(), bytes);
        request
    };
    let first = next(b"first");
    assert!(!first.is_cancelled());
    first.reply(b"").unwrap();
    let late = next(b"deadline");
    client.expect("TimedOut");
    assert!(late.is_cancelled());
    late.reply(b"too late").unwrap();
    let dropped = next(b"dropped");
    client.expect("dropped");
    assert!(dropped.is_cancelled());
    let kept = next(b"kept");
    client.expect("kept");
    // The slot of the late one may be used again: another generation.
    assert!(!kept.is_cancelled());
    client.tell("wait");
    kept.reply(b"").unwrap();
    drop(dropped);
    let never = next(b"never");
    assert!(!never.is_cancelled());
    client.kill();
    assert!(common::within_patience(|| never.is_cancelled()));
}

/// Calls once more when its thread ends.
struct Last(SendRight);

impl Drop for Last {
    fn drop(&mut self) {
        let reply = self.0.call_timeout(b"last", common::PATIENCE).unwrap();
        assert_eq!(&*reply, b"last");
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

pub(crate) fn last_words(name: &str) {
    let options = Options::new().strategy(Strategy::Block);
    let right = handfast::connect_with(name, options).unwrap();
    let thread = std::thread::spawn(move || {
        // The thread-local that is used first is destroyed last.
        LAST.with_borrow_mut(|last| {
            let right = &last.insert(Last(right)).0;
            assert_eq!(&*right.call(b"first").unwrap(), b"first");
        });
    });
    thread.join().unwrap();
    common::say("ended");
    while common::told().is_some() {}
}

#[test]
fn a_thread_may_call_while_it_ends() {
    let name = common::name("last");
    let port = handfast::bind(&name).unwrap();
    let mut child = common::start("last words", &[&name]);
    for words in ["first", "last"] {
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(request.bytes(), words.as_bytes());
        request.reply(words.as_bytes()).unwrap();
    }
    child.expect("ended");
    child.finish();
}
