//! Stacks: one for each thread that is inside, to the limit, shared by a group.

use super::*;

static OTHER: [OnceLock<Domain>; 2] = [const { OnceLock::new() }; 2];

fn call_other(which: &usize, call: &mut CallContext<'_>) {
    let depth = call.words()[0];
    if depth > 0 {
        let other = OTHER[*which].get().unwrap();
        let got = other.call(0, [depth - 1, 0, 0, 0, 0, 0, 0, 0]);
        call.words()[1] = match got {
            Ok(words) => words[1] + 1,
            Err(CallError::TooDeep) => 1_000,
            Err(_) => 9_999_999,
        };
    }
}

#[test]
fn calls_nest_to_the_limit_and_no_further() {
    static WHICH: AtomicU32 = AtomicU32::new(0);
    fn which(_: &Heap) -> usize {
        WHICH.load(Ordering::Relaxed) as usize
    }
    each_gate_here(|options| {
        let domain = load(&Table::new(which).entry(call_other), options);
        // It calls itself, through its own gate.
        let own = WHICH.fetch_add(1, Ordering::Relaxed) as usize;
        let depth = |words: u64| domain.call(0, [words, 0, 0, 0, 0, 0, 0, 0]).unwrap()[1];
        OTHER[own].set(domain.clone()).unwrap();
        assert_eq!(depth(0), 0);
        let most = u64::from(DEPTH_MAX) - 1;
        assert_eq!(depth(most), most);
        assert_eq!(depth(most + 1), 1_000 + most);
        // And again: all stacks came back.
        assert_eq!(depth(most), most);
    });
}

#[test]
fn a_stack_for_every_thread_and_never_one_for_two() {
    struct Inside(AtomicU32, AtomicU32);
    fn stay(own: &Inside, call: &mut CallContext<'_>) {
        // A place on this call's own stack or areas: nobody else may change it meanwhile.
        let mark = call.words()[0];
        call.reply()[100] = mark as u8;
        own.0.fetch_add(1, Ordering::SeqCst);
        let wanted = call.words()[1] as u32;
        while own.0.load(Ordering::SeqCst) < wanted {
            std::thread::yield_now();
        }
        if call.reply()[100] != mark as u8 || call.words()[0] != mark {
            own.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn wrong(own: &Inside, call: &mut CallContext<'_>) {
        own.0.store(0, Ordering::SeqCst);
        call.words()[0] = own.1.load(Ordering::SeqCst).into();
    }
    each_gate(|options| {
        let init = |_: &Heap| Inside(AtomicU32::new(0), AtomicU32::new(0));
        let domain = load(&Table::new(init).entry(stay).entry(wrong), options);
        // The way to a process has places for fewer.
        let is_process = domain.isolation() == Isolation::Process;
        let threads = if is_process { 32 } else { 100 };
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let domain = domain.clone();
                    scope.spawn(move || {
                        let mut words = [thread, threads, 0, 0, 0, 0, 0, 0];
                        domain.call_bytes(0, &mut words, &[], &mut [0; 8]).unwrap();
                    });
                }
            });
            assert_eq!(domain.call(1, [0; 8]).unwrap()[0], 0);
        }
    });
}

#[test]
fn stacks_run_out_with_an_error_and_come_back() {
    fn wait(own: &Counter, _: &mut CallContext<'_>) {
        own.0.fetch_add(1, Ordering::SeqCst);
        while own.0.load(Ordering::SeqCst) < 1 << 32 {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
    each_gate_here(|options| {
        let domain = load(&Table::new(counter).entry(wait).entry(add), options);
        let limit = domain.group().stacks();
        let mut held = domain.hold().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..limit {
                let domain = domain.clone();
                scope.spawn(move || {
                    // Calls that come while stacks are built may have to try again.
                    while domain.call(0, [0; 8]).is_err() {}
                });
            }
            while held.call(1, [0; 8]).unwrap()[0] < u64::from(limit) {
                std::thread::yield_now();
            }
            assert_eq!(domain.call(1, [0; 8]), Err(CallError::Stacks { limit }));
            held.call(1, [1 << 32; 8]).unwrap();
        });
        domain.call(1, [0; 8]).unwrap();
    });
}

#[test]
fn stacks_are_held_by_one_each_until_there_are_no_more() {
    each_gate(|options| {
        let domain = load(&table(), options);
        let mut all = Vec::new();
        let error = loop {
            match domain.hold() {
                Ok(held) => all.push(held),
                Err(error) => break error,
            }
        };
        let limit = all.len() as u32;
        assert_eq!(error, CallError::Stacks { limit });
        for held in &mut all {
            assert_eq!(held.call(ROTATE, [7; 8]), Ok([7; 8]));
        }
        all.pop();
        domain.hold().unwrap();
    });
}

#[test]
fn domains_of_a_group_share_stacks_and_nothing_else() {
    let _alone = handfast_testing::alone();
    let groups: Vec<(Group, DomainOptions)> = [
        machine::has_keys().then(|| (Group::new().unwrap(), DomainOptions::new())),
        process::are_possible().then(|| {
            let options = DomainOptions::new().isolation(Isolation::Process);
            (Group::unprotected().unwrap(), options)
        }),
        Some((
            Group::unprotected().unwrap(),
            DomainOptions::new().unprotected(),
        )),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (group, options) in groups {
        let one = load(&table(), options.clone().group(&group));
        let two = load(&table(), options.clone().group(&group));
        one.call(ADD, [5; 8]).unwrap();
        assert_eq!(two.call(ADD, [1; 8]).unwrap()[0], 1);
        two.call(FAIL, [0; 8]).unwrap_err();
        assert_eq!(one.call(ADD, [1; 8]).unwrap()[0], 6);
        assert_eq!(two.call(ADD, [1; 8]).unwrap()[0], 1);
    }
    let other = DomainOptions::new().unprotected();
    if machine::has_keys() {
        let other = other.group(&Group::new().unwrap());
        // SAFETY: as in `load`.
        let got = unsafe { Domain::new(&table(), other) };
        assert_eq!(got.err(), Some(LoadError::OtherGroup));
    }
}

#[test]
fn random_panics_on_all_cpus_lose_no_stack() {
    let mut random = handfast_testing::Random::seeded("random panics");
    let seeds: Vec<u64> = (0..6).map(|_| random.next()).collect();
    each_gate(|options| {
        let domain = load(&table(), options);
        let start = Barrier::new(seeds.len());
        std::thread::scope(|scope| {
            for seed in &seeds {
                let (domain, start) = (&domain, &start);
                scope.spawn(move || {
                    let mut random = handfast_testing::Random::of(*seed);
                    start.wait();
                    for _ in 0..20_000 {
                        let got = match random.below(20) {
                            0 => domain.call(FAIL, [0; 8]).map(|_| ()),
                            1 => domain
                                .call_bytes(ECHO, &mut [0; 8], b"abc", &mut [0; 3])
                                .map(|_| ()),
                            _ => domain.call(ADD, [1; 8]).map(|_| ()),
                        };
                        let is_expected = matches!(
                            got,
                            Ok(()) | Err(CallError::Resetting | CallError::Fault(Fault::Panic))
                        );
                        assert!(is_expected, "{got:?}");
                    }
                });
            }
        });
        while domain.call(ADD, [0; 8]).is_err() {}
    });
}
