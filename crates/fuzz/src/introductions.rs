//! The memory of an exporter, an introducer and a recipient about introductions, while the others say anything.

use crate::{Input, below, steps, word};
use arbitrary::Result;
use handfast_layout::hello::process;
use handfast_proto::introductions::{
    Came, How, Incarnation, Keeping, Nothing, Number, Provisions, Redeemed, Remembered,
};
use std::collections::{BTreeMap, BTreeSet};

const PROCESSES: u8 = 3;

fn anybody(input: &mut Input<'_>) -> Result<Incarnation> {
    Ok(process([below(input, PROCESSES)? + 1; 16], 7))
}

/// An exporter: what was provided comes out once, and to whom it was provided.
struct Exporter {
    provisions: Provisions<u32>,
    now_ns: u64,
    /// The provisions and their recipients, until they have come out.
    inside: BTreeMap<u32, (Number, Incarnation)>,
    last: u32,
}

/// An exporter whose peers provide, claim and take back what they like.
pub fn introductions(bytes: &[u8]) {
    let provisions = Provisions::default();
    let inside = BTreeMap::new();
    let mut exporter = Exporter {
        provisions,
        now_ns: 0,
        inside,
        last: 0,
    };
    steps(bytes, |input| exporter.step(input));
    exporter.end();
}

impl Exporter {
    fn number(&self, input: &mut Input<'_>) -> Result<Number> {
        Ok((anybody(input)?, below(input, 4)?.into()))
    }

    fn out(&mut self, targets: impl IntoIterator<Item = u32>) {
        for target in targets {
            assert!(
                self.inside.remove(&target).is_some(),
                "{target} comes out twice"
            );
        }
    }

    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let (number, other) = (self.number(input)?, anybody(input)?);
        let now_ns = self.now_ns;
        match below(input, 9)? {
            0 | 1 => {
                self.last += 1;
                let target = (below(input, 4)? > 0).then_some(self.last);
                let limit = below(input, 6)?.into();
                let known = self.inside.values().any(|(of, _)| *of == number);
                let what = target.ok_or(Nothing::Port);
                let refused = self
                    .provisions
                    .provide_within(number, what, (other, limit), now_ns);
                match target {
                    Some(target) if refused.is_none() => {
                        assert!(!known, "one number is one provision");
                        self.inside.insert(target, (number, other));
                    }
                    _ => assert_eq!(refused, target),
                }
            }
            2 | 3 => {
                let expected = self.provisions.provided(number, other);
                match self.provisions.redeem(number, other) {
                    Redeemed::To(target) => {
                        assert_eq!(expected, Some(target));
                        assert_eq!(self.inside.get(&target), Some(&(number, other)));
                        self.out([target]);
                        let again = self.provisions.redeem(number, other);
                        assert_eq!(again, Redeemed::NotYet, "once");
                    }
                    _ => assert_eq!(expected, None),
                }
            }
            4 => {
                let taken = self.provisions.take_back(number, now_ns);
                assert!(taken.is_none_or(|target| self.inside[&target].0 == number));
                self.out(taken);
                assert!(self.inside.values().all(|(of, _)| *of != number));
            }
            5 => {
                let taken = self.provisions.forgo(number, other, now_ns);
                assert!(taken.is_none_or(|target| self.inside[&target] == (number, other)));
                self.out(taken);
            }
            6 => {
                let is_dead = below(input, 2)? == 0;
                let ended = self.provisions.ended(other, is_dead, now_ns);
                assert!(
                    ended
                        .iter()
                        .all(|target| self.inside[target].1 == other && is_dead)
                );
                self.out(ended);
            }
            7 => {
                let odd = word(input)? % 2;
                let revoked = self
                    .provisions
                    .revoke(Some(other), |target| target % 2 == odd);
                assert!(revoked.iter().all(|target| self.inside[target].1 == other));
                self.out(revoked);
            }
            _ => {
                self.now_ns += u64::from(below(input, 12)?) * 1_000_000_000;
                let expired = self.provisions.expire(self.now_ns, |of| of == other);
                self.out(expired);
            }
        }
        let mut targets: Vec<_> = self
            .provisions
            .targets_mut()
            .map(|target| *target)
            .collect();
        targets.sort_unstable();
        assert_eq!(targets, self.inside.keys().copied().collect::<Vec<_>>());
        Ok(())
    }

    /// All are dead, and everything comes out.
    fn end(mut self) {
        for of in 1..=PROCESSES {
            let ended = self
                .provisions
                .ended(process([of; 16], 7), true, self.now_ns);
            self.out(ended);
        }
        assert!(self.inside.is_empty(), "{:?}", self.inside);
        let expired = self.provisions.expire(u64::MAX, |_| true);
        assert_eq!(expired, []);
        assert!(!self.provisions.has_mortal());
    }
}

