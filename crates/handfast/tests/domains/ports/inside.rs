//! Domains that call others, and pass calls on, from inside.

use super::{anonymous, is_isolated, load, text};
use crate::common::{self, within_patience};
use handfast::domain::{CallContext, DomainOptions, Heap, Port, Table, take_rights};
use handfast::error::{DomainError, Gone, Misuse, SendError};
use handfast::{Right, SendRight};
use std::sync::OnceLock;

/// Rights that a domain is given by a first call without bytes.
struct Given(OnceLock<Vec<SendRight>>);

impl Given {
    const fn new(_: &Heap) -> Self {
        Self(OnceLock::new())
    }

    fn has_come(&self, request: &[u8]) -> bool {
        if !request.is_empty() {
            return false;
        }
        let rights = take_rights().into_iter().map(|right| match right {
            Right::Send(right) => right,
            // To the port that serves it.
            Right::Own(own) => own.connect().unwrap(),
            other => panic!("{other:?}"),
        });
        self.0.set(rights.collect()).is_ok()
    }

    fn to(&self, byte: u8) -> &SendRight {
        &self.0.get().unwrap()[usize::from(byte - b'0')]
    }
}

fn give(right: &SendRight, rights: impl IntoIterator<Item = SendRight>) {
    let rights = rights.into_iter().map(Right::from);
    assert_eq!(&*right.with(rights).call(b"").unwrap(), b"");
}

/// Passes the request on, to the domain or the process that its first byte names, and answers with what that says.
fn outer(given: &Given, call: &mut CallContext<'_>) {
    let request = call.request();
    if given.has_come(request) {
        return;
    }
    let to = given.to(request[0]);
    // From this domain's memory, and into it.
    let len_bytes = match to.call_into(&request[1..], call.reply()) {
        Ok(len_bytes) => len_bytes,
        Err(error) => {
            let text = format!("{error:?}");
            call.reply()[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
    };
    call.set_reply_len(len_bytes);
}

#[test]
fn a_domain_calls_another_and_a_process_from_inside() {
    let _alone = common::alone();
    let name = common::name("domain-nested");
    let mut server = common::start("process", &[&name]);
    server.expect("ready");
    let inner = anonymous();
    let process = handfast::connect(&name).unwrap();
    let domain = load(&Table::new(Given::new).entry(outer), DomainOptions::new());
    let name = common::name("domain-outer");
    let port = Port::new(handfast::bind(&name).unwrap(), &domain, 0).unwrap();
    let here = port.connect().unwrap();
    give(&here, [inner.mint(5).connect().unwrap(), process]);
    for right in [here, handfast::connect(&name).unwrap()] {
        assert_eq!(text(&right, "0who"), "5 65535");
        assert_eq!(text(&right, "1who"), "0 65535");
        for to in ["0", "1"] {
            let long = to.to_owned() + &"x".repeat(50_000);
            assert_eq!(text(&right, &long), long[1..]);
        }
        // A fault in there is the inner call's alone.
        assert_eq!(text(&right, "0panic"), "Domain(Panic)");
        if is_isolated(&inner) {
            assert_eq!(text(&right, "0null"), "Domain(Access)");
        }
        assert_eq!(text(&right, "0who"), "5 65535");
    }
    server.kill();
    let right = port.connect().unwrap();
    assert!(within_patience(|| text(&right, "1who") == "Gone(Process)"));
}

/// Passes the call on to the one that the first byte names, without it.
fn pass_on(given: &Given, call: &mut CallContext<'_>) {
    let request = call.request();
    if given.has_come(request) {
        return;
    }
    let Some(to) = request.first().and_then(|byte| byte.checked_sub(b'0')) else {
        return;
    };
    let to = given.to(b'0' + to).clone();
    // Round and round with what it is.
    let message = if request.len() > 1 {
        &request[1..]
    } else {
        request
    };
    handfast::domain::pass_on(to.clone(), b"forgotten", Vec::new()).unwrap();
    handfast::domain::pass_on(to, message, take_rights()).unwrap();
}

#[test]
fn a_domain_passes_calls_on_and_is_not_on_the_way_back() {
    let _alone = common::alone();
    let process_name = common::name("domain-last");
    let mut server = common::start("process", &[&process_name]);
    server.expect("ready");
    let last = anonymous();
    let domain = load(&Table::new(Given::new).entry(pass_on), DomainOptions::new());
    let name = common::name("domain-passes");
    let port = Port::new(handfast::bind(&name).unwrap(), &domain, 0).unwrap();
    let here = port.connect().unwrap();
    let to_last = last.mint(5).connect().unwrap();
    let process = handfast::connect(&process_name).unwrap();
    give(&here, [to_last, process, here.clone()]);
    for right in [&here, &handfast::connect(&name).unwrap()] {
        // To a domain, to a process, and first to itself, three times.
        assert_eq!(text(right, "0who"), "5 65535");
        assert_eq!(text(right, "1who"), "0 65535");
        assert_eq!(text(right, "2220who"), "5 65535");
        assert_eq!(text(right, "2221who"), "0 65535");
        // The message may be longer than the room for the reply.
        let mut reply = [0; 7];
        assert_eq!(right.call_into(b"2220who", &mut reply), Ok(7));
        assert_eq!(&reply, b"5 65535");
        let long = [&b"0add 0"[..], &[b'0'; 40]].concat();
        assert!(right.call_into(&long, &mut reply).is_ok());
        let mut reply = [0; 20];
        let (len_bytes, room_bytes) = (30, 20);
        let too_long = SendError::ReplyTooLong {
            len_bytes,
            room_bytes,
        };
        assert_eq!(right.call_into(b"0big 30", &mut reply), Err(too_long));
        let long = "20".to_owned() + &"x".repeat(60_000);
        assert_eq!(text(right, &long), long[2..]);
        let before: u64 = text(right, "0add 0").parse().unwrap();
        right.send(b"20add 3").unwrap();
        assert!(within_patience(
            || text(right, "0add 0") == (before + 3).to_string()
        ));
        let failed = right.call(b"0panic").map(drop);
        assert_eq!(failed, Err(SendError::Domain(DomainError::Panic)));
    }
    // For ever, but for the bound.
    let failed = here.call(b"2").map(drop);
    assert_eq!(failed, Err(SendError::Domain(DomainError::TooDeep)));
    let outside = handfast::domain::pass_on(here.clone(), b"", Vec::new());
    assert_eq!(outside, Err(SendError::Misuse(Misuse::NotACall)));
    last.revoke(5);
    // A domain that is a process hears of it a little later, and what it passes on until then is dropped.
    assert!(within_patience(
        || here.call(b"0who").map(drop) == Err(SendError::Gone(Gone::Right))
    ));
    server.kill();
    assert!(within_patience(
        || here.call(b"1who").map(drop) == Err(SendError::Gone(Gone::Process))
    ));
}
