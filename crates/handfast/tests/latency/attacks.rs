//! The attackers' actions, with the library as everybody has it, and bare system calls beside it.

use crate::common;
use handfast_layout::link::Side;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// An action that is done, over and over, to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// `MADV_REMOVE` of the pages in which answers come, which are filled again.
    RemoveLink,
    /// The same of bells.
    RemoveBells,
    /// `MADV_COLLAPSE`, and apart again.
    Collapse,
    /// `MADV_COLD`, `MADV_PAGEOUT`.
    PageOut,
    /// `mlock`, `munlock`.
    Lock,
    /// `mprotect` to nothing and back, `MADV_DONTNEED`.
    Protect,
    /// `mbind` that moves pages.
    Move,
    /// Registered with a `userfaultfd`, and not.
    UserFault,
    /// `FUTEX_REQUEUE` of whoever sleeps at bells.
    Requeue,
    /// `FUTEX_WAKE` of them.
    Wake,
    /// Sleeping there as well, so as to be woken instead.
    Steal,
    /// Says that nobody sleeps.
    Forge,
}

impl Attack {
    pub(crate) const ALL: [Self; 12] = [
        Self::RemoveLink,
        Self::RemoveBells,
        Self::Collapse,
        Self::PageOut,
        Self::Lock,
        Self::Protect,
        Self::Move,
        Self::UserFault,
        Self::Requeue,
        Self::Wake,
        Self::Steal,
        Self::Forge,
    ];
    pub(crate) const OTHERS: [Self; 6] = [
        Self::Collapse,
        Self::PageOut,
        Self::Lock,
        Self::Protect,
        Self::Move,
        Self::UserFault,
    ];
    pub(crate) const OF_SLEEPERS: [Self; 4] = [Self::Requeue, Self::Wake, Self::Steal, Self::Forge];

    fn named(name: &str) -> Self {
        let is_it = |attack: &Self| format!("{attack:?}") == name;
        Self::ALL.into_iter().find(is_it).unwrap()
    }
}

/// Memory by its addresses.
type Area = Range<usize>;

/// Where memory files with this name are mapped here.
fn mapped(name: &str) -> Vec<Area> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let areas = maps.lines().filter(|line| line.contains(name)).map(|line| {
        let (area, _) = line.split_once(' ').unwrap();
        let (start, end) = area.split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
        start..end
    });
    areas.collect()
}

/// Memory of the same size that nobody else has.
fn own(len_bytes: usize) -> Area {
    let fd = rustix::fs::memfd_create("own", rustix::fs::MemfdFlags::empty()).unwrap();
    rustix::fs::ftruncate(&fd, len_bytes as u64).unwrap();
    // SAFETY: a new mapping, which nothing in this process refers to.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            std::os::fd::AsRawFd::as_raw_fd(&fd),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at as usize..at as usize + len_bytes
}

fn advise(area: &Area, advice: libc::c_int) -> bool {
    // SAFETY: an attacker's: what becomes of its own memory is its own affair, and pages stay mapped.
    unsafe { libc::madvise(area.start as *mut _, area.len(), advice) == 0 }
}

const MADV_COLLAPSE: libc::c_int = 25;
/// So much of a link is filled again each time.
const FILLED: usize = 48 << 20;
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// The start of the same memory, where pages of 2 MiB can be: another mapping, which needs no descriptor.
fn huge(area: &Area) -> Area {
    static PLACES: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
    let place = PLACES.fetch_add(1 << 30, SeqCst);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let from = area.start as *mut libc::c_void;
    // SAFETY: with an old length of 0 the old mapping stays; nothing else is where the new one comes to be.
    let at = unsafe { libc::mremap(from, 0, 4 * HUGE, flags, place) };
    assert_ne!(at, libc::MAP_FAILED);
    place..place + 4 * HUGE
}

