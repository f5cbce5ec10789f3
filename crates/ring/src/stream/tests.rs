use super::*;
use core::sync::atomic::Ordering::Relaxed;
use handfast_layout::stream::REGION_BYTES;
use handfast_region::Region;
use handfast_testing::Random;

const AT: Place = Place::of(Side::Acceptor);

fn ends() -> (Region, Writer, Reader) {
    (Region::heap(REGION_BYTES), Writer::new(AT), Reader::new(AT))
}

#[test]
fn any_split_arrives_whole_and_in_order() {
    let (memory, mut writer, mut reader) = ends();
    // Counts wrap on the way.
    writer.tail = u32::MAX - 100_000;
    writer.head = writer.tail;
    (reader.tail, reader.head) = (writer.tail, writer.tail);
    memory.store(AT.word(direction::HEAD), writer.tail, Relaxed);
    memory.store(AT.word(direction::TAIL), writer.tail, Relaxed);
    let mut random = Random::seeded("stream");
    let (mut put, mut got) = (0_u64, 0_u64);
    let byte = |position: u64| (position ^ position >> 8 ^ position >> 16) as u8;
    while got < 3_000_000 {
        let len = random.below(2 * RING_BYTES as u64 + 1);
        let bytes: Vec<u8> = (put..put + len).map(byte).collect();
        let written = writer.put(&memory, &bytes).unwrap();
        let room = RING_BYTES as u64 - (put - got);
        assert_eq!(written as u64, len.min(room));
        put += written as u64;
        let there = reader.look(&memory).unwrap();
        assert_eq!(there as u64, put - got);
        let mut into = vec![0; random.below(RING_BYTES as u64 + 1) as usize];
        let len = reader.peek(&memory, &mut into);
        assert_eq!(len, there.min(into.len()));
        assert!(
            into[..len]
                .iter()
                .enumerate()
                .all(|(at, found)| *found == byte(got + at as u64))
        );
        // Bytes that were only looked at come again.
        let taken = random.below(len as u64 + 1) as usize;
        reader.taken(&memory, taken);
        got += taken as u64;
    }
}

#[test]
fn counts_that_no_honest_peer_writes_are_refused() {
    let (memory, mut writer, mut reader) = ends();
    assert_eq!(writer.put(&memory, &[7; 100]), Ok(100));
    assert_eq!(reader.look(&memory), Ok(100));
    reader.taken(&memory, 40);
    assert_eq!(writer.look(&memory), Ok(RING_BYTES - 60));
    for head in [39, 101, u32::MAX] {
        memory.store(AT.word(direction::HEAD), head, Relaxed);
        assert_eq!(writer.look(&memory), Err(Broken), "{head}");
    }
    for tail in [99, 41 + RING_BYTES as u32, 0] {
        memory.store(AT.word(direction::TAIL), tail, Relaxed);
        assert_eq!(reader.look(&memory), Err(Broken), "{tail}");
    }
    memory.store(AT.word(direction::STATE), 5, Relaxed);
    assert_eq!(reader.seen(&memory), Err(Broken));
    assert_eq!(reader.leave(&memory), Err(Broken));
    assert_eq!(writer.back(&memory), Err(Broken));
}

fn seen(state: State, from: u64, unread: usize) -> Result<Seen, Broken> {
    Ok(Seen {
        state,
        from,
        unread,
    })
}

#[test]
fn a_writer_says_where_it_turns_to_the_ring_and_when_it_ends() {
    let (memory, writer, mut reader) = ends();
    assert_eq!(reader.seen(&memory), seen(State::Kernel, 0, 0));
    assert!(!reader.has_turned(&memory));
    // It has not turned yet.
    assert_eq!(writer.end(&memory), Ok(State::Kernel));
    let from = 0x1_2345_6789_u64;
    assert_eq!(writer.begin(&memory, from), Ok(State::Ring));
    assert_eq!(reader.seen(&memory), seen(State::Ring, from, 0));
    assert_eq!(writer.end(&memory), Ok(State::Ended));
    assert_eq!(reader.seen(&memory), seen(State::Ended, from, 0));
    // Nobody leaves a stream that has ended.
    assert_eq!(reader.leave(&memory), seen(State::Ended, from, 0));
    assert_eq!(writer.back(&memory), Ok(State::Ended));
    assert!(!writer.is_closed(&memory));
    AT.close(&memory);
    assert!(writer.is_closed(&memory));
}

#[test]
fn of_two_that_leave_the_ring_the_first_one_does() {
    let (memory, mut writer, mut reader) = ends();
    writer.begin(&memory, 7).unwrap();
    writer.put(&memory, b"abcdef").unwrap();
    reader.look(&memory).unwrap();
    reader.taken(&memory, 2);
    assert_eq!(reader.leave(&memory), seen(State::Left, 7, 4));
    assert_eq!(writer.back(&memory), Ok(State::Left));
    assert_eq!(writer.state(&memory), Ok(State::Left));
    assert_eq!(writer.unread(&memory), Ok(4));
    let mut bytes = [0; 8];
    assert_eq!(writer.copy_again(&memory, 0, &mut bytes), 4);
    assert_eq!(&bytes[..4], b"cdef");
    assert_eq!(writer.copy_again(&memory, 3, &mut bytes), 1);
    assert_eq!(bytes[0], b'f');
    assert_eq!(writer.copy_again(&memory, 4, &mut bytes), 0);
    let (memory, mut writer, mut reader) = ends();
    writer.begin(&memory, 7).unwrap();
    writer.put(&memory, b"abcdef").unwrap();
    assert_eq!(writer.back(&memory), Ok(State::Back));
    assert_eq!(reader.leave(&memory), seen(State::Back, 7, 6));
}
