//! Shared packet buffers: content that a server keeps goes through the layers of a protocol stack, each of which is a
//! process, and is copied nowhere ("The Measured Performance of a Fast Local IPC", section 4.2).
//!
//! ```sh
//! cargo run --release -p handfast --example packets
//! ```
//!
//! Each layer puts its header in front of the message and passes the call on, and the content's memory with it, as a tail
//! call. The last layer reads the content where it is, and answers the first process. The same layers also pass the
//! content on as bytes, which are copied at each of them. The program prints what both ways take at their fastest: memory
//! costs system calls at each layer, bytes cost copies, and from some length on the copies cost more.

use handfast::{Memory, ReceiveRight, Right, SendRight};
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The length of a layer's header.
const HEADER_BYTES: usize = 16;
const PACKETS: u32 = 20;
const ROUNDS: usize = 5;

fn main() -> Outcome {
    let role: Vec<_> = std::env::args().skip(1).collect();
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => client(),
        ["wire", name] => wire(&handfast::bind(name)?),
        ["layer", name, next] => layer(&handfast::bind(name)?, &handfast::connect(next)?),
        _ => Err("no arguments".into()),
    }
}

/// Puts a header in front, and passes the rest on.
fn layer(port: &ReceiveRight, next: &SendRight) -> Outcome {
    let mut message = Vec::new();
    let mut request = port.receive()?;
    loop {
        message.clear();
        message.extend([0x5a; HEADER_BYTES]);
        message.extend_from_slice(request.bytes());
        let rights = request.take_rights();
        request = port.forward_and_receive(request, next, &message, rights)?;
    }
}

/// The last layer: answers with the sum of the content's bytes.
fn wire(port: &ReceiveRight) -> Outcome {
    let mut request = port.receive()?;
    loop {
        let sum = match request.take_rights().pop() {
            Some(Right::Memory(content)) => sum(&content),
            None => sum(&request.bytes()[2 * HEADER_BYTES..]),
            // Also `Right::Lost`: this process had no descriptor left.
            Some(other) => return Err(format!("{other:?} came").into()),
        };
        request = port.reply_and_receive(request, &sum.to_le_bytes())?;
    }
}

fn sum(content: &[u8]) -> u64 {
    content.iter().copied().map(u64::from).sum()
}

fn client() -> Outcome {
    let of = |what| format!("packets-{what}-{}", std::process::id());
    let names = [of("wire"), of("ip"), of("tcp")];
    let [wire, ip, tcp] = &names;
    let mut children = vec![start(&["wire", wire])?];
    // So that answers come straight back.
    let _link = connect(wire)?;
    children.push(start(&["layer", ip, wire])?);
    let _next = connect(ip)?;
    children.push(start(&["layer", tcp, ip])?);
    let tcp = connect(tcp)?;
    for len_bytes in [4 << 10, 64 << 10, 1 << 20, 8 << 20] {
        let content: Vec<u8> = (0..len_bytes).map(|at| (at % 251) as u8).collect();
        let content = Memory::from_bytes(&content)?;
        let expected = sum(&content);
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (way, times) in [shared, copied].into_iter().zip(&mut times) {
                let start = Instant::now();
                for _ in 0..PACKETS {
                    if way(&tcp, &content)? != expected {
                        return Err("other content arrived".into());
                    }
                }
                times.push(start.elapsed() / PACKETS);
            }
        }
        let [shared, copied] = times.map(fastest);
        println!("{len_bytes} bytes: {shared:?} in shared memory, {copied:?} copied at each layer");
    }
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Nobody can change the content, so the layers may have the memory that this process keeps.
fn shared(tcp: &SendRight, content: &Memory) -> Outcome<u64> {
    let file = content.as_fd().try_clone_to_owned()?;
    let packet = Memory::from_descriptor(file)?;
    sum_in(&tcp.with([packet.into()]).call(&[])?)
}

fn copied(tcp: &SendRight, content: &Memory) -> Outcome<u64> {
    sum_in(&tcp.call(content)?)
}

fn sum_in(reply: &[u8]) -> Outcome<u64> {
    Ok(u64::from_le_bytes(reply.try_into()?))
}

/// The fastest of some rounds: other load on the machine makes rounds slower, never faster.
fn fastest(times: Vec<Duration>) -> Duration {
    times.into_iter().min().unwrap_or_default()
}

fn start(role: &[&str]) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args(role).spawn()
}

/// Waits until the server is there.
fn connect(name: &str) -> Outcome<SendRight> {
    let start = Instant::now();
    loop {
        match handfast::connect(name) {
            Ok(right) => return Ok(right),
            Err(error) if start.elapsed() > Duration::from_secs(5) => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
