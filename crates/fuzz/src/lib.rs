//! Fuzz targets: functions that take any bytes for what a peer has written, have handfast parse them, and panic when
//! something comes of it that must not.
//!
//! A target does more than look for panics. Input that a parser accepts is encoded again, to the same bytes; a table's
//! answers are held against a model of it; and a process whose peer writes the bytes goes on to serve others.
//!
//! The bytes are the input of the target of that name in `fuzz/corpus`, which the tests of this crate go through, or
//! come from a fuzzer (`fuzz/fuzz_targets`). `CONTRIBUTING.md` says how to run one and how to add a case.
#![deny(unsafe_code)]

mod control;
mod domains;
mod handshake;
mod introductions;
mod live;
mod loans;
mod moves;
mod parts;
mod paths;
mod queues;
mod rights;
mod service;
mod slot;

pub use control::control;
pub use domains::domains;
pub use handshake::handshake;
pub use introductions::{introductions, keeping};
pub use live::{directory, greeting, session, welcome};
pub use loans::{borrowed, lent};
pub use moves::moves;
pub use parts::parts;
pub use paths::paths;
pub use queues::queues;
pub use rights::{exports, imports};
pub use service::service;
pub use slot::{lane, reply};

use arbitrary::{Result, Unstructured};

/// Items for the files of `handfast` that are part of this crate, too.
mod error {
    pub(crate) use handfast::error::Gone;
}

/// A target, and the name of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All there are.
pub const TARGETS: [Target; 19] = [
    ("handshake", handshake),
    ("parts", parts),
    ("control", control),
    ("lane", lane),
    ("reply", reply),
    ("exports", exports),
    ("imports", imports),
    ("introductions", introductions),
    ("keeping", keeping),
    ("moves", moves),
    ("paths", paths),
    ("lent", lent),
    ("borrowed", borrowed),
    ("queues", queues),
    ("service", service),
    ("domains", domains),
    ("greeting", greeting),
    ("welcome", welcome),
    ("session", session),
];

/// Bytes as a series of choices.
type Input<'a> = Unstructured<'a>;

/// Steps of one input: each may be looked at by going through all that is there.
const STEPS_MAX: usize = 256;

/// Goes on with `step` until the bytes are used up.
fn steps(bytes: &[u8], mut step: impl FnMut(&mut Input<'_>) -> Result<()>) {
    let mut input = Input::new(bytes);
    for _ in 0..STEPS_MAX {
        // Truncated input is no step.
        if input.is_empty() || step(&mut input).is_err() {
            return;
        }
    }
}

/// One of so many, by one byte.
fn below(input: &mut Input<'_>, count: u8) -> Result<u8> {
    input.int_in_range(0..=count - 1)
}

/// One of these, if there is one.
fn one_of<T: Copy>(input: &mut Input<'_>, of: &[T]) -> Result<Option<T>> {
    let place = usize::from(input.arbitrary::<u8>()?);
    Ok(of.get(place % of.len().max(1)).copied())
}

/// A number that means something somewhere, or any.
fn word(input: &mut Input<'_>) -> Result<u32> {
    Ok(match input.arbitrary::<u8>()? {
        small @ 0..200 => small.into(),
        large @ 200..208 => u32::MAX - u32::from(large - 200),
        handle @ 208..216 => handfast_layout::part::IS_HANDLE | u32::from(handle - 208),
        _ => input.arbitrary()?,
    })
}
