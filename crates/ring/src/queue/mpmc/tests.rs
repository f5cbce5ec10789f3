use super::*;
use core::sync::atomic::AtomicBool;
use handfast_region::Region;
use std::sync::Arc;

/// Who is dead, as the test says.
#[derive(Clone)]
pub(super) struct Register {
    me: u32,
    dead: Arc<[AtomicBool; 64]>,
}

impl Register {
    pub(super) fn new() -> Self {
        Self {
            me: 1,
            dead: Arc::new([const { AtomicBool::new(false) }; 64]),
        }
    }

    /// The register as member `me` sees it.
    pub(super) fn of(&self, me: u32) -> Self {
        Self { me, ..self.clone() }
    }

    pub(super) fn set_dead(&self, member: u32, dead: bool) {
        self.dead[member as usize].store(dead, Release);
    }
}

impl Members for Register {
    fn me(&self) -> u32 {
        self.me
    }
    fn is_dead(&self, member: u32) -> bool {
        assert_ne!(member, self.me, "nobody asks whether itself is dead");
        self.dead[member as usize].load(Acquire)
    }
}

/// A message that says its number in every word, so that a torn one is seen.
pub(super) fn message(number: u32) -> Message {
    let mut message = [0; MESSAGE_BYTES];
    for (index, word) in message.chunks_exact_mut(4).enumerate() {
        let word_of = number.wrapping_mul(1 + 2 * index as u32);
        word.copy_from_slice(&word_of.to_le_bytes());
    }
    message
}

/// The number of a message that [`message`] made.
pub(super) fn number(got: &Message) -> u32 {
    let number = u32::from_le_bytes([got[0], got[1], got[2], got[3]]);
    assert_eq!(*got, message(number), "a torn message");
    number
}

fn rings<'a>(
    region: &'a Region,
    geometry: Geometry,
    members: &Register,
    position: u32,
) -> Vec<Ring<&'a Region, Register>> {
    create_at(region, geometry, position);
    let shape = (geometry.slots(), geometry.members());
    (1..=geometry.members())
        .map(|me| Ring::attach(region, geometry.word(0), shape, members.of(me)).unwrap())
        .collect()
}
