//! Tail calls: a front passes each call on to a worker, which replies straight to the client.
//!
//! ```sh
//! cargo run --release -p handfast --example tail
//! ```
//!
//! Three processes. The client also calls through a second front that calls the worker itself and
//! passes the reply on, and prints what both ways take at their fastest.

use handfast::{ReceiveRight, SendRight};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const CALLS: u32 = 500;
const ROUNDS: usize = 15;

fn main() -> Outcome {
    let role: Vec<_> = std::env::args().skip(1).collect();
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => client(),
        ["worker", name] => worker(&handfast::bind(name)?),
        ["tail", name, next] => tail(&handfast::bind(name)?, &handfast::connect(next)?),
        ["nested", name, next] => nested(&handfast::bind(name)?, &handfast::connect(next)?),
        _ => Err("no arguments".into()),
    }
}

fn worker(port: &ReceiveRight) -> Outcome {
    let mut request = port.receive()?;
    loop {
        let message = request.take_message();
        request = port.reply_and_receive(request, &message)?;
    }
}

/// The worker replies to the client.
fn tail(port: &ReceiveRight, worker: &SendRight) -> Outcome {
    loop {
        let mut request = port.receive()?;
        let message = request.take_message();
        // One that cannot be passed on comes back, and is dropped: the client is told.
        let _ = request.forward(worker, &message);
    }
}

/// The worker replies to this process, which replies to the client.
fn nested(port: &ReceiveRight, worker: &SendRight) -> Outcome {
    let mut request = port.receive()?;
    loop {
        let reply = worker.call(request.bytes())?;
        request = port.reply_and_receive(request, &reply)?;
    }
}

fn client() -> Outcome {
    let of = |what| format!("tail-{what}-{}", std::process::id());
    let names = [of("worker"), of("tail"), of("nested")];
    let [worker, tail, nested] = &names;
    let mut children = vec![start(&["worker", worker])?];
    let _link = connect(worker)?;
    children.push(start(&["tail", tail, worker])?);
    children.push(start(&["nested", nested, worker])?);
    let (tail, nested) = (connect(tail)?, connect(nested)?);
    for len_bytes in [0, 64, 1024, 4096] {
        let message = vec![b'x'; len_bytes];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (port, times) in [&tail, &nested].into_iter().zip(&mut times) {
                let start = Instant::now();
                for _ in 0..CALLS {
                    port.call(&message)?;
                }
                times.push(start.elapsed() / CALLS);
            }
        }
        let [tail, nested] = times.map(fastest);
        println!("{len_bytes} bytes: {tail:?} as tail calls, {nested:?} as calls within calls");
    }
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// The fastest of some rounds: other load on the machine makes rounds slower, never faster.
fn fastest(times: Vec<Duration>) -> Duration {
    times.into_iter().min().unwrap_or_default()
}

fn start(role: &[&str]) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args(role).spawn()
}

/// Waits until the server is there.
fn connect(name: &str) -> Result<SendRight, Box<dyn std::error::Error>> {
    let start = Instant::now();
    loop {
        match handfast::connect(name) {
            Ok(right) => return Ok(right),
            Err(error) if start.elapsed() > Duration::from_secs(5) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
