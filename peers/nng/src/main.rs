//! nng: REQ and REP sockets over `ipc://`, its transport between processes.
//!
//! A message is sent back as the one that was received, without a copy, as its guide advises. There is no variant that polls: asking a
//! REQ socket without blocking gives the request up, and its threads of I/O sleep always.

use nng_sys::{
    NNG_PIPE_EV_REM_POST, nng_dial, nng_listen, nng_msg, nng_msg_alloc, nng_msg_body, nng_msg_free,
    nng_msg_len, nng_pipe, nng_pipe_ev, nng_pipe_notify, nng_recvmsg, nng_rep0_open, nng_req0_open,
    nng_sendmsg, nng_socket, nng_strerror, nng_version,
};
use peer::{Adapter, Calls, Result, Seat};
use std::ffi::{CStr, CString, c_int, c_void};
use std::process::ExitCode;
use std::ptr::null_mut;

fn main() -> ExitCode {
    peer::run(&Adapter {
        version,
        serve,
        client,
    })
}

fn version() -> String {
    // SAFETY: a string of the library's, there for ever.
    let version = unsafe { CStr::from_ptr(nng_version()) };
    format!("nng {}", version.to_string_lossy())
}

fn done(code: c_int) -> std::result::Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: a string of the library's, there for ever.
    let text = unsafe { CStr::from_ptr(nng_strerror(code)) };
    Err(text.to_string_lossy().into_owned())
}

fn address(seat: &Seat) -> Result<CString> {
    Ok(CString::new(format!("ipc://{}", seat.path(".nng")))?)
}

/// A message, freed by whoever it is sent to.
struct Message(*mut nng_msg);

impl Message {
    fn new(bytes: &[u8]) -> std::result::Result<Self, String> {
        let mut message = null_mut();
        // SAFETY: `message` is valid for a write.
        done(unsafe { nng_msg_alloc(&raw mut message, bytes.len()) })?;
        // SAFETY: the body is as long as asked for, and nobody else's yet.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), nng_msg_body(message).cast(), bytes.len())
        };
        Ok(Self(message))
    }

    fn receive(socket: nng_socket) -> std::result::Result<Self, String> {
        let mut message = null_mut();
        // SAFETY: `message` is valid for a write.
        done(unsafe { nng_recvmsg(socket, &raw mut message, 0) })?;
        Ok(Self(message))
    }

    fn send(self, socket: nng_socket) -> std::result::Result<(), String> {
        // SAFETY: the message is ours and goes to the library.
        done(unsafe { nng_sendmsg(socket, self.0, 0) })?;
        std::mem::forget(self);
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the message's own bytes, as long as it lives.
        unsafe { std::slice::from_raw_parts(nng_msg_body(self.0).cast(), nng_msg_len(self.0)) }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { nng_msg_free(self.0) };
    }
}

/// What [`gone`] is given: the seat's notice.
type Notice = Box<dyn Fn()>;

extern "C" fn gone(_: nng_pipe, _: nng_pipe_ev, notice: *mut c_void) {
    // SAFETY: `serve` leaked it for this.
    (unsafe { &*notice.cast::<Notice>() })();
}

fn serve(seat: &Seat) -> Result {
    let mut socket = nng_socket::default();
    // SAFETY: `socket` is valid for a write.
    done(unsafe { nng_rep0_open(&raw mut socket) })?;
    if seat.watches {
        let notice: Notice = Box::new(seat.notice());
        let notice = Box::leak(Box::new(notice));
        // SAFETY: the function takes what it is given here, which stays.
        done(unsafe {
            nng_pipe_notify(
                socket,
                NNG_PIPE_EV_REM_POST,
                Some(gone),
                (&raw mut *notice).cast(),
            )
        })?;
    }
    // SAFETY: the address is a string; nobody wants the listener.
    done(unsafe { nng_listen(socket, address(seat)?.as_ptr(), null_mut(), 0) })?;
    seat.ready();
    for count in 1.. {
        Message::receive(socket)?.send(socket)?;
        seat.served(count);
    }
    Ok(())
}

fn client(seat: &Seat) -> Result {
    let mut socket = nng_socket::default();
    // SAFETY: `socket` is valid for a write.
    done(unsafe { nng_req0_open(&raw mut socket) })?;
    // SAFETY: the address is a string; nobody wants the dialer.
    done(unsafe { nng_dial(socket, address(seat)?.as_ptr(), null_mut(), 0) })?;
    let mut request = vec![0x5a; seat.payload_bytes];
    let mut calls = Calls::new(seat)?;
    while let Some(number) = calls.next() {
        request[..8].copy_from_slice(&number.to_le_bytes());
        calls.check(Message::new(&request).and_then(|request| request.send(socket)))?;
        let reply = calls.check(Message::receive(socket))?;
        calls.done(reply.bytes())?;
    }
    calls.report()
}
