//! Return paths: how the answer to a call that was passed on comes straight from the last process
//! to the first.
//!
//! Three parts: the *caller* has a call at the *forwarder*, which passes its reply right on to the
//! *replier*. All three have links with each other. A path leads from one set of the caller's reply
//! slots (on its link with the forwarder) to a set of return slots on its link with the
//! replier, one for one, and is the caller's to grant: nobody writes outcomes where the caller has not
//! said whose they are.
//!
//! ```text
//! forwarder -> replier  ask(number, source)      replier -> caller  want(token, source)
//! caller -> replier     granted(token, path, set)
//! replier -> forwarder  ready(number, path)      then: messages with `number`, outcomes "moved to path"
//! forwarder -> replier  drop(number)             replier -> caller  over(path): no more answers
//! ```
//!
//! A number leads to one path, so that a message under way never means a later one; only one that has led
//! to none is asked for again, so that refusals use up no numbers. A set is granted again only when its
//! replier has said that it is over, and the last who waited in it has left.

use alloc::vec::Vec;

#[cfg(test)]
mod simulation;

/// Reply slots of one set of a link, as the holder of their reply rights or their owner calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The link with the other one of the two.
    pub link: u32,
    /// The set.
    pub set: u32,
}

/// Forwarder: the paths it has asked one replier for.
#[derive(Debug, Default)]
pub struct Asks {
    asked: Vec<Ask>,
    /// The last number taken.
    last: u32,
}

#[derive(Debug)]
struct Ask {
    source: Source,
    number: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked {
        since_ns: u64,
    },
    Ready {
        path: u32,
    },
    /// The number may be asked for again, if it has never led anywhere.
    Refused {
        until_ns: u64,
        is_unused: bool,
    },
}

/// How a reply right goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With this number to the replier, and this path to the caller.
    Path {
        /// The party that messages name.
        number: u32,
        /// The number the caller is told.
        path: u32,
    },
    /// It stays here, and answers are passed on by hand. When there is a number: ask for a path.
    Vine(Option<u32>),
}

/// Numbers that fit the word of a message.
const NUMBERS_MAX: u32 = 0xff_ffff;
/// Paths a replier keeps for one forwarder.
pub const PARTIES_MAX: usize = 64;
/// How soon a path that was refused is asked for again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// How long a path that nobody has answered for is waited for before it is asked for again.
const UNANSWERED_NS: u64 = 10_000_000_000;

impl Asks {
    /// How the reply right of a slot of `source` goes on.
    pub fn way(&mut self, source: Source, now_ns: u64) -> Way {
        let known = self.asked.iter().position(|ask| ask.source == source);
        if let Some(place) = known {
            match self.asked[place].state {
                State::Ready { path } => {
                    let number = self.asked[place].number;
                    return Way::Path { number, path };
                }
                State::Refused {
                    until_ns,
                    is_unused,
                } if until_ns <= now_ns => {
                    if is_unused {
                        let ask = &mut self.asked[place];
                        ask.state = State::Asked { since_ns: now_ns };
                        return Way::Vine(Some(ask.number));
                    }
                    self.asked.swap_remove(place);
                }
                State::Asked { since_ns } if now_ns.saturating_sub(since_ns) > UNANSWERED_NS => {
                    self.asked.swap_remove(place);
                }
                State::Asked { .. } | State::Refused { .. } => return Way::Vine(None),
            }
        }
        if self.last == NUMBERS_MAX || self.asked.len() == PARTIES_MAX {
            return Way::Vine(None);
        }
        self.last += 1;
        self.asked.push(Ask {
            source,
            number: self.last,
            state: State::Asked { since_ns: now_ns },
        });
        Way::Vine(Some(self.last))
    }

    /// The replier has a path. `false` when it was not asked for: then it is to be dropped.
    pub fn ready(&mut self, number: u32, path: u32) -> bool {
        let ask = self.asked.iter_mut().find(|ask| ask.number == number);
        let is_new = |ask: &&mut Ask| matches!(ask.state, State::Asked { .. });
        ask.filter(is_new)
            .map(|ask| ask.state = State::Ready { path })
            .is_some()
    }

    /// The replier has none, or none any more.
    pub fn refused(&mut self, number: u32, now_ns: u64) {
        if let Some(ask) = self.asked.iter_mut().find(|ask| ask.number == number) {
            let is_unused = match ask.state {
                State::Asked { .. } => true,
                State::Ready { .. } => false,
                State::Refused { is_unused, .. } => is_unused,
            };
            ask.state = State::Refused {
                until_ns: now_ns + ASK_AGAIN_NS,
                is_unused,
            };
        }
    }

