//! Peers made by hand: they say hello as no handfast does, send files that are not what they should be, and more of
//! everything than anybody wants.

use crate::child::{self, Spec};
use crate::talk;
use handfast_cli::Outcome;
use handfast_layout::bell::REGION_BYTES as BELLS_BYTES;
use handfast_layout::control::{ControlKind, ControlMessage};
use handfast_layout::hello::{
    HELLO_BYTES, Hello, Status, WELCOME_BYTES, Welcome, parse_ready, ready,
};
use handfast_layout::link::REGION_BYTES as LINK_BYTES;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, memory, shared, socket};
use handfast_testing::Random;
use handfast_testing::forge::Packet;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

/// How long a connection may take that is made by hand.
const CONNECT: Duration = Duration::from_millis(500);
/// Connections that say nothing, held at once.
const SILENT_MAX: usize = 200;

fn path(name: &str) -> PathBuf {
    handfast::rendezvous::directory().join(name)
}

/// An incarnation of this process, or, one time in eight, of one that it is not.
fn identity(random: &mut Random) -> [u8; 16] {
    let mut identity = handfast_sys::process::new_incarnation().unwrap_or_default();
    identity[8..].copy_from_slice(&random.next().to_le_bytes());
    identity[0] ^= u8::from(random.below(8) == 0);
    identity
}

/// A connection to a server that has said that a hello may come.
fn knock(name: &str) -> Result<OwnedFd, Errno> {
    let connection = socket::connect(&path(name), CONNECT)?;
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, _) = socket::receive(&connection, &mut bytes, 0)?;
    match parse_ready(&bytes[..len_bytes]) {
        Ok(Some(_)) => Ok(connection),
        _ => Err(Errno::NOBUFS),
    }
}

/// A memory file that somebody would map and should not.
fn bad_file(random: &mut Random, len_bytes: usize) -> Result<OwnedFd, Errno> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    if random.below(5) == 0 {
        // Shorter than it should be, and sealed so.
        return memory::create_sealed("handfast abuse", 4096);
    }
    let fd = memfd_create(
        "handfast abuse",
        MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC,
    )?;
    let len_bytes = match random.below(4) {
        0 => 0,
        1 => len_bytes / 2,
        2 => len_bytes - 1,
        _ => len_bytes,
    };
    ftruncate(&fd, len_bytes as u64)?;
    let seals = [
        SealFlags::empty(),
        SealFlags::SHRINK,
        SealFlags::GROW,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE,
        SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    ];
    fcntl_add_seals(&fd, seals[random.below(seals.len() as u64) as usize])?;
    Ok(fd)
}

/// The role of a process that says hello wrongly, or sends wrong files with it. Repeated acts go on as long as it lives.
pub(crate) fn hellos(spec: &Spec) -> Outcome {
    let mut random = Random::of(spec.seed);
    let name = spec.word(0)?;
    let with_files = spec.word(1)? == "files";
    let mut silent = VecDeque::new();
    child::say("here");
    loop {
        let Ok(connection) = knock(name) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let known = (random.below(4) == 0).then(|| random.below(1100) as u32);
        let link = random.below(1100) as u32;
        let mut bytes = Hello::new(identity(&mut random), name, link, known)
            .to_bytes()
            .to_vec();
        let mut files = Vec::new();
        if with_files {
            files.push(bad_file(&mut random, BELLS_BYTES)?);
        } else {
            match random.below(4) {
                0 => bytes = talk::content(random.below(300) as usize, random.next()),
                1 => bytes.truncate(random.below(HELLO_BYTES as u64) as usize),
                2 => {}
                _ => {
                    for _ in 0..1 + random.below(4) {
                        bytes[random.below(HELLO_BYTES as u64) as usize] = random.next() as u8;
                    }
                }
            }
        }
        let fds: Vec<BorrowedFd<'_>> = match with_files {
            true => files.iter().map(AsFd::as_fd).collect(),
            false => (0..random.below(5)).map(|_| connection.as_fd()).collect(),
        };
        let _ = socket::send(&connection, &bytes, &fds);
        if with_files {
            // It looks at the file before it answers: it may change meanwhile.
            for file in &files {
                let _ = rustix::fs::ftruncate(file, 0);
            }
        }
        if random.below(2) == 0 {
            silent.push_back(connection);
        }
        if silent.len() > SILENT_MAX {
            silent.pop_front();
        }
    }
}

