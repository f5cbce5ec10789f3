//! A lender and a borrower, lanes and a socket between them in any order, against the tables.

use super::*;
use crate::schedule::{Dice, all_pass, one_fails};
use handfast_layout::loan::{Geometry, LOANS, Told, place_of};
use std::collections::VecDeque;

const LANES: usize = 3;
const BLOCKS: u32 = 3;
/// More than the peer can know of at once.
const ARENAS_ALIVE: usize = 20;

/// A rule that somebody forgets.
#[derive(Clone, Copy, PartialEq)]
enum Forgets {
    Nothing,
    /// The lender, that a loan is out until it has been given back.
    Return,
    /// The lender, that it told of a number's loans which are out.
    Out,
    /// The lender, to number an arena otherwise than the last one at its place.
    Number,
    /// The borrower, that loans may be on their way when an arena ends.
    Count,
    /// The borrower, to give back with the loan's own generation.
    Generation,
}

struct Arena {
    key: u64,
    /// Blocks the lender may write, with the value it wrote there last.
    free: Vec<(u32, u64)>,
}

/// A part of a message.
#[derive(Clone, Copy)]
struct Part {
    reserved: Reserved,
    key: u64,
    block: u32,
    content: u64,
}

struct World {
    lent: Lent<(u64, u32)>,
    borrowed: Borrowed<u64>,
    arenas: Vec<Arena>,
    keys: u64,
    contents: u64,
    lanes: [VecDeque<Part>; LANES],
    /// Sent, and not yet known as sent by the lender's table.
    uncommitted: Vec<Part>,
    socket: VecDeque<(Told, u64)>,
    words: Vec<u32>,
    held: Vec<Part>,
    /// The value that each block of each arena holds now.
    memory: std::collections::HashMap<(u64, u32), u64>,
    taken: [u32; 16],
    forgets: Forgets,
}

