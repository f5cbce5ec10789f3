//! Properties that hold for every gate: with protection, and in plain Rust; and for processes, in the tests of the crate
//! `handfast`, which has the way to them.

#[path = "common/machine.rs"]
mod machine;
#[path = "conformance/stacks.rs"]
mod stacks;

use handfast_domain::{
    BYTES_MAX, CallContext, CallError, DEPTH_MAX, Domain, DomainOptions, Fault, Group, Heap,
    Isolation, LoadError, Policy, Table, process,
};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::Duration;

/// Runs `test` with options for each kind of gate that there is here, and for a process.
fn each_gate(test: impl Fn(DomainOptions)) {
    each_gate_here(&test);
    if process::are_possible() {
        let _alone = handfast_testing::alone();
        test(DomainOptions::new().isolation(Isolation::Process));
    }
}

/// As [`each_gate`], where the functions and the test have statics in common.
fn each_gate_here(test: impl Fn(DomainOptions)) {
    // One test at a time: a process has few keys.
    let _alone = handfast_testing::alone();
    if machine::has_keys() {
        test(DomainOptions::new().isolation(Isolation::Keys));
    }
    test(DomainOptions::new().unprotected());
}

fn load<T: Sync + 'static>(table: &Table<T>, options: DomainOptions) -> Domain {
    // SAFETY: the functions of these tests lend nothing, and touch nothing outside that a fault could leave torn.
    unsafe { Domain::new(table, options) }.unwrap()
}

#[derive(Default)]
struct Counter(AtomicU64);

fn counter(_: &Heap) -> Counter {
    Counter::default()
}

fn add(own: &Counter, call: &mut CallContext<'_>) {
    let added = call.words()[0];
    call.words()[0] = own.0.fetch_add(added, Ordering::Relaxed) + added;
}

fn rotate(_: &Counter, call: &mut CallContext<'_>) {
    call.words().rotate_left(1);
}

fn echo(_: &Counter, call: &mut CallContext<'_>) {
    let (request, reply) = call.both();
    if let Some(reply) = reply.get_mut(..request.len()) {
        reply.copy_from_slice(request);
    }
    let len = request.len();
    call.words()[0] = len as u64;
    call.set_reply_len(len);
}

fn fail(_: &Counter, _: &mut CallContext<'_>) {
    std::panic::resume_unwind(Box::new("no message, no hook"));
}

fn table() -> Table<Counter> {
    Table::new(counter)
        .entry(add)
        .entry(rotate)
        .entry(echo)
        .entry(fail)
}
const ADD: u16 = 0;
const ROTATE: u16 = 1;
const ECHO: u16 = 2;
const FAIL: u16 = 3;

