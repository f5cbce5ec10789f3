//! Work that goes on as before.

use super::common::{ADD, NULL, PANIC, PLACE, READ, RUN, WRITE, end_of, first, load, wrong};
use super::{confine_now, is_possible};
use handfast_domain::confine::{self, ConfineError, confine};
use handfast_domain::{CallError, Domain, DomainOptions, Fault, LoadError, NoDeadline, Table};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn ordinary_work_goes_on_in_a_confined_process() {
    if is_possible() {
        assert!(end_of("ordinary", &[], &["done"]).success());
    }
}

#[test]
fn a_fault_of_a_domain_ends_a_confined_process() {
    if is_possible() {
        assert_eq!(
            end_of("fault", &[], &["inside"]).signal(),
            Some(libc::SIGSEGV)
        );
    }
}

#[test]
fn only_the_paths_that_were_named_can_be_opened() {
    if is_possible() {
        let directory = std::env::temp_dir().join(format!("handfast-paths-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.to_str().unwrap();
        assert!(end_of("paths", &[path], &["done"]).success());
        std::fs::remove_dir_all(directory).unwrap();
    }
}

/// An address, in whose displacement are the bytes of XRSTOR by chance.
#[unsafe(naked)]
extern "C" fn in_a_displacement() -> u64 {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "nop",
        ".byte 0x48, 0x8d, 0x05, 0x0f, 0xae, 0x28, 0x00",
        "ret",
        ".cfi_endproc",
    )
}

/// A constant, which ends with the first byte of WRPKRU; an addition is the others.
#[unsafe(naked)]
extern "C" fn across_two_instructions() -> u64 {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "nop",
        ".byte 0xb8, 0x05, 0x00, 0x00, 0x0f",
        ".byte 0x01, 0xef",
        "ret",
        ".cfi_endproc",
    )
}

/// Their bytes: an instruction of one byte, and the others.
fn bytes_of(function: extern "C" fn() -> u64) -> [u8; 8] {
    let at: *const [u8; 8] = std::ptr::with_exposed_provenance(function as usize);
    // SAFETY: code of this program, which is as long.
    unsafe { at.read_volatile() }
}

/// Places in a mapping where the bytes of WRPKRU or XRSTOR are.
fn strays_in(line: &str) -> usize {
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
    let code: *const u8 = std::ptr::with_exposed_provenance(start);
    // SAFETY: code that was mapped, and stays so.
    let code = unsafe { std::slice::from_raw_parts(code, end - start) };
    let is_stray = |bytes: &&[u8]| match bytes {
        [0x0f, 0x01, 0xef] => true,
        [0x0f, 0xae, operand] => operand & 0x38 == 0x28 && *operand < 0xc0,
        _ => false,
    };
    code.windows(3).filter(is_stray).count()
}

#[test]
fn code_that_changes_rights_by_chance_is_moved_and_does_what_it_did() {
    if is_possible() {
        assert!(end_of("chance", &[], &["done"]).success());
    }
}

pub(super) fn chance() {
    let _domain = load(DomainOptions::new()).unwrap();
    let functions = [
        in_a_displacement as extern "C" fn() -> u64,
        across_two_instructions,
    ];
    let before = functions.map(|function| (function(), bytes_of(function)));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    confine_now();
    // In all code that there was, the gate's two are left.
    let strays = maps
        .lines()
        .filter(|line| line.contains("r-xp"))
        .map(strays_in);
    assert_eq!(strays.sum::<usize>(), 2);
    let after = functions.map(|function| (function(), bytes_of(function)));
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.0, after.0);
        assert_ne!(before.1, after.1);
    }
    assert_eq!(after[1].0, 0x0f00_0005);
    handfast_testing::say("done");
}

static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Waits in the domain until so many threads are in it.
fn wait_inside() {
    INSIDE.fetch_add(1, SeqCst);
    while INSIDE.load(SeqCst) < THREADS {
        std::thread::yield_now();
    }
}

/// More than the stacks that a CPU has at first.
const THREADS: usize = 24;

