//! ZeroMQ: REQ and REP sockets over `ipc://`, its transport between processes.
//!
//! Set up for low latency as its guide says: one I/O thread (one is enough for less than a gigabyte a second), no linger.
//! A message is sent on to its sender as it is, without a copy. `zeromq-busy` asks with `DONTWAIT` in a loop; its I/O threads sleep
//! as always, there is no way to have them poll.

use peer::{Adapter, Calls, Result, Seat};
use std::process::ExitCode;
use zmq::{Context, DONTWAIT, Message, Socket, SocketEvent, SocketType};

fn main() -> ExitCode {
    peer::run(&Adapter {
        version,
        serve,
        client,
    })
}

fn version() -> String {
    let (major, minor, patch) = zmq::version();
    format!("ZeroMQ {major}.{minor}.{patch}")
}

fn address(seat: &Seat) -> String {
    format!("ipc://{}", seat.path(".zmq"))
}

fn receive(socket: &Socket, message: &mut Message, is_busy: bool) -> zmq::Result<()> {
    if !is_busy {
        return socket.recv(message, 0);
    }
    loop {
        match socket.recv(message, DONTWAIT) {
            Err(zmq::Error::EAGAIN) => std::hint::spin_loop(),
            done => return done,
        }
    }
}

fn serve(seat: &Seat) -> Result {
    let context = Context::new();
    let socket = context.socket(SocketType::REP)?;
    if seat.watches {
        watch(seat, &context, &socket)?;
    }
    socket.bind(&address(seat))?;
    seat.ready();
    let mut message = Message::new();
    for count in 1.. {
        receive(&socket, &mut message, seat.is_busy())?;
        socket.send(std::mem::replace(&mut message, Message::new()), 0)?;
        seat.served(count);
    }
    Ok(())
}

/// Its way to hear of a connection's end: a monitor.
fn watch(seat: &Seat, context: &Context, socket: &Socket) -> Result {
    socket.monitor("inproc://monitor", SocketEvent::DISCONNECTED as i32)?;
    let monitor = context.socket(SocketType::PAIR)?;
    monitor.connect("inproc://monitor")?;
    let notice = seat.notice();
    std::thread::spawn(move || {
        if monitor.recv_msg(0).is_ok() {
            notice();
        }
    });
    Ok(())
}

fn client(seat: &Seat) -> Result {
    let context = Context::new();
    let socket = context.socket(SocketType::REQ)?;
    socket.set_linger(0)?;
    socket.connect(&address(seat))?;
    let mut request = vec![0x5a; seat.payload_bytes];
    let mut reply = Message::new();
    let mut calls = Calls::new(seat)?;
    while let Some(number) = calls.next() {
        request[..8].copy_from_slice(&number.to_le_bytes());
        calls.check(socket.send(&request, 0))?;
        calls.check(receive(&socket, &mut reply, seat.is_busy()))?;
        calls.done(&reply)?;
    }
    calls.report()
}
