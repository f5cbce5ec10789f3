//! Messages between a domain that is a process and its parent, from either side.

use handfast_domain::Words;
use handfast_port::MESSAGE_BYTES_MAX;

/// A private module of the crate `handfast`.
#[path = "../../handfast/src/domain/wire.rs"]
mod wire;

use wire::{Reply, Request};

/// A request or a reply: what is read is written again to the same bytes.
pub fn domains(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)];
    let mut to = vec![0; MESSAGE_BYTES_MAX];
    // Left by an earlier message.
    let mut words: Words = [u64::MAX; 8];
    if let Some((said, inside)) = Request::read(bytes, &mut words) {
        assert!(matches!(said.kind, wire::CALL | wire::KEEP | wire::FETCH));
        let len = said.write(&mut to, &words, inside);
        assert_eq!(to[..len], *bytes);
        whole(&words, inside, |now| said.write(&mut to, &words, now));
    }
    let mut words: Words = [u64::MAX; 8];
    if let Some((said, inside)) = Reply::read(bytes, &mut words) {
        if let Some(gone) = wire::why_dead(said.flags) {
            assert_eq!(wire::why_dead(wire::dead(gone)), Some(gone));
        }
        let is_passed = said.flags & wire::PASS != 0;
        let len = said.write(&mut to, &words, inside);
        assert_eq!(to[..len], *bytes);
        assert_eq!(to[12] & wire::PASS != 0, is_passed);
        whole(&words, inside, |now| said.write(&mut to, &words, now));
    }
}

/// The parts of a division are complete, and the first part has room.
fn whole(words: &Words, bytes: &[u8], write: impl FnOnce(&[u8]) -> usize) {
    let long = [bytes, bytes].concat();
    let (now, rest) = wire::divide(words, &long);
    assert_eq!([now, rest].concat(), long);
    assert!(write(now) <= MESSAGE_BYTES_MAX);
}
