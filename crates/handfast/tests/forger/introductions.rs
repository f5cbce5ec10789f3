//! Hands that introduce: what they say to provide and to claim, and parts that tell of rights.

use super::{Hand, OWN_SLOT};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::Kind;
use handfast_layout::part::{Part, ThirdForm};

pub(crate) const fn provide(number: u64, to: &Hand) -> LaneControl {
    let recipient = to.process;
    LaneControl::Provide { number, recipient }
}

pub(crate) const fn claim(word: u32, number: u64, of: &Hand) -> LaneControl {
    let introducer = of.process;
    LaneControl::Claim {
        word,
        number,
        introducer,
    }
}

/// An honest introduction goes through the process.
pub(crate) fn introduces(name: &str, (introducer, recipient): (u8, u8), number: u64) {
    let mut introducer = Hand::new(name, introducer);
    let mut recipient = Hand::new(name, recipient);
    introducer.tell(provide(number, &recipient));
    claims(&mut recipient, 9, number, &introducer);
}

/// The right that was provided is there for the recipient.
pub(crate) fn claims(recipient: &mut Hand, word: u32, number: u64, introducer: &Hand) {
    recipient.tell(claim(word, number, introducer));
    let answer = recipient.call(word, b"introduced");
    assert_eq!(answer, (Kind::Message, b"introduced".to_vec()));
    let (kind, handle) = recipient.outcome(OWN_SLOT, 1).unwrap();
    assert_eq!((kind, handle.len()), (Kind::Message, 4));
}

/// A right of a hand's own.
pub(crate) const OWN: Part = Part::OfSender {
    handle: 1 << 31 | 5,
    port: 0x100,
};

/// As that, told of as if it were another's.
pub(crate) fn third(exporter: [u8; 20]) -> Part {
    let (exporter, pid) = exporter.split_first_chunk().unwrap();
    Part::Third {
        vine: (1 << 31 | 5, 0x100),
        port: 0x100,
        exporter: *exporter,
        number: 1,
        pid: u32::from_le_bytes(pid.try_into().unwrap()),
        form: ThirdForm::Kept,
    }
}
