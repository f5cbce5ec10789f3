//! The tables of rights of a link, whose other end says anything.

use crate::{Input, below, one_of, steps, word};
use arbitrary::Result;
use handfast_layout::part::is_handle;
use handfast_proto::rights::{Exports, Handle, Imports, Meaning, Refused, Target, Use};
use std::collections::BTreeMap;

/// A right that an exporter has given.
#[derive(Clone, Copy)]
struct Given {
    target: Target,
    /// Sent and not given back; zero: to be finished.
    count: u32,
    is_revoked: bool,
    is_watched: bool,
}

#[derive(Default)]
struct Exporter {
    exports: Exports,
    given: BTreeMap<Handle, Given>,
    /// Every name that was ever given.
    names: Vec<Handle>,
    is_over: bool,
}

/// An exporter whose importer gives back anything.
pub fn exports(bytes: &[u8]) {
    let mut exporter = Exporter::default();
    steps(bytes, |input| {
        exporter.step(input)?;
        exporter.check();
        Ok(())
    });
}

fn target(input: &mut Input<'_>) -> Result<Target> {
    let full = Target::full(below(input, 3)?.into(), below(input, 2)?.into());
    Ok(match below(input, 3)? {
        0 => full.attenuated(1),
        1 => full.attenuated(2),
        _ => full,
    })
}

impl Exporter {
    /// A name that was given, or is made up.
    fn name(&self, input: &mut Input<'_>) -> Result<Handle> {
        let known = one_of(input, &self.names)?;
        Ok(match (known, below(input, 4)?) {
            (Some(known), 1..) => known,
            // The handle of another generation.
            (Some(known), _) => known ^ word(input)? << 20,
            (None, _) => word(input)?,
        })
    }

    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        match below(input, 8)? {
            0 | 1 => self.export(target(input)?, u32::from(below(input, 20)?)),
            2 | 3 => {
                let (name, count) = (self.name(input)?, word(input)?);
                self.release(name, count);
            }
            4 => {
                let name = self.name(input)?;
                self.finish(name);
            }
            5 => {
                let (port, badge) = (below(input, 3)?.into(), below(input, 2)?.into());
                self.revoke(port, badge);
            }
            6 => {
                let (port, badge) = (below(input, 3)?.into(), below(input, 2)?.into());
                let mut count = 0;
                let is_over = self.is_over;
                for given in self.given.values_mut().filter(|_| !is_over) {
                    let is_one = (given.target.port, given.target.badge) == (port, badge);
                    if is_one
                        && !given.is_revoked
                        && !core::mem::replace(&mut given.is_watched, true)
                    {
                        count += 1;
                    }
                }
                assert_eq!(self.exports.watch(port, badge), count);
            }
            _ if below(input, 8)? == 0 => self.end(),
            _ => {}
        }
        Ok(())
    }

    fn export(&mut self, target: Target, limit: u32) {
        let known = self
            .given
            .iter()
            .find(|(_, given)| given.target == target && given.count > 0 && !given.is_revoked);
        let known = known.map(|(name, _)| *name);
        let result = self.exports.export_within(target, limit);
        let expected = match known {
            _ if self.is_over => Err(Refused::Over),
            Some(name) => Ok(Some(name)),
            None if self.given.len() >= limit as usize => Err(Refused::Full),
            None => Ok(None),
        };
        match (result, expected) {
            (Ok(name), Ok(Some(known))) => {
                assert_eq!(name, known);
                self.given.entry(name).and_modify(|given| given.count += 1);
            }
            (Ok(name), Ok(None)) => {
                assert!(
                    is_handle(name) && !self.names.contains(&name),
                    "a name is for one right"
                );
                let (is_revoked, is_watched) = (false, false);
                let given = Given {
                    target,
                    count: 1,
                    is_revoked,
                    is_watched,
                };
                self.given.insert(name, given);
                self.names.push(name);
            }
            (result, expected) => assert_eq!(result.map(Some), expected),
        }
    }

    fn release(&mut self, name: Handle, count: u32) {
        let given = self.given.get_mut(&name).filter(|given| given.count > 0);
        let expected = match given {
            None => Err(Refused::Unknown),
            Some(given) if count == 0 || count > given.count => Err(Refused::Release),
            Some(given) => {
                given.count -= count;
                Ok(given.count == 0)
            }
        };
        assert_eq!(self.exports.release(name, count), expected);
    }

    fn finish(&mut self, name: Handle) {
        let ending = self
            .given
            .get(&name)
            .filter(|given| given.count == 0)
            .copied();
        let told = ending.filter(|given| !given.is_revoked && !self.is_over);
        let finished = self.exports.finish(name);
        assert_eq!(finished, told.map(|given| (given.target, given.is_watched)));
        if ending.is_some() {
            self.given.remove(&name);
        }
    }

    fn revoke(&mut self, port: u32, badge: u64) {
        let revoked = self.exports.revoke(port, badge);
        let (mut handles, mut ended, mut watched) = (Vec::new(), 0, 0);
        let mut is_any = false;
        for (name, given) in &mut self.given {
            if (given.target.port, given.target.badge) != (port, badge) || given.is_revoked {
                continue;
            }
            (given.is_revoked, is_any) = (true, true);
            if !self.is_over {
                ended += 1;
                watched += u32::from(given.is_watched);
                handles.extend((given.count > 0).then_some(*name));
            }
        }
        assert_eq!(revoked.is_some(), is_any);
        let mut revoked = revoked.unwrap_or_default();
        revoked.handles.sort_unstable();
        assert_eq!(
            (revoked.handles, revoked.ended, revoked.watched),
            (handles, ended, watched)
        );
    }

    fn end(&mut self) {
        let ended = self.exports.end();
        let is_first = !core::mem::replace(&mut self.is_over, true);
        let given = self
            .given
            .values()
            .filter(|given| is_first && !given.is_revoked);
        let ports: u64 = ended.ports.iter().map(|(_, count)| count).sum();
        assert_eq!(ports, given.clone().count() as u64);
        assert_eq!(
            ended.watched.len(),
            given.filter(|given| given.is_watched).count()
        );
    }

    fn check(&self) {
        for name in &self.names {
            let expected = self.given.get(name).map(|given| match given.is_revoked {
                true => Meaning::Revoked,
                false => Meaning::To(given.target),
            });
            assert_eq!(self.exports.resolve(*name), expected);
        }
        let live = |given: &&Given| given.count > 0 && !given.is_revoked && !self.is_over;
        assert_eq!(self.exports.used(), self.given.len());
        assert_eq!(self.exports.len(), self.given.values().filter(live).count());
    }
}

