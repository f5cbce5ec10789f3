//! Rights that have followed their ports, and the ends of the links they belong to. A name that is another right now holds that
//! one, which is another link's: of a port that goes to and fro, two names hold each other. The code here does the same as
//! `redirect` of `handfast-port`.

use super::{Handle, IS_HANDLE, Imports};
use crate::schedule::{Dice, all_pass, one_fails};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// A link and a name there.
type Right = (usize, Handle);

#[derive(Default)]
struct World {
    /// A rule that is left out: a link that ends forgets the names that nobody has, then and later.
    without_end: bool,
    imports: [Imports; LINKS],
    is_down: [bool; LINKS],
    followed: BTreeMap<Right, Right>,
    /// The user's.
    rights: Vec<Right>,
}

const LINKS: usize = 3;
const PORT: u32 = 0x100;
const STEPS: usize = 60;

impl World {
    fn arrives(&mut self, link: usize, name: Handle) {
        if !self.is_down[link] && self.imports[link].arrive(name, PORT).is_ok() {
            self.rights.push((link, name));
        }
    }

    /// The port of a right moves to the peer of another link.
    fn follows(&mut self, (link, name): Right, to: usize) {
        let is_possible = link != to && !self.is_down[link] && !self.is_down[to];
        if !is_possible || self.followed.contains_key(&(link, name)) {
            return;
        }
        let Ok(word) = self.imports[to].claim(PORT) else {
            return;
        };
        self.followed.insert((link, name), (to, word));
        self.imports[link].moved(name, &[]);
    }

    fn is_dropped(&mut self, right: Right) {
        self.imports[right.0].dropped(right.1, &[]);
        self.forget(right);
    }

    fn forget(&mut self, (link, name): Right) {
        if self.imports[link].port_of(name).is_none()
            && let Some(next) = self.followed.remove(&(link, name))
        {
            self.is_dropped(next);
        }
    }

    fn gives_back(&mut self, link: usize) {
        if !self.is_down[link] {
            let given = self.imports[link].give_back(|_| true);
            given
                .iter()
                .for_each(|(name, _)| self.forget((link, *name)));
        }
    }

    fn ends(&mut self, link: usize) {
        self.is_down[link] = true;
        if !self.without_end {
            let unused = self.imports[link].end();
            unused.iter().for_each(|name| self.forget((link, *name)));
        }
    }
}

fn run(seed: u64, without_end: bool) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let mut world = World {
        without_end,
        ..World::default()
    };
    for _ in 0..STEPS {
        let link = dice.roll(LINKS);
        let any = dice.pick(0..world.rights.len());
        match (dice.roll(6), any) {
            (0 | 1, _) => world.arrives(link, IS_HANDLE | dice.roll(2) as u32),
            (2 | 3, Some(any)) => {
                // On from wherever it is by now.
                let mut right = world.rights[any];
                while let Some(next) = world.followed.get(&right) {
                    right = *next;
                }
                world.follows(right, link);
            }
            (4, Some(any)) => {
                let right = world.rights.swap_remove(any);
                world.is_dropped(right);
            }
            (5, _) if dice.roll(8) == 0 => world.ends(link),
            _ => world.gives_back(link),
        }
    }
    (0..LINKS).for_each(|link| world.ends(link));
    for right in core::mem::take(&mut world.rights) {
        world.is_dropped(right);
    }
    match world.followed.is_empty() {
        true => Ok(()),
        false => Err("rights of dead links hold each other".into()),
    }
}

#[test]
fn no_right_holds_another_when_all_were_dropped_and_their_links_have_ended() {
    all_pass(20_000, &[], |seed| run(seed, false));
}

#[test]
fn they_would_if_names_of_dead_links_waited_to_be_given_back() {
    assert!(one_fails(20_000, "hold each other", |seed| run(seed, true)));
}
