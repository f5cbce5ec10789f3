//! Descriptions of the parts of a message.

use handfast_layout::link::UNITS_MAX;
use handfast_layout::part::{Bound, Part};

/// Units, as behind the bytes of a message.
pub fn parts(bytes: &[u8]) {
    let (mut units, _) = bytes.as_chunks::<16>();
    units = &units[..units.len().min(UNITS_MAX)];
    while let [first, ..] = units {
        // The fast path for the most frequent part says the same.
        let of_sender =
            Part::of_sender(first).map(|(handle, port)| Part::OfSender { handle, port });
        let Some((part, count)) = Part::parse(units) else {
            assert_eq!(of_sender, None);
            return;
        };
        assert!(of_sender.is_none_or(|it| it == part) && count > 0);
        let of_part;
        (of_part, units) = units.split_at(count);
        let (again, own) = part.to_units();
        assert_eq!(of_part[..own], again[..own]);
        assert_eq!(part.with_number(7).with_number(number_of(part)), part);
        if let Part::Receive { name_bytes, .. } = part {
            assert_eq!(count, own + Bound::units_of(name_bytes));
            if let Some(bound) = Bound::parse(&of_part[own..], name_bytes) {
                assert_eq!(bound.name.len(), usize::from(name_bytes));
                assert_eq!(bound.to_units(), of_part[own..]);
            }
        } else {
            assert_eq!(count, own);
        }
    }
}

fn number_of(part: Part) -> u32 {
    match part {
        Part::Receive { number, .. }
        | Part::Descriptor { number }
        | Part::Memory { number, .. } => number,
        _ => 0,
    }
}
