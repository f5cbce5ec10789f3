//! The ways into a domain, as untrusted code of the same process would try them.

use super::common::{ADD, PLACE, READ, first, load, wrong};
use super::{confine_now, tricks};
use handfast_domain::{Domain, DomainOptions};
use handfast_testing::say;
use std::arch::asm;
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};

const SECRET: u64 = 41;
pub(super) const PAGE: usize = 4096;

/// A domain with a secret, and where that is.
pub(super) struct Goal {
    pub(super) domain: Domain,
    at: usize,
}

/// The outcome of a way.
pub(super) enum End {
    Open,
    Closed(String),
    None(String),
}

pub(super) type Tried = Result<End, Error>;

pub(super) fn play(name: &str, is_confined: bool) {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(SECRET)).unwrap();
    let at = domain.call(PLACE, first(0)).unwrap()[0] as usize;
    let goal = Goal { domain, at };
    if name == "write to a library" {
        tricks::prepare_library();
    }
    if is_confined {
        confine_now();
    }
    tell(run(name, &goal));
    // Without the usual end: code may be gone that it needs.
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Says what came of it.
fn tell(tried: Tried) {
    match tried.unwrap_or_else(|error| End::of(&error)) {
        End::Open => say("open"),
        End::Closed(how) => say(&format!("closed: {how}")),
        End::None(why) => say(&format!("none: {why}")),
    }
}

/// All of [`CALLS`].
pub(super) fn all_calls(is_confined: bool) {
    let _domain = load(DomainOptions::new()).unwrap();
    if is_confined {
        confine_now();
    }
    for (_, number, arguments) in CALLS {
        tell(call(*number, *arguments).map(|_| End::Open));
    }
}

impl End {
    fn of(error: &Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::Closed("EPERM".to_owned()),
            Some(libc::EACCES) => Self::Closed("EACCES".to_owned()),
            Some(libc::ENOSYS) => Self::None("ENOSYS".to_owned()),
            _ => Self::None(error.to_string()),
        }
    }

    pub(super) fn is(open: bool, otherwise: &str) -> Self {
        if open {
            Self::Open
        } else {
            Self::Closed(otherwise.to_owned())
        }
    }
}

