//! The tables of loans of a link, whose other end says anything.

use crate::{Input, below, one_of, steps, word};
use arbitrary::Result;
use handfast_layout::loan::{ARENAS, Geometry, LOANS, place_of};
use handfast_proto::loans::{Borrowed, Lent, Missed, Refused, Reserved};
use std::collections::{BTreeMap, BTreeSet};

/// A lender whose borrower writes anything to the words by which loans come back.
#[derive(Default)]
struct Lender {
    lent: Lent<u32>,
    words: BTreeMap<u32, u32>,
    reserved: Vec<(Reserved, u64)>,
    /// Blocks that are out, by their loans; from an arena that has ended, nothing comes back.
    out: BTreeMap<u32, (Option<u32>, Reserved)>,
    /// Arenas the borrower knows, and by what number.
    arenas: BTreeMap<u64, u32>,
    last: u32,
}

/// Whatever is lent comes back once: when its word says so, or the link has ended.
pub fn lent(bytes: &[u8]) {
    let mut lender = Lender::default();
    steps(bytes, |input| lender.step(input));
    let mut back = BTreeSet::new();
    lender.lent.end(|what| assert!(back.insert(what)));
    let out = lender.out.values().filter_map(|(what, _)| *what);
    assert_eq!(back, out.collect());
    assert_eq!(lender.lent.out(), 0);
    assert_eq!(lender.lent.free_number(), Err(Refused::Over));
}

impl Lender {
    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let words = self.words.clone();
        let of = move |loan: u32| words.get(&loan).copied().unwrap_or_default();
        let key = u64::from(below(input, 3)?);
        match below(input, 8)? {
            0 => {
                if !self.arenas.contains_key(&key)
                    && let Ok(number) = self.lent.free_number()
                {
                    assert!(place_of(number) < ARENAS);
                    let mut out = self.out.values().map(|(_, reserved)| reserved.arena);
                    assert!(
                        out.all(|arena| place_of(arena) != place_of(number)),
                        "it is lent"
                    );
                    self.lent.told(number, key);
                    self.arenas.insert(key, number);
                }
            }
            1 | 2 => match self.lent.reserve(key, &of) {
                Ok(reserved) => {
                    assert_eq!(self.arenas.get(&key), Some(&reserved.arena));
                    let mut taken = self.reserved.iter().map(|(other, _)| other.loan);
                    assert!(
                        !self.out.contains_key(&reserved.loan)
                            && taken.all(|loan| loan != reserved.loan)
                    );
                    assert!(reserved.loan < LOANS);
                    assert_eq!(reserved.generation, of(reserved.loan).wrapping_add(1));
                    self.reserved.push((reserved, key));
                }
                Err(Refused::Unknown) => assert!(!self.arenas.contains_key(&key)),
                Err(_) => {}
            },
            3 => {
                if let Some((reserved, key)) = self.reserved.pop() {
                    // The arena may have ended meanwhile; its owner does not end it before.
                    let is_there = self.arenas.get(&key) == Some(&reserved.arena);
                    if is_there && below(input, 4)? > 0 {
                        self.last += 1;
                        assert_eq!(self.lent.commit(reserved.loan, self.last), None);
                        self.out.insert(reserved.loan, (Some(self.last), reserved));
                    } else {
                        self.lent.retract(reserved.loan);
                    }
                }
            }
            4 | 5 => {
                let out: Vec<_> = self.out.values().map(|(_, reserved)| *reserved).collect();
                if let Some(reserved) = one_of(input, &out)? {
                    let word = match below(input, 4)? {
                        0 => word(input)?,
                        _ => reserved.generation,
                    };
                    self.words.insert(reserved.loan, word);
                }
            }
            6 => {
                let (mut back, is_whole) = (Vec::new(), below(input, 2)? == 0);
                let result = match is_whole {
                    true => self.lent.collect(&of, |what| back.push(what)),
                    false => {
                        self.lent.collect_some(2, &of, |what| back.push(what));
                        Ok(())
                    }
                };
                if let Err(refused) = result {
                    let Refused::Word(loan) = refused else {
                        panic!("{refused:?}");
                    };
                    let known = self.out.get(&loan);
                    assert!(known.is_none_or(|(_, out)| out.generation.wrapping_sub(of(loan)) > 1));
                }
                for what in &back {
                    let found = self.out.values().find(|(out, _)| *out == Some(*what));
                    let (_, reserved) = found.expect("what comes back was lent, and comes once");
                    assert_eq!(of(reserved.loan), reserved.generation, "not given back");
                }
                let is_whole = is_whole && result.is_ok();
                self.out.retain(|loan, (what, reserved)| {
                    let is_back = of(*loan) == reserved.generation;
                    assert!(!is_whole || !is_back || what.is_none_or(|what| back.contains(&what)));
                    what.map_or(!is_back, |what| !back.contains(&what))
                });
            }
            _ => {
                let is_reserved = self.reserved.iter().any(|(_, of)| *of == key);
                if !is_reserved && let Some((number, _)) = self.lent.end_arena(key) {
                    assert_eq!(self.arenas.remove(&key), Some(number));
                    let of_arena = self.out.values_mut().filter(|(_, out)| out.arena == number);
                    of_arena.for_each(|(what, _)| *what = None);
                }
            }
        }
        Ok(())
    }
}

