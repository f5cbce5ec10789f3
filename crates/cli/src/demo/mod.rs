//! `handfast demo`: real processes, the public API, and what happens inside, in under 20 seconds.

mod peers;

use crate::echo;
use handfast::error::SendError;
use handfast::{Counters, SendRight};
use handfast_cli::Outcome;
use handfast_cli::output::say;
use handfast_cli::temporary::{self, Temporary};
use handfast_cli::usage::Usage;
use hdrhistogram::Histogram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Arguments of a child process.
#[derive(clap::Args)]
pub(crate) struct ChildArgs {
    role: String,
    name: String,
}

/// Ends its process when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The prefix of the demo's name; its process comes after it.
const PREFIX: &str = "demo-";
const PHASE: Duration = Duration::from_secs(2);
const PAYLOAD: [u8; 24] = [7; 24];

pub(crate) fn run_child(args: &ChildArgs) -> Outcome {
    peers::die_with_parent();
    match args.role.as_str() {
        "serve" => echo::serve(&handfast::bind(&args.name)?),
        "client" => {
            let port = handfast::connect(&args.name)?;
            loop {
                port.call(&PAYLOAD)?;
            }
        }
        role => peers::serve(role),
    }
}

fn child(role: &str, name: &str) -> Result<Running, Box<dyn std::error::Error>> {
    // The running image, even when a build has replaced the file since.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("handfast")
        .args(["demo-child", role, name])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let _goes_on = temporary::goes_on();
    Ok(Running(command.spawn()?))
}

