//! The filter of system calls: what is denied, and the program that says so.
//!
//! The kernel keeps the verdict for a number when that verdict does not depend on arguments, so most calls pay for a
//! look into a bitmap only. The calls whose arguments are looked at come first here.

use super::maps::Range;
use handfast_sys::seccomp::Instruction;

/// Pieces of memory that one filter looks at: each takes a dozen instructions of the kernel's 4,096.
pub(super) const RANGES_MAX: usize = 200;

/// The newest call whose doings are known here (Linux 6.18); newer ones do not exist for a confined process.
const LAST: u32 = 469;

const READ: u32 = libc::PROT_READ as u32;
const RUN: u32 = libc::PROT_EXEC as u32;
const _: () = assert!(READ == 1 && RUN == 4);

/// Denied whatever the arguments are.
const DENIED: &[libc::c_long] = &[
    // They look at memory without its keys, of this process or of another.
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_ptrace,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    // They change keys.
    libc::SYS_pkey_mprotect,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    // They change what lies at an address.
    libc::SYS_userfaultfd,
    libc::SYS_shmat,
    libc::SYS_remap_file_pages,
    // They change how code runs, or is let go on.
    libc::SYS_modify_ldt,
    libc::SYS_rseq,
    MAP_SHADOW_STACK,
    libc::SYS_seccomp,
    // They do things for a thread later, when it may be in a domain.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    // Another program would need code from files.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_vfork,
    // They change what paths lead to, or go around them.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    // They change the kernel.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_swapon,
    libc::SYS_swapoff,
];
const MAP_SHADOW_STACK: libc::c_long = 453;
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Options that `prctl` still accepts.
const PRCTL: &[libc::c_int] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_PDEATHSIG,
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_SET_CHILD_SUBREAPER,
    libc::PR_GET_CHILD_SUBREAPER,
    // Names of memory.
    libc::PR_SET_VMA,
];

/// And `arch_prctl`: set and get the bases of FS and GS, which programs can do without it.
const BASES: core::ops::RangeInclusive<u32> = 0x1001..=0x1004;

const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// A forged frame gives its thread any rights; and a handler that returns has nowhere to go but here.
const END: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Where a filter finds the number of the call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const X86_64: u32 = 0xc000_003e;

const fn low(argument: u32) -> u32 {
    16 + 8 * argument
}

const fn high(argument: u32) -> u32 {
    low(argument) + 4
}

/// The program.
#[derive(Default)]
struct Program {
    code: Vec<Instruction>,
    /// Jumps whose length is not known yet, with the part they lead to.
    open: Vec<(usize, Part)>,
}

/// The purpose for which a call's arguments are inspected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Map,
    Protect,
    Remap,
    Clone,
    Action,
    Prctl,
    ArchPrctl,
    Personality,
    /// Address and length are the first two arguments.
    Range,
}

/// The calls whose arguments are looked at; the frequent ones first.
const PARTS: [(libc::c_long, Part); 10] = [
    (libc::SYS_mmap, Part::Map),
    (libc::SYS_munmap, Part::Range),
    (libc::SYS_mprotect, Part::Protect),
    (libc::SYS_madvise, Part::Range),
    (libc::SYS_mremap, Part::Remap),
    (libc::SYS_clone, Part::Clone),
    (libc::SYS_rt_sigaction, Part::Action),
    (libc::SYS_prctl, Part::Prctl),
    (libc::SYS_arch_prctl, Part::ArchPrctl),
    (libc::SYS_personality, Part::Personality),
];

/// The filter that guards these ranges: whole pages, in any order.
pub(super) fn program(guarded: &[Range]) -> Vec<Instruction> {
    let mut program = Program::default();
    program.numbers();
    for part in [
        Part::Map,
        Part::Protect,
        Part::Remap,
        Part::Clone,
        Part::Action,
        Part::Prctl,
        Part::ArchPrctl,
        Part::Personality,
        Part::Range,
    ] {
        program.begin(part);
        program.part(part, guarded);
    }
    program.code
}

impl Program {
    fn add(&mut self, code: u32, constant: u32, jump_true: u8, jump_false: u8) {
        self.code.push(Instruction {
            code: code as u16,
            jump_true,
            jump_false,
            constant,
        });
    }

