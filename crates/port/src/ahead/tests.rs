use super::*;
use crate::arena::Block;
use crate::link::fills::Fill;
use crate::link::long::{self, Use};
use crate::links;
use crate::{Node, ReceiveRight, SendRight, lending};
use handfast_testing::Directory;
use std::sync::Arc;

const LEN_BYTES: usize = 200_000;
const HALF: usize = 2 * STEP_BYTES;

/// A sender's link and its receiver's, by which a long message has gone: the receiver knows the arena.
fn linked(directory: &Directory) -> ([Node; 2], ReceiveRight, SendRight, Arc<Link>) {
    let nodes = [(); 2].map(|()| Node::builder().directory(&directory.0).start().unwrap());
    let port = nodes[0].bind("ahead").unwrap();
    let right = nodes[1].connect("ahead").unwrap();
    right.send(&[0; LEN_BYTES]).unwrap();
    assert_eq!(port.receive().unwrap().bytes(), [0; LEN_BYTES]);
    let theirs = links::hold_link(&port.port().process, |link| !link.is_loop());
    let theirs = Arc::clone(&theirs.unwrap());
    (nodes, port, right, theirs)
}

fn lent(link: &Arc<Link>) -> (Block, LentBlock) {
    let taken = long::take(link, LEN_BYTES, Use::Message);
    let block = taken.unwrap_or_else(|_| panic!("no block"));
    let lent = lending::lend(link, &block).unwrap();
    (block, lent)
}

/// Bytes that were copied while one fill of a block went on are used for the message of that fill, and for no other.
#[test]
fn what_was_copied_ahead_is_of_one_fill() {
    let directory = Directory::new("ahead");
    let (nodes, port, right, theirs) = linked(&directory);
    let link = right.link().clone();
    let (mut block, of_block) = lent(&link);
    let of = |fill: &Fill<'_>| LentBlock {
        fill: fill.serial(),
        ..of_block
    };
    let first = Fill::begin(&link, (3, 0), &of_block).unwrap();
    assert!(
        Fill::begin(&link, (3, 0), &of_block).is_none(),
        "two at a time"
    );
    block[..HALF].fill(1);
    first.reach(HALF);
    // The words of another lane, and an answer's.
    assert_eq!(look(&theirs, 2, 0), Progress::Nothing);
    assert_eq!(look(&theirs, 3, 7), Progress::Nothing);
    assert!(take(&theirs, &of(&first)).is_none());
    assert_eq!(look(&theirs, 3, 0), Progress::InVain, "the sender pauses");
    let (bytes, copied) = take(&theirs, &of(&first)).unwrap();
    assert_eq!((bytes.len(), copied), (LEN_BYTES, HALF));
    assert_eq!(bytes[..HALF], [1; HALF]);
    // Given up after it was copied, and the block filled with others: those are copied anew.
    look(&theirs, 3, 0);
    let of_first = of(&first);
    drop(first);
    look(&theirs, 3, 0);
    let second = Fill::begin(&link, (3, 0), &of_block).unwrap();
    block.fill(2);
    assert!(
        take(&theirs, &of(&second)).is_none(),
        "bytes of another fill"
    );
    look(&theirs, 3, 0);
    second.reach(HALF);
    look(&theirs, 3, 0);
    second.reach(LEN_BYTES - HALF);
    assert_eq!(look(&theirs, 3, 0), Progress::ComesSoon);
    assert!(take(&theirs, &of_first).is_none(), "bytes of another fill");
    let (bytes, copied) = take(&theirs, &of(&second)).unwrap();
    assert_eq!((copied, &bytes[..]), (LEN_BYTES, &[2; LEN_BYTES][..]));
    drop(second);
    lending::lends_not(&link, of_block.loan);
    drop((block, theirs, link, right, port));
    nodes.iter().for_each(Node::shutdown);
}

