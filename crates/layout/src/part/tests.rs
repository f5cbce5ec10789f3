use super::*;

#[test]
fn parts_come_back_and_what_is_none_is_refused() {
    let of_sender = |port| Part::OfSender {
        handle: 0x8000_0007,
        port,
    };
    let reply = Part::Reply {
        word: 0x3_0007,
        generation: 5,
    };
    let once = Part::Once {
        handle: 0x8000_0007,
        port: 0x4000_2303,
    };
    let parts = [
        of_sender(0x1_2303),
        Part::OfReceiver { handle: 9 },
        reply,
        once,
    ];
    let units = of_sender(0x1_2303).to_units().0;
    assert_eq!(units[0], Part::unit_of_sender(0x8000_0007, 0x1_2303));
    for part in parts {
        let (units, count) = part.to_units();
        assert_eq!(Part::parse(&units[..count]), Some((part, count)));
        for at in [0, 1, 3, 12, 15] {
            let mut units = units;
            units[0][at] ^= 0x40;
            assert_eq!(Part::parse(&units[..count]), None, "byte {at} of {part:?}");
        }
    }
    let (units, count) = of_sender(RECEIVERS).to_units();
    assert_eq!(Part::parse(&units[..count]), None);
    let third = Part::Third {
        vine: (0x8000_0001, 0x203),
        port: 0x105,
        exporter: [9; 16],
        number: 0x1_0000_0002,
        pid: 77,
        form: ThirdForm::Kept,
    };
    let (units, _) = third.to_units();
    assert_eq!(Part::parse(&units), Some((third, 3)));
    assert_eq!(Part::parse(&units[..2]), None);
    let mut other = units;
    other[2][12] = 2;
    let once = Part::parse(&other).map(|(part, _)| part);
    assert!(matches!(
        once,
        Some(Part::Third {
            form: ThirdForm::Once,
            ..
        })
    ));
    other[2][12] = 3;
    assert_eq!(Part::parse(&other), None);
    let again = Part::Again {
        number: 0x1_0000_0002,
    };
    let (units, count) = again.to_units();
    assert_eq!(Part::parse(&units[..count]), Some((again, 1)));
    let home = Part::Home {
        port: 0x105,
        introducer: [9; 16],
        pid: 77,
        number: 0x1_0000_0002,
    };
    let (units, _) = home.to_units();
    assert_eq!(Part::parse(&units), Some((home, 3)));
    assert_eq!(Part::parse(&units[..2]), None);
    for (unit, at) in [(0, 1), (0, 4), (0, 12), (2, 8), (2, 12)] {
        let mut units = units;
        units[unit][at] ^= 0x40;
        assert_eq!(Part::parse(&units), None, "byte {at} of unit {unit}");
    }
}

#[test]
fn a_receive_right_comes_back_with_its_name_and_what_is_none_is_refused() {
    for name in ["", "a", "sixteen-letters-", &"n".repeat(64)] {
        let part = Part::Receive {
            token: 7,
            number: u32::from(!name.is_empty()) * 3,
            name_bytes: name.len() as u8,
            asks: name.len() == 1,
        };
        let mut units = vec![part.to_units().0[0]];
        let (file, bound) = ((5, 1 << 40), name.to_owned());
        let bound = Bound { file, name: bound };
        if !name.is_empty() {
            units.extend(bound.to_units());
        }
        assert_eq!(Part::parse(&units), Some((part, units.len())));
        assert_eq!(units.len(), 1 + Bound::units_of(name.len() as u8));
        if name.is_empty() {
            continue;
        }
        let parsed = Bound::parse(&units[1..], name.len() as u8);
        assert_eq!(parsed, Some(bound));
        assert_eq!(Part::parse(&units[..units.len() - 1]), None);
        let last = units.len() - 1;
        units[last][15] ^= 0x80;
        assert_eq!(Bound::parse(&units[1..], name.len() as u8), None);
    }
    let mut unit = Part::Receive {
        token: 7,
        number: 0,
        name_bytes: 0,
        asks: false,
    }
    .to_units()
    .0[0];
    for (at, value) in [(8, 1), (12, 65), (13, 1), (15, 2)] {
        let before = core::mem::replace(&mut unit[at], value);
        assert_eq!(Part::parse(&[unit; 6]), None, "byte {at}");
        unit[at] = before;
    }
}

