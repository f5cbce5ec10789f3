//! The file system of paper 001 (section 5.2): two processes with a cache of blocks each, in which several user-level threads access
//! blocks that are in the other's memory at first. Messages of data and of consistency go both ways, and each process waits for
//! any of its ports, and of its own calls, in one set.
//!
//! ```text
//! client -> server   read block (a call, whose reply is the block; the server has it no more)
//! client -> server   block is here (one-way)
//! server -> client   give block back (one-way, once the client has many)
//! client -> server   block is back (one-way, with the block if it was written to)
//! ```

use super::handfast::{self, By, Usage};
use super::{Caller, System, Waits};
use crate::plan::Plan;
use crate::systems::child::{Seat, checksum};
use ::handfast::{
    Event, Message, Options, ReceiveRight, Request, Right, SendRight, Token, WaitSet,
};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub(crate) const SPIN: By<Files> = By(handfast::SPIN, "files-spin", Files);
pub(crate) const BLOCK: By<Files> = By(handfast::BLOCK, "files-block", Files);
pub(crate) const SPIN_BLOCK: By<Files> = By(handfast::SPIN_BLOCK, "files-spin-block", Files);
pub(crate) const DEFAULT: By<Files> = By(handfast::DEFAULT, "files-default", Files);

/// User-level threads of the client: what the harness calls a call is as many accesses.
pub const THREADS: usize = 4;
/// Blocks of the file, and bytes of a block.
const BLOCKS: u64 = 256;
const BLOCK_BYTES: usize = 4096;
/// Blocks that the client may have before the server asks for the oldest.
const HELD_MAX: usize = 16;
/// One in so many accesses writes.
const WRITES_EVERY: u64 = 4;

/// The first byte of a one-way message; the number of a block follows, and the block itself.
const HERE: u8 = 1;
const GIVE_BACK: u8 = 2;
const BACK: u8 = 3;

/// See the module text.
pub(crate) struct Files;

impl Usage for Files {
    fn supports(&self, _: Waits, plan: &Plan) -> Result<(), String> {
        match plan.clients {
            1 => Ok(()),
            _ => Err("two processes share the files".to_owned()),
        }
    }
}

