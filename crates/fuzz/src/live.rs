//! A process with a port, and peers that are made by hand: what the keeper and the receiver take apart themselves, and
//! what comes of it.
//!
//! The peers are in the same process, which goes by the kernel's word for who they are, and by identities that they
//! make up. So all that they make it do is seen by a fuzzer.

mod deeds;
mod hand;

use crate::{Input, below, steps};
use arbitrary::Result;
use core::time::Duration;
use deeds::Session;
use handfast::error::ReceiveError;
use handfast::{ReceiveRight, Request, SendRight};
use handfast_layout::bell;
use handfast_layout::hello::{Hello, Status, WELCOME_BYTES, Welcome};
use handfast_sys::memory::create_sealed;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, socket};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Far longer than anything takes: a process that does not answer by then has stopped.
const PATIENCE: Duration = Duration::from_secs(20);

/// Short: it is in every hello.
const NAME: &str = "f";

/// The process that is talked to.
struct Victim {
    port: ReceiveRight,
    /// An honest right to it.
    honest: SendRight,
    /// What peers made by hand have for bells. Nobody sleeps there.
    bells: OwnedFd,
}

/// The rendezvous directory of this process, made for it. Who has done with it removes it.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let above = std::env::var_os("HANDFAST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = above.join(format!("handfast-f{}", std::process::id()));
        // Of a process with this number that was killed.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a rendezvous directory");
        set_directory(&directory);
        directory
    })
}

#[allow(
    unsafe_code,
    reason = "no two fuzzers may meet in one rendezvous directory"
)]
fn set_directory(directory: &Path) {
    // SAFETY: only the environment functions of Rust's library are used in this process while there are several
    // threads, and they exclude one another.
    unsafe { std::env::set_var("HANDFAST_DIR", directory) };
}

/// There is one, for one input at a time.
fn victim() -> MutexGuard<'static, Victim> {
    static VICTIM: OnceLock<Mutex<Victim>> = OnceLock::new();
    let victim = VICTIM.get_or_init(|| {
        directory();
        let port = handfast::bind(NAME).expect("a port");
        let honest = port.mint(1).connect().expect("a right to it");
        let bells = create_sealed("bells", bell::REGION_BYTES).expect("a memory file");
        Mutex::new(Victim {
            port,
            honest,
            bells,
        })
    });
    victim.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Victim {
    fn try_receive(&self) -> Option<Request> {
        match self.port.try_receive() {
            Ok(request) => Some(request),
            Err(ReceiveError::Empty) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Whatever others have said, an honest call is answered.
    fn serves(&self) {
        const ASKED: &[u8] = b"honest";
        let call = self.honest.try_call(ASKED).expect("there is room");
        loop {
            let request = self.port.receive_until(PATIENCE).expect("the call");
            // Hands have no such badge.
            if request.is_call() && request.badge() == 1 && request.bytes() == ASKED {
                request.reply(b"served").expect("the caller waits");
                break;
            }
        }
        let answer = call.wait_until(PATIENCE).expect("an answer");
        assert_eq!(&*answer, b"served");
    }
}

/// The first byte says how many descriptors go with the hello, and which; the others are the hello.
pub fn greeting(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let victim = victim();
    let path = directory().join(NAME);
    let socket = socket::connect(&path, PATIENCE).expect("it listens");
    let count = usize::from(first >> 2) % 4;
    let fds: Vec<BorrowedFd<'_>> = match first & 3 {
        0 => vec![socket.as_fd(); count],
        _ => vec![victim.bells.as_fd(); count],
    };
    if bytes.is_empty() || socket::send(&socket, bytes, &fds).is_err() {
        return;
    }
    let mut answer = [0; WELCOME_BYTES + 1];
    match hand::receive(&socket, &mut answer) {
        Ok((0, _)) | Err(Errno::CONNRESET) => panic!("a hello is answered, whatever it is"),
        Ok((len_bytes, fds)) => {
            let welcome = Welcome::parse(&answer[..len_bytes]).expect("a welcome");
            let is_linked = welcome.status == Status::Linked;
            assert_eq!(fds.len(), if is_linked { 2 } else { 0 });
            let hello = Hello::parse(bytes);
            if matches!(welcome.status, Status::Linked | Status::Known) {
                assert_eq!(hello.map(|hello| hello.name), Ok(NAME.to_owned()));
            }
            assert!(!is_linked || first & 3 != 0 && count > 0, "without bells");
        }
        Err(errno) => panic!("a hello is answered: {errno}"),
    }
    drop(socket);
    victim.serves();
}

/// What one or two peers say and do, and the process does with what comes of it.
pub fn session(bytes: &[u8]) {
    let victim = victim();
    let hands = 1 + u8::from(bytes.first().is_some_and(|first| first % 2 == 1));
    let mut session = Session::new(&victim, hands);
    steps(bytes.get(1..).unwrap_or_default(), |input| {
        session.step(input)
    });
    session.end();
    victim.serves();
}

/// A length of bytes that means something somewhere.
fn length(input: &mut Input<'_>) -> Result<usize> {
    Ok(match below(input, 16)? {
        0 => 41,
        1 => 1024,
        2 => 1025,
        3 => 65_536,
        few => usize::from(few) * 2,
    })
}
