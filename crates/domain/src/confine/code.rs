//! The treatment of the places that [`scan`](super::scan) finds.
//!
//! * The gate's own two instructions check their effect directly afterwards, and stay.
//! * The C library's `pkey_set` is overwritten with a trap.
//! * The dynamic linker saves registers with XSAVE while it looks a function up, and loads them with XRSTOR: both
//!   become the older FXSAVE and FXRSTOR, which know no rights. They leave out the upper halves of vector
//!   registers.
//! * In a displacement, or across two instructions, the bytes are there by chance. One of the instructions is moved
//!   elsewhere, where its displacement is another one, and a jump put in its place. Where instructions begin is known
//!   from the tables for unwinding.
//! * Anything else is refused, or overwritten with traps on request.

use super::maps::Mapping;
use super::scan::{self, Kind};
use super::unwind;
use super::{ConfineError, ConfineOptions};
use crate::gate::protected;
use handfast_sys::private::{self, Private};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

/// Bytes that take the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) at: usize,
    pub(super) bytes: Vec<u8>,
}

/// Instructions that were moved.
pub(super) struct Moved {
    pub(super) memory: Private,
    pub(super) code: Vec<u8>,
}

/// The planned changes to the code of this process.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) patches: Vec<Patch>,
    pub(super) moved: Vec<Moved>,
}

/// Room for moved instructions near one piece of code.
const MOVED_BYTES: usize = 16 << 10;
/// A trap of two bytes (UD2), and one of one (INT3).
const UD2: [u8; 2] = [0x0f, 0x0b];
const INT3: u8 = 0xcc;
const NOP: u8 = 0x90;
const JUMP: u8 = 0xe9;
const CALL: u8 = 0xe8;
/// Bytes of a jump or call with a displacement of 32 bits.
const JUMP_LEN: usize = 5;

/// The bytes of a mapping of code.
pub(super) fn bytes(start: usize, len: usize) -> &'static [u8] {
    // SAFETY: callers give mappings that can be read; this thread is the only one and unmaps none meanwhile.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(start), len) }
}

/// Finds what is to be done. Nothing is changed.
pub(super) fn plan(all: &[Mapping], options: &ConfineOptions) -> Result<Plan, ConfineError> {
    let mut plan = Plan::default();
    let gate = protected::changes();
    for run in runs(all) {
        let code = bytes(run.0, run.1 - run.0);
        let found: Vec<(usize, Kind)> = scan::find(code)
            .map(|(at, kind)| (run.0 + at, kind))
            .collect();
        let strays = found.into_iter().filter(|(at, _)| !gate.contains(at));
        let mut moved: Option<Moved> = None;
        let first_patch = plan.patches.len();
        for (at, kind) in strays {
            // An instruction that was moved may have had two.
            let is_done = plan.patches.iter().any(|patch| {
                (patch.at..patch.at + patch.bytes.len()).contains(&at)
                    && patch.bytes.len() >= JUMP_LEN
            });
            if is_done {
                continue;
            }
            let patches = known(at, kind, run, code)
                .or_else(|| {
                    near(&mut moved, all, run).and_then(|moved| relocate(at, run, code, moved))
                })
                .or_else(|| options.overwrite.then(|| vec![trap(at)]));
            let Some(patches) = patches else {
                return Err(stray(all, at, kind));
            };
            plan.patches.extend(patches);
        }
        plan.moved.extend(moved);
        if plan.patches.len() > first_patch {
            let mut after = code.to_vec();
            apply(&plan.patches, run.0, &mut after);
            let again = scan::find(&after).find(|(at, _)| !gate.contains(&(run.0 + at)));
            if let Some((at, kind)) = again {
                return Err(stray(all, run.0 + at, kind));
            }
        }
    }
    Ok(plan)
}

/// Code without gaps, whatever it comes from: a sequence can cross from one mapping to the next.
pub(super) fn runs(all: &[Mapping]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for mapping in all.iter().filter(|mapping| mapping.runs) {
        match runs.last_mut() {
            Some(last) if last.1 == mapping.start => last.1 = mapping.end,
            _ => runs.push((mapping.start, mapping.end)),
        }
    }
    runs
}

