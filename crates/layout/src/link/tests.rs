use super::*;
use crate::bell;

/// Words that two receivers and their senders write to are on lines apart: neither calls nor answers on different CPUs
/// meet. The last two receivers' ready words have a neighbour.
#[test]
fn receivers_and_lanes_share_no_line_with_others() {
    for side in [Side::Connector, Side::Acceptor] {
        let mut lines: Vec<usize> = (0..READY_LINES).map(|at| side.ready(at) / LINE).collect();
        lines.extend([side.claimed() / LINE, side.over() / LINE]);
        let all: Vec<usize> = (0..bell::RECEIVERS).map(|at| side.ready(at)).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), READY_LINES as usize + 2);
        for (at, word) in all.iter().enumerate() {
            assert!(!all[..at].contains(word) && word / LINE <= lines[lines.len() - 3]);
        }
    }
    // Lanes begin with pages; a reply slot and a bell are whole lines.
    assert!(LANE_BYTES.is_multiple_of(PAGE) && SIDE_LANES.is_multiple_of(PAGE));
    assert!(reply::BYTES_ALL.is_multiple_of(2 * LINE) && SIDE_REPLIES.is_multiple_of(2 * LINE));
    assert!(bell::BELL_BYTES.is_multiple_of(2 * LINE));
}

#[test]
fn meta_words_round_trip_and_refuse_impossible_lengths() {
    for kind in [Kind::Message, Kind::Call, Kind::Dropped, Kind::DeadPort] {
        for (len_bytes, outside) in [(0, false), (40, false), (0, true), (65_536, true)] {
            let meta = Meta {
                len_bytes,
                outside,
                kind,
                units: 0,
                cpu: 0xab,
            };
            assert_eq!(Meta::unpack(meta.pack()), Some(meta));
            let is_plain = matches!(kind, Kind::Message | Kind::Call);
            assert_eq!(Meta::unpack_plain(meta.pack()), is_plain.then_some(meta));
            let is_short = is_plain && meta.kind == Kind::Message && !meta.outside;
            let short = Meta::unpack_short(meta.pack());
            assert_eq!(short, is_short.then_some(meta.len_bytes));
        }
    }
    let long = Meta {
        len_bytes: 65_537,
        outside: true,
        kind: Kind::Call,
        units: 0,
        cpu: 0,
    };
    assert_eq!(Meta::unpack(long.pack()), None);
    assert_eq!(Meta::unpack_plain(long.pack()), None);
    let inline = Meta {
        len_bytes: 41,
        outside: false,
        kind: Kind::Call,
        units: 0,
        cpu: 0,
    };
    assert_eq!(Meta::unpack(inline.pack()), None);
    assert_eq!(Meta::unpack_plain(inline.pack()), None);
    let kind = Kind::Message;
    assert_eq!(Meta::unpack_short(Meta { kind, ..inline }.pack()), None);
    let described = |len_bytes, outside, units| {
        let meta = Meta {
            len_bytes,
            outside,
            units,
            ..inline
        };
        assert_eq!(Meta::unpack_plain(meta.pack()), None);
        let kind = Kind::Message;
        assert_eq!(Meta::unpack_short(Meta { kind, ..meta }.pack()), None);
        Meta::unpack(meta.pack()).map(|_| ())
    };
    assert_eq!(described(24, false, 1), Some(()));
    assert_eq!(described(25, false, 1), None);
    assert_eq!(described(65_536, true, 12), Some(()));
    assert_eq!(described(0, true, 13), None);
}

#[test]
fn a_call_names_its_slot_and_the_whole_cpu() {
    for (slot, cpu) in [(0, 0), (255, 0x1234), (7, 255), (65_535, 0xff_ffff)] {
        let word = reply_word(slot, cpu);
        assert_eq!(unpack_reply_word(word, cpu & META_CPU_MASK), (slot, cpu));
    }
}

#[test]
fn parts_of_a_side_do_not_overlap() {
    for side in [Side::Connector, Side::Acceptor] {
        let other = side.other().base();
        let end = side.base() + SIDE_BYTES;
        assert!(end <= other || side.base() >= other + SIDE_BYTES);
        assert!(side.ready(bell::RECEIVERS - 1) + 4 <= side.over());
        assert!(side.over() + LINE <= side.claimed());
        assert!(side.claimed() + LINE <= side.returned(0));
        assert!(side.returned(LOANS - 1) + LINE <= side.lane(0));
        assert_eq!(side.lane(1) - side.lane(0), LANE_BYTES);
        assert!(side.lane(LANES - 1) + LANE_BYTES <= side.reply(0));
        assert_eq!(slot_of(SETS - 1, REPLIES - 1), ANSWERS - 1);
        assert!(side.reply(ANSWERS - 1) + reply::BYTES_ALL <= side.reply_buffer(0));
        assert_eq!(side.reply_buffer(ANSWERS - 1) + REPLY_BUFFER_BYTES, end);
    }
}
