//! Stack pointers in a domain's memory: of whoever has no rights there, and of handlers that the kernel has put there.

use crate::common::{ADD, RUN, first, load};
use handfast_domain::{Domain, DomainOptions};
use handfast_testing::say;
use std::arch::naked_asm;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};

/// Loads a word with the stack pointer there.
#[unsafe(naked)]
extern "C" fn load_at(stack: usize) -> u64 {
    naked_asm!("xchg rsp, rdi", "mov rax, [rsp]", "mov rsp, rdi", "ret")
}

/// Where a function has its frame, while it is in the domain.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static LEAVES: AtomicBool = AtomicBool::new(false);

fn stay() {
    let frame = 0u64;
    INSIDE.store((&raw const frame).expose_provenance(), SeqCst);
    while !LEAVES.load(SeqCst) {
        std::hint::spin_loop();
    }
}

/// Another thread is in the domain, and this one has its stack pointer there.
fn attack(domain: &Domain) {
    std::thread::scope(|scope| {
        scope.spawn(|| domain.call(RUN, first(stay as fn() as usize as u64)));
        while INSIDE.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        say("loading");
        // Below what that function has, and what it has itself.
        for below in [1024, 0] {
            load_at((INSIDE.load(SeqCst) & !15) - below);
        }
        say("loaded");
        LEAVES.store(true, SeqCst);
    });
}

pub(crate) fn stack_pointer() {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    attack(&domain);
}

static DOMAIN: AtomicUsize = AtomicUsize::new(0);

fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: the handlers here run while nothing is held.
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

fn raise(signal: i32) {
    // SAFETY: takes an integer.
    unsafe { libc::raise(signal) };
}

extern "C" fn attack_in_handler(_: i32) {
    let domain: *const Domain = std::ptr::with_exposed_provenance(DOMAIN.load(SeqCst));
    // SAFETY: stored below, and there until the handler is done.
    attack(unsafe { &*domain });
}

/// The same in a handler that has interrupted no domain.
pub(crate) fn stack_pointer_in_handler() {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    DOMAIN.store((&raw const domain).expose_provenance(), SeqCst);
    handle(libc::SIGUSR1, attack_in_handler);
    raise(libc::SIGUSR1);
}

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn inner(_: i32) {
    SEEN.fetch_add(1, SeqCst);
}

extern "C" fn outer(_: i32) {
    SEEN.fetch_add(1, SeqCst);
    raise(libc::SIGUSR2);
    SEEN.fetch_add(1, SeqCst);
}

/// Handlers that do not ask for the alternate stack, one of which interrupts the other.
pub(crate) fn handler_in_a_call() {
    let domain = load(DomainOptions::new()).unwrap();
    handle(libc::SIGUSR1, outer);
    handle(libc::SIGUSR2, inner);
    fn signal() {
        raise(libc::SIGUSR1);
    }
    for round in 1..=50 {
        domain
            .call(RUN, first(signal as fn() as usize as u64))
            .unwrap();
        assert_eq!(SEEN.load(SeqCst), 3 * round);
        assert_eq!(domain.call(ADD, first(1)).unwrap()[0], u64::from(round));
    }
    say("done");
}
