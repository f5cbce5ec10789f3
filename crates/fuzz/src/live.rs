//! A process with a port, and peers that are made by hand: what the control thread and the receiver take apart themselves, and
//! what comes of it.
//!
//! The peers are in the same process, which goes by the kernel's word for who they are, and by identities that they
//! make up. So all that they make it do is seen by a fuzzer.

mod deeds;
mod files;
mod hand;
mod presents;
mod server;
mod wire;
mod words;

use crate::{Input, below, steps};
use arbitrary::Result;
use core::time::Duration;
use deeds::Session;
use hand::Hand;
use handfast::error::{ConnectError, ReceiveError};
use handfast::{ReceiveRight, Request, SendRight, SharedArena};
use handfast_layout::bell;
use handfast_layout::hello::{Hello, Status, WELCOME_BYTES, Welcome};
use handfast_layout::part::is_handle;
use handfast_sys::memory::create_sealed;
use handfast_sys::process::new_incarnation;
use handfast_sys::{AsFd, BorrowedFd, Errno, OwnedFd, socket};
use server::{Answer, Server};
use std::os::fd::AsRawFd;
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
    /// Blocks to be lent.
    arena: SharedArena,
    /// The bells of peers made by hand. Nobody sleeps there.
    bells: OwnedFd,
    /// Where it lets strangers in.
    door: OwnedFd,
    /// To which it connects.
    server: Server,
}

/// The rendezvous directory of this process, made for it. The caller removes it when done.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let above = std::env::var_os("HANDFAST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let directory = above.join(format!("handfast-f{}", std::process::id()));
        // Left by a process with this number that was killed.
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
        let arena = SharedArena::create(4096, 16).expect("an arena");
        let (door, server) = (Hand::new(&bells).door(), Server::start());
        Mutex::new(Victim {
            port,
            honest,
            arena,
            bells,
            door,
            server,
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
            let request = self.port.receive_timeout(PATIENCE).expect("the call");
            // Hands have no such badge.
            if request.is_call() && request.badge() == 1 && request.bytes() == ASKED {
                request.reply(b"served").expect("the caller waits");
                break;
            }
        }
        let answer = call.wait_timeout(PATIENCE).expect("an answer");
        assert_eq!(&*answer, b"served");
    }
}

/// The first byte says how many descriptors go with the hello, and which, and whether it is said at the door; the others
/// are the hello.
pub fn greeting(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let victim = victim();
    let is_stranger = first & 16 != 0;
    let path = match is_stranger {
        false => directory().join(NAME),
        true => PathBuf::from(format!("/proc/self/fd/{}", victim.door.as_raw_fd())),
    };
    let socket = hand::knock(&path);
    let count = usize::from(first >> 2) % 4;
    let fds: Vec<BorrowedFd<'_>> = match first & 3 {
        0 => vec![socket.as_fd(); count],
        _ => vec![victim.bells.as_fd(); count],
    };
    if bytes.is_empty() || socket::send(&socket, bytes, &fds).is_err() {
        return;
    }
    let mut answer = [0; WELCOME_BYTES + 1];
    match wire::receive(&socket, &mut answer) {
        Ok((0, _)) | Err(Errno::CONNRESET) => panic!("a hello is answered, whatever it is"),
        Ok((len_bytes, fds)) => {
            let welcome = Welcome::parse(&answer[..len_bytes]).expect("a welcome");
            let is_linked = welcome.status == Status::Linked;
            assert_eq!(fds.len(), if is_linked { 2 } else { 0 });
            let hello = Hello::parse(bytes);
            if matches!(welcome.status, Status::Linked | Status::Known) {
                let name = hello.expect("it was understood").name;
                assert!(is_stranger && welcome.handle == 0 || name == NAME);
            }
            assert!(!is_linked || first & 3 != 0 && count > 0, "without bells");
        }
        Err(errno) => panic!("a hello is answered: {errno}"),
    }
    drop(socket);
    victim.serves();
}

/// A server's message to a process that connects to it. The first byte says how many descriptors go with the welcome, and
/// which; the others are the welcome.
pub fn welcome(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first().filter(|(_, bytes)| !bytes.is_empty()) else {
        return;
    };
    let victim = victim();
    let kinds = [first >> 2 & 3, first >> 4 & 3, first >> 6];
    let kinds = &kinds[..usize::from(first & 3)];
    let file = |kind: &u8| match kind {
        0 => server::region(),
        1 => victim.bells.try_clone().expect("a descriptor"),
        2 => create_sealed("short", 4096).expect("a memory file"),
        _ => victim.door.try_clone().expect("a descriptor"),
    };
    // A process that says it is another is refused, so a welcome that is understood is this process's.
    let mut bytes = bytes.to_vec();
    if let Ok(mut welcome) = Welcome::parse(&bytes) {
        let own = new_incarnation().expect("random bytes");
        let of_kernel = 8;
        welcome.incarnation[..of_kernel].copy_from_slice(&own[..of_kernel]);
        bytes = welcome.to_bytes().to_vec();
    }
    let welcome = Welcome::parse(&bytes);
    let (connected, heard) = victim.connect(Answer {
        bytes,
        fds: kinds.iter().map(file).collect(),
    });
    let is_linked = welcome.is_ok_and(|welcome| {
        let is_linked = welcome.status == Status::Linked && is_handle(welcome.handle);
        is_linked && kinds == [0, 1]
    });
    match connected {
        Ok(right) => {
            assert!(is_linked, "by {right:?}");
            let _ = right.try_send(b"message");
            drop(right.try_call(b"call"));
        }
        Err(ConnectError::Exhausted(_)) => {}
        Err(error) => assert!(
            !is_linked && !matches!(error, ConnectError::TimedOut { .. }),
            "{error}"
        ),
    }
    drop(heard);
    victim.serves();
}

/// Statements and acts of one or two peers, and the process's use of them; seldom, there is one that it connects to.
pub fn session(bytes: &[u8]) {
    let victim = victim();
    let first = bytes.first().copied().unwrap_or_default();
    let mut session = Session::new(&victim, 1 + first % 2, first >> 4 == 6);
    steps(bytes.get(1..).unwrap_or_default(), |input| {
        session.step(input)
    });
    session.end();
    files::hang_up();
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
