use super::*;
use handfast_testing::Random;

/// The kernel's verdict: the instructions that are used here, run one by one.
fn verdict(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let word = |at: u32| match at {
        NUMBER => number,
        ARCHITECTURE => architecture,
        at => {
            let argument = arguments[(at as usize - 16) / 8];
            (argument >> (8 * (at % 8))) as u32
        }
    };
    let (mut a, mut x, mut kept) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0;
    // Every jump goes forward.
    loop {
        let it = program[at];
        at += 1;
        let code = u32::from(it.code);
        match code & 7 {
            libc::BPF_LD => {
                a = match code & 0xe0 {
                    libc::BPF_ABS => word(it.constant),
                    libc::BPF_MEM => kept[it.constant as usize],
                    libc::BPF_IMM => it.constant,
                    _ => unreachable!(),
                }
            }
            libc::BPF_LDX => x = kept[it.constant as usize],
            libc::BPF_ST => kept[it.constant as usize] = a,
            libc::BPF_ALU => a = a.wrapping_add(x),
            libc::BPF_MISC => x = a,
            libc::BPF_RET => return it.constant,
            libc::BPF_JMP => {
                let other = if code & libc::BPF_X != 0 {
                    x
                } else {
                    it.constant
                };
                let holds = match code & 0xf0 {
                    libc::BPF_JA => {
                        at += it.constant as usize;
                        continue;
                    }
                    libc::BPF_JEQ => a == other,
                    libc::BPF_JGT => a > other,
                    libc::BPF_JGE => a >= other,
                    libc::BPF_JSET => a & other != 0,
                    _ => unreachable!(),
                };
                at += usize::from(if holds { it.jump_true } else { it.jump_false });
            }
            _ => unreachable!(),
        }
    }
}

const GUARDED: [Range; 3] = [
    (0x5555_5555_4000, 0x5555_5566_0000),
    (0x7fff_ffff_0000, 0x8000_0000_0000),
    // Across a border of the low word.
    (0x7f00_ffff_f000, 0x7f01_0000_2000),
];

fn says(number: libc::c_long, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    verdict(&program(&GUARDED), X86_64, number as u32, all)
}

#[test]
#[cfg_attr(miri, ignore = "slow there, and nothing in it is unsafe")]
fn ranges_are_denied_exactly_where_they_touch() {
    let mut random = Random::seeded("ranges of a filter");
    let program = program(&GUARDED);
    let near = |random: &mut Random| {
        let (from, to) = GUARDED[random.below(3) as usize];
        let edge = if random.below(2) == 0 { from } else { to } as u64;
        (edge + random.below(5) * 4096).saturating_sub(random.below(5) * 4096)
    };
    let mut denied = 0;
    for _ in 0..100_000 {
        let (one, other) = (near(&mut random), near(&mut random));
        let (start, end) = (one.min(other), one.max(other));
        if start >= 1 << 47 || start == end {
            continue;
        }
        let touches = GUARDED
            .iter()
            .any(|(from, to)| start < *to as u64 && end > *from as u64);
        let expected = if touches { DENY } else { ALLOW };
        denied += u32::from(touches);
        for number in [libc::SYS_munmap, libc::SYS_madvise, libc::SYS_mremap] {
            let arguments = [start, end - start, 0, 0, 0, 0];
            let said = verdict(&program, X86_64, number as u32, arguments);
            assert_eq!(said, expected, "{number} {start:#x} {end:#x}");
        }
        let arguments = [
            start,
            end - start,
            3,
            libc::MAP_FIXED as u64 | libc::MAP_ANONYMOUS as u64,
            0,
            0,
        ];
        let said = verdict(&program, X86_64, libc::SYS_mmap as u32, arguments);
        assert_eq!(said, expected);
    }
    assert!(denied > 1000);
}

#[test]
fn addresses_and_lengths_of_more_than_47_bits_are_denied() {
    for arguments in [
        [1 << 47, 4096],
        [4096, 1 << 47],
        [u64::MAX, u64::MAX],
        [1 << 57 | 4096, 1],
    ] {
        assert_eq!(says(libc::SYS_munmap, &arguments), DENY);
    }
    assert_eq!(says(libc::SYS_munmap, &[4096, 4096]), ALLOW);
}

