use super::*;
use crate::port::ports;
use handfast_sys::clock;
use handfast_testing::{PATIENCE, Random, within_patience};
use std::thread;

/// Here workers end after a millisecond: they are about to end, gone, or just beginning when messages come, and bells
/// ring for nothing meanwhile.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_message_is_handled_whenever_its_worker_ends() {
    let name = format!("ends-{}", std::process::id());
    let port = crate::bind(&name).unwrap();
    let process = port.port().process.clone();
    let server = port.serve_per_cpu(|worker, request| {
        let _ = worker.reply(request, b"");
    });
    let server = server.unwrap();
    let right = crate::connect(&name).unwrap();
    let seed = Random::seeded("ends").next();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let rings = scope.spawn(|| {
            let mut random = Random::of(seed);
            while !is_over.load(Ordering::Relaxed) {
                ports::rouse_all(&process);
                // Sleep: a moment chosen at random.
                thread::sleep(Duration::from_micros(random.below(300)));
            }
        });
        let callers: Vec<_> = (1..=3)
            .map(|caller| {
                let right = &right;
                let mut random = Random::of(seed.wrapping_add(caller));
                scope.spawn(move || {
                    for _ in 0..500 {
                        // Sleep: a moment chosen at random.
                        thread::sleep(Duration::from_micros(random.below(2_000)));
                        right.call_timeout(b"", PATIENCE).unwrap();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = callers.into_iter().map(|caller| caller.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        rings.join().unwrap();
        assert!(ended.iter().all(Result::is_ok), "{:?}", server.places());
    });
    let started: u64 = server.places().iter().map(|place| place.started).sum();
    // As often as they have no work for that long: on a busy machine not often.
    assert!(started > 10, "{:?}", server.places());
}

/// Handlers that wait for a message that comes later: `wait` answers when `go` has come as often as it was called.
struct Gate {
    open: std::sync::Mutex<bool>,
    opens: std::sync::Condvar,
    inside: std::sync::atomic::AtomicU32,
}

impl Gate {
    fn serve(name: &str) -> (PerCpu, Arc<Self>) {
        let gate = Arc::new(Self {
            open: std::sync::Mutex::new(false),
            opens: std::sync::Condvar::new(),
            inside: 0.into(),
        });
        let own = gate.clone();
        let server = crate::bind(name)
            .unwrap()
            .serve_per_cpu(move |worker, request| {
                match request.bytes() {
                    b"wait" => own.wait(),
                    b"go" => own.open(),
                    _ => {}
                }
                let cpu = worker.cpu().unwrap_or(u32::MAX);
                let _ = worker.reply(request, &cpu.to_le_bytes());
            });
        (server.unwrap(), gate)
    }

    fn wait(&self) {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        drop(self.opens.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opens.notify_all();
    }

    fn has(&self, inside: u32) -> bool {
        within_patience(|| self.inside.load(Ordering::SeqCst) >= inside)
    }
}

/// Until the receivers are known here.
fn settle(right: &crate::SendRight, on: u32) {
    let is_there = || *right.call_timeout(b"", PATIENCE).unwrap() == on.to_le_bytes();
    thread::scope(|scope| {
        let settled = scope.spawn(|| {
            cpu::pin(&[on]).unwrap();
            within_patience(is_there)
        });
        assert!(settled.join().unwrap(), "CPU {on}");
    });
}

fn workers(server: &PerCpu) -> u32 {
    server.places().iter().map(|place| place.workers).sum()
}

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn handlers_that_sleep_hold_up_none() {
    const WAITING: u32 = 20;
    let name = format!("sleeping-{}", std::process::id());
    let (server, gate) = Gate::serve(&name);
    let right = crate::connect(&name).unwrap();
    let cpu = cpu::allowed()[0];
    settle(&right, cpu);
    thread::scope(|scope| {
        // All of one CPU.
        let call = |bytes: &'static [u8]| {
            let right = &right;
            scope.spawn(move || {
                cpu::pin(&[cpu]).unwrap();
                right.call_timeout(bytes, PATIENCE).unwrap();
            })
        };
        for _ in 0..WAITING {
            call(b"wait");
        }
        assert!(gate.has(WAITING), "{:?}", server.places());
        assert!(workers(&server) >= WAITING, "{:?}", server.places());
        call(b"go");
    });
    // They end when there is nothing to do.
    assert!(
        within_patience(|| workers(&server) == 0),
        "{:?}",
        server.places()
    );
}

#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn a_cpu_has_so_many_workers_and_says_so() {
    let name = format!("full-{}", std::process::id());
    let (server, gate) = Gate::serve(&name);
    // A link has room for fewer calls of so many threads.
    let directory = crate::Node::global().unwrap().directory();
    let node = || {
        crate::Node::builder()
            .directory(&directory)
            .start()
            .unwrap()
    };
    let nodes = [(); 4].map(|()| node());
    let rights = nodes.each_ref().map(|node| node.connect(&name).unwrap());
    let cpu = cpu::allowed()[0];
    for right in &rights {
        settle(right, cpu);
    }
    let is_full = || {
        server
            .places()
            .iter()
            .any(|place| place.exhausted.is_some())
    };
    thread::scope(|scope| {
        for right in rights.iter().cycle().take(OF_CPU_MAX as usize + 3) {
            scope.spawn(move || {
                cpu::pin(&[cpu]).unwrap();
                right.call_timeout(b"wait", PATIENCE).unwrap();
            });
        }
        assert!(gate.has(OF_CPU_MAX), "{:?}", server.places());
        assert!(within_patience(is_full), "{:?}", server.places());
        // A thread that looks for a worker may find a message as another comes, which has a worker to itself.
        let count = workers(&server);
        assert!((OF_CPU_MAX..OF_CPU_MAX + 3).contains(&count), "{count}");
        gate.open();
    });
    assert!(within_patience(|| !is_full()), "{:?}", server.places());
}

/// Handlers sleep and compute at random, so that workers take each other's place at every moment.
#[test]
#[cfg_attr(miri, ignore = "miri has no memory files")]
fn each_message_is_handled_once_whoever_takes_whose_place() {
    let name = format!("places-{}", std::process::id());
    let seed = Random::seeded("places").next();
    let handled = Arc::new(AtomicU64::new(0));
    let own = handled.clone();
    let server = crate::bind(&name)
        .unwrap()
        .serve_per_cpu(move |worker, request| {
            let number = own.fetch_add(1, Ordering::Relaxed);
            let mut random = Random::of(seed ^ number);
            match random.below(4) {
                // Sleep: the handler is one that sleeps.
                0 => thread::sleep(Duration::from_micros(random.below(2_000))),
                1 => {
                    let until_ns = clock::now_ns() + random.below(300_000);
                    while clock::now_ns() < until_ns {
                        core::hint::spin_loop();
                    }
                }
                _ => {}
            }
            let bytes = request.bytes().to_vec();
            let _ = worker.reply(request, &bytes);
        });
    let server = server.unwrap();
    let right = crate::connect(&name).unwrap();
    const CALLERS: u64 = 8;
    const CALLS: u64 = 150;
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let right = &right;
            scope.spawn(move || {
                for number in 0..CALLS {
                    let bytes = (caller * CALLS + number).to_le_bytes();
                    assert_eq!(&*right.call_timeout(&bytes, PATIENCE).unwrap(), bytes);
                }
            });
        }
    });
    assert_eq!(handled.load(Ordering::Relaxed), CALLERS * CALLS);
    drop(server);
}
