//! The longer ones of the ways into a domain.

use super::common::{READ, RUN, first, wrong};
use super::ways::{End, Goal, PAGE, Tried, call, map};
use std::arch::{asm, naked_asm};
use std::io::{Error, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Runs code that was written just now; its argument is 64 zeros and more.
pub(super) fn run_code(code: &[u8]) -> Result<(), Error> {
    #[repr(C, align(64))]
    struct Zeros([u8; PAGE]);
    let mut zeros = Zeros([0; PAGE]);
    let memory = map(libc::PROT_READ | libc::PROT_WRITE)?;
    // Not as operands of instructions, which nobody lets pass.
    let code = std::hint::black_box(code);
    // SAFETY: fits into the page.
    unsafe { memory.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
    call(libc::SYS_mprotect, [memory as usize, PAGE, 5, 0, 0, 0])?;
    // SAFETY: the code above, which returns.
    let function = unsafe { std::mem::transmute::<*mut u8, extern "C" fn(*mut u8)>(memory) };
    function((&raw mut zeros.0).cast());
    Ok(())
}

pub(super) fn handle(signal: i32, handler: usize, flags: i32) -> Result<(), Error> {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handlers here are async-signal-safe.
    match unsafe { libc::sigaction(signal, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// A handler that gives what it interrupted all rights: the last word that it finds to be those of no domain.
pub(super) extern "C" fn forge(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    const RIGHTS: u32 = 0x5555_5554;
    // SAFETY: the kernel's.
    let state = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.fpregs };
    let words: *mut u32 = state.cast();
    // Behind the header, to where the kernel's second magic word is.
    for at in (512 + 64) / 4..1024 {
        let word = words.wrapping_add(at);
        // SAFETY: inside the frame.
        match unsafe { word.read_volatile() } {
            0x4650_5845 => return,
            // SAFETY: as above.
            RIGHTS => unsafe { word.write_volatile(0) },
            _ => {}
        }
    }
}

static STACK: AtomicUsize = AtomicUsize::new(0);

/// Leaves a signal without looking at its stack.
#[unsafe(naked)]
pub(super) extern "C" fn leap() {
    naked_asm!("mov rsp, [rip + {stack}]", "ret", stack = sym STACK)
}

/// Raises a signal with the stack pointer at `stack`, and a mark in a register.
#[unsafe(naked)]
pub(super) extern "C" fn raise_at(stack: usize, process: usize, mark: u64, signal: i32) {
    naked_asm!(
        "push rbx",
        "lea rax, [rip + 2f]",
        "push rax",
        "mov [rip + {stack}], rsp",
        "mov rbx, rdx",
        "mov rsp, rdi",
        "mov rdi, rsi",
        "mov esi, ecx",
        "mov eax, 62",
        "syscall",
        // The handler has popped this address.
        "2:",
        "pop rbx",
        "ret",
        stack = sym STACK,
    )
}

pub(super) fn frame_at_stack_pointer(goal: &Goal) -> Tried {
    const MARK: u64 = 0x4d61_726b_4d61_726b;
    handle(libc::SIGUSR1, leap as *const () as usize, libc::SA_ONSTACK)?;
    let none = libc::stack_t {
        ss_sp: null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: takes the alternate stack away.
    unsafe { libc::sigaltstack(&raw const none, null_mut()) };
    // Inside the domain's heap, of which the value is at the front.
    let top = goal.page() + 16 * PAGE;
    raise_at(top, std::process::id() as usize, MARK, libc::SIGUSR1);
    let is_there = (0..16 * PAGE as u64 / 8)
        .any(|word| wrong(&goal.domain, READ, top as u64 - 8 - 8 * word) == Ok(MARK));
    Ok(End::is(is_there, "no frame"))
}

static LEFT: AtomicBool = AtomicBool::new(false);

/// Some hundred milliseconds of nothing; and where to go on instead when this is interrupted.
#[unsafe(naked)]
pub(super) extern "C" fn spin() {
    naked_asm!(
        "mov ecx, 400000000",
        "2: dec ecx",
        "jnz 2b",
        ".globl handfast_test_spin_end",
        "handfast_test_spin_end: ret",
        // The mark that must stand before such a place.
        ".long 0x53053053",
        ".globl handfast_test_spin_left",
        "handfast_test_spin_left:",
        // Still with the domain's rights.
        "mov byte ptr [rip + {left}], 1",
        "ret",
        left = sym LEFT,
    )
}

unsafe extern "C" {
    fn handfast_test_spin_end();
    fn handfast_test_spin_left();
}

#[repr(C, align(32))]
struct Sequence {
    version: [u32; 2],
    start: usize,
    len: usize,
    left: usize,
}

pub(super) fn leave_by_rseq(goal: &Goal) -> Tried {
    // SAFETY: the name is a string that ends with a zero.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return Ok(End::None("the C library has no rseq".to_owned()));
    }
    // SAFETY: glibc's constant.
    let offset = unsafe { offset.cast::<isize>().read() };
    let start = spin as *const () as usize;
    let sequence = Sequence {
        version: [0; 2],
        start,
        len: handfast_test_spin_end as *const () as usize - start,
        left: handfast_test_spin_left as *const () as usize,
    };
    // SAFETY: the area's third and fourth word: which sequence this thread is in.
    unsafe { asm!("mov fs:[{} + 8], {}", in(reg) offset, in(reg) &raw const sequence) };
    // Somebody moves this thread from one processor to another meanwhile.
    // SAFETY: no arguments.
    let own = unsafe { libc::gettid() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cpus = handfast_sys::cpu::allowed();
            while !stop.load(SeqCst) {
                for cpu in &cpus {
                    let mask = 1u64 << cpu;
                    let _ = call(
                        libc::SYS_sched_setaffinity,
                        [own as usize, 8, (&raw const mask) as usize, 0, 0, 0],
                    );
                }
            }
        });
        let _ = goal
            .domain
            .call(RUN, first(spin as *const () as usize as u64));
        stop.store(true, SeqCst);
    });
    // SAFETY: as above.
    unsafe { asm!("mov qword ptr fs:[{} + 8], 0", in(reg) offset) };
    if LEFT.load(SeqCst) {
        return Ok(End::Open);
    }
    // And no area of one's own.
    #[repr(C, align(32))]
    struct Area([u32; 8]);
    let area = Area([0; 8]);
    call(
        libc::SYS_rseq,
        [(&raw const area) as usize, 32, 0, 0x5305_3053, 0, 0],
    )?;
    Ok(End::Open)
}

pub(super) fn fill_in(goal: &Goal) -> Tried {
    const USER_ONLY: usize = 1;
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const COPY: libc::c_ulong = 0xc028_aa03;
    let flags = libc::O_CLOEXEC as usize | USER_ONLY;
    let fd = call(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
    let ask = |what, argument: &mut [u64]| {
        call(
            libc::SYS_ioctl,
            [fd, what as usize, argument.as_mut_ptr() as usize, 0, 0, 0],
        )
    };
    // A page of the heap that nobody has touched.
    let page = goal.page() as u64 + 16 * PAGE as u64;
    let source = [0x41u8; 2 * PAGE];
    let from = (source.as_ptr() as u64).next_multiple_of(PAGE as u64);
    ask(API, &mut [0xaa, 0, 0])?;
    ask(REGISTER, &mut [page, PAGE as u64, 1, 0])?;
    ask(COPY, &mut [page, from, PAGE as u64, 0, 0])?;
    Ok(End::is(
        wrong(&goal.domain, READ, page) == Ok(0x4141_4141_4141_4141),
        "not filled in",
    ))
}

/// A library that is nowhere loaded here.
pub(super) fn library() -> String {
    let libraries = [
        "/lib/x86_64-linux-gnu/libresolv.so.2",
        "/usr/lib64/libresolv.so.2",
        "/usr/lib/libresolv.so.2",
    ];
    let found = libraries
        .iter()
        .find(|path| std::path::Path::new(path).exists());
    (*found.expect("a libresolv.so.2")).to_owned()
}

/// Loads it. Returns where its code begins; zero when nobody may look any more.
pub(super) fn open_library(path: &str) -> Result<usize, String> {
    let name = std::ffi::CString::new(path).unwrap();
    // SAFETY: a library of the system's, or a copy.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: asks for a text, which is there.
        let text = unsafe { libc::dlerror() };
        // SAFETY: the C library's, of this thread, until it is asked again.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        return Err(text.to_string_lossy().into_owned());
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let code = maps
        .lines()
        .find(|line| line.contains("r-xp") && line.ends_with(path));
    let start = code.and_then(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
    Ok(start.unwrap_or(0))
}

pub(super) fn copy_of_library_path() -> String {
    format!(
        "{}/handfast-library-{}.so",
        std::env::temp_dir().display(),
        std::process::id()
    )
}

pub(super) fn copy_of_library() -> String {
    let path = copy_of_library_path();
    std::fs::copy(library(), &path).unwrap();
    path
}

static LIBRARY: AtomicUsize = AtomicUsize::new(0);

/// Loads a library that can be written to.
pub(super) fn prepare_library() {
    let path = copy_of_library();
    LIBRARY.store(open_library(&path).unwrap(), SeqCst);
}

pub(super) fn write_to_library() -> Tried {
    let code = LIBRARY.load(SeqCst);
    let at: *const u8 = with_exposed_provenance(code);
    // SAFETY: code of a loaded library.
    let read = || unsafe { at.read_volatile() };
    let (before, path) = (read(), copy_of_library_path());
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&bytes)?;
    // Shorter, and longer again: that takes away pages that were copied, too.
    file.set_len(0)?;
    file.set_len(bytes.len() as u64)?;
    file.write_all_at(&bytes, 0)?;
    let after = read();
    std::fs::remove_file(path)?;
    Ok(End::is(before != after, "unchanged"))
}

/// How far the two threads of [`done_later`] are.
static STAGE: AtomicUsize = AtomicUsize::new(0);

/// In the domain: has the other thread write, and waits for what the kernel does then.
fn stay() {
    STAGE.store(1, SeqCst);
    while STAGE.load(SeqCst) == 1 {
        std::hint::spin_loop();
    }
    spin();
}

/// A ring that is told to receive into a domain while there is nothing to receive, and does so when there is something,
/// on the thread that told it, with the rights that has by then.
pub(super) fn done_later(goal: &Goal) -> Tried {
    const RECEIVE: u64 = 27;
    const LEN: usize = 4 * PAGE;
    // The kernel's structure: where things lie from the 10th word on.
    let mut about = [0u32; 30];
    let ring = call(
        libc::SYS_io_uring_setup,
        [4, about.as_mut_ptr() as usize, 0, 0, 0, 0],
    )?;
    let map_ring = |offset: usize| {
        call(
            libc::SYS_mmap,
            [
                0,
                LEN,
                3,
                (libc::MAP_SHARED | libc::MAP_POPULATE) as usize,
                ring,
                offset,
            ],
        )
    };
    let (queue, entries) = (map_ring(0)?, map_ring(0x1000_0000)?);
    let (here, there) = std::os::unix::net::UnixStream::pair()?;
    let at = goal.page() as u64 + 16 * PAGE as u64;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&here) as u64;
    let order = [RECEIVE | fd << 32, 0, at, 8];
    let first_entry: *mut [u64; 4] = with_exposed_provenance_mut(entries);
    // SAFETY: the first entry, which is zero but for these.
    unsafe { first_entry.write_volatile(order) };
    let tail: *mut u32 = with_exposed_provenance_mut(queue + about[11] as usize);
    // SAFETY: the count of entries; this thread's alone.
    unsafe { tail.write_volatile(1) };
    call(libc::SYS_io_uring_enter, [ring, 1, 0, 0, 0, 0])?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while STAGE.load(SeqCst) != 1 {
                std::thread::yield_now();
            }
            (&there).write_all(b"intruder").unwrap();
            STAGE.store(2, SeqCst);
        });
        goal.domain
            .call(RUN, first(stay as fn() as usize as u64))
            .unwrap();
    });
    let found = wrong(&goal.domain, READ, at).unwrap();
    Ok(End::is(
        found == u64::from_ne_bytes(*b"intruder"),
        "unchanged",
    ))
}
