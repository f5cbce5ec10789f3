//! A plain shared queue: this process pops what children push, each killed midway.

use handfast::{PopError, PushError, QueueKind, SharedQueue};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

const CAPACITY: u32 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, memory, members] = &arguments[..] {
        return push_for_ever(memory.parse()?, members.parse()?);
    }
    let queue = SharedQueue::create(QueueKind::Ring, CAPACITY)?;
    // Inherited by the children, and never closed here: see `SharedQueue::descriptors`.
    let inherited = queue.descriptors().map(|fd| {
        let fd = rustix::io::dup(fd).map(std::mem::ManuallyDrop::new);
        fd.map(|fd| fd.as_raw_fd().to_string())
    });
    let [memory, members] = inherited;
    let (memory, members) = (memory?, members?);
    for child in 0..3 {
        let mut process = Command::new(&arguments[0])
            .args([&memory, &members])
            .spawn()?;
        let mut popped = 0;
        while popped < 100_000 {
            match queue.try_pop() {
                Ok(_) => popped += 1,
                Err(PopError::Empty) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
        process.kill()?;
        process.wait()?;
        println!("child {child}: {popped} messages, then killed; the queue goes on");
    }
    Ok(())
}

fn push_for_ever(memory: i32, members: i32) -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: the parent left these two descriptors open for this process, and nobody owns them.
    let [memory, members] = [memory, members].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let queue = SharedQueue::attach(QueueKind::Ring, CAPACITY, memory, members)?;
    for number in 0u64.. {
        let mut message = [0; 24];
        message[..8].copy_from_slice(&number.to_le_bytes());
        loop {
            match queue.try_push(&message) {
                Ok(()) => break,
                Err(PushError::Full) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
