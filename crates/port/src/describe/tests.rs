//! The arms for rights that are described with one look say what the match for all rights says.

use super::*;
use crate::arena::SharedArena;
use crate::describe::now::part_now;
use crate::{Node, ReceiveRight};
use handfast_testing::{Directory, PATIENCE, Random, within_patience};
use std::collections::BTreeMap;
use std::time::Instant;

/// Steps of one run: in the first half all rights are good.
const STEPS: usize = 400;

/// Three nodes; the first describes rights to the second.
struct World {
    nodes: [Node; 3],
    _directory: Directory,
    to_peer: SendRight,
    at_peer: ReceiveRight,
    /// Two ports of the third node: rights to the first come to the peer, rights to the other never do.
    third: [SendRight; 2],
    at_third: [ReceiveRight; 2],
    arena: SharedArena,
    own: ReceiveRight,
    /// In the second half the rights with this badge are revoked.
    revoked: OwnRight,
    /// A port that ends.
    short: Option<ReceiveRight>,
    ended: OwnRight,
}

const REVOKED: u64 = 99;
const KINDS: [&str; 8] = [
    "own", "revoked", "ended", "peer", "third", "stranger", "block", "dead",
];

impl World {
    fn new() -> Self {
        let directory = Directory::new("describe");
        let nodes = [(); 3].map(|()| Node::builder().directory(&directory.0).start().unwrap());
        let [home, peer, third] = &nodes;
        let at_peer = peer.bind("peer").unwrap();
        let at_third = ["third", "stranger"].map(|name| third.bind(name).unwrap());
        let own = home.anonymous().unwrap();
        let short = home.anonymous().unwrap();
        let world = Self {
            to_peer: home.connect("peer").unwrap(),
            third: ["third", "stranger"].map(|name| home.connect(name).unwrap()),
            arena: SharedArena::create(100, 4).unwrap(),
            revoked: own.mint(REVOKED),
            ended: short.mint(0),
            short: Some(short),
            at_peer,
            at_third,
            own,
            _directory: directory,
            nodes,
        };
        // The peer keeps a right whose exporter it has a link with.
        let _linked = world.nodes[1].connect("third").unwrap();
        let is_kept = || {
            world.gives(world.right("third", 0));
            again::give_again(world.to_peer.link(), &world.third[0])
                .map(|number| again::unsent_again(world.to_peer.link(), number))
                .is_some()
        };
        assert!(within_patience(is_kept));
        world
    }

    fn right(&self, kind: &str, random: u64) -> Right {
        match kind {
            "own" => self.own.mint(random % 5).into(),
            "revoked" => self.revoked.clone().into(),
            "ended" => self.ended.clone().into(),
            "peer" => self.to_peer.clone().into(),
            "third" => self.third[0].clone().into(),
            "stranger" => self.third[1].clone().into(),
            "block" => self.arena.try_take(random as usize % 100).unwrap().into(),
            _ => Right::Dead,
        }
    }

    /// Sends the right, and the peer drops it. A right is described as before once its exporter has taken what it was told.
    fn gives(&self, right: Right) {
        if self.to_peer.with([right]).send(b"").is_ok() {
            drop(self.at_peer.receive().unwrap());
        }
        self.at_third
            .iter()
            .for_each(|port| drop(port.try_receive()));
    }

    fn spoil(&mut self) {
        self.own.revoke(REVOKED);
        self.short = None;
    }

    fn named_now(&self, right: &Right) -> Option<(Part, Undo)> {
        part_now((self.to_peer.process(), self.to_peer.link()), right)
    }

    fn named(&self, right: Right) -> Result<Part, RightError> {
        let mut load = Load {
            rights: vec![right],
            reply: None,
        };
        let (process, link) = (self.to_peer.process(), self.to_peer.link());
        let mut described = Described::new();
        described.describe(process, link, &load)?;
        let (part, count) = Part::parse(described.units()).unwrap();
        assert_eq!(count, described.units().len());
        described.take_back(link);
        load.rights.clear();
        Ok(part)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.nodes.iter().for_each(Node::shutdown);
    }
}

/// Each loan has a number of its own.
fn without_loan(part: Part) -> Part {
    match part {
        Part::Loan(mut lent) => {
            (lent.loan, lent.generation) = (0, 0);
            Part::Loan(lent)
        }
        part => part,
    }
}

#[test]
fn what_is_described_with_one_look_is_described_as_by_the_match_for_all() {
    let mut random = Random::seeded("describe");
    let mut world = World::new();
    let mut now = BTreeMap::new();
    let of =
        |now: &BTreeMap<_, u32>, kind| [true, false].map(|half| now.contains_key(&(kind, half)));
    let (mut step, until) = (0, Instant::now() + PATIENCE);
    // Longer, where the control thread that says which rights the peer keeps runs late.
    while step < STEPS || of(&now, "third") != [true; 2] && Instant::now() < until {
        if step == STEPS / 2 {
            world.spoil();
        }
        step += 1;
        let kind = KINDS[random.below(KINDS.len() as u64) as usize];
        let right = world.right(kind, random.next());
        if let Some((part, undo)) = world.named_now(&right) {
            let slowly = world.named(right);
            undo.take_back(world.to_peer.link());
            assert_eq!(
                slowly.map(without_loan),
                Ok(without_loan(part)),
                "{kind}, step {step}"
            );
            *now.entry((kind, step <= STEPS / 2)).or_insert(0) += 1;
        } else if kind != "stranger" {
            world.gives(right);
        }
        if random.below(4) == 0 && kind != "stranger" {
            world.gives(world.right(kind, random.next()));
        }
    }
    for kind in ["own", "peer", "third", "block"] {
        assert_eq!(of(&now, kind), [true, true], "{kind}: {now:?}");
    }
    for kind in ["revoked", "ended"] {
        assert_eq!(of(&now, kind), [true, false], "{kind}: {now:?}");
    }
    for kind in ["stranger", "dead"] {
        assert_eq!(of(&now, kind), [false, false], "{kind}: {now:?}");
    }
}