    fn load(&mut self, at: u32) {
        self.add(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    }

    fn end(&mut self, verdict: u32) {
        self.add(libc::BPF_RET | libc::BPF_K, verdict, 0, 0);
    }

    /// Ends with `verdict` if what was loaded compares so; else goes on.
    fn end_if(&mut self, comparison: u32, constant: u32, verdict: u32) {
        self.jump(comparison, constant, 0, 1);
        self.end(verdict);
    }

    /// Ends with `verdict` unless it compares so.
    fn end_unless(&mut self, comparison: u32, constant: u32, verdict: u32) {
        self.jump(comparison, constant, 1, 0);
        self.end(verdict);
    }

    fn jump(&mut self, comparison: u32, constant: u32, jump_true: u8, jump_false: u8) {
        self.add(
            libc::BPF_JMP | comparison | libc::BPF_K,
            constant,
            jump_true,
            jump_false,
        );
    }

    /// Goes on at `part`, which comes later.
    fn go(&mut self, part: Part) {
        self.open.push((self.code.len(), part));
        self.add(libc::BPF_JMP | libc::BPF_JA, 0, 0, 0);
    }

    /// `part` is here.
    fn begin(&mut self, part: Part) {
        let here = self.code.len();
        for (from, to) in &self.open {
            if let Some(jump) = self.code.get_mut(*from).filter(|_| *to == part) {
                jump.constant = (here - from - 1) as u32;
            }
        }
        self.open.retain(|(_, to)| *to != part);
    }

    fn numbers(&mut self) {
        self.load(ARCHITECTURE);
        self.end_unless(libc::BPF_JEQ, X86_64, DENY);
        self.load(NUMBER);
        // Numbers of the x32 kind are far above.
        self.end_if(libc::BPF_JGT, LAST, UNKNOWN);
        for (number, part) in PARTS {
            self.jump(libc::BPF_JEQ, number as u32, 0, 1);
            self.go(part);
        }
        // Its arguments lie in memory, where they can change: the C library then uses `clone`.
        self.end_if(libc::BPF_JEQ, libc::SYS_clone3 as u32, UNKNOWN);
        self.end_if(libc::BPF_JEQ, libc::SYS_rt_sigreturn as u32, END);
        for number in DENIED {
            self.end_if(libc::BPF_JEQ, *number as u32, DENY);
        }
        self.end(ALLOW);
    }

    fn part(&mut self, part: Part, guarded: &[Range]) {
        match part {
            Part::Map => {
                self.load(low(2));
                self.end_if(libc::BPF_JSET, RUN, DENY);
                self.load(low(3));
                // Elsewhere than where something is: nothing is replaced.
                self.end_unless(libc::BPF_JSET, libc::MAP_FIXED as u32, ALLOW);
                self.end_if(libc::BPF_JSET, libc::MAP_FIXED_NOREPLACE as u32, ALLOW);
                // The kernel maps more of a file of huge pages than is asked for.
                self.end_unless(libc::BPF_JSET, libc::MAP_ANONYMOUS as u32, DENY);
                self.end_if(libc::BPF_JSET, libc::MAP_HUGETLB as u32, DENY);
                self.go(Part::Range);
            }
            Part::Protect => {
                self.load(low(2));
                self.end_if(libc::BPF_JSET, RUN, DENY);
                // Closing pages opens nothing; the pools do it for the guards of new stacks.
                self.end_if(libc::BPF_JEQ, 0, ALLOW);
                self.go(Part::Range);
            }
            Part::Remap => {
                self.load(low(3));
                self.end_if(libc::BPF_JSET, libc::MREMAP_FIXED as u32, DENY);
                // No length: a second mapping of the same memory.
                self.load(high(1));
                self.jump(libc::BPF_JEQ, 0, 0, 3);
                self.load(low(1));
                self.end_if(libc::BPF_JEQ, 0, DENY);
                self.go(Part::Range);
            }
            Part::Clone => self.clones(),
            Part::Action => {
                // Asking is allowed.
                for word in [low(1), high(1)] {
                    self.load(word);
                    self.end_unless(libc::BPF_JEQ, 0, DENY);
                }
                self.end(ALLOW);
            }
            Part::Prctl => {
                self.load(low(0));
                for option in PRCTL {
                    self.end_if(libc::BPF_JEQ, option.cast_unsigned(), ALLOW);
                }
                self.end(DENY);
            }
            Part::ArchPrctl => {
                self.load(low(0));
                self.end_unless(libc::BPF_JGE, *BASES.start(), DENY);
                self.end_if(libc::BPF_JGT, *BASES.end(), DENY);
                self.end(ALLOW);
            }
            Part::Personality => {
                const ASK: u32 = u32::MAX;
                self.load(low(0));
                self.end_if(libc::BPF_JEQ, ASK, ALLOW);
                self.end(DENY);
            }
            Part::Range => self.ranges(guarded),
        }
    }

    /// Allows new threads, and processes with a copy of the memory, in the name spaces of this one.
    fn clones(&mut self) {
        const SPACES: u32 = (libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET) as u32;
        self.load(low(0));
        self.end_if(libc::BPF_JSET, SPACES, DENY);
        // A thread, or a process with a copy of the memory.
        self.end_if(libc::BPF_JSET, libc::CLONE_THREAD as u32, ALLOW);
        self.end_if(libc::BPF_JSET, libc::CLONE_VM as u32, DENY);
        self.end(ALLOW);
    }

    /// Denies what touches a guarded range: from the first argument on, as long as the second says. The kernel rounds
    /// lengths up to pages, which changes nothing at the ends of ranges that are whole pages.
    fn ranges(&mut self, guarded: &[Range]) {
        /// Words that a filter can keep.
        const START: [u32; 2] = [0, 1];
        const END: [u32; 2] = [2, 3];
        const LENGTH_HIGH: u32 = 4;
        /// Programs have 47 bits of addresses (more only when they ask for it); tags of pointers lie above.
        const HIGH_MAX: u32 = 0x7fff;
        let keep = libc::BPF_ST;
        let kept = libc::BPF_LD | libc::BPF_MEM;
        self.load(high(0));
        self.end_if(libc::BPF_JGT, HIGH_MAX, DENY);
        self.add(keep, START[1], 0, 0);
        self.load(high(1));
        self.end_if(libc::BPF_JGT, HIGH_MAX, DENY);
        self.add(keep, LENGTH_HIGH, 0, 0);
        self.load(low(0));
        self.add(keep, START[0], 0, 0);
        // The low words' sum, and its carry.
        self.add(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0);
        self.load(low(1));
        self.add(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0, 0, 0);
        self.add(keep, END[0], 0, 0);
        self.add(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_X, 0, 2, 0);
        self.add(libc::BPF_LD | libc::BPF_IMM, 1, 0, 0);
        self.add(libc::BPF_JMP | libc::BPF_JA, 1, 0, 0);
        self.add(libc::BPF_LD | libc::BPF_IMM, 0, 0, 0);
        for word in [START[1], LENGTH_HIGH] {
            self.add(libc::BPF_LDX | libc::BPF_MEM, word, 0, 0);
            self.add(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0, 0, 0);
        }
        self.add(keep, END[1], 0, 0);
        for (from, to) in guarded {
            let [from, to] = [*from as u64, *to as u64].map(|at| (at as u32, (at >> 32) as u32));
            // It begins at the range's end, or above: the next one.
            self.add(kept, START[1], 0, 0);
            self.jump(libc::BPF_JGT, to.1, 9, 0);
            self.jump(libc::BPF_JEQ, to.1, 0, 2);
            self.add(kept, START[0], 0, 0);
            self.jump(libc::BPF_JGE, to.0, 6, 0);
            // It ends above the range's start: it touches it.
            self.add(kept, END[1], 0, 0);
            self.jump(libc::BPF_JGT, from.1, 3, 0);
            self.jump(libc::BPF_JEQ, from.1, 0, 3);
            self.add(kept, END[0], 0, 0);
            self.jump(libc::BPF_JGT, from.0, 0, 1);
            self.end(DENY);
        }
        self.end(ALLOW);
    }
}

#[cfg(test)]
mod tests;
