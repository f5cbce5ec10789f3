//! The cost of a typed call beyond a raw call of as many bytes: `service_cost [CALLS A ROUND]`.
//!
//! First the path without its waiting, as in `path.rs`: client and server are one thread, so what the
//! types cost is all there is to see. Then round trips between two threads, which depend on what
//! else the machine does. Raw and typed in turn, medians of 31 rounds.

use handfast::ReceiveRight;
use handfast::service::FixedRequest;
use std::error::Error;
use std::time::Instant;

#[handfast::service]
trait Adder {
    /// Values as in memory.
    fn add(&self, a: u64, b: u64) -> u64;
    /// Values by serde.
    fn total(&self, numbers: &[u64]) -> Option<u64>;
    /// A view and an owned string.
    fn shout(&self, text: &str) -> String;
}

struct Mine;

impl Adder for Mine {
    fn add(&self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }

    fn total(&self, numbers: &[u64]) -> Option<u64> {
        numbers.iter().copied().reduce(u64::wrapping_add)
    }

    fn shout(&self, text: &str) -> String {
        text.to_uppercase()
    }
}

const ROUNDS: usize = 31;

type Checked = Result<(), Box<dyn Error>>;

fn main() -> Checked {
    let calls = std::env::args().nth(1);
    let calls: u64 = calls.map_or(Ok(20_000), |calls| calls.parse())?;

    let (port, right) = port("path")?;
    println!("the path alone");
    compare(
        calls,
        &mut [
            ("raw, 24 B", &mut |number| {
                let call = right.try_call(&raw_request(number))?;
                let request = port.receive()?;
                let reply = raw_reply(request.bytes());
                request.reply(&reply)?;
                check(&call.wait()?, number)
            }),
            ("two u64", &mut |number| {
                let method = &AdderServer::SERVICE.methods()[0];
                let call = FixedRequest::<24>::request(method, |request| {
                    request.put_fixed(&number);
                    request.put_fixed(&1u64);
                    right.try_call(request.bytes(method).unwrap_or_default())
                })?;
                AdderServer::dispatch(port.receive()?, &Mine)?;
                check(&call.wait()?, number + 1)
            }),
        ],
    )?;

    let start = |kind: &str, serve: fn(&ReceiveRight)| {
        let (port, right) = self::port(kind)?;
        std::thread::spawn(move || serve(&port));
        Ok::<_, Box<dyn Error>>(right)
    };
    let raw = start("raw", raw_server)?;
    let typed = AdderClient::new(start("typed", |port| {
        let _ = AdderServer::serve(port, &Mine);
    })?);
    println!("round trips");
    compare(
        calls,
        &mut [
            ("raw, 24 B", &mut |number| {
                check(&raw.call(&raw_request(number))?, number)
            }),
            ("two u64", &mut |number| {
                equal(typed.add(number, 1)?, number + 1)
            }),
            ("&[u64], serde", &mut |number| {
                equal(typed.total(&[number, 1])?, Some(number + 1))
            }),
            ("&str, String", &mut |_| {
                equal(&*typed.shout("sixteen letters!")?, "SIXTEEN LETTERS!")
            }),
        ],
    )
}

fn port(kind: &str) -> Result<(ReceiveRight, handfast::SendRight), Box<dyn Error>> {
    let port = handfast::bind(&format!("cost-{kind}-{}", std::process::id()))?;
    let right = handfast::connect(port.name())?;
    Ok((port, right))
}

/// Runs each in turn and prints the medians.
fn compare(calls: u64, kinds: &mut [(&str, &mut dyn FnMut(u64) -> Checked)]) -> Checked {
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in kinds.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for number in 0..calls {
                run(number)?;
            }
            times.push(start.elapsed().as_nanos() as f64 / calls as f64);
        }
    }
    let mut base = None;
    for ((name, _), mut times) in kinds.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        let beyond = median - *base.get_or_insert(median);
        println!("    {name:14} {median:7.1} ns a call, {beyond:+6.1}");
    }
    Ok(())
}

fn raw_request(number: u64) -> [u8; 24] {
    let mut bytes = [1; 24];
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// As many bytes as the typed one.
fn raw_reply(request: &[u8]) -> [u8; 9] {
    let mut reply = [0; 9];
    reply[..8].copy_from_slice(&request[8..16]);
    reply
}

fn raw_server(port: &ReceiveRight) {
    let mut received = port.receive();
    while let Ok(request) = received {
        let reply = raw_reply(request.bytes());
        received = port.reply_and_receive(request, &reply);
    }
}

fn check(reply: &[u8], number: u64) -> Checked {
    equal(reply.get(..8), Some(&number.to_le_bytes()[..]))
}

fn equal<T: PartialEq + std::fmt::Debug>(is: T, should: T) -> Checked {
    if is == should {
        return Ok(());
    }
    Err(format!("{is:?} came, not {should:?}").into())
}