pub(super) fn call(number: i64, a: [usize; 6]) -> Result<usize, Error> {
    // SAFETY: the point of these tests is what such calls do.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

impl Goal {
    /// The secret, by a plain load: faults without rights.
    fn look(&self) -> u64 {
        let at: *const u64 = with_exposed_provenance(self.at);
        // SAFETY: mapped; whether there are rights is what is tested.
        unsafe { at.read_volatile() }
    }

    /// The value that the domain itself holds.
    fn held(&self) -> u64 {
        self.domain.call(ADD, first(0)).unwrap()[0]
    }

    pub(super) const fn page(&self) -> usize {
        self.at & !(PAGE - 1)
    }

    fn looked(&self) -> End {
        End::is(self.look() == SECRET, "not the secret")
    }

    fn changed(&self) -> End {
        End::is(self.held() != SECRET, "unchanged")
    }
}

fn run(name: &str, goal: &Goal) -> Tried {
    let page = goal.page();
    match name {
        "process_vm_readv" => {
            let found = vm_read(std::process::id(), goal.at)?;
            Ok(End::is(found == SECRET, "not the secret"))
        }
        "process_vm_writev" => {
            let value = 7u64;
            let [from, to] = [(&raw const value) as usize, goal.at].map(vector);
            let to = (&raw const to) as usize;
            let me = std::process::id() as usize;
            call(
                libc::SYS_process_vm_writev,
                [me, (&raw const from) as usize, 1, to, 1, 0],
            )?;
            Ok(goal.changed())
        }
        "process_vm_readv of the parent" => {
            from_child(|parent| vm_read(parent, goal.at).map(|found| found == SECRET))
        }
        "read of /proc/self/mem" => file_read("/proc/self/mem", goal.at),
        "write to /proc/self/mem" => {
            let file = std::fs::File::options()
                .write(true)
                .open("/proc/self/mem")?;
            file.write_all_at(&7u64.to_ne_bytes(), goal.at as u64)?;
            Ok(goal.changed())
        }
        "read of /proc/self/task/TID/mem" => file_read(
            &format!("/proc/self/task/{}/mem", std::process::id()),
            goal.at,
        ),
        "read of /proc/PARENT/mem" => from_child(|parent| {
            file_read(&format!("/proc/{parent}/mem"), goal.at).map(|end| matches!(end, End::Open))
        }),
        "pkey_mprotect" => {
            call(libc::SYS_pkey_mprotect, [page, PAGE, 3, 0, 0, 0])?;
            Ok(goal.looked())
        }
        "pkey_free and pkey_alloc" => {
            for key in 1..16 {
                match call(libc::SYS_pkey_free, [key, 0, 0, 0, 0, 0]) {
                    Ok(_) => break,
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
                    Err(_) => {}
                }
            }
            call(libc::SYS_pkey_alloc, [0; 6])?;
            Ok(goal.looked())
        }
        "mmap over it" => over(goal, page, 0),
        "mmap of huge pages over it" => {
            const HUGE: usize = 2 << 20;
            // Begins before the domain, and is rounded up over it.
            let result = over(goal, page & !(HUGE - 1), libc::MAP_HUGETLB);
            match result {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    Ok(End::None("no huge pages".to_owned()))
                }
                other => other,
            }
        }
        "madvise" => {
            call(
                libc::SYS_madvise,
                [page, PAGE, libc::MADV_DONTNEED as usize, 0, 0, 0],
            )?;
            Ok(goal.changed())
        }
        "process_madvise" => {
            let own = call(
                libc::SYS_pidfd_open,
                [std::process::id() as usize, 0, 0, 0, 0, 0],
            )?;
            let range = libc::iovec {
                iov_base: with_exposed_provenance_mut(page),
                iov_len: PAGE,
            };
            let advice = libc::MADV_DONTNEED as usize;
            call(
                libc::SYS_process_madvise,
                [own, (&raw const range) as usize, 1, advice, 0, 0],
            )?;
            Ok(goal.changed())
        }
        "munmap" => call(libc::SYS_munmap, [page, PAGE, 0, 0, 0, 0]).map(|_| End::Open),
        "mremap" => call(libc::SYS_mremap, [page, PAGE, 2 * PAGE, 1, 0, 0]).map(|_| End::Open),
        "userfaultfd" => tricks::fill_in(goal),
        "shmat over it" => {
            let id = call(
                libc::SYS_shmget,
                [0, PAGE, 0o600 | libc::IPC_CREAT as usize, 0, 0, 0],
            )?;
            let tried = call(
                libc::SYS_shmat,
                [id, page, libc::SHM_REMAP as usize, 0, 0, 0],
            );
            let _ = call(libc::SYS_shmctl, [id, libc::IPC_RMID as usize, 0, 0, 0, 0]);
            tried.map(|_| goal.changed())
        }
        "WRPKRU" => {
            // xor ecx, ecx; xor edx, edx; xor eax, eax; wrpkru; ret
            tricks::run_code(&[0x31, 0xc9, 0x31, 0xd2, 0x31, 0xc0, 0x0f, 0x01, 0xef, 0xc3])?;
            Ok(goal.looked())
        }
        "XRSTOR" => {
            // mov eax, 1 << 9; xor edx, edx; xrstor [rdi]; ret: the first state of the rights is all of them.
            tricks::run_code(&[0xb8, 0, 2, 0, 0, 0x31, 0xd2, 0x0f, 0xae, 0x2f, 0xc3])?;
            Ok(goal.looked())
        }
        "forged frame" => {
            tricks::handle(
                libc::SIGUSR1,
                tricks::forge as *const () as usize,
                libc::SA_SIGINFO,
            )?;
            // SAFETY: takes an integer.
            unsafe { libc::raise(libc::SIGUSR1) };
            Ok(goal.looked())
        }
        "rt_sigreturn" => {
            // Without confinement there is nothing to return to: tried by the forged frame.
            if !handfast_domain::confine::is_confined() {
                return Ok(End::None("tried as `forged frame`".to_owned()));
            }
            call(libc::SYS_rt_sigreturn, [0; 6]).map(|_| End::Open)
        }
        "frame at the stack pointer" => tricks::frame_at_stack_pointer(goal),
        "frame of the C library's signal" => {
            // Whose handler ends with a fault there, when the frame has been written.
            const SIGNAL: i32 = 33;
            // The C library handles it from the first thread on; that was before this process was forked.
            if !handfast_domain::confine::is_confined() {
                let there = handfast_sys::signal::has_handler(SIGNAL)?;
                return Ok(if there {
                    End::Open
                } else {
                    End::None("no handler".to_owned())
                });
            }
            tricks::raise_at(page + 16 * PAGE, std::process::id() as usize, 0, SIGNAL);
            Ok(End::Open)
        }
        "io_uring" => tricks::done_later(goal),
        "rseq" => tricks::leave_by_rseq(goal),
        "mprotect of constants" => {
            let at = (&raw const CONSTANT) as usize;
            call(libc::SYS_mprotect, [at & !(PAGE - 1), PAGE, 3, 0, 0, 0])?;
            let place: *mut u64 = with_exposed_provenance_mut(at);
            // SAFETY: writable since the call before.
            unsafe { place.write_volatile(6) };
            let seen = wrong(&goal.domain, READ, at as u64).unwrap();
            Ok(End::is(seen == 6, "unchanged"))
        }
        "READ_IMPLIES_EXEC" => {
            call(libc::SYS_personality, [0x0040_0000, 0, 0, 0, 0, 0])?;
            let memory = map(libc::PROT_READ | libc::PROT_WRITE)?;
            // SAFETY: a page of ours; ret.
            unsafe { memory.write_volatile(0xc3) };
            // SAFETY: code of one instruction.
            let code = unsafe { std::mem::transmute::<*mut u8, extern "C" fn()>(memory) };
            code();
            Ok(End::Open)
        }
        "write to a library" => tricks::write_to_library(),
        "int 0x80" => {
            const GETPID: u64 = 20;
            let result: i64;
            // SAFETY: a system call without arguments.
            unsafe {
                asm!("int 0x80", inout("rax") GETPID => result, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
            };
            match result as i32 {
                result if result < 0 => Err(Error::from_raw_os_error(-result)),
                _ => Ok(End::Open),
            }
        }
        "clone of the memory" => {
            // As `vfork`: the child ends at once, and the parent waits for that.
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let result: i64;
            // SAFETY: the child does nothing but end, on its parent's stack below the red zone.
            unsafe {
                asm!(
                    "syscall",
                    "test rax, rax",
                    "jnz 2f",
                    "mov edi, 0",
                    "mov eax, 231",
                    "syscall",
                    "2:",
                    inout("rax") libc::SYS_clone => result, in("rdi") flags, in("rsi") 0, in("rdx") 0,
                    in("r10") 0, in("r8") 0, out("rcx") _, out("r11") _,
                );
            }
            if result < 0 {
                return Err(Error::from_raw_os_error(-result as i32));
            }
            Ok(End::Open)
        }
        "dlopen" => match tricks::open_library(&tricks::library()) {
            Ok(_) => Ok(End::Open),
            Err(how) => Ok(End::Closed(
                how.rsplit(": ").next().unwrap_or_default().to_owned(),
            )),
        },
        _ => unreachable!(),
    }
}

type Whole = (&'static str, i64, [usize; 6]);

/// Calls that are denied whatever their arguments are, with such that do nothing without confinement.
pub(super) const CALLS: &[Whole] = &[
    ("ptrace", libc::SYS_ptrace, [usize::MAX >> 1, 0, 0, 0, 0, 0]),
    ("modify_ldt", libc::SYS_modify_ldt, [0; 6]),
    ("remap_file_pages", libc::SYS_remap_file_pages, [0; 6]),
    ("io_uring_setup", libc::SYS_io_uring_setup, [0; 6]),
    (
        "io_uring_enter",
        libc::SYS_io_uring_enter,
        [usize::MAX, 0, 0, 0, 0, 0],
    ),
    ("io_setup", libc::SYS_io_setup, [0; 6]),
    ("perf_event_open", libc::SYS_perf_event_open, [0; 6]),
    ("bpf", libc::SYS_bpf, [usize::MAX, 0, 0, 0, 0, 0]),
    ("seccomp", libc::SYS_seccomp, [99, 0, 0, 0, 0, 0]),
    ("execve", libc::SYS_execve, [0; 6]),
    ("execveat", libc::SYS_execveat, [usize::MAX, 0, 0, 0, 0, 0]),
    ("unshare", libc::SYS_unshare, [0; 6]),
    ("setns", libc::SYS_setns, [usize::MAX, 0, 0, 0, 0, 0]),
    ("mount", libc::SYS_mount, [0; 6]),
    ("fsopen", libc::SYS_fsopen, [0; 6]),
    (
        "open_tree",
        libc::SYS_open_tree,
        [usize::MAX, 0, 0, 0, 0, 0],
    ),
    (
        "pidfd_getfd",
        libc::SYS_pidfd_getfd,
        [usize::MAX, 0, 0, 0, 0, 0],
    ),
    (
        "prctl PR_SET_SYSCALL_USER_DISPATCH",
        libc::SYS_prctl,
        [59, 0, 0, 0, 0, 0],
    ),
    (
        "prctl PR_SET_SECCOMP",
        libc::SYS_prctl,
        [22, 99, 0, 0, 0, 0],
    ),
    ("prctl PR_SET_MM", libc::SYS_prctl, [35, 99, 0, 0, 0, 0]),
    (
        "arch_prctl ARCH_MAP_VDSO_64",
        libc::SYS_arch_prctl,
        [0x2003, 0, 0, 0, 0, 0],
    ),
    (
        "rt_sigaction",
        libc::SYS_rt_sigaction,
        [libc::SIGUSR1 as usize, 1, 0, 8, 0, 0],
    ),
    ("map_shadow_stack", 453, [0; 6]),
    (
        "mremap to a chosen place",
        libc::SYS_mremap,
        [0, 0, 0, 3, 0, 0],
    ),
    ("mmap of code", libc::SYS_mmap, [0, 0, 4, 0x22, 0, 0]),
];

static CONSTANT: u64 = 5;

fn vector(at: usize) -> libc::iovec {
    libc::iovec {
        iov_base: with_exposed_provenance_mut(at),
        iov_len: 8,
    }
}

fn vm_read(process: u32, at: usize) -> Result<u64, Error> {
    let mut found = 0u64;
    let [to, from] = [(&raw mut found) as usize, at].map(vector);
    let (to, from) = ((&raw const to) as usize, (&raw const from) as usize);
    call(
        libc::SYS_process_vm_readv,
        [process as usize, to, 1, from, 1, 0],
    )?;
    Ok(found)
}

fn file_read(path: &str, at: usize) -> Tried {
    let mut found = [0; 8];
    std::fs::File::open(path)?.read_exact_at(&mut found, at as u64)?;
    Ok(End::is(
        u64::from_ne_bytes(found) == SECRET,
        "not the secret",
    ))
}

/// The outcome of a forked child's attempt on its parent.
fn from_child(get: impl FnOnce(u32) -> Result<bool, Error>) -> Tried {
    let parent = std::process::id();
    // SAFETY: one thread.
    match unsafe { libc::fork() } {
        0 => {
            let code = match get(parent) {
                Ok(true) => 0,
                Ok(false) => 255,
                Err(error) => error.raw_os_error().unwrap_or(254),
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for that child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            match libc::WEXITSTATUS(status) {
                0 => Ok(End::Open),
                code => Err(Error::from_raw_os_error(code)),
            }
        }
    }
}

fn over(goal: &Goal, at: usize, flags: i32) -> Tried {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | flags;
    call(libc::SYS_mmap, [at, PAGE, 3, flags as usize, usize::MAX, 0])?;
    Ok(goal.changed())
}

pub(super) fn map(protection: i32) -> Result<*mut u8, Error> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let memory = unsafe { libc::mmap(null_mut(), PAGE, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    Ok(memory.cast())
}
