//! The path of a tail call without its waiting: client, front and worker are one thread, two calls are in
//! flight, nobody ever waits. `valgrind --tool=callgrind` counts its instructions exactly.
//!
//! `tail_path CALLS [LEN_BYTES]`

use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse())
        .collect::<Result<_, _>>()?;
    let calls = arguments.first().copied().unwrap_or(1_000_000);
    let bytes = vec![7; arguments.get(1).copied().unwrap_or(24)];
    let name = |of| format!("tail-path-{of}-{}", std::process::id());
    let (front, worker) = (
        handfast::bind(&name("front"))?,
        handfast::bind(&name("worker"))?,
    );
    let (to_front, to_worker) = (
        handfast::connect(&name("front"))?,
        handfast::connect(&name("worker"))?,
    );
    let mut vines = u64::MAX;
    // Until answers come straight back.
    let start = Instant::now();
    loop {
        for _ in 0..4 {
            let call = to_front.try_call(&bytes)?;
            front
                .receive()?
                .forward(&to_worker, &bytes)
                .map_err(|failed| failed.error)?;
            worker.receive()?.reply(&bytes)?;
            call.wait()?;
        }
        let links = to_worker.counters()?.links;
        let now = links
            .iter()
            .map(|row| handfast::Counters::value(row, "vines"))
            .sum();
        if now == vines {
            break;
        }
        vines = now;
        if start.elapsed() > Duration::from_secs(20) {
            return Err("answers do not come straight back".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let pass_on = || -> Result<(), Box<dyn std::error::Error>> {
        let mut passed = front.receive()?;
        let message = passed.take_message();
        let forwarded = passed.forward(&to_worker, &message);
        Ok(forwarded.map_err(|failed| failed.error)?)
    };
    let start = Instant::now();
    let mut call = to_front.try_call(&bytes)?;
    pass_on()?;
    let mut request = worker.receive()?;
    for _ in 0..calls {
        let next = to_front.try_call(&bytes)?;
        pass_on()?;
        let message = request.take_message();
        request = worker.reply_and_receive(request, &message)?;
        if call.wait()?.len() != bytes.len() {
            return Err("a reply of another length".into());
        }
        call = next;
    }
    println!("{} ns a call", start.elapsed().as_nanos() / calls as u128);
    Ok(())
}