/// An introducer's knowledge of the rights its recipient keeps.
#[derive(Default)]
struct Kept {
    /// Offered, by number.
    offered: BTreeMap<u64, u8>,
    /// Kept and not left.
    kept: BTreeSet<u64>,
}

/// An introducer whose recipient keeps and leaves anything; and a recipient whose introducer names
/// anything.
pub fn keeping(bytes: &[u8]) {
    let (mut told, mut known, mut last) = (Remembered::default(), Kept::default(), 0);
    let (mut keeping, mut here) = (Keeping::default(), BTreeMap::new());
    steps(bytes, |input| match below(input, 2)? {
        0 => introducer(input, &mut told, &mut known, &mut last),
        _ => recipient(input, &mut keeping, &mut here),
    });
    let mut all = keeping.end();
    all.sort_unstable();
    assert_eq!(
        all,
        here.into_values()
            .map(|(right, _)| right)
            .collect::<Vec<_>>()
    );
}

fn introducer(
    input: &mut Input<'_>,
    told: &mut Remembered<u8>,
    known: &mut Kept,
    last: &mut u64,
) -> Result<()> {
    let key = below(input, 4)?;
    let number = u64::from(below(input, 32)?);
    match below(input, 5)? {
        0 | 1 => match told.give(key) {
            How::Again(number) => {
                assert!(known.kept.contains(&number), "{number} is not kept");
                assert_eq!(known.offered[&number], key, "another right");
            }
            How::Provide { keep } => {
                if keep {
                    *last += 1;
                    told.offered(key, *last);
                    known.offered.insert(*last, key);
                }
            }
        },
        2 => {
            if told.kept(number) {
                assert!(
                    known.offered.contains_key(&number),
                    "{number} was never offered"
                );
                known.kept.insert(number);
            }
        }
        3 => {
            // It has left, or was never there.
            if told.leave(number, word(input)?) {
                known.kept.remove(&number);
            }
        }
        _ => told.forget(key),
    }
    Ok(())
}

fn recipient(
    input: &mut Input<'_>,
    keeping: &mut Keeping<u32>,
    here: &mut BTreeMap<u64, (u32, u32)>,
) -> Result<()> {
    let number = u64::from(below(input, 8)?);
    match below(input, 4)? {
        0 => {
            let right = number as u32 * 2 + u32::from(below(input, 2)?);
            match keeping.keep(number, right) {
                Ok(()) => assert!(here.insert(number, (right, 0)).is_none()),
                Err(back) => assert!(back == right && here.contains_key(&number)),
            }
        }
        1 => {
            let named = keeping.again(number);
            let known = here.get_mut(&number).map(|(right, came)| {
                *came += 1;
                Came::Right(&*right)
            });
            assert_eq!(named, known);
        }
        2 => {
            if let Some(came) = keeping.quiet(number) {
                assert_eq!(came, here[&number].1);
            }
        }
        _ => assert_eq!(
            keeping.left(number),
            here.remove(&number).map(|(right, _)| right)
        ),
    }
    Ok(())
}
