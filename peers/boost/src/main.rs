//! Boost.Interprocess: `boost-queue` is its message queue, one for all requests, whose first eight bytes say who asks, and one for the
//! replies to each client; `boost-queue-busy` asks it with `try_receive` in a loop, which fights for its mutex. `boost-condition` is what its
//! documentation builds of shared memory, an interprocess mutex and conditions: a place for each client's message, one
//! condition for the server and one for each client, so that a reply wakes its caller alone.
//!
//! There is no notion of a process's death, and what they make stays until somebody removes it.

use peer::{Adapter, Calls, Result, Seat};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::ExitCode;

#[repr(C)]
struct RawQueue(c_void);
#[repr(C)]
struct RawBox(c_void);

unsafe extern "C" {
    safe fn peer_boost_version() -> c_int;
    fn peer_queue(name: *const c_char, create: bool, depth: usize, bytes: usize) -> *mut RawQueue;
    fn peer_queue_send(queue: *mut RawQueue, bytes: *const u8, len: usize, busy: bool) -> bool;
    fn peer_queue_receive(queue: *mut RawQueue, bytes: *mut u8, max: usize, busy: bool) -> isize;
    fn peer_box(name: *const c_char, create: bool, clients: usize, payload: usize) -> *mut RawBox;
    fn peer_box_call(memory: *mut RawBox, index: usize, request: *const u8, reply: *mut u8)
    -> bool;
    fn peer_box_next(memory: *mut RawBox, request: *mut u8) -> isize;
    fn peer_box_answer(memory: *mut RawBox, index: usize, reply: *const u8) -> bool;
}

fn main() -> ExitCode {
    peer::run(&Adapter {
        version,
        serve,
        client,
    })
}

fn version() -> String {
    let version = peer_boost_version();
    format!(
        "Boost.Interprocess {}.{}.{}",
        version / 100_000,
        version / 100 % 1_000,
        version % 100
    )
}

fn serve(seat: &Seat) -> Result {
    match seat.system.as_str() {
        "boost-condition" => serve_memory(seat),
        _ => serve_queues(seat),
    }
}

fn client(seat: &Seat) -> Result {
    match seat.system.as_str() {
        "boost-condition" => call_memory(seat),
        _ => call_queues(seat),
    }
}

/// Who asks: before the request's own bytes.
const PREFIX: usize = size_of::<u64>();

struct Queue {
    raw: *mut RawQueue,
    is_busy: bool,
}

impl Queue {
    fn new(seat: &Seat, name: &CStr, create: bool, depth: usize, bytes: usize) -> Result<Self> {
        // SAFETY: a string, and numbers.
        let raw = unsafe { peer_queue(name.as_ptr(), create, depth, bytes) };
        if raw.is_null() {
            return Err("no queue".into());
        }
        Ok(Self {
            raw,
            is_busy: seat.is_busy(),
        })
    }

    fn send(&self, bytes: &[u8]) -> std::result::Result<(), &'static str> {
        // SAFETY: the queue is there until the process ends, the bytes are as long as said.
        let is_sent =
            unsafe { peer_queue_send(self.raw, bytes.as_ptr(), bytes.len(), self.is_busy) };
        is_sent.then_some(()).ok_or("send")
    }

    fn receive(&self, into: &mut [u8]) -> std::result::Result<usize, &'static str> {
        // SAFETY: as above, to be written.
        let len =
            unsafe { peer_queue_receive(self.raw, into.as_mut_ptr(), into.len(), self.is_busy) };
        usize::try_from(len).map_err(|_| "receive")
    }
}

fn requests(seat: &Seat) -> Result<CString> {
    Ok(CString::new(format!("{}-requests", seat.address))?)
}

fn replies(seat: &Seat, index: usize) -> Result<CString> {
    Ok(CString::new(format!("{}-replies-{index}", seat.address))?)
}

fn serve_queues(seat: &Seat) -> Result {
    let bytes = PREFIX + seat.payload_bytes;
    let incoming = Queue::new(seat, &requests(seat)?, true, seat.clients + 1, bytes)?;
    let reply = |index| Queue::new(seat, &replies(seat, index)?, true, 1, seat.payload_bytes);
    let outgoing: Vec<Queue> = (0..seat.clients).map(reply).collect::<Result<_>>()?;
    seat.ready();
    let mut buffer = vec![0; bytes];
    for count in 1.. {
        let len = incoming.receive(&mut buffer)?;
        let (client, bytes) = buffer[..len]
            .split_first_chunk()
            .ok_or("a request without its prefix")?;
        let client = usize::try_from(u64::from_le_bytes(*client))?;
        outgoing
            .get(client)
            .ok_or("nobody's request")?
            .send(bytes)?;
        seat.served(count);
    }
    Ok(())
}

fn call_queues(seat: &Seat) -> Result {
    let outgoing = Queue::new(seat, &requests(seat)?, false, 0, 0)?;
    let incoming = Queue::new(seat, &replies(seat, seat.index)?, false, 0, 0)?;
    let mut request = vec![0x5a; PREFIX + seat.payload_bytes];
    request[..PREFIX].copy_from_slice(&(seat.index as u64).to_le_bytes());
    let mut reply = vec![0; seat.payload_bytes];
    let mut calls = Calls::new(seat)?;
    while let Some(number) = calls.next() {
        request[PREFIX..][..8].copy_from_slice(&number.to_le_bytes());
        calls.check(outgoing.send(&request))?;
        let len = calls.check(incoming.receive(&mut reply))?;
        calls.done(&reply[..len])?;
    }
    calls.report()
}

fn memory(seat: &Seat, create: bool) -> Result<*mut RawBox> {
    let name = CString::new(format!("{}-memory", seat.address))?;
    // SAFETY: a string, and numbers.
    let raw = unsafe { peer_box(name.as_ptr(), create, seat.clients, seat.payload_bytes) };
    if raw.is_null() {
        Err("no memory".into())
    } else {
        Ok(raw)
    }
}

fn serve_memory(seat: &Seat) -> Result {
    let memory = memory(seat, true)?;
    seat.ready();
    let mut buffer = vec![0; seat.payload_bytes];
    for count in 1.. {
        // SAFETY: the memory is there until the process ends, the buffer as long as a payload.
        let client = unsafe { peer_box_next(memory, buffer.as_mut_ptr()) };
        let client = usize::try_from(client)?;
        // SAFETY: as above; the client is who asked.
        if !unsafe { peer_box_answer(memory, client, buffer.as_ptr()) } {
            return Err("answer".into());
        }
        seat.served(count);
    }
    Ok(())
}

fn call_memory(seat: &Seat) -> Result {
    let memory = memory(seat, false)?;
    let mut request = vec![0x5a; seat.payload_bytes];
    let mut reply = vec![0; seat.payload_bytes];
    let mut calls = Calls::new(seat)?;
    while let Some(number) = calls.next() {
        request[..8].copy_from_slice(&number.to_le_bytes());
        // SAFETY: both buffers are as long as a payload, and the place is this client's.
        let is_done =
            unsafe { peer_box_call(memory, seat.index, request.as_ptr(), reply.as_mut_ptr()) };
        calls.check(is_done.then_some(()).ok_or("call"))?;
        calls.done(&reply)?;
    }
    calls.report()
}
