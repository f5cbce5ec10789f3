//! ipc-channel: byte channels, which spare its serialisation. One channel for the requests of all clients, which say in their first
//! eight bytes who they are, and one for the replies to each, so that a receive is one system call on both sides.
//!
//! A client is introduced by a one-shot server of its own, as its documentation says. `ipc-channel-busy` asks with `try_recv` in a loop.

use ipc_channel::ipc::{
    self, IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcReceiver, IpcReceiverSet,
    IpcSelectionResult, IpcSender,
};
use ipc_channel::{IpcError, TryRecvError};
use peer::{Adapter, Calls, Result, Seat};
use serde::{Deserialize, Serialize};
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    peer::run(&Adapter {
        version: || "ipc-channel 0.23.1".to_owned(),
        serve,
        client,
    })
}

/// What a client sends first.
#[derive(Serialize, Deserialize)]
struct Hello {
    /// Where the sender of requests is to be sent to.
    requests: IpcSender<IpcBytesSender>,
    replies: IpcBytesSender,
    /// Closed when the client ends.
    life: IpcReceiver<()>,
}

/// Who asks: before the request's own bytes.
const PREFIX: usize = size_of::<u64>();

fn receive(from: &IpcBytesReceiver, is_busy: bool) -> std::result::Result<Vec<u8>, IpcError> {
    if !is_busy {
        return from.recv();
    }
    loop {
        match from.try_recv() {
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::IpcError(error)) => return Err(error),
            Ok(bytes) => return Ok(bytes),
        }
    }
}

fn serve(seat: &Seat) -> Result {
    let doors: Vec<_> = (0..seat.clients)
        .map(|_| IpcOneShotServer::<Hello>::new())
        .collect::<std::result::Result<_, _>>()?;
    let names: Vec<_> = doors.iter().map(|(_, name)| name.as_str()).collect();
    fs::write(seat.path(".names"), names.join("\n"))?;
    seat.ready();
    let (sender, requests) = ipc::bytes_channel()?;
    let mut replies = Vec::new();
    let mut lives = IpcReceiverSet::new()?;
    for (door, _) in doors {
        let (_, hello) = door.accept()?;
        hello.requests.send(sender.clone())?;
        replies.push(hello.replies);
        lives.add(hello.life)?;
    }
    fs::remove_file(seat.path(".names"))?;
    if seat.watches {
        let notice = seat.notice();
        std::thread::spawn(move || {
            let ended =
                |one: &IpcSelectionResult| matches!(one, IpcSelectionResult::ChannelClosed(_));
            if lives.select().is_ok_and(|what| what.iter().any(ended)) {
                notice();
            }
        });
    }
    for count in 1.. {
        let request = receive(&requests, seat.is_busy())?;
        let (client, bytes) = request
            .split_first_chunk()
            .ok_or("a request without its prefix")?;
        let client = usize::try_from(u64::from_le_bytes(*client))?;
        // Who has ended meanwhile gets none.
        let _ = replies.get(client).ok_or("nobody's request")?.send(bytes);
        seat.served(count);
    }
    Ok(())
}

fn client(seat: &Seat) -> Result {
    let names = fs::read_to_string(seat.path(".names"))?;
    let door = names
        .lines()
        .nth(seat.index)
        .ok_or("no door for this client")?;
    let door = IpcSender::<Hello>::connect(door.to_owned())?;
    let (requests, answer) = ipc::channel()?;
    let (replies, incoming) = ipc::bytes_channel()?;
    let (_life, life) = ipc::channel()?;
    door.send(Hello {
        requests,
        replies,
        life,
    })?;
    let requests = answer.recv()?;
    let mut request = vec![0x5a; PREFIX + seat.payload_bytes];
    request[..PREFIX].copy_from_slice(&(seat.index as u64).to_le_bytes());
    let mut calls = Calls::new(seat)?;
    while let Some(number) = calls.next() {
        request[PREFIX..][..8].copy_from_slice(&number.to_le_bytes());
        calls.check(requests.send(&request))?;
        let reply = calls.check(receive(&incoming, seat.is_busy()))?;
        calls.done(&reply)?;
    }
    calls.report()
}
