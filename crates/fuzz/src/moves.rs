//! The memory of the old home of a port and of holders of rights to it, while the others say anything.

use crate::{Input, below, one_of, steps, word};
use arbitrary::Result;
use handfast_layout::part::is_handle;
use handfast_proto::moves::{Marked, Trail};
use handfast_proto::rights::Early;
use handfast_proto::rights::Handle;
use std::collections::BTreeMap;

/// A statement made to a holder, and the holder's answer.
#[derive(Clone, Copy)]
struct Told {
    number: u64,
    lanes: u32,
    heard: u32,
    is_old: bool,
}

/// Most news kept that was heard too early.
const EARLY_MAX: usize = 3;

/// An old home whose holders send any marks, and a holder whose old home says anything.
pub fn moves(bytes: &[u8]) {
    let (mut trail, mut told) = (Trail::default(), BTreeMap::new());
    let (mut early, mut heard) = (Early::new(EARLY_MAX), BTreeMap::new());
    steps(bytes, |input| match below(input, 3)? {
        0 | 1 => home(input, &mut trail, &mut told),
        _ => holder(input, &mut early, &mut heard),
    });
}

type Right = (u32, Handle);

fn home(input: &mut Input<'_>, trail: &mut Trail, told: &mut BTreeMap<Right, Told>) -> Result<()> {
    let right = (
        below(input, 2)?.into(),
        1 << 31 | u32::from(below(input, 2)?),
    );
    let known = told.get(&right).copied();
    let is_over = |told: &Told| told.lanes > 0 && told.heard == told.lanes;
    let number = u64::from(below(input, 4)?);
    match below(input, 6)? {
        0 => {
            let is_due = known.is_none_or(|known| known.is_old && is_over(&known));
            assert_eq!(trail.tell(right, number), is_due);
            if is_due {
                let new = Told {
                    number,
                    lanes: 0,
                    heard: 0,
                    is_old: false,
                };
                told.insert(right, new);
            }
        }
        1 => {
            let is_due = known.is_some_and(|known| is_over(&known));
            assert_eq!(trail.tell_again(right), is_due);
            told.entry(right).and_modify(|told| told.is_old = true);
        }
        2 => {
            trail.end(right.0);
            told.retain(|(link, _), _| *link != right.0);
        }
        _ => {
            let lanes = match below(input, 4)? {
                0 => input.arbitrary()?,
                lanes => lanes.into(),
            };
            let fits = |told: &&mut Told| {
                let is_open = told.heard == 0 || told.heard < told.lanes && told.lanes == lanes;
                told.number == number && is_open && lanes > 0
            };
            let expected = told.get_mut(&right).filter(fits).map(|told| {
                (told.lanes, told.heard) = (lanes, told.heard + 1);
                match is_over(told) {
                    true => Marked::All { again: told.is_old },
                    false => Marked::More,
                }
            });
            let marked = trail.mark(right, number, lanes);
            assert_eq!(marked, expected.unwrap_or(Marked::Unknown));
        }
    }
    Ok(())
}

fn holder(
    input: &mut Input<'_>,
    early: &mut Early<u32>,
    heard: &mut BTreeMap<u32, (Handle, u32)>,
) -> Result<()> {
    let names: Vec<_> = heard.values().map(|(name, _)| *name).collect();
    let name = match below(input, 2)? {
        0 => one_of(input, &names)?.unwrap_or(1 << 31),
        _ => word(input)?,
    };
    let place = name & 0xf_ffff;
    if below(input, 2)? == 0 {
        let moved = word(input)?;
        early.hear(name, moved);
        if is_handle(name) {
            if heard.len() >= EARLY_MAX {
                heard.clear();
            }
            heard.insert(place, (name, moved));
        }
        return Ok(());
    }
    let known = heard.remove(&place);
    let expected = known.filter(|(of, _)| *of == name).map(|(_, moved)| moved);
    assert_eq!(early.arrived(name), expected);
    Ok(())
}
