//! Stream sockets: two well-behaved processes talk to a server, and find every byte in order, while others are killed in the middle of a stream, leave the
//! shared memory at any time, scribble on it, and flood the name at which memory is asked for; and servers are killed under clients that read.

use crate::child::{self, Child, Spec};
use crate::leaks::{self, Holdings};
use crate::reach;
use crate::tally::Leaks;
use handfast_cli::Outcome;
use handfast_cli::output::say;
use handfast_cli::temporary::Directory;
use handfast_layout::PAGE;
use handfast_layout::stream::VERSION;
use handfast_socket::{LeaveError, Listener, Reason, Stream};
use handfast_sys::{process, socket};
use handfast_testing::Random;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// The roles of this phase begin so; the server, and clients by what they do.
pub(crate) const SERVER: &str = "streams-server";
const CLIENT: &str = "streams-client";
const ASKS: &str = "streams-asks";

/// Well-behaved clients.
const STEADY: usize = 2;
/// Longest piece that is sent before its echo is read: less than a ring has room for, so that neither side waits for the other.
const PIECE_BYTES: u64 = 30_000;
/// Connections that a scribbler keeps: their memory must stay mapped.
const SCRIBBLED_MAX: usize = 8;
/// Askers that a flood keeps open.
const ASKERS: usize = 200;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One of the roles, if it is.
pub(crate) fn role(spec: &Spec) -> Option<Outcome> {
    Some(match spec.role.as_str() {
        SERVER => server(),
        CLIENT => client(spec),
        ASKS => asks(spec),
        _ => return None,
    })
}

/// Sends back what comes by any number of connections.
fn server() -> Outcome {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    child::say(&listener.local_addr()?.to_string());
    std::thread::spawn(move || {
        loop {
            // The peer may have gone before.
            let Ok((stream, _)) = listener.accept() else {
                continue;
            };
            std::thread::spawn(move || echo(&stream));
        }
    });
    while child::told().is_some() {
        child::trim();
    }
    Ok(())
}

/// An error ends the connection, and nothing else.
fn echo(mut stream: &Stream) {
    let mut bytes = vec![0; 20_000];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..len]).is_err() {
            return;
        }
    }
}

/// Sends a piece and reads its echo. `false`: that was another one.
fn talk(mut stream: &Stream, random: &mut Random) -> std::io::Result<bool> {
    let most = 1 + random.below(PIECE_BYTES);
    let len = 1 + random.below(most);
    let first = random.next();
    let piece: Vec<u8> = (0..len).map(|at| (first ^ at ^ at >> 8) as u8).collect();
    stream.write_all(&piece)?;
    let mut back = vec![0; piece.len()];
    stream.read_exact(&mut back)?;
    Ok(back == piece)
}

/// A client's conduct, by the word that it is told.
#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    /// Reports on its round trips when it is told to end.
    Steady,
    /// The same, and leaves the shared memory at times.
    Leaves,
    /// Goes on until it is killed.
    Talks,
    /// Until its server is.
    Outlives,
    /// Writes over the memory that it shares, until it is killed.
    Scribbles,
}

const CONDUCTS: [(&str, Conduct); 5] = [
    ("steady", Conduct::Steady),
    ("leaves", Conduct::Leaves),
    ("talks", Conduct::Talks),
    ("outlives", Conduct::Outlives),
    ("scribbles", Conduct::Scribbles),
];