struct Arena {
    number: u32,
    geometry: Geometry,
    taken: u32,
    lent: Option<u32>,
}

/// A borrower whose lender tells of arenas and names loans as it likes.
pub fn borrowed(bytes: &[u8]) {
    let mut borrowed: Borrowed<u32> = Borrowed::default();
    let mut arenas: BTreeMap<u32, Arena> = BTreeMap::new();
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    steps(bytes, |input| {
        let numbers: Vec<_> = arenas.values().map(|arena| arena.number).collect();
        let number = match below(input, 3)? {
            0 => word(input)?,
            1 => below(input, 20)?.into(),
            _ => one_of(input, &numbers)?.unwrap_or(0),
        };
        let place = place_of(number);
        match below(input, 5)? {
            0 => {
                let geometry = Geometry::new(word(input)?, u64::from(word(input)?) * 64);
                let geometry =
                    geometry.unwrap_or_else(|| Geometry::new(3, 4096).expect("an arena"));
                let is_free = place < ARENAS && !arenas.contains_key(&place);
                let arrived = borrowed.arrive(number, geometry, number);
                assert_eq!(
                    arrived,
                    if is_free {
                        Ok(())
                    } else {
                        Err(Refused::Unknown)
                    }
                );
                if is_free {
                    let (taken, lent) = (0, None);
                    arenas.insert(
                        place,
                        Arena {
                            number,
                            geometry,
                            taken,
                            lent,
                        },
                    );
                }
            }
            1 => {
                let lent = word(input)?;
                let known = arenas.get_mut(&place).filter(|arena| {
                    let is_more = lent.wrapping_sub(arena.taken).cast_signed() >= 0;
                    arena.number == number && arena.lent.is_none() && is_more
                });
                let is_it = known.map(|arena| arena.lent = Some(lent)).is_some();
                assert_eq!(borrowed.ended(number, lent).is_ok(), is_it);
            }
            _ => {
                let (block, loan) = (word(input)?, word(input)?);
                let next = last.get(&loan).copied().unwrap_or_default().wrapping_add(1);
                let generation = match below(input, 3)? {
                    0 => word(input)?,
                    _ => next,
                };
                let len_bytes = u64::from(word(input)?) << (8 * below(input, 5)?);
                let taken = borrowed.take((number, block), (loan, generation), len_bytes);
                match (
                    arenas
                        .get_mut(&place)
                        .filter(|arena| arena.number == number),
                    taken,
                ) {
                    (Some(arena), Ok(taken)) => {
                        assert_eq!((taken.memory, taken.len_bytes as u64), (number, len_bytes));
                        assert!(taken.at + taken.len_bytes <= arena.geometry.file_bytes());
                        assert!(loan < LOANS && generation == next);
                        last.insert(loan, generation);
                        arena.taken = arena.taken.wrapping_add(1);
                    }
                    (None, Err(missed)) => assert!(missed == Missed::Arena || place >= ARENAS),
                    (Some(arena), Err(missed)) => {
                        assert_eq!(missed, Missed::Forged);
                        let is_good = arena.geometry.at(block, len_bytes).is_some();
                        assert!(!is_good || loan >= LOANS || generation != next);
                    }
                    (None, Ok(_)) => panic!("a loan of no arena"),
                }
            }
        }
        arenas.retain(|_, arena| arena.lent != Some(arena.taken));
        Ok(())
    });
}
