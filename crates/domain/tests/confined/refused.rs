//! Conditions that keep a process from being confined, each with its own error, and nothing changed.

use super::common::{ADD, end_of, first, load};
use super::is_possible;
use handfast_domain::confine::{self, ConfineError, confine};
use handfast_domain::{Domain, DomainOptions};
use handfast_testing::say;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

const PAGE: usize = 4096;

/// Refuses for that reason, which the child checks.
fn is_refused(why: &str) {
    if is_possible() {
        assert!(end_of("refused", &[why], &["refused"]).success());
    }
}

macro_rules! reasons {
    ($($test:ident: $why:literal;)*) => {$(
        #[test]
        fn $test() {
            is_refused($why);
        }
    )*};
}

reasons! {
    without_domains_nothing_is_confined: "no domains";
    other_threads_are_refused: "threads";
    handlers_are_refused: "handler";
    open_memory_files_are_refused: "memory file";
    an_open_userfaultfd_is_refused: "userfaultfd";
    writable_code_is_refused: "writable code";
    code_that_cannot_be_read_is_refused: "unreadable code";
    low_code_is_refused: "low code";
    memory_of_a_key_that_has_a_file_is_refused: "alias";
    a_stray_wrpkru_across_a_page_border_is_found: "stray";
    a_stray_xrstor_is_found: "stray xrstor";
    a_stray_wrpkru_in_a_library_is_found_with_its_place: "library";
    a_path_that_must_stay_closed_is_refused: "path";
}