/// The role of a server that answers a hello with what no handfast does.
pub(crate) fn fake_server(spec: &Spec) -> Outcome {
    let mut random = Random::of(spec.seed);
    let path = path(spec.word(0)?);
    let _ = std::fs::remove_file(&path);
    let listener = socket::listen(&path, 16)?;
    socket::set_nonblocking(&listener, false)?;
    child::say("here");
    loop {
        let connection = socket::accept(&listener)?;
        socket::set_nonblocking(&connection, false)?;
        socket::set_timeout(&connection, CONNECT)?;
        let _ = socket::pass_descriptors(&connection, true);
        let _ = socket::send(&connection, &ready(identity(&mut random)), &[]);
        let mut hello = [0; 2 * HELLO_BYTES];
        let _ = socket::receive(&connection, &mut hello, 4);
        let mut bytes = Welcome::refusal(identity(&mut random), Status::Linked, 0).to_bytes();
        for _ in 0..random.below(4) {
            bytes[random.below(WELCOME_BYTES as u64) as usize] = random.next() as u8;
        }
        let files = [
            bad_file(&mut random, LINK_BYTES)?,
            memory::create_sealed("handfast abuse", BELLS_BYTES)?,
            bad_file(&mut random, BELLS_BYTES)?,
        ];
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let from = random.below(2) as usize;
        let len_bytes = random.below(WELCOME_BYTES as u64 + 1) as usize;
        let len_bytes = if random.below(2) == 0 {
            len_bytes
        } else {
            WELCOME_BYTES
        };
        let _ = socket::send(&connection, &bytes[..len_bytes], &fds[from..]);
        for file in &files {
            let _ = rustix::fs::ftruncate(file, 0);
        }
    }
}

/// A link made by hand; its shared memory is dropped at once.
fn link(name: &str, random: &mut Random) -> Result<OwnedFd, Errno> {
    let connection = knock(name)?;
    let bells = memory::create_sealed("handfast abuse", BELLS_BYTES)?;
    let hello = Hello::new(identity(random), name, random.below(1024) as u32, None);
    socket::send(&connection, &hello.to_bytes(), &[bells.as_fd()])?;
    let mut bytes = [0; WELCOME_BYTES];
    let (len_bytes, files) = socket::receive(&connection, &mut bytes, 3)?;
    let welcome = Welcome::parse(&bytes[..len_bytes]).map_err(|_| Errno::PROTO)?;
    match welcome.status {
        Status::Linked => {
            shared::seal(&files[0])?;
            socket::send(&connection, &ControlMessage::Sealed.encode(), &[])?;
            Ok(connection)
        }
        _ => Err(Errno::NOBUFS),
    }
}

/// The role of a process that sends control messages on and on, with descriptors or without, and reads none.
pub(crate) fn control(spec: &Spec) -> Outcome {
    let mut random = Random::of(spec.seed);
    let name = spec.word(0)?;
    let floods = spec.word(1)? == "flood";
    child::say("here");
    loop {
        let Ok(connection) = link(name, &mut random) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        for _ in 0..random.below(if floods { 5000 } else { 300 }) {
            // Of any kind, and of kinds that there are not.
            let len_bytes = 1 + random.below(if floods { 3 } else { 40 });
            let any = talk::content(len_bytes as usize, random.next());
            let kind = ControlKind::ALL.get(usize::from(any[0]) % (ControlKind::ALL.len() + 1));
            let argument = any.get(1).copied().unwrap_or_default();
            let rest = any.get(2..).unwrap_or_default();
            let bytes = match kind {
                Some(kind) => Packet::of_kind(*kind, argument, rest),
                None => Packet::unknown(argument).extended(rest),
            };
            let bytes = bytes.cut_to(len_bytes as usize);
            let fds = [connection.as_fd(); 4];
            let count = if floods { 4 } else { random.below(3) as usize };
            if socket::send(&connection, &bytes, &fds[..count]).is_err() {
                break;
            }
        }
    }
}

/// The role of a process that connects and says nothing, or goes at once, on and on.
pub(crate) fn connects(spec: &Spec) -> Outcome {
    let mut random = Random::of(spec.seed);
    let name = spec.word(0)?;
    let mut silent = VecDeque::new();
    child::say("here");
    loop {
        match socket::connect(&path(name), CONNECT) {
            Ok(connection) if random.below(4) > 0 => silent.push_back(connection),
            _ => {}
        }
        if silent.len() > SILENT_MAX {
            silent.drain(..SILENT_MAX / 2);
        }
    }
}

/// The role of a process that has as many links as it gets, up to so many, and says how many.
pub(crate) fn links(spec: &Spec) -> Outcome {
    handfast_cli::descriptors::raise();
    let mut random = Random::of(spec.seed);
    let name = spec.word(0)?;
    let mut held = Vec::new();
    for _ in 0..spec.number(1)? {
        match link(name, &mut random) {
            Ok(connection) => held.push(connection),
            Err(_) => break,
        }
    }
    child::say(&format!("links {}", held.len()));
    child::say("here");
    while child::told().is_some() {}
    Ok(())
}