fn client(spec: &Spec) -> Outcome {
    let address: SocketAddr = spec.word(0)?.parse()?;
    let word = spec.word(1)?;
    let conduct = CONDUCTS.iter().find(|(name, _)| *name == word);
    let (_, conduct) = *conduct.ok_or("no such conduct")?;
    let mut random = Random::of(spec.seed);
    if conduct == Conduct::Scribbles {
        return scribbles(address, random);
    }
    let (told, is_told) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        while child::told().is_some() {}
        drop(told);
    });
    let is_over = || is_told.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
    let (mut round_trips, mut upgraded) = (0_u64, 0_u64);
    while !is_over() {
        let stream = Stream::connect(address)?;
        for _ in 0..random.below(3000) {
            match talk(&stream, &mut random) {
                Ok(true) => round_trips += 1,
                Ok(false) => return wrong("an echo of other bytes"),
                // Its server is killed: that is all that it may notice.
                Err(_) if conduct == Conduct::Outlives => {
                    child::say("ended");
                    return Ok(());
                }
                Err(error) => return wrong(&error.to_string()),
            }
            if conduct == Conduct::Leaves && random.below(200) == 0 {
                match stream.leave() {
                    Ok(()) | Err(LeaveError::Unread(_)) => {}
                    Err(error) => return wrong(&error.to_string()),
                }
            }
            if is_over() {
                break;
            }
        }
        upgraded += u64::from(stream.reason() == Reason::Upgraded);
    }
    child::say(&format!("{round_trips} {upgraded}"));
    Ok(())
}

fn wrong(what: &str) -> Outcome {
    child::say(&format!("wrong: {what}"));
    Ok(())
}

/// Talks, and writes words over the first page of all regions meanwhile. Its own library must not panic, either.
fn scribbles(address: SocketAddr, mut random: Random) -> Outcome {
    let seed = random.next();
    for number in 0..SCRIBBLED_MAX as u64 {
        let stream: &Stream = Box::leak(Box::new(Stream::connect(address)?));
        let mut random = Random::of(seed ^ number);
        std::thread::spawn(move || while talk(stream, &mut random).is_ok() {});
    }
    loop {
        for region in reach::reach() {
            for _ in 0..64 {
                let at = random.below(PAGE as u64 / 4) as usize * 4;
                region.write(at, random.meddlesome());
            }
        }
    }
}