    /// A link with a caller has ended. Returns the numbers to drop at the replier.
    pub fn source_ended(&mut self, link: u32) -> Vec<u32> {
        let mut dropped = Vec::new();
        self.asked.retain(|ask| {
            let is_over = ask.source.link == link;
            if is_over && !matches!(ask.state, State::Refused { .. }) {
                dropped.push(ask.number);
            }
            !is_over
        });
        dropped
    }
}

/// Replier: what the numbers of one forwarder mean. `R` is how to answer there.
#[derive(Debug)]
pub struct Parties<R> {
    known: Vec<(u32, Option<R>)>,
}

impl<R> Default for Parties<R> {
    fn default() -> Self {
        Self { known: Vec::new() }
    }
}

impl<R> Parties<R> {
    /// The forwarder asks for a path. `false` when it has too many.
    ///
    /// # Errors
    /// The number is in use, or cannot be: no honest forwarder does that. The choice among the free numbers
    /// serves its own callers, and nobody else.
    pub fn asked(&mut self, number: u32) -> Result<bool, Reused> {
        let is_known = self.known.iter().any(|known| known.0 == number);
        if is_known || number == 0 || number > NUMBERS_MAX {
            return Err(Reused);
        }
        if self.known.len() >= PARTIES_MAX {
            return Ok(false);
        }
        self.known.push((number, None));
        Ok(true)
    }

    /// The caller has granted it. Gives it back when the forwarder has dropped it meanwhile.
    ///
    /// # Errors
    /// `party` itself then.
    pub fn granted(&mut self, number: u32, party: R) -> Result<(), R> {
        let known = self.known.iter_mut().find(|known| known.0 == number);
        match known {
            Some((_, place @ None)) => {
                *place = Some(party);
                Ok(())
            }
            _ => Err(party),
        }
    }

    /// The numbers that have a meaning.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let known = self.known.iter();
        known.filter_map(|(number, party)| party.as_ref().map(|_| *number))
    }

    /// The meaning of `number`.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&R> {
        let known = self.known.iter().find(|known| known.0 == number);
        known.and_then(|known| known.1.as_ref())
    }

    /// The number means nothing any more: dropped by the forwarder, or refused by the caller.
    pub fn dropped(&mut self, number: u32) -> Option<R> {
        let place = self.known.iter().position(|known| known.0 == number)?;
        self.known.swap_remove(place).1
    }

    /// Drops the numbers of a caller that is gone. Returns them, with their meanings.
    pub fn drop_those(&mut self, mut is_of: impl FnMut(&R) -> bool) -> Vec<(u32, R)> {
        let mut dropped = Vec::new();
        let mut place = 0;
        while place < self.known.len() {
            if self.known[place].1.as_ref().is_some_and(&mut is_of) {
                if let (number, Some(party)) = self.known.swap_remove(place) {
                    dropped.push((number, party));
                }
            } else {
                place += 1;
            }
        }
        dropped
    }
}

/// A forwarder has asked for a number that it has, or one that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reused;

/// Caller: the paths it has granted, of all its links.
#[derive(Debug, Default)]
pub struct Paths {
    granted: Vec<Option<Granted>>,
    next: u32,
}

/// A path that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its number.
    pub path: u32,
    /// Whose outcomes come by it.
    pub source: Source,
    /// Where they come.
    pub to: Source,
    /// Its replier has said that nothing more comes.
    is_over: bool,
}

/// Paths one process grants.
pub const PATHS_MAX: usize = 4096;