impl World {
    fn new(forgets: Forgets, start: u32) -> Self {
        Self {
            lent: Lent::starting_at(start),
            borrowed: Borrowed::starting_at(start),
            arenas: Vec::new(),
            keys: 0,
            contents: 0,
            lanes: Default::default(),
            uncommitted: Vec::new(),
            socket: VecDeque::new(),
            words: vec![start; LOANS as usize],
            held: Vec::new(),
            memory: Default::default(),
            taken: [0; 16],
            forgets,
        }
    }

    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        match dice.roll(13) {
            0 if self.arenas.len() < ARENAS_ALIVE => {
                self.keys += 1;
                self.arenas.push(Arena {
                    key: self.keys,
                    free: (0..BLOCKS).map(|block| (block, 0)).collect(),
                });
            }
            1 if dice.roll(3) == 0 && !self.arenas.is_empty() => {
                self.end_arena(dice.roll(self.arenas.len()));
            }
            2..=4 if !self.arenas.is_empty() => self.lend(dice)?,
            5 => self.commit(dice),
            6 | 7 => self.receive(dice.roll(LANES))?,
            8 | 9 if !self.held.is_empty() => self.give_back(dice.roll(self.held.len()))?,
            10 => self.hear()?,
            11 => self.collect()?,
            _ => self.collect_some(dice.roll(4)),
        }
        Ok(())
    }

    fn lend(&mut self, dice: &mut Dice) -> Result<(), String> {
        let place = dice.roll(self.arenas.len());
        let (key, free) = (self.arenas[place].key, self.arenas[place].free.len());
        if free == 0 {
            return Ok(());
        }
        if self.lent.number_of(key).is_none() {
            let Ok(number) = self.lent.free_number() else {
                return self.collect();
            };
            let number = match self.forgets {
                Forgets::Number => place_of(number),
                _ => number,
            };
            self.lent.told(number, key);
            let geometry = Geometry::new(BLOCKS, 64).ok_or("geometry")?;
            self.socket.push_back((Told::New { number, geometry }, key));
        }
        let words = &self.words;
        let reserved = match self.lent.reserve(key, |loan| words[loan as usize]) {
            Err(Refused::Full) => return self.collect(),
            other => other.map_err(|e| format!("reserve: {e:?}"))?,
        };
        if dice.roll(4) == 0 {
            // There was no room in the lane after all.
            self.lent.retract(reserved.loan);
            return Ok(());
        }
        let (block, _) = self.arenas[place].free.swap_remove(dice.roll(free));
        self.contents += 1;
        let part = Part {
            reserved,
            key,
            block,
            content: self.contents,
        };
        let before = self.memory.insert((key, block), part.content);
        let is_held = |held: &Part| (held.key, held.block) == (key, block);
        if self.held.iter().any(is_held) {
            return Err(format!("{before:?} was written over while it is read"));
        }
        self.lanes[dice.roll(LANES)].push_back(part);
        self.uncommitted.push(part);
        Ok(())
    }

    fn commit(&mut self, dice: &mut Dice) {
        if self.uncommitted.is_empty() {
            return;
        }
        let part = self
            .uncommitted
            .swap_remove(dice.roll(self.uncommitted.len()));
        let back = self.lent.commit(part.reserved.loan, (part.key, part.block));
        if let Some((key, block)) = back {
            self.back(key, block);
        }
    }

    fn back(&mut self, key: u64, block: u32) {
        if let Some(arena) = self.arenas.iter_mut().find(|arena| arena.key == key) {
            arena.free.push((block, 0));
        }
    }

    fn end_arena(&mut self, place: usize) {
        let key = self.arenas[place].key;
        // A block that is being sent keeps its arena.
        if self.uncommitted.iter().any(|part| part.key == key) {
            return;
        }
        self.arenas.swap_remove(place);
        if let Some((number, lent)) = self.lent.end_arena(key) {
            if self.forgets == Forgets::Out {
                self.lent.given(number).out = 0;
            }
            self.socket.push_back((Told::Ended { number, lent }, key));
        }
    }

    fn hear(&mut self) -> Result<(), String> {
        match self.socket.pop_front() {
            Some((Told::New { number, geometry }, key)) => {
                self.taken[place_of(number) as usize] = 0;
                let arrived = self.borrowed.arrive(number, geometry, key);
                arrived.map_err(|e| format!("arrive: {e:?}"))
            }
            Some((Told::Ended { number, lent }, _)) => {
                let lent = match self.forgets {
                    Forgets::Count => self.taken[place_of(number) as usize],
                    _ => lent,
                };
                let ended = self.borrowed.ended(number, lent);
                ended.map_err(|e| format!("ended: {e:?}"))
            }
            None => Ok(()),
        }
    }

    fn receive(&mut self, lane: usize) -> Result<(), String> {
        let Some(part) = self.lanes[lane].pop_front() else {
            return Ok(());
        };
        let Reserved {
            arena,
            loan,
            generation,
        } = part.reserved;
        let taken = loop {
            let named = (arena, part.block);
            match self.borrowed.take(named, (loan, generation), 64) {
                Err(Missed::Arena) if !self.socket.is_empty() => self.hear()?,
                taken => break taken.map_err(|e| format!("take: {e:?}"))?,
            }
        };
        if taken.memory != part.key {
            return Err(format!("arena {} stands for {}", part.key, taken.memory));
        }
        self.taken[place_of(arena) as usize] += 1;
        self.held.push(part);
        Ok(())
    }

    fn give_back(&mut self, place: usize) -> Result<(), String> {
        let part = self.held.swap_remove(place);
        if self.memory.get(&(part.key, part.block)) != Some(&part.content) {
            return Err("a block was written over while it was read".to_owned());
        }
        let Reserved {
            loan, generation, ..
        } = part.reserved;
        self.words[loan as usize] = match self.forgets {
            Forgets::Generation => generation.wrapping_add(1),
            _ => generation,
        };
        Ok(())
    }

    fn collect_some(&mut self, looks: usize) {
        let (words, mut back) = (&self.words, Vec::new());
        let word = |loan: u32| words[loan as usize];
        self.lent.collect_some(looks, word, |what| back.push(what));
        back.into_iter()
            .for_each(|(key, block)| self.back(key, block));
    }

    fn collect(&mut self) -> Result<(), String> {
        let mut back = Vec::new();
        let generations: Vec<_> = (0..LOANS).map(|loan| self.lent.generation(loan)).collect();
        let words = match self.forgets {
            Forgets::Return => &generations,
            _ => &self.words,
        };
        let collected = self
            .lent
            .collect(|loan| words[loan as usize], |what| back.push(what));
        back.into_iter()
            .for_each(|(key, block)| self.back(key, block));
        collected.map_err(|e| format!("collect: {e:?}"))
    }

    fn settle(&mut self, dice: &mut Dice) -> Result<(), String> {
        while !self.uncommitted.is_empty() {
            self.commit(dice);
        }
        for lane in 0..LANES {
            while !self.lanes[lane].is_empty() {
                self.receive(lane)?;
            }
        }
        while !self.socket.is_empty() {
            self.hear()?;
        }
        while !self.held.is_empty() {
            self.give_back(0)?;
        }
        self.collect()?;
        if self.lent.out() != 0 {
            return Err(format!("{} loans are left", self.lent.out()));
        }
        Ok(())
    }

    /// Every block is there once, in arenas that are alive.
    fn check_all_free(&self) -> Result<(), String> {
        for arena in &self.arenas {
            let mut blocks: Vec<_> = arena.free.iter().map(|(block, _)| *block).collect();
            blocks.sort_unstable();
            if blocks != [0, 1, 2] {
                return Err(format!("arena {} has {blocks:?}", arena.key));
            }
        }
        Ok(())
    }
}

