//! Return paths at all three who have to do with one, while the others say what they like.

use crate::{Input, below, one_of, steps, word};
use arbitrary::Result;
use handfast_proto::paths::{Asks, Granted, PARTIES_MAX, Parties, Paths, Source, Way};
use std::collections::BTreeMap;

#[derive(Default)]
struct World {
    forwarder: Forwarder,
    replier: Replier,
    caller: Caller,
}

/// A forwarder with a hostile replier, a replier with a hostile forwarder, a caller with a hostile replier.
pub fn paths(bytes: &[u8]) {
    let mut world = World::default();
    steps(bytes, |input| match below(input, 3)? {
        0 => world.forwarder.step(input),
        1 => world.replier.step(input),
        _ => world.caller.step(input),
    });
}

fn source(input: &mut Input<'_>) -> Result<Source> {
    let (link, set) = (below(input, 3)?.into(), below(input, 3)?.into());
    Ok(Source { link, set })
}

#[derive(Default)]
struct Forwarder {
    asks: Asks,
    now_ns: u64,
    /// For which source each number was asked for last, and which path it has led to.
    asked: BTreeMap<u32, (Source, Option<u32>)>,
}

impl Forwarder {
    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let numbers: Vec<_> = self.asked.keys().copied().collect();
        let number = match below(input, 4)? {
            0 => word(input)?,
            _ => one_of(input, &numbers)?.unwrap_or(1),
        };
        match below(input, 6)? {
            0..3 => {
                let of = source(input)?;
                self.now_ns += u64::from(below(input, 12)?) * 1_000_000_000;
                match self.asks.way(of, self.now_ns) {
                    Way::Path { number, path } => assert_eq!(self.asked[&number], (of, Some(path))),
                    Way::Vine(Some(number)) => {
                        assert!((1..1 << 24).contains(&number));
                        let before = self.asked.insert(number, (of, None));
                        // A number that has led somewhere means nothing else later.
                        assert!(before.is_none_or(|before| before == (of, None)));
                    }
                    Way::Vine(None) => {}
                }
            }
            3 => {
                let path = word(input)?;
                if self.asks.ready(number, path) {
                    let (_, led) = self.asked.get_mut(&number).expect("it was asked for");
                    assert_eq!(led.replace(path), None);
                }
            }
            4 => self.asks.refused(number, self.now_ns),
            _ => {
                let link = below(input, 3)?.into();
                for number in self.asks.source_ended(link) {
                    assert_eq!(self.asked[&number].0.link, link);
                }
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Replier {
    parties: Parties<u32>,
    known: BTreeMap<u32, Option<u32>>,
}

impl Replier {
    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let number = word(input)?;
        match below(input, 5)? {
            0 | 1 => {
                let is_one = (1..1 << 24).contains(&number) && !self.known.contains_key(&number);
                let has_room = self.known.len() < PARTIES_MAX;
                assert_eq!(self.parties.asked(number).ok(), is_one.then_some(has_room));
                if is_one && has_room {
                    self.known.insert(number, None);
                }
            }
            2 => {
                let party = word(input)?;
                let place = self.known.get_mut(&number).filter(|place| place.is_none());
                let expected = place.map(|place| *place = Some(party)).ok_or(party);
                assert_eq!(self.parties.granted(number, party), expected);
            }
            3 => {
                let dropped = self.known.remove(&number).flatten();
                assert_eq!(self.parties.dropped(number), dropped);
            }
            _ => {
                let odd = number % 2;
                let is_of = |party: &u32| party % 2 == odd;
                for (number, party) in self.parties.drop_those(is_of) {
                    assert_eq!(self.known.remove(&number), Some(Some(party)));
                }
                assert!(!self.known.values().flatten().any(is_of));
            }
        }
        let meant = self.known.get(&number).copied().flatten();
        assert_eq!(self.parties.get(number).copied(), meant);
        Ok(())
    }
}

#[derive(Default)]
struct Caller {
    paths: Paths,
    /// By number; whether it is over.
    granted: BTreeMap<u32, (Granted, bool)>,
}

impl Caller {
    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let numbers: Vec<_> = self.granted.keys().copied().collect();
        let path = match below(input, 4)? {
            0 => input.arbitrary()?,
            _ => one_of(input, &numbers)?.unwrap_or(0),
        };
        match below(input, 5)? {
            0 | 1 => {
                let (of, to) = (source(input)?, below(input, 3)?.into());
                if let Some(granted) = self.paths.grant(of, to, 0..3) {
                    assert!(granted.to.link == to && granted.to.set < 3 && granted.source == of);
                    let in_use = |(other, _): &(Granted, bool)| {
                        other.to == granted.to || other.source == granted.to
                    };
                    assert!(!self.granted.values().any(in_use), "another's set");
                    assert!(
                        self.granted
                            .insert(granted.path, (granted, false))
                            .is_none()
                    );
                }
            }
            2 => {
                let link = below(input, 3)?.into();
                let known = self.granted.get_mut(&path);
                let known = known.filter(|(granted, is_over)| granted.to.link == link && !is_over);
                let is_its = known.map(|(_, is_over)| *is_over = true).is_some();
                assert_eq!(self.paths.over(path, link), is_its);
            }
            3 => {
                self.paths.left(path);
                if self.granted.get(&path).is_some_and(|(_, is_over)| *is_over) {
                    self.granted.remove(&path);
                }
            }
            _ => {
                let link = below(input, 3)?.into();
                let mut ended = self.paths.link_ended(link);
                ended.sort_unstable();
                let of_link = self.granted.iter_mut();
                let of_link =
                    of_link.filter(|(_, (granted, is_over))| granted.to.link == link && !is_over);
                let expected: Vec<_> = of_link
                    .map(|(path, (_, is_over))| {
                        *is_over = true;
                        *path
                    })
                    .collect();
                assert_eq!(ended, expected);
            }
        }
        let known = self.granted.get(&path).map(|(granted, _)| granted.source);
        for of in [Some(source(input)?), known].into_iter().flatten() {
            let found = self.paths.find(path, of).map(|granted| granted.path);
            assert_eq!(found, (known == Some(of)).then_some(path));
        }
        Ok(())
    }
}