/// The words are a peer's.
#[test]
fn words_that_are_made_up_lead_to_nothing() {
    let directory = Directory::new("ahead-forged");
    let (nodes, port, right, theirs) = linked(&directory);
    let link = right.link().clone();
    let (block, of_block) = lent(&link);
    let honest = Filling {
        serial: 9,
        answers: 0,
        arena: of_block.arena,
        block: of_block.block,
        len_bytes: LEN_BYTES as u32,
    };
    let place = Place::of(link.calls, 0);
    let forged = [
        Filling {
            arena: honest.arena ^ 0x100,
            ..honest
        },
        Filling {
            arena: honest.arena ^ 1,
            ..honest
        },
        Filling {
            arena: u32::MAX,
            ..honest
        },
        Filling {
            block: u32::MAX,
            ..honest
        },
        Filling {
            len_bytes: u32::MAX,
            ..honest
        },
        Filling {
            len_bytes: 0,
            ..honest
        },
        Filling {
            len_bytes: MESSAGE_BYTES_MAX as u32,
            ..honest
        },
        Filling {
            len_bytes: 1 << 25,
            ..honest
        },
    ];
    for filling in forged {
        place.begin(&link.region, filling);
        place.reach(&link.region, u32::MAX);
        look(&theirs, 0, 0);
        let named = LentBlock {
            arena: filling.arena,
            block: filling.block,
            len_bytes: filling.len_bytes.into(),
            fill: filling.serial,
            ..of_block
        };
        let copied = take(&theirs, &named).map_or(0, |(_, copied)| copied);
        assert_eq!(copied, 0, "{filling:?}");
    }
    // More bytes than there are, and then fewer.
    place.begin(&link.region, honest);
    for reached in [u32::MAX, 0] {
        place.reach(&link.region, reached);
        look(&theirs, 0, 0);
    }
    let named = LentBlock {
        fill: honest.serial,
        ..of_block
    };
    assert_eq!(take(&theirs, &named).unwrap().1, LEN_BYTES);
    lending::lends_not(&link, of_block.loan);
    drop((block, theirs, link, right, port));
    nodes.iter().for_each(Node::shutdown);
}

/// A receiver copies along while the sender goes on. After a pause it does so no more before a long message has come: it has others to look
/// after.
#[test]
fn a_fill_that_pauses_is_looked_at_once() {
    let directory = Directory::new("ahead-paused");
    let (nodes, port, right, theirs) = linked(&directory);
    let link = right.link().clone();
    for _ in 0..2 {
        let (mut block, of_block) = lent(&link);
        let fill = Fill::begin(&link, (0, 0), &of_block).unwrap();
        let named = LentBlock {
            fill: fill.serial(),
            ..of_block
        };
        block[..HALF].fill(1);
        fill.reach(HALF);
        assert!(port.try_receive().is_err());
        let (bytes, copied) = take(&theirs, &named).unwrap();
        assert_eq!((copied, &bytes[..HALF]), (HALF, &[1; HALF][..]));
        assert!(port.try_receive().is_err());
        assert!(take(&theirs, &named).is_none());
        drop(fill);
        lending::lends_not(&link, of_block.loan);
        drop(block);
        right.send(&[2; LEN_BYTES]).unwrap();
        assert_eq!(port.receive().unwrap().bytes(), [2; LEN_BYTES]);
    }
    drop((theirs, link, right, port));
    nodes.iter().for_each(Node::shutdown);
}

/// A sender that has filled all of a long block at once, or says so.
#[test]
fn a_look_ends_however_much_is_there() {
    let directory = Directory::new("ahead-at-once");
    let (nodes, port, right, theirs) = linked(&directory);
    let link = right.link().clone();
    let bytes = vec![0; handfast_layout::LONG_BYTES_MAX];
    right.send(&bytes).unwrap();
    assert_eq!(port.receive().unwrap().bytes().len(), bytes.len());
    let taken = long::take(&link, bytes.len(), Use::Message);
    let block = taken.unwrap_or_else(|_| panic!("no block"));
    let of_block = lending::lend(&link, &block).unwrap();
    let fill = Fill::begin(&link, (0, 0), &of_block).unwrap();
    fill.reach(bytes.len() - 1);
    assert_eq!(look(&theirs, 0, 0), Progress::GoesOn);
    let named = LentBlock {
        fill: fill.serial(),
        ..of_block
    };
    let (_, copied) = take(&theirs, &named).unwrap();
    assert!(
        (1..bytes.len() / 2).contains(&copied),
        "{copied} bytes in a look"
    );
    drop(fill);
    lending::lends_not(&link, of_block.loan);
    drop((block, theirs, link, right, port));
    nodes.iter().for_each(Node::shutdown);
}
