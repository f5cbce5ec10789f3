use super::*;

/// The bytes of one instruction, decoded at `at`, and made anew at `to`.
fn moved(old: &[u8], at: u64, to: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut decoder = Decoder::with_ip(64, old, at, DecoderOptions::NONE);
    let instruction = decoder.decode();
    assert_eq!(instruction.len(), old.len());
    let offsets = decoder.get_constant_offsets(&instruction);
    let field = offsets
        .has_displacement()
        .then(|| offsets.displacement_offset());
    elsewhere(&instruction, old, field, to)
}

fn decode(bytes: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
        .iter()
        .collect()
}

const AT: u64 = 0x5555_5555_4000;
const TO: usize = 0x5555_5500_0000;

#[test]
fn a_load_of_an_address_is_done_elsewhere_and_comes_back() {
    // lea rcx, [rip - 0x56_51f1], in whose displacement lie the bytes of XRSTOR.
    let old = [0x48, 0x8d, 0x0d, 0x0f, 0xae, 0xa9, 0xff];
    let (new, there) = moved(&old, AT, TO).unwrap();
    assert_eq!(scan::find(&old).count(), 1);
    assert_eq!(scan::find(&new).chain(scan::find(&there)).count(), 0);
    let jump = decode(&new, AT)[0];
    assert_eq!(
        (jump.near_branch_target(), new.len()),
        (TO as u64, old.len())
    );
    let (before, after) = (decode(&old, AT)[0], decode(&there, TO as u64));
    assert_eq!(
        after[0].ip_rel_memory_address(),
        before.ip_rel_memory_address()
    );
    assert_eq!(after[0].mnemonic(), before.mnemonic());
    assert_eq!(after[1].near_branch_target(), before.next_ip());
}

#[test]
fn a_call_through_a_table_stays_a_call_from_where_it_was() {
    // call [rip + 0x2bae0f].
    let old = [0xff, 0x15, 0x0f, 0xae, 0x2b, 0x00];
    let (new, there) = moved(&old, AT, TO).unwrap();
    assert_eq!(scan::find(&new).chain(scan::find(&there)).count(), 0);
    let call = decode(&new, AT)[0];
    assert_eq!(call.flow_control(), FlowControl::Call);
    assert_eq!((call.near_branch_target(), new[5]), (TO as u64, NOP));
    let after = decode(&there, TO as u64)[0];
    assert_eq!(after.flow_control(), FlowControl::IndirectBranch);
    let target = decode(&old, AT)[0].ip_rel_memory_address();
    assert_eq!(after.ip_rel_memory_address(), target);
}

#[test]
fn branches_go_by_way_of_a_jump_and_what_is_too_short_or_far_is_left() {
    for old in [
        &[0xe8, 0x0f, 0x01, 0xef, 0x00][..],
        &[0xe9, 0x0f, 0xae, 0x28, 0x00],
        &[0x0f, 0x84, 0x0f, 0x01, 0xef, 0x00],
    ] {
        let (new, there) = moved(old, AT, TO).unwrap();
        assert_eq!(scan::find(&new).chain(scan::find(&there)).count(), 0);
        let (before, first) = (decode(old, AT)[0], decode(&new, AT)[0]);
        assert_eq!(first.flow_control(), before.flow_control());
        assert_eq!(first.near_branch_target(), TO as u64);
        let second = decode(&there, TO as u64)[0];
        assert_eq!(second.near_branch_target(), before.near_branch_target());
    }
    // A short branch, and a place that no jump reaches.
    assert!(moved(&[0x74, 0x0f], AT, TO).is_none());
    assert!(moved(&[0xe8, 0, 0, 0, 0], AT, 0x1000).is_none());
}

#[test]
fn a_pair_of_the_linkers_becomes_the_older_one() {
    // xsavec [rsp + 0x40]; nop; xrstor [rsp + 0x40].
    let code = [
        0x0f, 0xc7, 0x64, 0x24, 0x40, 0x90, 0x0f, 0xae, 0x6c, 0x24, 0x40,
    ];
    let patches = older_pair(6, 0x1000, &code).unwrap();
    let mut after = code;
    apply(&patches, 0x1000, &mut after);
    let names: Vec<String> = decode(&after, 0x1000)
        .iter()
        .map(|it| format!("{:?}", it.mnemonic()))
        .collect();
    assert_eq!(names, ["Fxsave", "Nop", "Fxrstor"]);
    assert_eq!(
        decode(&after, 0)
            .iter()
            .map(|it| it.memory_displacement64())
            .max(),
        Some(0x40)
    );
    // Alone, or of another place, it is not known.
    assert_eq!(older_pair(0, 0, &code[6..]), None);
    let mut other = code;
    other[4] = 0x48;
    assert_eq!(older_pair(6, 0, &other), None);
}

#[test]
fn functions_are_found_by_the_tables_for_unwinding() {
    let at = functions_are_found_by_the_tables_for_unwinding as fn() as usize;
    assert_eq!(unwind::function_of(at + 1), Some(at));
    assert_eq!(unwind::function_of(0x1000), None);
}
