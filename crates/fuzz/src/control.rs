//! Messages without an application's bytes: those about introductions in lanes, and all of the control socket.

use handfast_layout::PARTS_MAX;
use handfast_layout::control::{CONTROL_BYTES_MAX, ControlMessage};
use handfast_layout::lane_control::LaneControl;
use handfast_layout::link::LANES;
use handfast_layout::loan::{ARENA_BYTES_MAX, ARENAS, Geometry, Told, place_of};
use handfast_layout::part::is_handle;

/// Any of them.
pub fn control(bytes: &[u8]) {
    if let Some(said) = LaneControl::parse(bytes) {
        assert_eq!(said.encode(), *bytes);
        match said {
            LaneControl::Claim { word, .. }
            | LaneControl::Mint { word, .. }
            | LaneControl::Attenuate { word, .. } => {
                assert!(word != 0 && !is_handle(word));
            }
            LaneControl::Mark { lanes, .. } => assert!((1..=LANES).contains(&lanes)),
            LaneControl::Provide { .. } | LaneControl::Told { .. } => {}
        }
    }
    let bytes = &bytes[..bytes.len().min(CONTROL_BYTES_MAX)];
    if let Ok(Some(message)) = ControlMessage::parse(bytes) {
        let encoded = message.encode();
        assert_eq!(ControlMessage::parse(&encoded), Ok(Some(message)));
        // All but an argument byte that says nothing.
        assert!(encoded[2..] == bytes[2..] && encoded[0] == bytes[0]);
    }
    if let Ok(Some(ControlMessage::Descriptors(descriptors))) = ControlMessage::parse(bytes) {
        assert_eq!(*ControlMessage::Descriptors(descriptors).encode(), *bytes);
        assert!((1..=PARTS_MAX as u32).contains(&descriptors.count));
    }
    if let Ok(Some(ControlMessage::Arena(told))) = ControlMessage::parse(bytes) {
        assert_eq!(*ControlMessage::Arena(told).encode(), *bytes);
        let (Told::New { number, .. } | Told::Ended { number, .. }) = told;
        assert!(place_of(number) < ARENAS);
        if let Told::New { geometry, .. } = told {
            lies_within(geometry);
        }
    }
}

/// Every block lies in the file, whole, and no more blocks than there are.
fn lies_within(geometry: Geometry) {
    let (blocks, block_bytes) = (geometry.blocks(), geometry.block_bytes() as u64);
    assert!(geometry.file_bytes() as u64 <= ARENA_BYTES_MAX);
    let last = geometry.at(blocks - 1, block_bytes);
    let last = last.expect("the last block") + geometry.block_bytes();
    assert!(last <= geometry.file_bytes());
    assert_eq!(geometry.at(blocks, 0), None);
    assert_eq!(geometry.at(0, block_bytes + 1), None);
}
