//! The cost of receiving in a thread, in a task, in four tasks, and by a descriptor: `receivers [CALLS
//! [ONE]]`, of `thread`, `task`, `tasks`, `loop`. Calls back to back, in turn over 15 rounds; medians, and ratios to the thread.
//!
//! Servers are threads of this process; in two processes nothing changes.

use handfast::{ReceiveRight, SendRight};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Builder;

const KINDS: [&str; 4] = ["thread", "task", "tasks", "loop"];
const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let calls = std::env::args().nth(1);
    let calls: u32 = calls.map_or(Ok(20_000), |calls| calls.parse())?;
    let one = std::env::args().nth(2);
    let kinds = KINDS
        .iter()
        .filter(|kind| one.as_deref().is_none_or(|one| one == **kind));
    let rights = kinds.map(|kind| Ok((*kind, serve(kind)?, Vec::new())));
    let mut rights = rights.collect::<Result<Vec<(_, SendRight, Vec<u128>)>, Box<dyn Error>>>()?;
    for _ in 0..ROUNDS {
        for (_, right, took) in &mut rights {
            let start = Instant::now();
            for _ in 0..calls {
                right.call(&[7; 24])?;
            }
            took.push(start.elapsed().as_nanos() / u128::from(calls));
        }
    }
    let mut first = None;
    for (kind, _, took) in &mut rights {
        took.sort_unstable();
        let middle_ns = took[took.len() / 2];
        let of = *first.get_or_insert(middle_ns);
        let ratio = middle_ns as f64 / of as f64;
        println!("{kind}: {middle_ns} ns a call, {ratio:.2}");
    }
    Ok(())
}

fn serve(kind: &'static str) -> Result<SendRight, Box<dyn Error>> {
    let name = format!("receivers-{}-{kind}", std::process::id());
    let port = Arc::new(handfast::bind(&name)?);
    let right = handfast::connect(&name)?;
    std::thread::spawn(move || match kind {
        "thread" => by_thread(&port),
        "loop" => by_loop(&port),
        kind => by_tasks(&port, if kind == "task" { 1 } else { 4 }),
    });
    Ok(right)
}

fn by_thread(port: &ReceiveRight) {
    while let Ok(request) = port.receive() {
        let _ = request.reply(b"seen");
    }
}

fn by_tasks(port: &Arc<ReceiveRight>, tasks: usize) {
    let runtime = Builder::new_current_thread().build();
    let Ok(runtime) = runtime else { return };
    let tasks = (0..tasks).map(|_| {
        let port = port.clone();
        runtime.spawn(async move {
            while let Ok(request) = port.receive_async().await {
                let _ = request.reply(b"seen");
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    runtime.block_on(async {
        for task in tasks {
            let _ = task.await;
        }
    });
}

fn by_loop(port: &ReceiveRight) {
    let Ok(readiness) = port.readiness() else {
        return;
    };
    loop {
        let mut fds = [rustix::event::PollFd::new(
            &readiness,
            rustix::event::PollFlags::IN,
        )];
        let _ = rustix::event::poll(&mut fds, None);
        while let Ok(request) = port.try_receive() {
            let _ = request.reply(b"seen");
        }
    }
}