/// Pages of code, with these bytes at `at`.
fn code(at: usize, bytes: &[u8], where_: usize, last: i32) -> *mut u8 {
    let low = if where_ == 0 { 0 } else { libc::MAP_32BIT };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | low;
    // SAFETY: new memory.
    let memory = unsafe { libc::mmap(null_mut(), 2 * PAGE, 3, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    let memory: *mut u8 = memory.cast();
    // Not as operands of instructions, which would be found there.
    let bytes = std::hint::black_box(bytes);
    // SAFETY: inside the two pages.
    unsafe {
        memory
            .wrapping_add(at)
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    // SAFETY: pages of ours.
    assert_eq!(unsafe { libc::mprotect(memory.cast(), 2 * PAGE, last) }, 0);
    memory
}

const READ_RUN: i32 = libc::PROT_READ | libc::PROT_EXEC;
const WRPKRU: [u8; 3] = [0x0f, 0x01, 0xef];

fn refusal(domain: Option<&Domain>) -> ConfineError {
    let error = confine(&confine::ConfineOptions::new()).unwrap_err();
    assert!(!confine::is_confined());
    // Nothing has changed.
    File::open("/proc/self/mem").unwrap();
    if let Some(domain) = domain {
        domain.call(ADD, first(1)).unwrap();
    }
    eprintln!("{error}");
    error
}

pub(super) fn play(why: &str) {
    let domain = (why != "no domains").then(|| load(DomainOptions::new()).unwrap());
    let domain = domain.as_ref();
    match why {
        "no domains" => assert_eq!(refusal(domain), ConfineError::NoDomains),
        "threads" => {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || receiver.recv());
            assert_eq!(refusal(domain), ConfineError::Threads { count: 2 });
            drop(sender);
            let _ = thread.join();
        }
        "handler" => {
            extern "C" fn nothing(_: i32) {}
            // SAFETY: it does nothing.
            unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
            assert_eq!(
                refusal(domain),
                ConfineError::Handler {
                    signal: libc::SIGUSR2
                }
            );
        }
        "memory file" => {
            let file = File::open("/proc/self/mem").unwrap();
            let ConfineError::Descriptor { number, leads_to } = refusal(domain) else {
                unreachable!()
            };
            assert_eq!(number, file.as_raw_fd());
            assert!(leads_to.ends_with("/mem"), "{leads_to}");
        }
        "userfaultfd" => {
            // SAFETY: takes an integer.
            let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, 1) };
            if fd >= 0 {
                let error = refusal(domain);
                assert!(matches!(error, ConfineError::Descriptor { .. }), "{error}");
            }
        }
        "writable code" => {
            let at = code(0, &[0xc3], 0, 7) as usize;
            assert!(
                matches!(refusal(domain), ConfineError::Memory { at: found, .. } if found == at)
            );
        }
        "unreadable code" => {
            let at = code(0, &[0xc3], 0, libc::PROT_EXEC) as usize;
            assert!(
                matches!(refusal(domain), ConfineError::Memory { at: found, .. } if found == at)
            );
        }
        "low code" => {
            let at = code(0, &[0xc3], 1, READ_RUN) as usize;
            assert!(at < 1 << 32);
            assert!(
                matches!(refusal(domain), ConfineError::Memory { at: found, .. } if found == at)
            );
        }
        "alias" => {
            let key = handfast_sys::keys::Key::allocate().unwrap();
            let file = rustix::fs::memfd_create("alias", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
            // SAFETY: new memory.
            let memory =
                unsafe { libc::mmap(null_mut(), PAGE, 3, libc::MAP_SHARED, file.as_raw_fd(), 0) };
            assert_ne!(memory, libc::MAP_FAILED);
            // SAFETY: a page of ours.
            let result =
                unsafe { libc::syscall(libc::SYS_pkey_mprotect, memory, PAGE, 3, key.number()) };
            assert_eq!(result, 0);
            let at = memory as usize;
            assert!(
                matches!(refusal(domain), ConfineError::Memory { at: found, .. } if found == at)
            );
        }
        "stray" => {
            for before in [1, 2] {
                let memory = code(PAGE - before, &WRPKRU, 0, READ_RUN);
                stray(domain, memory as usize + PAGE - before, "WRPKRU", "");
                // SAFETY: nobody uses it.
                unsafe { libc::munmap(memory.cast(), 2 * PAGE) };
            }
            // Two mappings, one file's or none's, are one piece of code.
            let memory = code(PAGE - 1, &WRPKRU, 0, READ_RUN);
            let other = libc::MADV_DONTDUMP;
            let second = memory.wrapping_add(PAGE);
            // SAFETY: makes a mapping of its own of the second page.
            let result = unsafe { libc::madvise(second.cast(), PAGE, other) };
            assert_eq!(result, 0);
            stray(domain, memory as usize + PAGE - 1, "WRPKRU", "");
        }
        "stray xrstor" => {
            let memory = code(100, &[0x48, 0x0f, 0xae, 0xaf], 0, READ_RUN);
            stray(domain, memory as usize + 101, "XRSTOR", "");
        }
        "library" => library(domain),
        "path" => {
            let options = confine::ConfineOptions::new().allow_path("/proc/self");
            let error = confine(&options).unwrap_err();
            assert!(matches!(error, ConfineError::Path { .. }), "{error}");
        }
        _ => unreachable!(),
    }
    say("refused");
}

fn stray(domain: Option<&Domain>, expected: usize, name: &str, path: &str) {
    match refusal(domain) {
        ConfineError::Stray {
            instruction,
            at,
            file,
            ..
        } => {
            assert!(instruction.starts_with(name));
            assert_eq!((at, file.as_str()), (expected, path));
        }
        error => panic!("{error}"),
    }
}

/// A file that is mapped as a library is, with such bytes across the border of two pages.
fn library(domain: Option<&Domain>) {
    let path = std::env::temp_dir().join(format!("handfast-stray-{}", std::process::id()));
    let mut bytes = vec![0x90; 4 * PAGE];
    bytes[2 * PAGE - 1..2 * PAGE + 2].copy_from_slice(&WRPKRU);
    std::fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    // SAFETY: new memory.
    let memory = unsafe {
        libc::mmap(
            null_mut(),
            3 * PAGE,
            READ_RUN,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            PAGE as i64,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    drop(file);
    match refusal(domain) {
        ConfineError::Stray {
            at, file, offset, ..
        } => {
            assert_eq!(at, memory as usize + PAGE - 1);
            assert_eq!(
                (file.as_str(), offset),
                (path.to_str().unwrap(), 2 * PAGE as u64 - 1)
            );
        }
        error => panic!("{error}"),
    }
    std::fs::remove_file(path).unwrap();
}