/// Connects as soon as the server has bound its name.
fn connect(name: &str, server: &mut Running) -> Result<SendRight, Box<dyn std::error::Error>> {
    let start = Instant::now();
    loop {
        match handfast::connect(name) {
            Ok(port) => return Ok(port),
            // It has said why.
            Err(_) if let Some(status) = server.0.try_wait()? => {
                return Err(format!("the server of {name:?} has ended: {status}").into());
            }
            Err(error) if start.elapsed() > Duration::from_secs(5) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

pub(crate) fn run() -> Outcome {
    take_back();
    let name = &format!("{PREFIX}{}", std::process::id());
    let killed = name.clone();
    let _name = Temporary::new(move || give_up(&killed));
    let mut server = child("serve", name)?;
    let port = connect(name, &mut server)?;
    say!(
        "A server process ({}) has bound {name:?}; this process has connected.",
        server.0.id()
    )?;
    say!("One link: a socket for life and death, sealed shared memory for everything else.\n")?;

    say!("1. Calls back to back, 24 bytes, default strategy")?;
    let mut latencies = Vec::new();
    latencies.push(("handfast", back_to_back(&port)?));
    say!("\n2. Nobody calls")?;
    idle(&server)?;
    say!(
        "\n3. Sixteen client processes at one server on {} CPUs",
        handfast_sys::cpu::available()
    )?;
    crowd(name, &port)?;
    say!("\n4. kill -9 of the server with a call in flight")?;
    drop(port);
    death(name, server)?;
    say!("\n5. The same round trip over the kernel's ways")?;
    latencies.push(("pipe", peers::measure("pipe", PHASE / 2)?));
    latencies.push(("unix stream", peers::measure("unix", PHASE / 2)?));
    say!("")?;
    histogram(&latencies)
}

/// Gives up the names of demos that were killed.
fn take_back() {
    let directory = handfast::rendezvous::directory();
    let names = temporary::left_by_dead(&directory, PREFIX).unwrap_or_default();
    names.iter().for_each(|name| give_up(name));
}

/// Takes over the name of a server that was killed, and gives it up: nothing of it stays, also where the server was killed in the
/// middle of binding.
fn give_up(name: &str) {
    // Another user's name stays.
    drop(handfast::bind(name));
}

fn back_to_back(port: &SendRight) -> Result<Histogram<u64>, Box<dyn std::error::Error>> {
    let mut latency = Histogram::new_with_bounds(1, 1_000_000_000, 3)?;
    let (start, mut shown, mut calls) = (Instant::now(), Instant::now(), 0u64);
    while start.elapsed() < PHASE {
        for _ in 0..1000 {
            let before = handfast_sys::clock::ticks_ns();
            port.call(&PAYLOAD)?;
            latency.saturating_record(handfast_sys::clock::ticks_ns() - before);
        }
        calls += 1000;
        if shown.elapsed() > Duration::from_millis(500) {
            shown = Instant::now();
            let counters = port.counters()?;
            let row = counters
                .ports
                .first()
                .map(|(_, row)| row.as_slice())
                .unwrap_or(&[]);
            let value = |column| {
                if row.is_empty() {
                    0
                } else {
                    Counters::value(row, column)
                }
            };
            say!(
                "   {:>9.0} calls/s   p50 {:>4} ns   server so far: {} calls, {} sleeps, {} wake-ups",
                calls as f64 / start.elapsed().as_secs_f64(),
                latency.value_at_quantile(0.5),
                value("calls"),
                value("parks"),
                value("wakes"),
            )?;
        }
    }
    Ok(latency)
}

fn idle(server: &Running) -> Outcome {
    let pid = server.0.id();
    // Let the last spin end first.
    std::thread::sleep(Duration::from_millis(100));
    let before = Usage::of(pid)?;
    std::thread::sleep(PHASE);
    let used = Usage::of(pid)?.since(before);
    say!(
        "   in {} s the server made {} context switches and used {} us of CPU",
        PHASE.as_secs(),
        used.switches,
        used.cpu_ns / 1000
    )?;
    Ok(())
}

fn crowd(name: &str, port: &SendRight) -> Outcome {
    let clients: Vec<_> = (0..16)
        .map(|_| child("client", name))
        .collect::<Result<_, _>>()?;
    std::thread::sleep(Duration::from_millis(300));
    let calls = |counters: &Counters| {
        counters
            .ports
            .iter()
            .map(|(_, row)| Counters::value(row, "calls"))
            .sum::<u64>()
    };
    let (start, before) = (Instant::now(), port.counters()?);
    std::thread::sleep(PHASE);
    let after = port.counters()?;
    let rate = (calls(&after) - calls(&before)) as f64 / start.elapsed().as_secs_f64();
    say!("   {rate:.0} calls/s in all, served in turns; nobody woken who cannot run")?;
    drop(clients);
    Ok(())
}

fn death(name: &str, mut server: Running) -> Outcome {
    let port = connect(name, &mut server)?;
    let pid = server.0.id();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let killed = Instant::now();
        drop(server);
        killed
    });
    let (error, seen) = loop {
        if let Err(error) = port.call(&PAYLOAD) {
            break (error, Instant::now());
        }
    };
    let killed = killer.join().map_err(|_| "the killing thread failed")?;
    let after = seen.saturating_duration_since(killed);
    say!(
        "   process {pid} killed; the call ended after {} us with: {error}",
        after.as_micros()
    )?;
    if !matches!(error, SendError::Gone(_)) {
        return Err(format!("expected the server to be gone, got: {error}").into());
    }
    drop(port);
    let mut again = child("serve", name)?;
    let port = connect(name, &mut again)?;
    let reply = port.call(b"back again")?;
    say!(
        "   a new server ({}) took the name over and answers: {:?}",
        again.0.id(),
        String::from_utf8_lossy(&reply)
    )?;
    Ok(())
}

fn histogram(latencies: &[(&str, Histogram<u64>)]) -> Outcome {
    say!("   round trip, 24 bytes{:>16}{:>10}", "p50 ns", "p99 ns")?;
    for (name, latency) in latencies {
        let p50 = latency.value_at_quantile(0.5);
        let p99 = latency.value_at_quantile(0.99);
        // One character per doubling from 64 ns on.
        let bar = "#".repeat((p50.max(64).ilog2() as usize - 5) * 3);
        say!("   {name:20}{p50:>16}{p99:>10}  {bar}")?;
    }
    say!("   (bars are logarithmic: three characters per doubling)")
}
