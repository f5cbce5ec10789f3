use super::*;
use crate::golden;
use crate::hello::process;
use crate::loan::Geometry;

/// One of each kind.
fn all() -> Vec<ControlMessage<'static>> {
    use ControlMessage as M;
    const RIGHTS: &[[u8; 8]] = &[released(0x8000_0001, 3), released(7, 1)];
    const NAMES: &[[u8; 4]] = &[0x8000_0002_u32.to_le_bytes(), 9_u32.to_le_bytes()];
    const ENTRIES: &[[u8; 4]] = &[spread_entry(0, 3), spread_entry(1023, 63)];
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
        M::Release { rights: RIGHTS },
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
            names: NAMES,
        },
        M::Revoked {
            in_vain: true,
            names: NAMES,
        },
        M::Spread {
            port,
            entries: ENTRIES,
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
        let malformed = Err(Malformed { kind: encoded[0] });
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
