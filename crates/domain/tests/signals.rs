//! Signals, ends of threads and processes, and forks during calls into a protected domain.
#![cfg(target_arch = "x86_64")]

mod common;

use common::{ADD, NULL, RUN, end_of, first, load, recurse, wrong};
use handfast_domain::{CallError, Domain, DomainOptions, Fault};
use handfast_testing as testing;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

#[test]
fn a_child_process_plays_its_role() {
    testing::play(|role, _| match role {
        "own fault" => own_fault(),
        "sent" => sent(),
        "exit" => exit_inside(),
        "thread exit" => end_thread_inside(),
        "fork" => fork_inside(),
        "stack outside" => overflow_outside(),
        _ => unreachable!(),
    });
}

static SEEN: AtomicU32 = AtomicU32::new(0);
static CALLED: AtomicPtr<Domain> = AtomicPtr::new(std::ptr::null_mut());
static FROM_HANDLER: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    // Little: Rust's threads have alternate stacks of 8 KiB.
    let frame = black_box([1u8; 200]);
    SEEN.fetch_add(u32::from(frame[199]), Ordering::SeqCst);
    let domain = CALLED.load(Ordering::SeqCst);
    // SAFETY: stored by a test that waits for the handler.
    if let Some(domain) = unsafe { domain.as_ref() } {
        let code = match domain.call(ADD, first(1)) {
            Ok(_) => 1,
            Err(CallError::SignalStack) => 2,
            Err(CallError::ForeignStack) => 3,
            Err(_) => 4,
        };
        FROM_HANDLER.store(code, Ordering::SeqCst);
    }
}

fn handle(signal: libc::c_int, flags: libc::c_int) {
    // SAFETY: all-zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the handler does what is async-signal-safe.
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

fn raise_user() {
    // SAFETY: takes an integer.
    unsafe { libc::raise(libc::SIGUSR1) };
}

fn raise_user_2() {
    // SAFETY: takes an integer.
    unsafe { libc::raise(libc::SIGUSR2) };
}

#[test]
fn handlers_run_during_calls_on_either_stack() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    handle(libc::SIGUSR1, 0);
    handle(libc::SIGUSR2, libc::SA_ONSTACK);
    domain.call(ADD, first(3)).unwrap();
    for function in [raise_user as fn(), raise_user_2] {
        let before = SEEN.load(Ordering::SeqCst);
        domain.call(RUN, first(function as usize as u64)).unwrap();
        assert_eq!(SEEN.load(Ordering::SeqCst), before + 1);
    }
    assert_eq!(
        domain.call(ADD, first(1)).unwrap()[0],
        4,
        "nothing was reset"
    );
    // A handler that calls a domain itself.
    let mut other = load(DomainOptions::new()).unwrap();
    CALLED.store(&raw mut other, Ordering::SeqCst);
    domain
        .call(RUN, first(raise_user_2 as fn() as usize as u64))
        .unwrap();
    assert_eq!(FROM_HANDLER.load(Ordering::SeqCst), 2);
    raise_user();
    assert_eq!(FROM_HANDLER.load(Ordering::SeqCst), 1);
    CALLED.store(std::ptr::null_mut(), Ordering::SeqCst);
    assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 5);
}

#[test]
fn a_storm_of_signals_disturbs_no_call() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    handle(libc::SIGUSR1, 0);
    handle(libc::SIGUSR2, libc::SA_ONSTACK);
    let stop = AtomicBool::new(false);
    // SAFETY: asks for this thread's own number.
    let own = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                for signal in [libc::SIGUSR1, libc::SIGUSR2] {
                    // SAFETY: the thread outlives this scope.
                    unsafe { libc::pthread_kill(own, signal) };
                }
            }
        });
        for round in 1..=200_000 {
            assert_eq!(domain.call(ADD, first(1)).map(|words| words[0]), Ok(round));
        }
        stop.store(true, Ordering::SeqCst);
    });
}

fn own_fault() {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    testing::say("faulting");
    // SAFETY: none: this is the fault.
    unsafe { std::ptr::null_mut::<u32>().write_volatile(1) };
}