/// An importer whose exporter names anything.
pub fn imports(bytes: &[u8]) {
    let mut imports = Imports::default();
    let mut held: BTreeMap<Handle, Held> = BTreeMap::new();
    let mut consumed = 0u32;
    steps(bytes, |input| {
        let names: Vec<_> = held.keys().copied().collect();
        let name = match below(input, 3)? {
            0 => word(input)?,
            _ => one_of(input, &names)?.unwrap_or(1 << 31),
        };
        let of = held.get_mut(&name);
        match below(input, 8)? {
            0 | 1 => {
                let port = below(input, 2)?.into();
                let expected = match of {
                    _ if !is_handle(name) => Err(Refused::Unknown),
                    Some(held) if held.port != port => Err(Refused::Port),
                    Some(held) => {
                        (held.received, held.rights) = (held.received + 1, held.rights + 1);
                        Ok(())
                    }
                    None => {
                        let (received, rights) = (1, 1);
                        held.insert(
                            name,
                            Held {
                                port,
                                received,
                                rights,
                                is_moved: false,
                            },
                        );
                        Ok(())
                    }
                };
                assert_eq!(imports.arrive(name, port), expected);
            }
            2 => drop(imports.revoke(name)),
            3 => {
                let word = imports.claim(1).expect("there is room");
                assert!(word != 0 && !is_handle(word));
                let claimed = Held {
                    port: 1,
                    received: 1,
                    rights: 1,
                    is_moved: false,
                };
                assert!(
                    held.insert(word, claimed).is_none(),
                    "a word is for one claim"
                );
            }
            4 | 5 => {
                let tail = consumed.wrapping_add(below(input, 3)?.into());
                let uses = [Use { lane: 0, tail }];
                // Nobody drops what he has not.
                if let Some(of) = of.filter(|of| of.rights > 0) {
                    imports.dropped(name, &uses);
                    of.rights -= 1;
                    if of.is_moved && of.rights == 0 && of.received == 0 {
                        held.remove(&name);
                    }
                }
            }
            6 => {
                consumed = consumed.wrapping_add(1);
                for (name, count) in
                    imports.give_back(|used| used.tail.wrapping_sub(consumed).cast_signed() <= 0)
                {
                    let of = held.get_mut(&name).expect("what is given back was held");
                    assert!(
                        of.rights == 0 || of.is_moved,
                        "nothing is given back that is held"
                    );
                    // As often as it was received, and no more.
                    assert_eq!(core::mem::take(&mut of.received), count);
                    if of.rights == 0 {
                        held.remove(&name);
                    }
                }
            }
            _ => {
                if let Some(of) = of {
                    imports.moved(name, &[]);
                    of.is_moved = true;
                }
            }
        }
        assert_eq!(imports.len(), held.len());
        assert_eq!(
            imports.has_rights(),
            held.values().any(|held| held.rights > 0)
        );
        let port = held.get(&name).map(|held| held.port);
        assert_eq!(imports.port_of(name), port);
        Ok(())
    });
}

struct Held {
    port: u32,
    received: u32,
    rights: u32,
    is_moved: bool,
}