impl Paths {
    /// Grants a path from `source` to a free set of link `to`, which has `sets` sets. `None` when
    /// there is none, or `source` is not one of this process's.
    pub fn grant(
        &mut self,
        source: Source,
        to: u32,
        mut sets: core::ops::Range<u32>,
    ) -> Option<Granted> {
        let live = || self.granted.iter().flatten();
        // Nor one from which a path still leads on: outcomes of callers that waited here would be found
        // there under the same generations.
        let set = sets.find(|set| {
            let set = Source {
                link: to,
                set: *set,
            };
            !live().any(|path| path.to == set || path.source == set)
        })?;
        let place = match self.granted.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.granted.len() < PATHS_MAX => {
                self.granted.push(None);
                self.granted.len() - 1
            }
            None => return None,
        };
        // Never again the number of an earlier one, as good as.
        // Zero is none.
        self.next = self.next % (u32::MAX >> 12) + 1;
        let path = place as u32 | self.next << 12;
        let granted = Granted {
            path,
            source,
            to: Source { link: to, set },
            is_over: false,
        };
        self.granted[place] = Some(granted);
        Some(granted)
    }

    /// The path, if outcomes of `source` may come by it, or may have come.
    #[must_use]
    pub fn find(&self, path: u32, source: Source) -> Option<Granted> {
        self.known(path).filter(|path| path.source == source)
    }

    /// The path that leads to `to`.
    #[must_use]
    pub fn to(&self, to: Source) -> Option<Granted> {
        let mut known = self.granted.iter().flatten();
        known.find(|path| path.to == to).copied()
    }

    fn known(&self, path: u32) -> Option<Granted> {
        let granted = self.granted.get(path as usize % PATHS_MAX).copied();
        granted.flatten().filter(|granted| granted.path == path)
    }

    /// The replier behind link `to` sends no more answers by it. The path stays known, and its set
    /// taken, until [`Self::left`]. `false` when it has no such path.
    pub fn over(&mut self, path: u32, to: u32) -> bool {
        let known = self.known(path).filter(|path| !path.is_over);
        let is_its = known.is_some_and(|path| path.to.link == to);
        if is_its && let Some(granted) = &mut self.granted[path as usize % PATHS_MAX] {
            granted.is_over = true;
        }
        is_its
    }

    /// Link `to` has ended. Returns the paths that are over with it.
    pub fn link_ended(&mut self, to: u32) -> Vec<u32> {
        let over = self.granted.iter_mut().flatten();
        over.filter(|path| path.to.link == to && !path.is_over)
            .map(|path| {
                path.is_over = true;
                path.path
            })
            .collect()
    }

    /// Nobody waits for what may have come by `path` any more: its set can be granted again.
    pub fn left(&mut self, path: u32) {
        if self.known(path).is_some_and(|granted| granted.is_over) {
            self.granted[path as usize % PATHS_MAX] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source { link: 7, set: 0 };

    #[test]
    fn refusals_use_up_no_numbers() {
        let (mut asks, mut parties) = (Asks::default(), Parties::<u32>::default());
        for round in 0..100_000 {
            let now_ns = round * ASK_AGAIN_NS;
            assert_eq!(asks.way(SOURCE, now_ns), Way::Vine(Some(1)));
            assert_eq!(asks.way(SOURCE, now_ns), Way::Vine(None));
            assert_eq!(parties.asked(1), Ok(true));
            assert_eq!(parties.dropped(1), None);
            asks.refused(1, now_ns);
            assert_eq!(asks.way(SOURCE, now_ns), Way::Vine(None));
        }
    }

    #[test]
    fn a_number_that_has_led_somewhere_is_not_asked_for_again() {
        let mut asks = Asks::default();
        for number in 1..1000 {
            let now_ns = u64::from(number) * ASK_AGAIN_NS;
            assert_eq!(asks.way(SOURCE, now_ns), Way::Vine(Some(number)));
            assert!(asks.ready(number, 9));
            assert_eq!(asks.way(SOURCE, now_ns), Way::Path { number, path: 9 });
            asks.refused(number, now_ns);
            // The same, said twice.
            asks.refused(number, now_ns);
        }
    }

    #[test]
    fn a_path_that_was_never_granted_is_nobodys() {
        let mut paths = Paths::default();
        let to = Source { link: 8, set: 2 };
        for path in [0, 1, 4095, 1 << 12, u32::MAX] {
            paths.left(path);
            assert!(!paths.over(path, to.link));
            assert_eq!(paths.find(path, SOURCE), None);
        }
        let granted = paths.grant(SOURCE, to.link, 2..3).unwrap();
        paths.left(granted.path + 1);
        paths.left(granted.path);
        assert_eq!(paths.to(to), Some(granted), "it is not over");
    }

    #[test]
    fn a_number_in_use_or_out_of_bounds_is_refused() {
        let mut parties = Parties::<u32>::default();
        assert_eq!(parties.asked(5), Ok(true));
        for number in [5, 0, NUMBERS_MAX + 1] {
            assert_eq!(parties.asked(number), Err(Reused));
        }
        assert_eq!(parties.asked(4), Ok(true));
    }
}
