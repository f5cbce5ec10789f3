//! Homes in one process, each with a right to the next one's.

use crate::common;
use handfast::{Node, ReceiveRight, SendRight};

/// A place where ports live, with its own node.
pub(crate) struct Home {
    pub(crate) node: Node,
    /// Ports and rights come here.
    pub(crate) mail: ReceiveRight,
    pub(crate) next: SendRight,
}

pub(crate) fn node() -> Node {
    let node = Node::builder().directory(common::directory().clone());
    node.start().unwrap()
}

pub(crate) fn homes(what: &str, count: usize) -> Vec<Home> {
    let nodes: Vec<_> = (0..count).map(|_| node()).collect();
    let names = (0..count).map(|home| common::name(&format!("{what}-{home}")));
    let names: Vec<_> = names.collect();
    let bound = nodes.iter().zip(&names);
    let mail: Vec<_> = bound.map(|(node, name)| node.bind(name).unwrap()).collect();
    let places = nodes.into_iter().zip(mail).enumerate();
    let homes = places.map(|(at, (node, mail))| {
        let next = node.connect(&names[(at + 1) % count]).unwrap();
        Home { node, mail, next }
    });
    homes.collect()
}