pub(super) fn work() {
    // The output of a domain's panic does not matter here.
    let domain = load(DomainOptions::new()).unwrap();
    let mut held = domain.hold().unwrap();
    // With a deadline as long as there are handlers; this one's is taken away.
    domain.call_timeout(ADD, first(5), LONG).unwrap();
    confine_now();
    assert_eq!(
        domain.call_timeout(ADD, first(5), LONG),
        Err(CallError::NoDeadline(NoDeadline::Confined))
    );
    // The domain: calls, bytes, held stacks, and a reset after a panic, which clears its memory.
    let free = domain.call(PLACE, first(0)).unwrap()[0] + 0x8000;
    wrong(&domain, WRITE, free).unwrap();
    assert_eq!(wrong(&domain, READ, free), Ok(7));
    assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 6);
    assert_eq!(held.call(ADD, first(1)).unwrap()[0], 7);
    assert_eq!(
        wrong(&domain, PANIC, 0),
        Err(CallError::Fault(Fault::Panic))
    );
    assert_eq!(domain.call(ADD, first(3)).unwrap()[0], 3, "made anew");
    assert_eq!(wrong(&domain, READ, free), Ok(0));
    let mut reply = [0; 4];
    domain
        .call_bytes(ADD, &mut first(0), b"abc", &mut reply)
        .unwrap();
    // Threads, of which each needs a stack of the domain that is built now.
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                domain
                    .call(RUN, first(wait_inside as fn() as usize as u64))
                    .unwrap();
                for _ in 0..10_000 {
                    domain.call(ADD, first(1)).unwrap();
                }
            });
        }
    });
    assert_eq!(
        domain.call(ADD, first(0)).unwrap()[0],
        3 + THREADS as u64 * 10_000
    );
    domain.trim().unwrap();
    // Memory, small and large, that comes and goes.
    for round in 0..5u8 {
        let all: Vec<Vec<u8>> = (12..24).map(|bits| vec![round; 1 << bits]).collect();
        assert!(all.iter().all(|block| block[block.len() / 2] == round));
        let mut grown = vec![round; 1 << 20];
        grown.resize(1 << 24, round);
        assert_eq!(grown[1 << 23], round);
    }
    // Files and sockets.
    let path = std::env::temp_dir().join(format!("handfast-confined-{}", std::process::id()));
    std::fs::write(&path, "some bytes").unwrap();
    let moved = path.with_extension("moved");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "some bytes");
    std::fs::remove_file(moved).unwrap();
    std::fs::write("/dev/null", "x").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    one.write_all(b"hello").unwrap();
    drop(one);
    let mut text = String::new();
    listener
        .accept()
        .unwrap()
        .0
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "hello");
    // A forked child works, and is as confined.
    // SAFETY: one thread.
    match unsafe { libc::fork() } {
        0 => {
            let opened = std::fs::File::open("/proc/self/mem").is_ok();
            let forked = domain.call(ADD, first(0)) == Err(CallError::Forked);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(opened) + 2 * i32::from(!forked)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for that child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }
    // No core files, and no debugger of the same user.
    let dumps = rustix::process::dumpable_behavior().unwrap();
    assert_eq!(dumps, rustix::process::DumpableBehavior::NotDumpable);
    // Operations that are no longer done say so.
    assert_eq!(
        confine(&confine::ConfineOptions::new()),
        Err(ConfineError::Already)
    );
    let table = Table::new(|_| ());
    // SAFETY: it has no functions.
    let again = unsafe { Domain::new(&table, DomainOptions::new()) };
    assert_eq!(again.unwrap_err(), LoadError::Confined);
    let program = std::process::Command::new("/bin/true").status();
    assert_eq!(
        program.unwrap_err().kind(),
        std::io::ErrorKind::PermissionDenied
    );
    drop((held, domain));
    handfast_testing::say("done");
}

pub(super) fn fault_inside() {
    let domain = load(DomainOptions::new()).unwrap();
    confine_now();
    handfast_testing::say("inside");
    let _ = wrong(&domain, NULL, 0);
    handfast_testing::say("still here");
}

static RIGHTS: AtomicUsize = AtomicUsize::new(0);

/// Not closed: shown, so that SECURITY.md stays true.
#[test]
fn what_stays_open_is_a_panic() {
    if is_possible() {
        assert!(end_of("panic", &[], &["done"]).success());
    }
}

pub(super) fn panic_inside() {
    fn panic() {
        panic!("in the domain");
    }
    /// Of no domain.
    const NONE: usize = 0x5555_5554;
    let domain = load(DomainOptions::new()).unwrap();
    confine_now();
    std::panic::set_hook(Box::new(|_| {
        let rights: usize;
        // SAFETY: reads the rights.
        unsafe { std::arch::asm!("rdpkru", in("ecx") 0, out("rax") rights, out("edx") _) };
        RIGHTS.store(rights, SeqCst);
    }));
    let ended = domain.call(RUN, first(panic as fn() as usize as u64));
    assert_eq!(ended, Err(CallError::Fault(Fault::Panic)));
    assert_ne!(RIGHTS.load(SeqCst), NONE);
    handfast_testing::say("done");
}

pub(super) fn paths(directory: &str) {
    let domain = load(DomainOptions::new()).unwrap();
    confine(&confine::ConfineOptions::new().allow_path(directory)).unwrap();
    let inside = format!("{directory}/file");
    std::fs::write(&inside, "x").unwrap();
    assert_eq!(std::fs::read(&inside).unwrap(), b"x");
    for outside in ["/etc/passwd", "/proc/self/mem", "/proc/self/status"] {
        let error = std::fs::File::open(outside).unwrap_err();
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::PermissionDenied,
            "{outside}"
        );
    }
    std::fs::File::open("/dev/null").unwrap();
    domain.call(ADD, first(1)).unwrap();
    handfast_testing::say("done");
}
