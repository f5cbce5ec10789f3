//! A name at which hands listen: the process connects to it, and is told what they like.

use super::{PATIENCE, Victim, directory, wire};
use handfast::SendRight;
use handfast::error::ConnectError;
use handfast_layout::hello::{HELLO_BYTES, Hello, Status, Welcome, ready};
use handfast_layout::link::REGION_BYTES;
use handfast_sys::{AsFd, OwnedFd, shared, socket};
use std::sync::mpsc::{Receiver, Sender, channel};

const NAME: &str = "s";

/// Connections that wait: one comes after the other.
const BACKLOG: i32 = 4;

/// The answer for the next process that connects.
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// A process that was given that answer.
pub(super) struct Heard {
    pub(super) socket: OwnedFd,
    pub(super) hello: Hello,
    pub(super) bells: OwnedFd,
}

/// Its thread stays as long as the process.
pub(super) struct Server {
    answers: Sender<Answer>,
    heard: Receiver<Heard>,
}

/// Memory for a link.
pub(super) fn region() -> OwnedFd {
    shared::create("link", REGION_BYTES).expect("a memory file")
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = socket::listen(&directory().join(NAME), BACKLOG).expect("a listener");
        socket::set_nonblocking(&listener, false).expect("a socket");
        let (answers, answer) = channel();
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            loop {
                // Fuzzers have timers.
                let Ok(socket) = socket::accept(&listener) else {
                    continue;
                };
                if let Some(told) = serve(socket, answer.try_recv().ok()) {
                    let _ = tell.send(told);
                }
            }
        });
        Self { answers, heard }
    }
}

/// Says the answer, or that there is no such port: a process that asks again, after this answer, asks once.
fn serve(socket: OwnedFd, answer: Option<Answer>) -> Option<Heard> {
    socket::set_nonblocking(&socket, false).expect("a socket");
    socket::set_timeout(&socket, PATIENCE).expect("a socket");
    // Before Linux 6.16 it takes them already.
    let _ = socket::pass_descriptors(&socket, true);
    socket::send(&socket, &ready(wire::incarnation()), &[]).expect("it waits");
    let mut bytes = [0; HELLO_BYTES];
    let (len_bytes, mut fds) = wire::receive(&socket, &mut bytes).expect("a hello");
    let hello = Hello::parse(&bytes[..len_bytes]).expect("a hello");
    assert_eq!(hello.name, NAME);
    let Some(Answer {
        bytes,
        fds: with_it,
    }) = answer
    else {
        let welcome = Welcome::refusal([0; 16], Status::NoSuchPort, 0);
        socket::send(&socket, &welcome.to_bytes(), &[]).expect("it waits");
        return None;
    };
    let with_it: Vec<_> = with_it.iter().map(AsFd::as_fd).collect();
    socket::send(&socket, &bytes, &with_it).expect("it waits");
    let mut sealed = [0; 2];
    if matches!(wire::receive(&socket, &mut sealed), Ok((2, _))) {
        let _ = socket::send(&socket, &sealed, &[]);
    }
    Some(Heard {
        socket,
        hello,
        bells: fds.pop().expect("its bells"),
    })
}

impl Victim {
    /// The process connects to a hand, which says this.
    pub(super) fn connect(&self, answer: Answer) -> (Result<SendRight, ConnectError>, Heard) {
        self.server.answers.send(answer).expect("it serves");
        let connected = handfast::connect_timeout(NAME, PATIENCE);
        let heard = self.server.heard.recv_timeout(PATIENCE);
        (connected, heard.expect("it has come"))
    }
}