/// Writes the patches that lie in `code`, which begins at `start`.
pub(super) fn apply(patches: &[Patch], start: usize, code: &mut [u8]) {
    for patch in patches {
        for (offset, byte) in patch.bytes.iter().enumerate() {
            let at = (patch.at + offset).checked_sub(start);
            if let Some(place) = at.and_then(|at| code.get_mut(at)) {
                *place = *byte;
            }
        }
    }
}

fn stray(all: &[Mapping], at: usize, kind: Kind) -> ConfineError {
    let mapping = all
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&at));
    ConfineError::Stray {
        instruction: kind.name(),
        at,
        file: mapping.map_or_else(String::new, |mapping| mapping.path.clone()),
        offset: mapping.map_or(0, |mapping| mapping.offset + (at - mapping.start) as u64),
    }
}

fn trap(at: usize) -> Patch {
    Patch {
        at,
        bytes: [&UD2[..], &[INT3]].concat(),
    }
}

/// The known patches for the C library and the dynamic linker.
fn known(at: usize, kind: Kind, run: (usize, usize), code: &[u8]) -> Option<Vec<Patch>> {
    match kind {
        Kind::WrPkru => {
            /// Longer than the function is.
            const FUNCTION_BYTES: usize = 64;
            // SAFETY: the name is a string that ends with a zero.
            let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pkey_set".as_ptr()) };
            let from = at.checked_sub(function as usize)?;
            (!function.is_null() && from < FUNCTION_BYTES).then(|| vec![trap(at)])
        }
        Kind::XRstor => {
            // SAFETY: takes an integer.
            let linker = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
            let is_linkers = unwind::object_of(at).is_some_and(|object| object == linker);
            is_linkers.then(|| older_pair(at - run.0, run.0, code))?
        }
    }
}

/// The XRSTOR at `at`, and the XSAVE or XSAVEC of the same place that stands before it, as their older forms.
fn older_pair(at: usize, start: usize, code: &[u8]) -> Option<Vec<Patch>> {
    /// From one to the other, at most.
    const APART: usize = 64;
    const REST: usize = 2;
    let rest_of = |at: usize| code.get(at + 2..at + 3 + REST);
    // Operation 4 of 0F C7 is XSAVEC, of 0F AE XSAVE; the operand is a byte from the stack pointer.
    let [operand, base, distance] = rest_of(at)? else {
        return None;
    };
    if *operand != 0x6c || *base != 0x24 {
        return None;
    }
    let save = (at.saturating_sub(APART)..at).rev().find(|at| {
        matches!(code.get(*at..*at + 2), Some([0x0f, 0xc7 | 0xae]))
            && rest_of(*at) == Some(&[0x64, *base, *distance])
    })?;
    let patch = |at: usize, operand: u8| Patch {
        at: start + at,
        bytes: vec![0x0f, 0xae, operand],
    };
    // FXSAVE is operation 0, FXRSTOR operation 1.
    Some(vec![patch(save, 0x44), patch(at, 0x4c)])
}

/// Memory for moved instructions, near enough for their displacements.
fn near<'a>(
    moved: &'a mut Option<Moved>,
    all: &[Mapping],
    run: (usize, usize),
) -> Option<&'a mut Moved> {
    /// A jump reaches 2 GiB; programs and their data are smaller than a half of that.
    const REACH: usize = 1 << 30;
    if moved.is_none() {
        // Nothing is executable below 4 GiB.
        const LOWEST: usize = 1 << 32;
        let below = [LOWEST]
            .into_iter()
            .chain(all.iter().map(|mapping| mapping.end));
        let gap = |(below, above): (usize, &Mapping)| {
            let at = above.start.checked_sub(MOVED_BYTES)?;
            (below <= at && above.start <= run.0 && run.0 - at < REACH).then_some(at)
        };
        // The nearest one below that is long enough. A few tries: the kernel keeps some for itself.
        let gaps: Vec<usize> = below.zip(all).filter_map(gap).collect();
        let take = |at: &usize| private::take_at(*at, MOVED_BYTES).ok();
        let memory = gaps.iter().rev().take(16).find_map(take)?;
        *moved = Some(Moved {
            memory,
            code: Vec::new(),
        });
    }
    moved.as_mut()
}

