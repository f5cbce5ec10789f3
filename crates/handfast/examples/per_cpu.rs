//! A port that is served on every CPU: a request is handled on the CPU where it was made. `per_cpu [CALLS]`.
//!
//! Two clients play in threads of the same process; in two processes nothing changes.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// As many as there can be workers for.
const CPUS: usize = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let calls = std::env::args().nth(1);
    let calls: u64 = calls.map_or(Ok(20_000), |calls| calls.parse())?;
    let name = format!("per-cpu-{}", std::process::id());

    // By CPU; last what the worker without one has served.
    let served: Arc<[AtomicU64]> = (0..=CPUS).map(|_| AtomicU64::new(0)).collect();
    let counts = served.clone();
    // The handler runs in a worker on each CPU, on several at once: all workers share its state. Workers start with the first
    // message on their CPU, and end when none has come for a while.
    let server = handfast::bind(&name)?.serve_per_cpu(move |worker, request| {
        let cpu = worker.cpu().map_or(CPUS, |cpu| cpu as usize);
        counts[cpu].fetch_add(1, Ordering::Relaxed);
        let shout = request.bytes().to_ascii_uppercase();
        // Keeps the request's memory for the next one; a caller that is gone is no error of the server's.
        let _ = worker.reply(request, &shout);
    })?;

    // Clients need not know: each thread calls the worker of the CPU that it is on.
    std::thread::scope(|scope| {
        let call = || -> Result<(), String> {
            let right = handfast::connect(&name).map_err(|error| error.to_string())?;
            for _ in 0..calls {
                let reply = right.call(b"hello").map_err(|error| error.to_string())?;
                assert_eq!(&*reply, b"HELLO");
            }
            Ok(())
        };
        let clients = [scope.spawn(call), scope.spawn(call)];
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
    })?;

    let count = |cpu: usize| served[cpu].load(Ordering::Relaxed);
    for cpu in (0..CPUS).filter(|cpu| count(*cpu) > 0) {
        println!("CPU {cpu}: {} calls", count(cpu));
    }
    println!("before the clients knew of the workers: {}", count(CPUS));
    assert_eq!((0..=CPUS).map(count).sum::<u64>(), 2 * calls);
    // Ends the workers, and the port with them.
    drop(server);
    Ok(())
}
