use super::*;
use crate::golden;
use crate::hello::process;
use crate::loan::Geometry;

/// One of each kind.
fn all() -> Vec<ControlMessage<'static>> {
    use ControlMessage as M;
    const RIGHTS: &[Released] = &[
        Released {
            name: 0x8000_0001,
            count: 3,
        },
        Released { name: 7, count: 1 },
    ];
    const NAMES: &[u32] = &[0x8000_0002, 9];
    const ENTRIES: &[OnCpu] = &[
        OnCpu {
            cpu: 0,
            receiver: 3,
        },
        OnCpu {
            cpu: 1023,
            receiver: 63,
        },
    ];
    let (number, token, port, path) = (0x0102_0304_0506_0708, 11, 0x102, 5);
    let [caller, forwarder, exporter, home] = [process([0xa5; 16], 0x0102_0304); 4];
    let geometry = Geometry::new(7, 4096).unwrap();
    vec![
        M::Ring { receiver: 3 },
        M::ShowCounters,
        M::Counters,
        M::Closed {
            has_moved: true,
            port,
        },
        M::Release {
            rights: RIGHTS.into(),
        },
        M::PathAsk {
            number: 1,
            caller,
            index: 2,
            set: 3,
        },
        M::PathWant {
            token,
            forwarder,
            index: 2,
            set: 3,
        },
        M::PathGranted {
            token,
            path,
            set: 3,
        },
        M::PathDenied { token },
        M::PathReady { number: 1, path },
        M::PathRefused { number: 1 },
        M::PathOver { path },
        M::PathDrop { number: 1 },
        M::ProvisionVoid { number },
        M::Declined { number, exporter },
        M::Descriptors(Descriptors { count: 2, first: 6 }),
        M::DoorWhere { exporter },
        M::DoorAsk { token },
        M::Door { token },
        M::DoorOf { exporter },
        M::Kept { number },
        M::Leave { number, came: 4 },
        M::Left { number },
        M::Revoked {
            in_vain: false,
            names: NAMES.into(),
        },
        M::Revoked {
            in_vain: true,
            names: NAMES.into(),
        },
        M::Spread {
            port,
            entries: ENTRIES.into(),
        },
        M::Unused,
        M::Used,
        M::Free,
        M::LaneFree { lane: 15 },
        M::LaneBack { lane: 0 },
        M::LaneWanted,
        M::Arena(Told::New {
            number: 0x10f,
            geometry,
        }),
        M::Arena(Told::Ended {
            number: 2,
            lent: u32::MAX,
        }),
        M::Arrived {
            token,
            port,
            handle: 0x8000_0003,
        },
        M::NotArrived { token },
        M::Moved {
            name: 0x8000_0004,
            port,
            number,
            home,
        },
        M::Sealed,
    ]
}

/// `spec/control.txt`: what each says, and its bytes.
#[test]
fn each_has_the_bytes_of_the_specification() {
    let one = format!("{:?}", process([0xa5; 16], 0x0102_0304));
    let said = all().into_iter().map(|message| {
        let name = format!("{message:?}").replace(&one, "P");
        (name, message.encode().to_vec())
    });
    golden::compare(include_str!("../../../../spec/control.txt"), said);
}

#[test]
fn what_is_said_is_what_is_heard_and_what_is_not_whole_is_refused() {
    for message in all() {
        let encoded = message.encode();
        assert_eq!(ControlMessage::parse(&encoded), Ok(Some(message)));
        let malformed = Err(Malformed {
            kind: message.kind(),
        });
        for len_bytes in 1..encoded.len() {
            let parsed = ControlMessage::parse(&encoded[..len_bytes]);
            let is_list = |heard: &ControlMessage<'_>| {
                use ControlMessage as M;
                matches!(
                    heard,
                    M::Release { .. } | M::Revoked { .. } | M::Spread { .. }
                )
            };
            let is_shorter_list = parsed.is_ok_and(|heard| heard.as_ref().is_some_and(is_list));
            assert!(
                parsed == malformed || is_shorter_list,
                "{message:?}, {len_bytes} bytes"
            );
        }
        let longer = [&encoded[..], &[0]].concat();
        assert_eq!(ControlMessage::parse(&longer), malformed, "{message:?}");
    }
}

#[test]
fn kinds_of_later_releases_are_passed_over() {
    let known: Vec<u8> = all().iter().map(|message| message.encode()[0]).collect();
    for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
        assert_eq!(ControlMessage::parse(&[kind, 0, 1, 2, 3]), Ok(None));
    }
    assert_eq!(ControlMessage::parse(&[]), Ok(None));
}

/// Each message has the kind that its bytes say, and the fields that its kind has; and there is no other kind.
#[test]
fn every_kind_is_that_of_a_message_and_has_its_shape() {
    let messages = all();
    for message in &messages {
        let encoded = message.encode();
        assert_eq!(ControlKind::of(&encoded), Some(message.kind()));
        let len_bytes = |shape: &Shape| match *shape {
            Shape::Zero(len_bytes) => len_bytes,
            Shape::Word => 4,
            Shape::Long => 8,
            Shape::Process => 20,
            Shape::List(element_bytes) => 2 * element_bytes,
        };
        let shapes = message.kind().shapes().iter();
        let rest: usize = shapes.map(len_bytes).sum();
        assert_eq!(encoded.len(), 2 + rest, "{message:?}");
        let again = message.kind().with(encoded[1], &encoded[2..]);
        assert_eq!(*again, *encoded);
    }
    for kind in ControlKind::ALL {
        assert!(messages.iter().any(|message| message.kind() == *kind));
    }
}

#[test]
fn a_list_has_the_elements_that_were_said_and_one_that_is_none_is_refused() {
    let rights = [
        Released { name: 5, count: 2 },
        Released { name: 6, count: 1 },
    ];
    let said = ControlMessage::Release {
        rights: (&rights).into(),
    };
    let encoded = said.encode();
    let Ok(Some(ControlMessage::Release { rights: heard })) = ControlMessage::parse(&encoded)
    else {
        panic!("{encoded:?}");
    };
    assert!(heard.iter().eq(rights) && heard.len() == 2 && !heard.is_empty());
    let one_more = ControlMessage::Release {
        rights: rights[..1].into(),
    };
    assert_ne!(one_more, said);
    let kind = ControlKind::Spread;
    let spread = kind.with(0, &[2, 1, 0, 0, 0, 0, 3, 1]);
    assert_eq!(ControlMessage::parse(&spread), Err(Malformed { kind }));
}

/// Else two peers could differ about what bytes mean that a later version gives a meaning to.
#[test]
fn a_message_that_parses_encodes_to_the_same_bytes_whatever_its_argument() {
    for message in all() {
        let encoded = message.encode();
        for argument in [0, 1, 2, 9, 255] {
            let mut bytes = encoded.to_vec();
            bytes[1] = argument;
            match ControlMessage::parse(&bytes) {
                Ok(Some(parsed)) => assert_eq!(*parsed.encode(), *bytes, "{parsed:?}"),
                Ok(None) => panic!("{message:?} is of a known kind"),
                Err(_) => assert_ne!(argument, encoded[1], "{message:?}"),
            }
        }
    }
}