#[test]
fn no_new_code_and_nothing_over_a_guarded_range() {
    let [fixed, anonymous, exact] = [
        libc::MAP_FIXED,
        libc::MAP_ANONYMOUS,
        libc::MAP_FIXED_NOREPLACE,
    ]
    .map(|flag| flag as u64);
    let huge = libc::MAP_HUGETLB as u64;
    let domain = GUARDED[0].0 as u64;
    let map =
        |protection: u64, flags: u64| says(libc::SYS_mmap, &[domain, 4096, protection, flags]);
    assert_eq!(map(3, anonymous), ALLOW, "a wish for an address");
    assert_eq!(map(3, anonymous | exact), ALLOW);
    assert_eq!(map(3, anonymous | fixed), DENY);
    assert_eq!(map(5, 2), DENY, "code");
    let elsewhere = |flags: u64| says(libc::SYS_mmap, &[4096, 4096, 3, flags]);
    assert_eq!(elsewhere(anonymous | fixed), ALLOW);
    assert_eq!(elsewhere(fixed), DENY, "a file that may be of huge pages");
    assert_eq!(elsewhere(anonymous | fixed | huge), DENY);
    let protect = |at: u64, protection: u64| says(libc::SYS_mprotect, &[at, 4096, protection]);
    assert_eq!(protect(4096, 4), DENY);
    assert_eq!(protect(4096, 7), DENY);
    assert_eq!(protect(4096, 3), ALLOW);
    assert_eq!(protect(domain, 3), DENY);
    assert_eq!(protect(domain, 0), ALLOW);
    let remap = |len: u64, flags: u64| says(libc::SYS_mremap, &[4096, len, 8192, flags]);
    assert_eq!(remap(4096, 1), ALLOW);
    assert_eq!(remap(4096, 3), DENY, "to a chosen place");
    assert_eq!(remap(0, 1), DENY, "a second mapping of the same memory");
}

#[test]
fn whole_calls_and_other_kinds_of_calls_are_denied() {
    for number in DENIED {
        assert_eq!(says(*number, &[]), DENY);
    }
    let program = program(&GUARDED);
    // The calls of 32-bit programs.
    assert_eq!(verdict(&program, 0x4000_0003, 20, [0; 6]), DENY);
    assert_eq!(says(0x4000_0000 | libc::SYS_getpid, &[]), UNKNOWN);
    assert_eq!(says(i64::from(LAST) + 1, &[]), UNKNOWN);
    assert_eq!(says(libc::SYS_clone3, &[]), UNKNOWN);
    assert_eq!(says(libc::SYS_rt_sigreturn, &[]), END);
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
    assert_eq!(says(libc::SYS_clone, &[thread]), ALLOW);
    assert_eq!(says(libc::SYS_clone, &[libc::CLONE_VM as u64]), DENY);
    assert_eq!(says(libc::SYS_clone, &[libc::SIGCHLD as u64]), ALLOW);
    assert_eq!(
        says(libc::SYS_clone, &[libc::CLONE_NEWUSER as u64 | thread]),
        DENY
    );
    assert_eq!(says(libc::SYS_rt_sigaction, &[11, 0]), ALLOW);
    assert_eq!(says(libc::SYS_rt_sigaction, &[11, 4096]), DENY);
    assert_eq!(says(libc::SYS_rt_sigaction, &[11, 1 << 32]), DENY);
    assert_eq!(says(libc::SYS_prctl, &[libc::PR_SET_NAME as u64]), ALLOW);
    assert_eq!(says(libc::SYS_prctl, &[libc::PR_SET_SECCOMP as u64]), DENY);
    assert_eq!(says(libc::SYS_arch_prctl, &[0x1002]), ALLOW);
    for code in [0, 0x1000, 0x1005, 0x2003, 0x4002] {
        assert_eq!(says(libc::SYS_arch_prctl, &[code]), DENY);
    }
    assert_eq!(says(libc::SYS_personality, &[0x0400_0000]), DENY);
    assert_eq!(says(libc::SYS_personality, &[u64::MAX]), ALLOW);
}

#[test]
fn as_many_ranges_as_there_can_be_fit() {
    let ranges: Vec<Range> = (1..=RANGES_MAX)
        .map(|at| (at << 20, (at << 20) + 4096))
        .collect();
    let program = program(&ranges);
    assert!(program.len() <= handfast_sys::seccomp::INSTRUCTIONS_MAX);
    // And what is frequent is decided without them.
    for number in [libc::SYS_read, libc::SYS_futex, libc::SYS_getppid] {
        assert_eq!(verdict(&program, X86_64, number as u32, [0; 6]), ALLOW);
    }
}