/// Does it once; whether the kernel let it.
fn once(attack: Attack, area: &Area, bells: &[Area]) -> bool {
    use libc::syscall;
    let few = area.start..area.start + area.len().min(64 * PAGE);
    let words = || bells.iter().map(|bells| bells.start as *mut u32);
    let at = |area: &Area| area.start as *mut libc::c_void;
    // SAFETY: as in `advise`.
    unsafe {
        match attack {
            Attack::RemoveLink => {
                // Where answers come: the link's words stay, so no rule is broken.
                let start = area.start + Side::Connector.reply_buffer(0);
                let filled = start..start + FILLED;
                advise(&filled, libc::MADV_POPULATE_WRITE);
                advise(&filled, libc::MADV_REMOVE)
            }
            Attack::RemoveBells => {
                advise(area, libc::MADV_POPULATE_WRITE);
                advise(area, libc::MADV_REMOVE)
            }
            Attack::Collapse => {
                let done = advise(area, MADV_COLLAPSE);
                for start in area.clone().step_by(HUGE) {
                    // Splits one that nobody else uses.
                    advise(&(start..start + PAGE), libc::MADV_PAGEOUT);
                }
                done
            }
            Attack::PageOut => advise(&few, libc::MADV_COLD) & advise(&few, libc::MADV_PAGEOUT),
            Attack::Lock => {
                let done = libc::mlock(at(&few), few.len()) == 0;
                libc::munlock(at(&few), few.len());
                done
            }
            Attack::Protect => {
                // Of pages that this process's own calls do not use.
                let far = area.end - few.len()..area.end;
                libc::mprotect(at(&far), far.len(), libc::PROT_NONE);
                libc::mprotect(at(&far), far.len(), libc::PROT_READ | libc::PROT_WRITE);
                advise(area, libc::MADV_DONTNEED)
            }
            Attack::Move => {
                const BIND: i32 = 2;
                const MOVE: i32 = 2;
                let nodes: u64 = 1;
                let result = syscall(
                    libc::SYS_mbind,
                    area.start,
                    few.len(),
                    BIND,
                    &raw const nodes,
                    64,
                    MOVE,
                );
                result == 0
            }
            Attack::UserFault => user_fault(area),
            Attack::Requeue => {
                words().fold(0, |moved, word| {
                    static ELSEWHERE: AtomicU32 = AtomicU32::new(0);
                    let there = ELSEWHERE.as_ptr();
                    moved
                        + syscall(
                            libc::SYS_futex,
                            word,
                            libc::FUTEX_REQUEUE,
                            0,
                            i32::MAX,
                            there,
                        )
                        .max(0)
                }) > 0
            }
            Attack::Wake => {
                words().fold(0, |woken, word| {
                    woken + syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX).max(0)
                }) > 0
            }
            Attack::Steal => {
                let soon = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 1_000_000,
                };
                words().fold(false, |stolen, word| {
                    let value = word.read_volatile();
                    let result = syscall(
                        libc::SYS_futex,
                        word,
                        libc::FUTEX_WAIT,
                        value,
                        &raw const soon,
                    );
                    stolen | (result == 0)
                })
            }
            Attack::Forge => words().fold(false, |forged, word| forged | forge(word)),
        }
    }
}

/// Writes to a word, if it can be written.
fn forge(word: *mut u32) -> bool {
    // A bare write faults where memory is read-only; the kernel's only fails.
    let (zero, own) = ([0u8; 4], rustix::process::getpid());
    let mine = libc::iovec {
        iov_base: zero.as_ptr().cast_mut().cast(),
        iov_len: 4,
    };
    let there = libc::iovec {
        iov_base: word.cast(),
        iov_len: 4,
    };
    let pid = own.as_raw_nonzero().get();
    // SAFETY: both name four bytes; the kernel checks those of the word.
    unsafe { libc::process_vm_writev(pid, &raw const mine, 1, &raw const there, 1, 0) == 4 }
}

/// Registers an area for faults of missing pages, and ends that.
fn user_fault(area: &Area) -> bool {
    const API: u64 = 0xc018_aa3f;
    const REGISTER: u64 = 0xc020_aa00;
    const USER_MODE_ONLY: libc::c_int = 1;
    // SAFETY: the structures are as the kernel has them; the descriptor is closed at once, which ends what it has done.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) as i32;
        if fd < 0 {
            return false;
        }
        let mut api = [0xaau64, 0, 0];
        let mut register = [area.start as u64, area.len() as u64, 1, 0];
        let done = libc::ioctl(fd, API, api.as_mut_ptr()) == 0
            && libc::ioctl(fd, REGISTER, register.as_mut_ptr()) == 0;
        libc::close(fd);
        done
    }
}