/// Moves one of the instructions that the sequence at `at` lies in.
fn relocate(at: usize, run: (usize, usize), code: &[u8], moved: &mut Moved) -> Option<Vec<Patch>> {
    let function = unwind::function_of(at)?;
    let first = function.checked_sub(run.0)?;
    let mut decoder = Decoder::with_ip(
        64,
        code.get(first..)?,
        function as u64,
        DecoderOptions::NONE,
    );
    let mut instruction = Instruction::default();
    let end = (at + scan::LEN) as u64;
    while decoder.can_decode() && decoder.ip() < end {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
        if instruction.next_ip() <= at as u64 || instruction.len() < JUMP_LEN {
            continue;
        }
        let displacement = decoder.get_constant_offsets(&instruction);
        let place = instruction.ip() as usize;
        let old = code.get(place - run.0..place - run.0 + instruction.len())?;
        let field = displacement
            .has_displacement()
            .then(|| displacement.displacement_offset());
        // Elsewhere the new displacement may happen to make such a sequence, too: then a little further on.
        for _ in 0..16 {
            let to = moved.memory.base().addr().get() + moved.code.len();
            let made = elsewhere(&instruction, old, field, to);
            if let Some((new, there)) = made {
                let is_clean = |bytes: &[u8]| scan::find(bytes).next().is_none();
                let mut whole = moved.code.clone();
                whole.extend(&there);
                if is_clean(&new) && is_clean(&whole) && whole.len() <= MOVED_BYTES {
                    moved.code = whole;
                    return Some(vec![Patch {
                        at: place,
                        bytes: new,
                    }]);
                }
            }
            moved.code.push(INT3);
        }
    }
    None
}

/// An instruction's new bytes, which lead to `to`, and the bytes there.
fn elsewhere(
    instruction: &Instruction,
    old: &[u8],
    field: Option<usize>,
    to: usize,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let distance = |from: u64, len: usize, target: u64| {
        let from = from.wrapping_add(len as u64);
        i32::try_from(target.wrapping_sub(from).cast_signed())
            .ok()
            .map(i32::to_le_bytes)
    };
    let jump = |code: &[u8], from: u64, target: u64| {
        let distance = distance(from, code.len() + 4, target)?;
        Some([code, &distance].concat())
    };
    // The same instruction at the new place.
    let same = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if instruction.is_ip_rel_memory_operand() {
            let target = instruction.ip_rel_memory_address();
            let field = bytes.get_mut(field?..)?.get_mut(..4)?;
            field.copy_from_slice(&distance(to as u64, old.len(), target)?);
        }
        Some(bytes)
    };
    let (from, to_ip) = (instruction.ip(), to as u64);
    let (mut new, there) = match (instruction.flow_control(), old) {
        (FlowControl::Next, _) => {
            let mut there = same(old)?;
            let back = jump(&[JUMP], to_ip + there.len() as u64, instruction.next_ip())?;
            there.extend(back);
            (jump(&[JUMP], from, to_ip)?, there)
        }
        (FlowControl::Call, [CALL, ..]) => {
            let there = jump(&[JUMP], to_ip, instruction.near_branch_target())?;
            (jump(&[CALL], from, to_ip)?, there)
        }
        (FlowControl::UnconditionalBranch, [JUMP, ..]) => {
            let there = jump(&[JUMP], to_ip, instruction.near_branch_target())?;
            (jump(&[JUMP], from, to_ip)?, there)
        }
        (FlowControl::ConditionalBranch, [0x0f, condition, ..]) => {
            let there = jump(&[JUMP], to_ip, instruction.near_branch_target())?;
            (jump(&[0x0f, *condition], from, to_ip)?, there)
        }
        // The call is made from the old place, since that is what return addresses are looked up by; at the new one it
        // is a jump: operation 4 instead of 2.
        (FlowControl::IndirectCall, [0xff, operand, ..]) => {
            let mut there = same(old)?;
            *there.get_mut(1)? = operand & !0x38 | 4 << 3;
            (jump(&[CALL], from, to_ip)?, there)
        }
        (FlowControl::IndirectBranch, [0xff, ..]) => (jump(&[JUMP], from, to_ip)?, same(old)?),
        _ => return None,
    };
    new.resize(old.len().max(new.len()), NOP);
    (new.len() == old.len()).then_some((new, there))
}

// The decoder reads tables through pointers to their first part, which miri's model of borrows does not allow.
#[cfg(all(test, not(miri)))]
mod tests;