#[test]
fn a_port_that_shares_a_receiver_comes_back_and_what_is_none_is_refused() {
    for asks in [false, true] {
        let part = Part::Member { token: 7, asks };
        let (mut units, count) = part.to_units();
        assert_eq!(Part::parse(&units[..count]), Some((part, 1)));
        for at in [8, 11, 12, 14, 15] {
            units[0][at] ^= 0x40;
            assert_eq!(Part::parse(&units[..count]), None, "byte {at}");
            units[0][at] ^= 0x40;
        }
    }
}

#[test]
fn descriptors_and_memory_come_back_and_what_is_neither_is_refused() {
    let number = 0xdead_beef;
    let descriptor = Part::Descriptor { number };
    let parse = |part: Part| Part::parse(&part.to_units().0[..1]);
    assert_eq!(parse(descriptor), Some((descriptor, 1)));
    for at in [0, 1, 3, 8, 15] {
        let (mut units, _) = descriptor.to_units();
        units[0][at] ^= 0x40;
        assert_eq!(Part::parse(&units), None, "byte {at}");
    }
    for len_bytes in [1, 0x1_0000_0000, u64::MAX] {
        let memory = Part::Memory { number, len_bytes };
        assert_eq!(parse(memory), Some((memory, 1)));
    }
    let none = Part::Memory {
        number,
        len_bytes: 0,
    };
    assert_eq!(parse(none), None);
}

#[test]
fn loans_come_back_and_what_is_none_is_refused() {
    let loan = Part::Loan(LentBlock {
        arena: 3,
        block: 0x1_0001,
        loan: 255,
        generation: u32::MAX,
        len_bytes: 0x2_0000_0001,
        fill: 0,
    });
    let (units, count) = loan.to_units();
    assert_eq!((Part::parse(&units), count), (Some((loan, 2)), 2));
    assert_eq!(Part::parse(&units[..1]), None);
    let mut padded = units;
    padded[1][4] = 1;
    assert_eq!(Part::parse(&padded), None);
    let vector = [10, 0, 0, 0, 3, 0, 0, 0, 1, 0, 1, 0, 255, 0, 0, 0];
    assert_eq!(units[0], vector);
    let vector = [255, 255, 255, 255, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    assert_eq!(units[1], vector);
    // The bytes of a message are lent so, too.
    let bytes = Part::Bytes(LentBlock {
        arena: 3,
        block: 0x1_0001,
        loan: 255,
        generation: u32::MAX,
        len_bytes: 0x2_0000_0001,
        fill: 0x0403_0201,
    });
    let mut of_bytes = units;
    of_bytes[0][0] = 11;
    of_bytes[1][4..8].copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(bytes.to_units(), (of_bytes, 2));
    assert_eq!(Part::parse(&of_bytes), Some((bytes, 2)));
}

#[test]
fn messages_of_descriptors_come_back_and_what_is_none_is_refused() {
    for count in 1..=4 {
        let first = u32::MAX - 1;
        let sent = Descriptors { count, first };
        assert_eq!(Descriptors::parse(&sent.to_bytes()), Some(sent));
        assert_eq!(Descriptors::parse(&sent.to_bytes()[..7]), None);
        for (at, value) in [(0, 17), (1, 0), (1, 5), (2, 1), (3, 1)] {
            let mut bytes = sent.to_bytes();
            bytes[at] = value;
            assert_eq!(Descriptors::parse(&bytes), None, "byte {at}");
        }
    }
}
