//! The signal of deadlines, and others: late, at another time, and blocked.

use super::*;

#[test]
fn a_signal_that_comes_at_another_time_does_nothing() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    domain.call_timeout(ADD, first(1), LONG).unwrap();
    let done = AtomicBool::new(false);
    // SAFETY: asks for this thread's own number.
    let own = unsafe { libc::pthread_self() };
    std::thread::scope(|scope| {
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                // SAFETY: the thread outlives this scope.
                unsafe { libc::pthread_kill(own, handfast_sys::signal::deadline_number()) };
                // Without end they would leave it no time for anything else.
                spin_for(20_000);
            }
        });
        for round in 0..20_000 {
            let spin = first(spin_a_while as fn() as usize as u64);
            assert_eq!(domain.call(ADD, first(1)).unwrap()[0], 2 + 2 * round);
            domain.call(RUN, spin).unwrap();
            domain.call_timeout(RUN, spin, LONG).unwrap();
            let got = domain.call_timeout(ADD, first(1), LONG);
            assert_eq!(got.unwrap()[0], 3 + 2 * round);
        }
    });
}

fn stay(own: &Value, call: &mut CallContext<'_>) {
    spin_for(call.words()[1]);
    add(own, call);
}

fn spin_a_while() {
    spin_for(2_000);
}

#[test]
fn a_signal_that_comes_when_the_call_is_over_does_nothing() {
    let _alone = testing::alone();
    if !common::has_keys() {
        return;
    }
    let mut random = Random::seeded("deadlines and ends at the same time");
    let seeds: Vec<u64> = (0..4).map(|_| random.next()).collect();
    let length = testing::campaign(2);
    let (ended, in_time) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (index, seed) in seeds.into_iter().enumerate() {
            let (ended, in_time) = (&ended, &in_time);
            scope.spawn(move || {
                let cpus = cpu::allowed();
                let _ = cpu::pin(&[cpus[index % cpus.len()]]);
                // A domain for each thread: what one has added, nobody else has.
                let table = Table::new(value).entry(stay).entry(add);
                // SAFETY: as in `load`.
                let domain = unsafe { Domain::new(&table, DomainOptions::new()) }.unwrap();
                let mut random = Random::of(seed);
                let (mut sum, start) = (0, Instant::now());
                // On a busy machine most end while they wait for a processor.
                let are_many = || {
                    [ended, in_time].map(|count| count.load(Ordering::Relaxed) > 100) == [true; 2]
                };
                while start.elapsed() < length
                    || (!are_many() && start.elapsed() < testing::PATIENCE)
                {
                    let timeout_ns = random.below(60_000);
                    let stay_ns = (timeout_ns + random.below(10_000)).saturating_sub(5_000);
                    let words = [1, stay_ns, 0, 0, 0, 0, 0, 0];
                    match domain.call_timeout(0, words, Duration::from_nanos(timeout_ns)) {
                        Ok(words) => {
                            sum += 1;
                            assert_eq!(words[0], sum);
                            in_time.fetch_add(1, Ordering::Relaxed);
                        }
                        got => {
                            assert_eq!(got, ENDED);
                            sum = 0;
                            ended.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    // Without one: never ended, however soon it comes after.
                    for _ in 0..random.below(20) {
                        sum += 1;
                        let words = [1, random.below(300), 0, 0, 0, 0, 0, 0];
                        let got = domain.call(0, words);
                        assert_eq!(got.map(|words| words[0]), Ok(sum));
                    }
                }
            });
        }
    });
    println!("{ended:?} ended, {in_time:?} in time");
    assert!(ended.into_inner() > 100 && in_time.into_inner() > 100);
}

// ---- Threads, handlers, processes.

pub(crate) extern "C" fn stay_in_handler(_: libc::c_int) {
    spin_for(20_000_000);
    HANDLED.store(true, Ordering::SeqCst);
}

static HANDLED: AtomicBool = AtomicBool::new(false);

fn raise_and_spin() {
    // SAFETY: takes an integer.
    unsafe { libc::raise(libc::SIGUSR1) };
    spin();
}

#[test]
fn a_handler_of_the_programs_is_not_ended_and_the_function_it_interrupted_is() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    for flags in [0, libc::SA_ONSTACK] {
        // SAFETY: all-zero bytes are a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = stay_in_handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = flags;
        // SAFETY: the handler does what is async-signal-safe.
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
        HANDLED.store(false, Ordering::SeqCst);
        assert_eq!(until(&domain, raise_and_spin, SHORT), ENDED);
        assert!(HANDLED.load(Ordering::SeqCst));
    }
}

fn timers() -> usize {
    let text = std::fs::read_to_string("/proc/self/timers").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("ID:")).count()
}

#[test]
fn threads_take_their_timers_with_them_and_may_have_blocked_all_signals() {
    let _alone = testing::alone();
    let Some(domain) = load(DomainOptions::new()) else {
        return;
    };
    let before = timers();
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    handfast_sys::signal::block_all();
                    handfast_sys::signal::unblock(libc::SIGSEGV);
                    let got = until(&domain, spin, SHORT);
                    let resetting = Err(CallError::Resetting);
                    assert!(got == ENDED || got == resetting, "{got:?}");
                });
            }
        });
    }
    // The last of them may be at its end still, as may have been that of the test before.
    assert!(testing::within_patience(|| timers() <= before));
}
