//! An overloaded server, to which some send by rights that were revoked.

use crate::common;
use handfast::{Node, ReceiveRight, Right};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// More than there are processors, mostly: clients wait for their turns.
const CLIENTS: usize = 8;
/// Clients that call by rights that were revoked.
const REFUSED: usize = 8;
const CALLS: u32 = 60_000;

fn node() -> Node {
    let directory = common::directory().clone();
    Node::builder().directory(directory).start().unwrap()
}

/// Answers with what has come; or with a right that is revoked at once. Until it is told to end.
fn serve(port: &ReceiveRight) {
    for badge in 1.. {
        let request = port.receive().unwrap();
        match request.bytes() {
            b"right" => {
                let rights =
                    [1, 2, 4, 8].map(|permissions| port.mint_with(badge, permissions).into());
                request.reply_with(b"", rights).unwrap();
                port.revoke(badge);
            }
            b"end" => return request.reply(b"").unwrap(),
            _ if request.badge() > 0 => panic!("by a right that was revoked"),
            bytes => {
                let bytes = bytes.to_vec();
                request.reply(&bytes).unwrap();
            }
        }
    }
}

/// A message that is refused is taken, too: the next one, of a client that has waited for its turn, came without its bytes.
#[test]
fn messages_that_lead_nowhere_take_nothing_from_those_that_wait_for_their_turn() {
    let (server, name) = (node(), common::name("overload"));
    let port = server.bind(&name).unwrap();
    let nodes: Vec<_> = (0..CLIENTS + REFUSED).map(|_| node()).collect();
    let rights: Vec<_> = nodes
        .iter()
        .map(|node| node.connect(&name).unwrap())
        .collect();
    let left = AtomicUsize::new(CLIENTS);
    std::thread::scope(|scope| {
        // With its port: a panic ends the calls.
        let serves = scope.spawn(move || serve(&port));
        let (calls, refused) = rights.split_at(CLIENTS);
        let callers: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(client, right)| {
                let left = &left;
                scope.spawn(move || {
                    for number in 0..CALLS {
                        let said = format!("{number} of client {client}");
                        assert_eq!(&*right.call(said.as_bytes()).unwrap(), said.as_bytes());
                    }
                    left.fetch_sub(1, SeqCst);
                })
            })
            .collect();
        let refused = refused.iter().map(|right| {
            let left = &left;
            scope.spawn(move || {
                while left.load(SeqCst) > 0 {
                    for revoked in right.call(b"right").unwrap().take_rights() {
                        // It may be known here by now that it was revoked.
                        if let Right::Send(revoked) = revoked {
                            assert!(revoked.call(b"refused").is_err());
                        }
                    }
                }
            })
        });
        let refused: Vec<_> = refused.collect();
        let mut ended: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        left.store(0, SeqCst);
        // The port goes when the server ends: no call is under way then.
        ended.extend(refused.into_iter().map(|client| client.join()));
        rights[0].call(b"end").unwrap();
        serves.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
}
