//! `ports`: one thread of a server that has ten ports, or a hundred thousand, which share its receiver; called through the first,
//! through the last, and through each in turn. Caller and server are threads of this process, which call by links like processes.

use crate::report::{Board, Key, Reading, Row};
use crate::run::Run;
use handfast::{MemberPort, ReceiveRight, SendRight};
use std::fs;
use std::io;
use std::time::Instant;

const FEW: usize = 10;
const MANY: usize = 100_000;
/// Calls in one window.
const CALLS: usize = 20_000;
const ROUNDS: u32 = 5;

/// Runs the benchmark.
pub(crate) fn measure(run: &mut Run) -> io::Result<Vec<Row>> {
    let counts = match run.args.quick {
        true => [FEW, MANY / 10],
        false => [FEW, MANY],
    };
    let rounds = run.args.rounds.unwrap_or(ROUNDS);
    run.expect(counts.len() * rounds as usize);
    let mut board = Board::default();
    for _ in 0..rounds {
        let mut few = None;
        for count in counts {
            let measured = Measured::of(count).map_err(io::Error::other)?;
            for (case, ns, of_few) in measured.rows(few.as_ref()) {
                let key = Key {
                    case: format!("{case}, {count} ports"),
                    system: "handfast-default",
                    payload_bytes: None,
                    clients: None,
                };
                board.add(key, reading(ns, of_few));
            }
            if count > FEW {
                run.notes.push(format!(
                    "Memory for each of {count} ports: {} bytes, and {} for a right to it at both of its ends.",
                    measured.port_bytes, measured.right_bytes
                ));
            }
            few.get_or_insert(measured);
            run.step();
        }
    }
    // Of the first round: later ones use again what the allocator has kept.
    run.notes.truncate(1);
    Ok(board.rows())
}

fn reading(ns: f64, of_few: Option<f64>) -> Reading {
    Reading {
        p50_ns: Some(ns),
        ratio_to_one: of_few.map(|of_few| ns / of_few),
        ..Reading::default()
    }
}

/// The results of one window: nanoseconds for each port, right or call, and bytes.
struct Measured {
    created: f64,
    connected: f64,
    first: f64,
    last: f64,
    each: f64,
    dropped: f64,
    port_bytes: i64,
    right_bytes: i64,
}

impl Measured {
    fn of(count: usize) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let server = handfast::anonymous()?;
        // The link is there, and its tables have their first pages.
        let own = server.mint(0).connect()?;
        let before = private_bytes()?;
        let (created, ports) = timed(count, || server.member())?;
        let with_ports = private_bytes()?;
        let mut each = ports.iter();
        let (connected, rights) = timed(count, || {
            let port: &MemberPort = each.next().expect("as many");
            port.mint(1).connect()
        })?;
        let with_rights = private_bytes()?;
        let bytes_each = |from: i64, to: i64| (to - from) / count as i64;
        let called = std::thread::scope(|scope| {
            let served = scope.spawn(|| serve(&server));
            let called = [
                calls(|_| &rights[0]),
                calls(|_| &rights[count - 1]),
                // By a stride, so that no line of a table is used twice in a row.
                calls(|call| &rights[call * 7919 % count]),
            ];
            own.send(END)?;
            served.join().map_err(|_| "the server has panicked")??;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(called)
        })?;
        let [first, last, each] = called;
        drop(rights);
        let began = Instant::now();
        drop(ports);
        let dropped = began.elapsed().as_nanos() as f64 / count as f64;
        Ok(Self {
            created,
            connected,
            first: first?,
            last: last?,
            each: each?,
            dropped,
            port_bytes: bytes_each(before, with_ports),
            right_bytes: bytes_each(with_ports, with_rights),
        })
    }

    /// Case, nanoseconds, and those with few ports.
    fn rows(&self, few: Option<&Self>) -> [(&'static str, f64, Option<f64>); 6] {
        let row = |case, of: fn(&Self) -> f64| (case, of(self), few.map(of));
        [
            row("port made", |it| it.created),
            row("right made", |it| it.connected),
            row("call, first", |it| it.first),
            row("call, last", |it| it.last),
            row("call, each in turn", |it| it.each),
            row("port ended", |it| it.dropped),
        ]
    }
}

const END: &[u8] = b"end";

fn serve(server: &ReceiveRight) -> Result<(), handfast::error::ReceiveError> {
    let mut request = server.receive()?;
    while request.is_call() {
        let member = request.member().unwrap_or_default();
        request = server.reply_and_receive(request, &member.to_le_bytes())?;
    }
    Ok(())
}

/// Makes so many. Nanoseconds for each.
fn timed<T, E>(count: usize, mut make: impl FnMut() -> Result<T, E>) -> Result<(f64, Vec<T>), E> {
    let mut made = Vec::with_capacity(count);
    let began = Instant::now();
    for _ in 0..count {
        made.push(make()?);
    }
    Ok((began.elapsed().as_nanos() as f64 / count as f64, made))
}

/// Calls back to back. Nanoseconds for each.
fn calls<'a>(right: impl Fn(usize) -> &'a SendRight) -> Result<f64, handfast::error::SendError> {
    for call in 0..CALLS / 10 {
        right(call).call(b"who")?;
    }
    let began = Instant::now();
    for call in 0..CALLS {
        right(call).call(b"who")?;
    }
    Ok(began.elapsed().as_nanos() as f64 / CALLS as f64)
}

/// The pages of this process alone.
fn private_bytes() -> io::Result<i64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = |line: &str| line.split_whitespace().nth(1)?.parse::<i64>().ok();
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(kib).sum::<i64>() * 1024)
}