#[test]
fn eight_words_go_there_and_come_back() {
    each_gate(|options| {
        let domain = load(&table(), options);
        let back = domain.call(ROTATE, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(back, Ok([2, 3, 4, 5, 6, 7, 8, 1]));
        let mut held = domain.hold().unwrap();
        assert_eq!(held.call(ROTATE, [1, 2, 3, 4, 5, 6, 7, 8]), back);
        let mut words = [u64::MAX, 2, 3, 4, 5, 6, 7, 8];
        domain.call_in_place(ROTATE, &mut words).unwrap();
        assert_eq!(words, [2, 3, 4, 5, 6, 7, 8, u64::MAX]);
    });
}

#[test]
fn bytes_are_copied_in_and_out_whole() {
    each_gate(|options| {
        let domain = load(&table(), options);
        let all: Vec<u8> = (0..BYTES_MAX).map(|at| (at % 251) as u8).collect();
        for len in [0, 1, 7, 8, 63, 64, 4096, BYTES_MAX - 1, BYTES_MAX] {
            let mut reply = vec![0xaa; len + 3];
            let mut words = [0; 8];
            let got = domain.call_bytes(ECHO, &mut words, &all[..len], &mut reply);
            assert_eq!((got, words[0]), (Ok(len), len as u64));
            assert_eq!(reply[..len], all[..len]);
            assert_eq!(reply[len..], [0xaa; 3]);
        }
    });
}

#[test]
fn what_is_too_long_is_refused_and_nothing_is_written() {
    each_gate(|options| {
        let domain = load(&table(), options);
        let long = vec![1; BYTES_MAX + 1];
        let mut reply = [0; 4];
        let got = domain.call_bytes(ECHO, &mut [0; 8], &long, &mut reply);
        let len_bytes = BYTES_MAX + 1;
        assert_eq!(got, Err(CallError::TooLong { len_bytes }));
        let got = domain.call_bytes(ECHO, &mut [0; 8], &long[..5], &mut reply);
        assert_eq!(got, Err(CallError::ReplyTooLong { len_bytes: 5 }));
        assert_eq!(reply, [0; 4]);
        assert_eq!(domain.call(ADD, [3; 8]).unwrap()[0], 3);
    });
}

#[test]
fn a_call_without_bytes_has_none() {
    fn look(_: &Counter, call: &mut CallContext<'_>) {
        call.words()[0] = call.request().len() as u64;
        call.words()[1] = call.reply().len() as u64;
        call.set_reply_len(10);
    }
    each_gate(|options| {
        let domain = load(&Table::new(counter).entry(look), options);
        domain
            .call_bytes(0, &mut [0; 8], b"some", &mut [0; 16])
            .unwrap();
        assert_eq!(domain.call(0, [9; 8]).unwrap()[..2], [0, 0]);
    });
}

#[test]
fn an_entry_that_is_not_there_is_an_error() {
    each_gate(|options| {
        let domain = load(&table(), options);
        for entry in [4, 99, u16::MAX - 2] {
            assert_eq!(
                domain.call(entry, [0; 8]),
                Err(CallError::NoEntry { entry })
            );
        }
        // The numbers that are no entries but mean something change nothing.
        domain.call(ADD, [5; 8]).unwrap();
        let _ = domain.call(u16::MAX, [0; 8]);
        let _ = domain.call(u16::MAX - 1, [0; 8]);
        assert_eq!(domain.call(ADD, [1; 8]).unwrap()[0], 6);
    });
}

#[test]
fn a_panic_is_an_error_and_the_domain_starts_anew() {
    each_gate(|options| {
        let domain = load(&table(), options);
        assert_eq!(domain.call(ADD, [5; 8]).unwrap()[0], 5);
        assert_eq!(
            domain.call(FAIL, [0; 8]),
            Err(CallError::Fault(Fault::Panic))
        );
        assert_eq!(domain.call(ADD, [2; 8]).unwrap()[0], 2);
        let got = domain.call_bytes(FAIL, &mut [0; 8], b"x", &mut []);
        assert_eq!(got, Err(CallError::Fault(Fault::Panic)));
        assert_eq!(domain.call(ADD, [3; 8]).unwrap()[0], 3);
    });
}

#[test]
fn a_domain_may_stay_dead() {
    each_gate(|options| {
        let domain = load(&table(), options.policy(Policy::Dead));
        assert_eq!(
            domain.call(FAIL, [0; 8]),
            Err(CallError::Fault(Fault::Panic))
        );
        assert_eq!(domain.call(ADD, [2; 8]), Err(CallError::Dead));
        assert_eq!(domain.clone().call(ADD, [2; 8]), Err(CallError::Dead));
    });
}

#[test]
fn a_domain_that_cannot_make_its_value_is_not_loaded() {
    fn never(_: &Heap) -> Counter {
        std::panic::resume_unwind(Box::new(()))
    }
    each_gate(|options| {
        let table = Table::new(never).entry(add);
        // SAFETY: as in `load`.
        let got = unsafe { Domain::new(&table, options.clone()) };
        assert_eq!(got.err(), Some(LoadError::Init(Fault::Panic)));
        // SAFETY: as in `load`.
        unsafe { Domain::new(&self::table(), options) }.unwrap();
    });
}

#[test]
fn a_domain_that_cannot_make_its_value_again_is_dead() {
    static MADE: AtomicU32 = AtomicU32::new(0);
    fn once(_: &Heap) -> Counter {
        if !MADE.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            std::panic::resume_unwind(Box::new(()));
        }
        Counter::default()
    }
    each_gate(|options| {
        let domain = load(&Table::new(once).entry(add).entry(fail), options);
        assert_eq!(domain.call(1, [0; 8]), Err(CallError::Fault(Fault::Panic)));
        assert_eq!(domain.call(0, [0; 8]), Err(CallError::Dead));
    });
}