fn sent() {
    let domain = load(DomainOptions::new()).unwrap();
    testing::say("sending");
    fn raise() {
        // SAFETY: takes an integer.
        unsafe { libc::raise(libc::SIGFPE) };
    }
    let _ = domain.call(RUN, first(raise as fn() as usize as u64));
    testing::say("not reached");
}

fn overflow_outside() {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(1)).unwrap();
    testing::say("overflowing");
    black_box(recurse(u64::MAX));
}

#[test]
fn faults_outside_of_domains_end_the_process_as_ever() {
    let _alone = testing::alone();
    if !common::has_keys() {
        return;
    }
    assert_eq!(
        end_of("own fault", &[], &["faulting"]).signal(),
        Some(libc::SIGSEGV)
    );
    // Sent by somebody, during a call: nobody's fault.
    assert_eq!(
        end_of("sent", &[], &["sending"]).signal(),
        Some(libc::SIGFPE)
    );
    // Rust's own handler is still there, and says what it says before it aborts.
    assert_eq!(
        end_of("stack outside", &[], &["overflowing"]).signal(),
        Some(libc::SIGABRT)
    );
}

// ---- Processes.

fn exit_inside() {
    let domain = load(DomainOptions::new()).unwrap();
    fn exit() {
        std::process::exit(42);
    }
    testing::say("exiting");
    let _ = domain.call(RUN, first(exit as fn() as usize as u64));
}

fn end_thread_inside() {
    let domain = load(DomainOptions::new()).unwrap();
    fn end() {
        // SAFETY: none: it is what is tested.
        unsafe { libc::pthread_exit(std::ptr::null_mut()) };
    }
    testing::say("ending");
    let _ = domain.call(RUN, first(end as fn() as usize as u64));
    testing::say("not reached");
}

static CHILD: AtomicU32 = AtomicU32::new(0);

fn fork_inside() {
    let domain = load(DomainOptions::new()).unwrap();
    domain.call(ADD, first(5)).unwrap();
    fn fork() {
        // SAFETY: the child makes calls and exits.
        let child = unsafe { libc::fork() };
        CHILD.store(child.cast_unsigned(), Ordering::SeqCst);
    }
    let got = domain.call(RUN, first(fork as fn() as usize as u64));
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 {
        // The call it was in ends; further ones fail; a domain of its own works.
        let ended = got.is_ok();
        let failed = domain.call(ADD, first(1)) == Err(CallError::Forked);
        let own = load(DomainOptions::new()).is_some_and(|own| own.call(ADD, first(2)).is_ok());
        let still = domain.call(ADD, first(1)) == Err(CallError::Forked);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!(ended && failed && own && still))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child.cast_signed(), &raw mut status, 0) };
    testing::say(&format!("{status}"));
    testing::say(&format!(
        "{:?}",
        domain.call(ADD, first(1)).map(|words| words[0])
    ));
}

#[test]
fn a_process_may_end_or_fork_during_a_call() {
    let _alone = testing::alone();
    if !common::has_keys() {
        return;
    }
    assert_eq!(end_of("exit", &[], &["exiting"]).code(), Some(42));
    // No caller is left that could be told.
    let status = end_of("thread exit", &[], &["ending"]);
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert!(end_of("fork", &[], &["0", "Ok(6)"]).success());
}

#[test]
fn threads_without_an_alternate_stack_get_one() {
    let _alone = testing::alone();
    extern "C" fn thread(domain: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the domain outlives the thread.
        let domain = unsafe { &*domain.cast::<Domain>() };
        let got = wrong(domain, NULL, 0);
        let again = domain.call(ADD, first(1));
        let is_good = got == Err(CallError::Fault(Fault::Access { address: 0 })) && again.is_ok();
        usize::from(is_good) as *mut libc::c_void
    }
    let Some(mut domain) = load(DomainOptions::new()) else {
        return;
    };
    for _ in 0..50 {
        let mut id: libc::pthread_t = 0;
        // SAFETY: the function and what it is given live until the join.
        let made = unsafe {
            libc::pthread_create(
                &raw mut id,
                std::ptr::null(),
                thread,
                (&raw mut domain).cast(),
            )
        };
        assert_eq!(made, 0);
        let mut result = std::ptr::null_mut();
        // SAFETY: the thread just made.
        unsafe { libc::pthread_join(id, &raw mut result) };
        assert_eq!(result.addr(), 1);
    }
}