/// Asks for memory for connections that are not there, in words that mean nothing, or says nothing.
fn asks(spec: &Spec) -> Outcome {
    let address = spec.word(0)?;
    let (host, port) = address.rsplit_once(':').ok_or("no port")?;
    let name = format!("handfast-stream-{VERSION}/{}/{host}/{port}", process::uid());
    let mut random = Random::of(spec.seed);
    let mut open = std::collections::VecDeque::new();
    loop {
        if let Ok(asker) = socket::connect_abstract(name.as_bytes()) {
            let mut bytes = [0; 24];
            bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
            bytes[4] = random.next() as u8;
            bytes[5] = random.next() as u8;
            bytes[18..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
            let len = [0, 7, 24, 24][random.below(4) as usize];
            if len > 0 {
                let _ = socket::send(&asker, &bytes[..len], &[]);
            }
            open.push_back(asker);
        }
        if open.len() > ASKERS {
            open.pop_front();
        }
    }
}

/// The deeds, and the conduct of the client that each is done to.
const DEEDS: [(&str, &str); 5] = [
    ("killed while they talk", "talks"),
    ("killed while they leave", "leaves"),
    ("killed while they scribble", "scribbles"),
    ("floods of askers", ""),
    ("servers killed under a client", "outlives"),
];

/// Runs the phase. Whether all was well.
pub(crate) fn run(seed: u64, time: Duration, limit: Duration) -> Result<bool> {
    let directory = Directory::new("handfast-abuse-")?;
    let directory = directory.path();
    let mut random = Random::of(seed ^ 0x50c4);
    let (mut server, address) = start_server(directory, limit)?;
    let mut problems = Vec::new();
    // Everything has been used once before it is counted.
    problems.extend(visit(&address, &mut random, directory, limit)?);
    let before = Holdings::of(server.id())?;
    let mut steady = Vec::new();
    for number in 0..STEADY {
        let conduct = ["steady", "leaves"][number % 2];
        steady.push(start_client(&address, conduct, random.next(), directory)?);
    }
    let (end, mut done) = (Instant::now() + time, BTreeMap::new());
    while Instant::now() < end && !steady.iter().any(Child::has_ended) {
        let (what, conduct) = DEEDS[random.below(DEEDS.len() as u64) as usize];
        *done.entry(what).or_insert(0_u64) += 1;
        let found = match conduct {
            "outlives" => kill_server(&mut random, directory, limit)?,
            conduct => strike(&address, conduct, &mut random, directory)?,
        };
        problems.extend(found);
    }
    let mut round_trips = 0;
    for client in &mut steady {
        match end_steady(client, limit) {
            Ok(count) => round_trips += count,
            Err(problem) => problems.push(problem),
        }
    }
    drop(steady);
    // The server lets go of askers that have gone when the next connection comes.
    problems.extend(visit(&address, &mut random, directory, limit)?);
    server.tell("trim");
    server.line(limit);
    let mut leaks = Leaks::default();
    leaks::compare("server", server.id(), &before, &mut leaks);
    problems.extend(leaks.descriptors.into_iter().chain(leaks.memory));
    say!("\nstream sockets: {round_trips} round trips, all bytes in order; beside them")?;
    for (what, count) in &done {
        say!("  {what:<56}{count:>14}")?;
    }
    for problem in &problems {
        say!("  ! {problem}")?;
    }
    Ok(problems.is_empty())
}

fn start_server(directory: &Path, limit: Duration) -> Result<(Child, String)> {
    let mut server = Child::start(&Spec::new(SERVER, 0, &[]), directory, &[], None)?;
    let address = server
        .line(limit)
        .ok_or("a server of streams says nothing")?;
    Ok((server, address))
}

fn start_client(address: &str, conduct: &str, seed: u64, directory: &Path) -> Result<Child> {
    let spec = Spec::new(CLIENT, seed, &[address, conduct]);
    Ok(Child::start(&spec, directory, &[], None)?)
}

/// A well-behaved client comes for a moment. Returns a problem, if there was one.
fn visit(
    address: &str,
    random: &mut Random,
    directory: &Path,
    limit: Duration,
) -> Result<Option<String>> {
    let mut visitor = start_client(address, "steady", random.next(), directory)?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(end_steady(&mut visitor, limit).err())
}

/// Has a well-behaved client end. How many round trips it made, some of which were upgraded.
fn end_steady(client: &mut Child, limit: Duration) -> std::result::Result<u64, String> {
    client.close_input();
    let Some(line) = client.line(limit) else {
        return Err("a well-behaved client of streams is stuck, or has ended".to_owned());
    };
    let counts = line.split_once(' ').and_then(|(round_trips, upgraded)| {
        Some((round_trips.parse().ok()?, upgraded.parse().ok()?))
    });
    match counts {
        Some((round_trips, 0..)) if round_trips > 0 => Ok(round_trips),
        _ => Err(format!("a well-behaved client of streams says {line:?}")),
    }
}

/// Starts one that talks, leaves, scribbles or asks, and kills it a moment later. Returns a problem, if there was one.
fn strike(
    address: &str,
    conduct: &str,
    random: &mut Random,
    directory: &Path,
) -> Result<Option<String>> {
    let mut victim = match conduct {
        "" => Child::start(
            &Spec::new(ASKS, random.next(), &[address]),
            directory,
            &[],
            None,
        )?,
        conduct => start_client(address, conduct, random.next(), directory)?,
    };
    std::thread::sleep(Duration::from_millis(5 + random.below(300)));
    let said = victim.line(Duration::ZERO);
    let ended = victim.kill();
    let is_crash = ended.is_some_and(child::is_crash);
    Ok((is_crash || said.is_some()).then(|| format!("{conduct:?}: {ended:?}, {said:?}")))
}

/// Kills a server while a client talks to it, which must notice, and notice nothing else.
fn kill_server(random: &mut Random, directory: &Path, limit: Duration) -> Result<Option<String>> {
    let (server, address) = start_server(directory, limit)?;
    let mut client = start_client(&address, "outlives", random.next(), directory)?;
    std::thread::sleep(Duration::from_millis(20 + random.below(200)));
    let _ = server.kill();
    let said = client.line(limit);
    let is_well = match &said {
        Some(said) => said == "ended",
        // It may have been between two connections, and ends with an error then.
        None => client
            .wait(limit)
            .is_some_and(|status| !child::is_crash(status)),
    };
    Ok((!is_well).then(|| format!("a client of a server that was killed: {said:?}")))
}