/// Bytes of a message about a block.
fn about(kind: u8, block: u64) -> [u8; 9] {
    let mut bytes = [kind; 9];
    bytes[1..].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// The kind of a message, its block's number, and the block that came with it.
fn parse(bytes: &[u8]) -> io::Result<(u8, u64, &[u8])> {
    let parts = bytes.split_at_checked(9).filter(|(head, rest)| {
        let is_block = rest.is_empty() || rest.len() == BLOCK_BYTES;
        is_block && number_of(&head[1..]).is_some_and(|block| block < BLOCKS)
    });
    let (head, rest) = parts.ok_or_else(|| io::Error::other("a message about no block"))?;
    Ok((head[0], number_of(&head[1..]).unwrap_or_default(), rest))
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().copied().map(u64::from_le_bytes)
}

impl System for By<Files> {
    type Caller = FilesCaller;

    fn serve(&self, seat: &Seat, _: impl FnMut(&mut [u8]) -> usize) -> io::Result<()> {
        let mut set = WaitSet::with(self.options(seat)).map_err(io::Error::other)?;
        let data = set.add(self.0.bind(seat)?);
        let consistency = ::handfast::bind(&consistency_name(seat)).map_err(io::Error::other)?;
        // The client's first message has a right to its port.
        seat.ready();
        let mut hello = consistency.receive().map_err(io::Error::other)?;
        let client = match hello.take_rights().pop() {
            Some(Right::Send(right)) => right,
            other => return Err(io::Error::other(format!("no right but {other:?}"))),
        };
        set.add(consistency);
        let mut server = FilesServer {
            client,
            blocks: HashMap::from_iter((0..BLOCKS).map(|block| (block, new_block(block)))),
            held: VecDeque::new(),
            waiting: Vec::new(),
        };
        loop {
            match set.receive().map_err(io::Error::other)? {
                Event::Message(token, request) if token == data => server.read(request)?,
                Event::Message(_, request) => server.hear(request)?,
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    fn connect(&self, seat: &Seat) -> io::Result<FilesCaller> {
        let data = self.0.port(seat)?;
        let consistency = ::handfast::connect_with(&consistency_name(seat), self.options(seat))
            .map_err(io::Error::other)?;
        let own: ReceiveRight = ::handfast::anonymous().map_err(io::Error::other)?;
        let right = Right::from(own.mint(1));
        consistency
            .with([right])
            .send(&[])
            .map_err(io::Error::other)?;
        let mut set = WaitSet::with(self.options(seat)).map_err(io::Error::other)?;
        set.add(own);
        let process = Rc::new(RefCell::new(Process {
            set,
            data,
            consistency,
            cache: HashMap::new(),
            written: HashSet::new(),
            begun: 0,
            ended: 0,
            replies: HashMap::new(),
            awaited: None,
        }));
        let threads = (0..THREADS).map(|_| -> Thread { Box::pin(thread(process.clone())) });
        Ok(FilesCaller {
            runnable: (0..THREADS).collect(),
            waiting: HashMap::new(),
            threads: threads.collect(),
            process,
        })
    }
}

impl By<Files> {
    fn options(&self, seat: &Seat) -> Options {
        Options::new().strategy(self.0.strategy_of(seat))
    }
}

fn consistency_name(seat: &Seat) -> String {
    format!("{}-consistency", seat.address)
}

fn new_block(block: u64) -> Box<[u8]> {
    let words = block.to_le_bytes().repeat(BLOCK_BYTES / size_of::<u64>());
    words.into()
}

/// The process in whose memory the blocks are at first.
struct FilesServer {
    client: SendRight,
    blocks: HashMap<u64, Box<[u8]>>,
    /// The blocks that the client has said it has, oldest first.
    held: VecDeque<u64>,
    /// Reads of blocks that the client has still.
    waiting: Vec<(u64, Request)>,
}

impl FilesServer {
    fn read(&mut self, mut request: Request) -> io::Result<()> {
        let message = request.take_message();
        let block = number_of(&message).ok_or_else(|| io::Error::other("a read of no block"))?;
        match self.blocks.remove(&block) {
            Some(bytes) => request.reply(&bytes).map_err(io::Error::other),
            None => {
                self.waiting.push((block, request));
                Ok(())
            }
        }
    }

    fn hear(&mut self, request: Request) -> io::Result<()> {
        let message = request.into_message();
        let (kind, block, written) = parse(&message)?;
        if kind == HERE {
            self.held.push_back(block);
            if self.held.len() > HELD_MAX
                && let Some(oldest) = self.held.pop_front()
            {
                let message = about(GIVE_BACK, oldest);
                self.client.send(&message).map_err(io::Error::other)?;
            }
            return Ok(());
        }
        // One that was not written to is as on the disk.
        let bytes = match written {
            [] => new_block(block),
            written => written.into(),
        };
        match self.waiting.iter().position(|(wanted, _)| *wanted == block) {
            Some(place) => {
                let (_, request) = self.waiting.swap_remove(place);
                request.reply(&bytes).map_err(io::Error::other)
            }
            None => {
                self.blocks.insert(block, bytes);
                Ok(())
            }
        }
    }
}

/// The process whose threads access the blocks.
struct Process {
    set: WaitSet,
    data: SendRight,
    consistency: SendRight,
    cache: HashMap<u64, Box<[u8]>>,
    written: HashSet<u64>,
    /// Accesses, of all threads.
    begun: u64,
    ended: u64,
    /// The blocks that have come, by the calls that they answer.
    replies: HashMap<Token, Message>,
    /// The call for which the thread waits that ran last.
    awaited: Option<Token>,
}

/// A user-level thread: it runs until it waits for a block.
type Thread = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// Accesses one block after another.
async fn thread(process: Rc<RefCell<Process>>) -> io::Result<()> {
    loop {
        let (block, token) = process.borrow_mut().begin()?;
        let bytes = Block(&process, token).await;
        process.borrow_mut().access(block, &bytes)?;
    }
}

/// A wait for the answer to a call.
struct Block<'a>(&'a RefCell<Process>, Token);

impl Future for Block<'_> {
    type Output = Message;

    /// The scheduler needs no waker, but the call that the thread waits for.
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Message> {
        let mut process = self.0.borrow_mut();
        process.awaited = Some(self.1);
        let reply = process.replies.remove(&self.1);
        reply.map_or(Poll::Pending, Poll::Ready)
    }
}

/// The scheduler of the process's threads.
pub(crate) struct FilesCaller {
    threads: Vec<Thread>,
    runnable: VecDeque<usize>,
    /// The thread that waits for each call.
    waiting: HashMap<Token, usize>,
    process: Rc<RefCell<Process>>,
}

impl Caller for FilesCaller {
    /// Runs the threads until as many accesses more have ended as there are threads. Others are under way then.
    fn call(&mut self, request: &[u8], reply: &mut [u8]) -> io::Result<()> {
        let until = self.process.borrow().ended + THREADS as u64;
        while self.process.borrow().ended < until {
            match self.runnable.pop_front() {
                Some(thread) => self.run(thread)?,
                None => self.wait()?,
            }
        }
        handfast::fill(reply, request)
    }
}

impl FilesCaller {
    /// Runs a thread until it waits.
    fn run(&mut self, thread: usize) -> io::Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        match self.threads[thread].as_mut().poll(&mut context) {
            Poll::Ready(ended) => {
                ended?;
                Err(io::Error::other("a thread has ended"))
            }
            Poll::Pending => {
                let awaited = self.process.borrow_mut().awaited.take();
                let awaited =
                    awaited.ok_or_else(|| io::Error::other("a thread waits for nothing"))?;
                self.waiting.insert(awaited, thread);
                Ok(())
            }
        }
    }

    /// All threads wait: sleeps until there is a message, or an answer for one of them.
    fn wait(&mut self) -> io::Result<()> {
        let mut process = self.process.borrow_mut();
        match process.set.receive().map_err(io::Error::other)? {
            Event::Reply(token, read) => {
                process
                    .replies
                    .insert(token, read.map_err(io::Error::other)?);
                let thread = self.waiting.remove(&token);
                let thread = thread.ok_or_else(|| io::Error::other("a reply to no thread"))?;
                self.runnable.push_back(thread);
                Ok(())
            }
            Event::Message(_, request) => process.hear(request),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

impl Process {
    /// A thread asks for the next block.
    fn begin(&mut self) -> io::Result<(u64, Token)> {
        let block = self.begun % BLOCKS;
        self.begun += 1;
        let call = self.data.try_call(&block.to_le_bytes());
        Ok((block, self.set.add_call(call.map_err(io::Error::other)?)))
    }

    /// A thread has its block: reads all of it, or writes to it.
    fn access(&mut self, block: u64, bytes: &[u8]) -> io::Result<()> {
        let sum = block.wrapping_mul((BLOCK_BYTES / size_of::<u64>()) as u64);
        if bytes.len() != BLOCK_BYTES || checksum(bytes) != sum {
            return Err(io::Error::other(format!("block {block} is another")));
        }
        self.ended += 1;
        self.cache.insert(block, bytes.into());
        if block.is_multiple_of(WRITES_EVERY) {
            self.written.insert(block);
        }
        (self.consistency.send(&about(HERE, block))).map_err(io::Error::other)
    }

    /// The server asks for a block.
    fn hear(&mut self, request: Request) -> io::Result<()> {
        let message = request.into_message();
        let (_, block, _) = parse(&message)?;
        let bytes = self.cache.remove(&block);
        let bytes = bytes.ok_or_else(|| io::Error::other("a block that is not here"))?;
        let mut back = about(BACK, block).to_vec();
        if self.written.remove(&block) {
            back.extend_from_slice(&bytes);
        }
        self.consistency.send(&back).map_err(io::Error::other)
    }
}
