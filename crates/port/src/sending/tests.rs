//! One-way messages, in each of their forms, are taken for those of a chain.

use crate::node::Node;
use crate::right::Right;
use crate::send::SendRight;
use handfast_wait::chain;
use std::io::IoSlice;

/// Whether the next wait of a thread that has sent like this is one of a chain. No wait of the thread was before.
fn is_next_after(right: &SendRight, send: impl FnOnce(&SendRight) + Send) -> bool {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            assert!(!chain::is_next(), "before");
            send(right);
            chain::is_next()
        });
        thread.join().unwrap()
    })
}

#[test]
#[cfg_attr(miri, ignore = "system calls")]
fn a_wait_after_a_one_way_message_is_one_of_a_chain() {
    let node = Node::builder().start().unwrap();
    let port = node.anonymous().unwrap();
    let right = port.mint(0).connect().unwrap();
    let given = || [Right::Own(port.mint(1))];
    assert!(is_next_after(&right, |right| right.send(b"plain").unwrap()));
    assert!(is_next_after(&right, |right| {
        right.with(given()).send(b"with a right").unwrap();
    }));
    let pieces = [IoSlice::new(b"in "), IoSlice::new(b"pieces")];
    assert!(is_next_after(&right, |right| right
        .send_vectored(&pieces)
        .unwrap()));
    assert!(is_next_after(&right, |right| {
        right.with(given()).send_vectored(&pieces).unwrap();
    }));
}