fn run(seed: u64, forgets: Forgets) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let start = [0, u32::MAX - 2][dice.roll(2)];
    let mut world = World::new(forgets, start);
    for _ in 0..dice.roll(400) {
        world.step(&mut dice)?;
    }
    if dice.roll(2) == 0 {
        // The link ends, with whatever is on its way.
        let mut back = Vec::new();
        world.lent.end(|what| back.push(what));
        back.into_iter()
            .for_each(|(key, block)| world.back(key, block));
        while !world.uncommitted.is_empty() {
            world.commit(&mut dice);
        }
        if world.lent.free_number() != Err(Refused::Over) {
            return Err("a link that has ended lends".to_owned());
        }
        return world.check_all_free();
    }
    world.settle(&mut dice)?;
    world.check_all_free()?;
    // All numbers can be used again, and the borrower has forgotten what has ended.
    while !world.arenas.is_empty() {
        world.end_arena(0);
    }
    world.settle(&mut dice)?;
    let geometry = Geometry::new(1, 64).ok_or("geometry")?;
    for number in 0..handfast_layout::loan::ARENAS {
        let free = world.lent.free_number();
        if free.is_err() {
            return Err(format!("{free:?} with nothing lent"));
        }
        let arrived = world.borrowed.arrive(number, geometry, 0);
        arrived.map_err(|_| format!("number {number} is still known"))?;
    }
    Ok(())
}

#[test]
fn blocks_come_back_once_and_not_before_in_any_order() {
    all_pass(100_000, &[], |seed| run(seed, Forgets::Nothing));
}

#[test]
fn a_rule_left_out_is_found() {
    for (forgets, words) in [
        (Forgets::Return, "written over"),
        (Forgets::Out, "arrive"),
        (Forgets::Number, "stands for"),
        (Forgets::Count, "take"),
        (Forgets::Generation, "collect"),
    ] {
        assert!(
            one_fails(2_000, words, |seed| run(seed, forgets)),
            "{words}"
        );
    }
}

#[test]
fn words_that_were_made_up_are_refused() {
    let mut lent = Lent::<u32>::default();
    lent.told(lent.free_number().unwrap(), 7);
    assert_eq!(lent.reserve(8, |_| 0), Err(Refused::Unknown));
    // For a loan that was never made.
    assert_eq!(lent.reserve(7, |_| 1), Err(Refused::Word(0)));
    let first = lent.reserve(7, |_| 0).unwrap();
    assert_eq!(lent.commit(first.loan, 1), None);
    // Another generation's.
    assert_eq!(lent.collect(|_| 2, |_| ()), Err(Refused::Word(0)));
    lent.collect(|_| 0, |_| panic!("not given back")).unwrap();
    let mut back = 0;
    lent.collect(|_| 1, |what| back += what).unwrap();
    // Once, however often it is given back.
    lent.collect(|_| 1, |what| back += what).unwrap();
    assert_eq!(back, 1);
    // And again, with the old word, which is the expected one.
    let second = lent.reserve(7, |_| 1).unwrap();
    assert_eq!((second.loan, second.generation), (first.loan, 2));
    // The last one's word is no return of this one.
    assert_eq!(lent.commit(second.loan, 2), None);
    lent.collect(|_| 1, |_| panic!("stale")).unwrap();
}

#[test]
fn loans_that_were_made_up_are_refused() {
    let mut borrowed = Borrowed::<()>::default();
    let geometry = Geometry::new(2, 128).unwrap();
    assert_eq!(borrowed.take((0, 0), (0, 1), 1).unwrap_err(), Missed::Arena);
    borrowed.arrive(0, geometry, ()).unwrap();
    assert!(borrowed.arrive(0, geometry, ()).is_err());
    assert!(borrowed.arrive(16, geometry, ()).is_err());
    for (arena, block, loan, generation, len_bytes, missed) in [
        (1, 0, 0, 1, 1, Missed::Arena),
        (0x100, 0, 0, 1, 1, Missed::Arena),
        (16, 0, 0, 1, 1, Missed::Forged),
        (u32::MAX, 0, 0, 1, 1, Missed::Forged),
        (0, 2, 0, 1, 1, Missed::Forged),
        (0, 0, LOANS, 1, 1, Missed::Forged),
        (0, 0, 0, 0, 1, Missed::Forged),
        (0, 0, 0, 2, 1, Missed::Forged),
        (0, 0, 0, 1, 129, Missed::Forged),
        (0, 0, 0, 1, u64::MAX, Missed::Forged),
    ] {
        let taken = borrowed.take((arena, block), (loan, generation), len_bytes);
        assert_eq!(taken.unwrap_err(), missed);
    }
    let taken = borrowed.take((0, 1), (0, 1), 128).unwrap();
    assert_eq!((taken.at, taken.len_bytes), (128, 128));
    // The same again.
    assert_eq!(
        borrowed.take((0, 1), (0, 1), 128).unwrap_err(),
        Missed::Forged
    );
    assert!(borrowed.ended(1, 0).is_err());
    assert!(borrowed.ended(0, 0).is_err());
    borrowed.ended(0, 2).unwrap();
    assert!(borrowed.ended(0, 2).is_err());
    borrowed.take((0, 1), (1, 1), 0).unwrap();
    assert_eq!(borrowed.take((0, 0), (2, 1), 1).unwrap_err(), Missed::Arena);
}
