//! A case, and the steps that its two sides share.

use super::api::{Node, OwnRight, ReceiveRight, Request, Right, SendRight};
use core::time::Duration;

/// One promise.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Serves the port that the client has a right to.
    pub(crate) serve: fn(&Node, ReceiveRight),
    pub(crate) call: fn(&Node, SendRight),
}

/// Longer than anything takes that comes at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The next call or message.
pub(super) fn next(port: &ReceiveRight) -> Request {
    let request = port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(request.notice(), None);
    request
}

/// The next one, which says this.
pub(super) fn expect(port: &ReceiveRight, bytes: &[u8]) -> Request {
    let request = next(port);
    assert_eq!(
        String::from_utf8_lossy(request.bytes()),
        String::from_utf8_lossy(bytes)
    );
    request
}

/// Answers calls with their own bytes, up to and with the one that says this.
pub(super) fn echo_until(port: &ReceiveRight, end: &[u8]) {
    loop {
        let request = next(port);
        let bytes = request.bytes().to_vec();
        if request.is_call() {
            request.reply(&bytes).unwrap();
        }
        if bytes == end {
            return;
        }
    }
}

/// A call that is answered so.
pub(super) fn call(right: &SendRight, bytes: &[u8], answer: &[u8]) {
    let reply = right.call_timeout(bytes, PATIENCE).unwrap();
    assert_eq!(&*reply, answer);
}

/// To send by a right that has come: in the process of its port that is one of the process's own.
pub(super) fn sender(right: Right) -> SendRight {
    match right {
        Right::Send(right) => right,
        Right::Own(own) => own.connect().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The only right of a request.
pub(super) fn right_of(request: &mut Request) -> Right {
    let mut rights = request.take_rights();
    assert_eq!(rights.len(), 1);
    rights.remove(0)
}

/// Gives the client, which asks by [`other_of`], a right to another port of the server.
pub(super) fn give(port: &ReceiveRight, other: &ReceiveRight, badge: u64) {
    let request = expect(port, b"give");
    request.reply_with(b"", own(&other.mint(badge))).unwrap();
}

/// See [`give`].
pub(super) fn other_of(right: &SendRight) -> SendRight {
    let mut given = right.call_timeout(b"give", PATIENCE).unwrap();
    sender(given.take_rights().remove(0))
}

/// A right of this process's own, as something to send.
pub(super) fn own(right: &OwnRight) -> [Right; 1] {
    [right.clone().into()]
}