#[test]
fn memory_of_the_heap_is_zero_and_comes_back_with_a_reset() {
    struct Table16([core::ptr::NonNull<u8>; 16]);
    // SAFETY: the pointers are only looked at.
    unsafe impl Sync for Table16 {}
    fn fill(heap: &Heap) -> Table16 {
        let layout = std::alloc::Layout::from_size_align(10_000, 64).unwrap();
        Table16(std::array::from_fn(|_| {
            let place = heap.allocate(layout).unwrap();
            // SAFETY: 10,000 bytes of the heap's, nobody else's.
            assert_eq!(unsafe { place.read() }, 0);
            // SAFETY: as above.
            unsafe { place.write(1) };
            place
        }))
    }
    fn distinct(own: &Table16, call: &mut CallContext<'_>) {
        let mut sorted = own.0.map(|place| place.addr().get());
        sorted.sort_unstable();
        call.words()[0] = sorted
            .windows(2)
            .filter(|pair| pair[1] - pair[0] >= 10_000)
            .count() as u64;
        call.words()[1] = sorted.iter().filter(|at| **at % 64 == 0).count() as u64;
    }
    fn fail(_: &Table16, _: &mut CallContext<'_>) {
        std::panic::resume_unwind(Box::new(()));
    }
    each_gate(|options| {
        let domain = load(
            &Table::new(fill).entry(distinct).entry(fail),
            options.heap_bytes(200_000),
        );
        for _ in 0..20 {
            assert_eq!(domain.call(0, [0; 8]).unwrap()[..2], [15, 16]);
            domain.call(1, [0; 8]).unwrap_err();
        }
    });
}

#[test]
fn a_reset_waits_for_the_calls_that_are_in_the_domain() {
    static GATE: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
    fn wait(own: &Counter, call: &mut CallContext<'_>) {
        GATE[0].store(1, Ordering::SeqCst);
        while GATE[1].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        call.words()[0] = own.0.load(Ordering::SeqCst);
    }
    each_gate_here(|options| {
        GATE[0].store(0, Ordering::SeqCst);
        GATE[1].store(0, Ordering::SeqCst);
        let domain = load(
            &Table::new(counter).entry(add).entry(wait).entry(fail),
            options,
        );
        domain.call(0, [77; 8]).unwrap();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| domain.call(1, [0; 8]));
            while GATE[0].load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(domain.call(2, [0; 8]), Err(CallError::Fault(Fault::Panic)));
            // Not over the one that is in there.
            assert_eq!(domain.call(0, [0; 8]), Err(CallError::Resetting));
            GATE[1].store(1, Ordering::SeqCst);
            assert_eq!(inside.join().unwrap().unwrap()[0], 77);
        });
        // Nobody has made it anew so far; whoever finds that does, and is told nothing of it.
        assert_eq!(domain.call(0, [4; 8]).unwrap()[0], 4);
    });
}

/// Calls its own domain, which goes wrong there.
fn fail_within(_: &Counter, call: &mut CallContext<'_>) {
    let own = OWN.lock().unwrap().clone().unwrap();
    assert_eq!(own.call(FAIL, [0; 8]), Err(CallError::Fault(Fault::Panic)));
    call.words()[0] = 7;
}

static OWN: Mutex<Option<Domain>> = Mutex::new(None);
/// Behind the functions of [`table`].
const WITHIN: u16 = 4;
/// No call takes so long.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_domain_that_went_wrong_in_a_call_of_its_own_serves_the_next_one_anew() {
    each_gate_here(|options| {
        let domain = load(&table().entry(fail_within), options);
        *OWN.lock().unwrap() = Some(domain.clone());
        for kind in 0..3 {
            domain.call(ADD, [9; 8]).unwrap();
            assert_eq!(domain.call(WITHIN, [0; 8]).unwrap()[0], 7);
            let next = match kind {
                0 => domain.call(ADD, [3; 8]),
                1 => domain.call_timeout(ADD, [3; 8], LONG),
                _ => {
                    let mut words = [3; 8];
                    let called = domain.call_bytes(ADD, &mut words, b"", &mut []);
                    called.map(|_| words)
                }
            };
            match next {
                Err(CallError::NoDeadline(_)) => {}
                next => assert_eq!(next.unwrap()[0], 3, "{kind}"),
            }
            domain.call(FAIL, [0; 8]).unwrap_err();
        }
        *OWN.lock().unwrap() = None;
    });
}
