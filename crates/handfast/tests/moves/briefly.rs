//! Ports that are given away by processes that keep nothing else of the link, and ports that nobody sends to.

use crate::common;
use crate::common::within_patience;
use crate::homes::{Homes, call};

/// The giver drops its only right to the new home while the port is on its way: the link was ended as one that nobody used, and with
/// it the way by which senders would have followed.
#[test]
fn senders_follow_a_port_whose_giver_drops_its_right_to_the_new_home() {
    let homes = Homes::new("briefly", 2);
    let name = common::name("briefly");
    homes.controls[0]
        .call(format!("bind {name}").as_bytes())
        .unwrap();
    let senders: Vec<_> = (0..3).map(|_| handfast::connect(&name).unwrap()).collect();
    for round in 1..=50 {
        let to = round % 2;
        if round <= 2 {
            // Longer than messages are waited for on a link that nobody uses.
            homes.controls[to as usize].send(b"busy 1500").unwrap();
        }
        let text = format!("flit {}", homes.names[to as usize]);
        let _ = senders[0].call(text.as_bytes()).unwrap();
        for (sender, right) in senders.iter().enumerate() {
            let (_, pid) = call(right, sender as u64, round);
            assert_eq!(pid, homes.pid(to as usize), "round {round}");
        }
        // With the next move the way back is a new link.
        assert!(
            within_patience(|| homes.rests(1 - to as usize)),
            "round {round}"
        );
    }
}

/// Nobody could send to it, so nobody has to be told where it is: no thread stays for it.
#[test]
fn a_port_that_never_had_a_sender_leaves_nothing_at_its_old_home() {
    let homes = Homes::new("unsent", 2);
    let text = format!("hand {}", homes.names[1]);
    // As many as may be on their way through one link (`RightError::Trails`).
    for _ in 0..8 {
        let _ = homes.controls[0].call(text.as_bytes()).unwrap();
    }
    assert!(within_patience(|| homes.rests(0)));
    let pid = homes.children[0].pid();
    assert!(within_patience(|| common::threads_named(
        pid,
        "handfast-trail"
    ) == 0));
}