/// Which memory files that this process shares with others it can take pages away from, by their inodes.
fn removable() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:handfast"));
    let is_removable = |line: &&str| {
        let (_, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let end = usize::from_str_radix(end, 16).unwrap();
        advise(&(end - PAGE..end), libc::MADV_REMOVE)
    };
    let inode = |line: &str| line.split_whitespace().nth(4).unwrap().to_owned();
    shared.filter(is_removable).map(inode).collect()
}

/// Told `try`, says which files it can take pages away from. Told `own ATTACK` or `shared ATTACK`, does that in a thread, and calls in another, until it is told to end; `quietly`
/// it does not call.
pub(crate) fn attacker(name: &str) {
    let right = handfast::connect(name).unwrap();
    right.call_timeout(b"attacker", common::PATIENCE).unwrap();
    let links = mapped("memfd:handfast link");
    let bells = mapped("memfd:handfast bells");
    let own_link = own(links[0].len());
    let own_bells: Vec<_> = bells.iter().map(|area| own(area.len())).collect();
    common::say("ready");
    while let Some(order) = common::told() {
        if order == "try" {
            common::say(&removable().join(" "));
            continue;
        }
        let (whose, attack) = order.split_once(' ').unwrap();
        let attack = Attack::named(attack);
        let (areas, words) = match (whose, attack) {
            ("own", Attack::Collapse) => (vec![huge(&own_link)], &own_bells),
            (_, Attack::Collapse) => (vec![huge(&links[0])], &bells),
            ("own", Attack::RemoveBells) => (own_bells.clone(), &own_bells),
            ("own", _) => (vec![own_link.clone()], &own_bells),
            (_, Attack::RemoveBells) => (bells.clone(), &bells),
            _ => (links.clone(), &bells),
        };
        let (is_over, count) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let areas = &areas;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    for area in areas {
                        count.fetch_add(once(attack, area, words).into(), SeqCst);
                    }
                }
            });
            scope.spawn(|| {
                // The harm that it does to itself is its own affair.
                while !is_over.load(SeqCst) && whose != "quietly" {
                    let _ = right.call_timeout(&[7; 1000], Duration::from_millis(200));
                    // Sleep: stands for work.
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            common::say("begun");
            assert_eq!(common::told().as_deref(), Some("end"));
            is_over.store(true, SeqCst);
        });
        common::say(&format!("{} times", count.load(SeqCst)));
    }
}

/// Takes the offer of a link without sealing it, says that it has, and takes pages away from then on.
pub(crate) fn unsealed(name: &str) {
    use handfast_layout::control::ControlMessage;
    use handfast_layout::hello::{Hello, WELCOME_BYTES};
    use handfast_region::Memory;
    use handfast_sys::{AsFd, Errno, memory, socket};
    let socket = common::knock(name);
    let len_bytes = handfast_layout::bell::REGION_BYTES;
    let (bells, mapping) = memory::create_owner_written("fake", len_bytes).unwrap();
    let region = handfast_region::Region::mapped(mapping);
    for page in (0..len_bytes).step_by(PAGE) {
        region.store(page, 0, SeqCst);
    }
    let hello = Hello::new(common::incarnation(7), name, 3, None).to_bytes();
    socket::send(&socket, &hello, &[bells.as_fd()]).unwrap();
    let mut bytes = [0; WELCOME_BYTES];
    let (_, fds) = socket::receive(&socket, &mut bytes, 2).unwrap();
    let _ = socket::send(&socket, &ControlMessage::Sealed.encode(), &[]);
    let end = socket::receive(&socket, &mut bytes, 0);
    assert!(matches!(end, Ok((0, _)) | Err(Errno::CONNRESET)), "{end:?}");
    common::say("refused");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{FallocateFlags, fallocate};
            let len_bytes = handfast_layout::link::REGION_BYTES as u64;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            while !is_over.load(SeqCst) {
                fallocate(&fds[0], FallocateFlags::empty(), 0, FILLED as u64).unwrap();
                fallocate(&fds[0], hole, 0, len_bytes).unwrap();
            }
        });
        common::say("punching");
        while common::told().is_some() {}
        is_over.store(true, SeqCst);
    });
}
