//! Tasks that call: one after the other, and many at once. `tasks [CALLS]`.
//!
//! A server thread and a runtime of one process; in two processes nothing changes.

use std::error::Error;
use std::time::{Duration, Instant};

#[handfast::service]
trait Clock {
    /// Answers `after_us` microseconds later.
    fn later(&self, number: u64, after_us: u64) -> u64;
}

struct Mine;

impl Clock for Mine {
    fn later(&self, number: u64, after_us: u64) -> u64 {
        if after_us > 0 {
            std::thread::sleep(Duration::from_micros(after_us));
        }
        number + 1
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let calls = std::env::args().nth(1);
    let calls: u64 = calls.map_or(Ok(20_000), |calls| calls.parse())?;
    let name = format!("tasks-{}", std::process::id());
    let port = handfast::bind(&name)?;
    std::thread::spawn(move || ClockServer::serve(&port, &Mine));
    let clock = ClockAsyncClient::new(handfast::connect(&name)?);

    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_time().build()?;
    runtime.block_on(async {
        let start = Instant::now();
        for number in 0..calls {
            assert_eq!(clock.later(number, 0).await?, number + 1);
        }
        report("one task, one call at a time", start, calls);

        let start = Instant::now();
        let tasks = (0..64).map(|_| {
            let clock = clock.clone();
            tokio::spawn(async move {
                for number in 0..calls / 64 {
                    clock.later(number, 0).await?;
                }
                Ok::<_, handfast::service::CallError>(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
        report("64 tasks", start, calls);

        let start = Instant::now();
        let few = (calls / 100).max(1);
        for number in 0..few {
            clock.later(number, 200).await?;
        }
        report("answers that take 200 us and more", start, few);

        // A future that is dropped gives its call up.
        let given_up = tokio::time::timeout(Duration::from_millis(1), clock.later(1, 20_000)).await;
        assert!(given_up.is_err());
        assert_eq!(clock.later(2, 0).await?, 3);
        Ok(())
    })
}

fn report(what: &str, start: Instant, calls: u64) {
    let ns = start.elapsed().as_nanos() / u128::from(calls);
    println!("{what}: {ns} ns a call");
}
