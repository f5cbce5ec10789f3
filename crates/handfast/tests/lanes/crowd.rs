//! Processes with more ports than a link has lanes, and what is sent to all of them.

use crate::common::{self, PATIENCE, Random};
use handfast::error::{RightError, SendError};
use handfast::{
    Event, Memory, ReceiveRight, Request, Right, SendRight, SharedArena, Token, WaitSet,
};
use handfast_sys::cpu;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

/// Of a process whose ports have a thread each, and of one that has them in a wait set, with one for each CPU as the
/// last.
pub(crate) const OF_THREADS: usize = 30;
pub(crate) const OF_SET: usize = 41;

/// The ports, of a process with threads, that go to another home.
pub(crate) const MOVING: usize = 8;

/// Actions that a message asks for, besides an answer.
pub(crate) const PLAIN: u64 = 0;
pub(crate) const LATE: u64 = 1;
/// With the name of a home to which the port goes, or a right to it.
pub(crate) const MOVE: u64 = 2;

/// The CPUs that a port is served on at most: each takes a receiver.
const CPUS: usize = 8;

/// The end of a process that breaks a rule, as another sees it.
pub(crate) fn cuts_end_it() {
    static SET: std::sync::Once = std::sync::Once::new();
    SET.call_once(|| {
        let cuts = common::Cuts(|fault: &str| {
            eprintln!("link cut between honest processes: {fault}");
            std::process::abort();
        });
        tracing::subscriber::set_global_default(cuts).unwrap();
    });
}

/// Ports in one wait set, and one for each CPU beside them.
pub(crate) fn set(name: &str) {
    cuts_end_it();
    let mut set = WaitSet::new().unwrap();
    let control = set.add(handfast::bind(name).unwrap());
    let cpus = cpu::allowed();
    let few = &cpus[..cpus.len().min(CPUS)];
    let on_each = std::thread::scope(|scope| {
        let begin = || {
            cpu::pin(few).unwrap();
            let port = handfast::anonymous().unwrap();
            port.serve_per_cpu(|worker, mut request| {
                // Workers take at once what threads have sent one after the other.
                let (answer, back) = Seen::default().take(&mut request);
                if request.is_call() {
                    let _ = match back.is_empty() {
                        true => worker.reply(request, &with_wrong(answer, 0)),
                        false => request
                            .reply_with(&with_wrong(answer, 0), back)
                            .map_err(|returned| returned.error),
                    };
                }
            })
        };
        scope.spawn(begin).join().unwrap().unwrap()
    });
    let (mut rights, mut seen) = (Vec::new(), HashMap::<Token, Seen>::new());
    for _ in 1..OF_SET {
        let port = handfast::anonymous().unwrap();
        rights.push(port.mint(0));
        seen.insert(set.add(port), Seen::default());
    }
    rights.push(on_each.mint(0));
    common::say("ready");
    loop {
        let Event::Message(token, mut request) = set.receive().unwrap() else {
            unreachable!("there are no descriptors in it");
        };
        if token == control {
            give(request, &rights);
            continue;
        }
        let (answer, back) = seen.get_mut(&token).unwrap().take(&mut request);
        reply(request, &answer, back);
    }
}

/// Ports with a thread each, which may go to another home.
pub(crate) fn home(name: &str, ports: &str) {
    cuts_end_it();
    let control = handfast::bind(name).unwrap();
    let begin = |_| {
        let port = handfast::anonymous().unwrap();
        let right = port.mint(0);
        std::thread::spawn(move || serve(port, Seen::default()));
        right
    };
    let mut rights: Vec<_> = (0..ports.parse::<usize>().unwrap()).map(begin).collect();
    common::say("ready");
    loop {
        let mut request = control.receive().unwrap();
        let Some(Right::Receive(port)) = request.take_rights().pop() else {
            give(request, &rights);
            continue;
        };
        // Rights that this process holds itself keep its ports' trails.
        rights.clear();
        let seen = Seen::of(request.bytes());
        std::thread::spawn(move || serve(port, seen));
        request.reply(b"").unwrap();
    }
}

fn give(request: Request, rights: &[handfast::OwnRight]) {
    let number: usize = String::from_utf8_lossy(request.bytes()).parse().unwrap();
    let right = rights[number].clone();
    // The caller may be gone.
    let _ = request.reply_with(b"", [right.into()]);
}

fn serve(port: ReceiveRight, mut seen: Seen) {
    loop {
        let mut request = port.receive().unwrap();
        let kind = word(request.bytes(), 2);
        let (answer, mut back) = seen.take(&mut request);
        match kind {
            MOVE => {
                let to = match back.pop() {
                    Some(Right::Send(to)) => to,
                    _ => link(&String::from_utf8_lossy(&request.bytes()[24..])),
                };
                request.reply(&answer).unwrap();
                let to = to.with([port.into()]);
                let taken = to.call_timeout(&seen.bytes(), PATIENCE);
                return drop(taken.unwrap());
            }
            // Sleep: stands for work.
            LATE => std::thread::sleep(Duration::from_micros(300)),
            _ => {}
        }
        reply(request, &answer, back);
    }
}

/// A right to the other home.
fn link(name: &str) -> SendRight {
    static KNOWN: Mutex<Option<SendRight>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap();
    let right = known.get_or_insert_with(|| handfast::connect(name).unwrap());
    right.clone()
}

fn reply(request: Request, answer: &[u8], back: Vec<Right>) {
    if request.is_call() {
        // The caller may be gone.
        let _ = request.reply_with(answer, back);
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap())
}

fn with_wrong(mut answer: Vec<u8>, wrong: u64) -> Vec<u8> {
    answer[16..24].copy_from_slice(&wrong.to_le_bytes());
    answer
}

/// The last number of each sender, and how many have not come in turn.
#[derive(Default)]
struct Seen {
    last: HashMap<u64, u64>,
    wrong: u64,
}

impl Seen {
    /// The answer, and what goes back with it: whose number it was, how many have not come in turn, and the sum of
    /// the bytes that came in memory and in loans.
    fn take(&mut self, request: &mut Request) -> (Vec<u8>, Vec<Right>) {
        let [sender, number] = [0, 1].map(|at| word(request.bytes(), at));
        let before = self.last.insert(sender, number).unwrap_or(0);
        self.wrong += u64::from(number != before + 1);
        let (mut sum, mut back) = (0, Vec::new());
        for right in request.take_rights() {
            match right {
                // Its lender may be gone.
                Right::Loan(loan) => sum += loan.to_vec().map_or(0, |bytes| sum_of(&bytes)),
                Right::Memory(memory) => {
                    sum += sum_of(memory.bytes());
                    back.push(memory.into());
                }
                right => back.push(right),
            }
        }
        let words = [sender, number, self.wrong, sum];
        (words.map(u64::to_le_bytes).concat(), back)
    }

    fn bytes(&self) -> Vec<u8> {
        let pairs = self.last.iter().map(|(sender, number)| [*sender, *number]);
        let words = [[self.wrong, 0]].into_iter().chain(pairs);
        words
            .flat_map(|pair| pair.map(u64::to_le_bytes).concat())
            .collect()
    }

    fn of(bytes: &[u8]) -> Self {
        let pairs = (2..bytes.len() / 8).step_by(2);
        Self {
            last: pairs
                .map(|at| (word(bytes, at), word(bytes, at + 1)))
                .collect(),
            wrong: word(bytes, 0),
        }
    }
}

fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// The rights that a process gives by their numbers.
pub(crate) fn rights_of(name: &str, count: usize) -> Vec<SendRight> {
    let control = handfast::connect(name).unwrap();
    let rights = (0..count).map(|number| ask(&control, number).unwrap());
    rights.collect()
}

pub(crate) fn ask(control: &SendRight, number: usize) -> Result<SendRight, SendError> {
    let mut answer = control.call_timeout(number.to_string().as_bytes(), PATIENCE)?;
    match answer.take_rights().pop() {
        Some(Right::Send(right)) => Ok(right),
        other => panic!("{other:?}"),
    }
}

/// A sender to all of them, with what it has sent to each.
pub(crate) struct Sender<'a> {
    rights: &'a [SendRight],
    sender: u64,
    numbers: Vec<u64>,
    arena: SharedArena,
    random: Random,
}

/// Bytes of a loan, and of memory.
const LENT_BYTES: usize = 3000;

impl<'a> Sender<'a> {
    pub(crate) fn new(rights: &'a [SendRight], sender: u64, random: Random) -> Self {
        Self {
            rights,
            sender,
            numbers: vec![0; rights.len()],
            arena: SharedArena::create(LENT_BYTES, 2).unwrap(),
            random,
        }
    }

    fn next(&mut self, port: usize, kind: u64) -> Vec<u8> {
        self.numbers[port] += 1;
        let words = [self.sender, self.numbers[port], kind];
        words.map(u64::to_le_bytes).concat()
    }

    /// It was not sent.
    fn take_back(&mut self, port: usize) {
        self.numbers[port] -= 1;
    }

    fn check(&self, port: usize, answer: &[u8]) {
        self.check_number(port, self.numbers[port], answer);
    }

    fn check_number(&self, port: usize, number: u64, answer: &[u8]) {
        let words = [0, 1, 2].map(|at| word(answer, at));
        assert_eq!(words, [self.sender, number, 0], "port {port}");
    }

    /// Some ports more often than others.
    fn any_port(&mut self) -> usize {
        let all = self.rights.len() as u64;
        let among = [3, 14, 20, all][self.random.below(4) as usize];
        (self.random.below(among) + [0, all / 2][self.random.below(2) as usize]) as usize
            % self.rights.len()
    }

    /// Calls each port once.
    pub(crate) fn call_all(&mut self) -> Result<(), SendError> {
        for port in 0..self.rights.len() {
            self.call(port, PLAIN)?;
        }
        Ok(())
    }

    pub(crate) fn call(&mut self, port: usize, kind: u64) -> Result<(), SendError> {
        let bytes = self.next(port, kind);
        let answer = self.rights[port].call_timeout(&bytes, PATIENCE)?;
        self.check(port, &answer);
        Ok(())
    }

    /// Has a port go to another home, perhaps by a right that comes from here.
    pub(crate) fn move_to(&mut self, port: usize, name: &str, home: Option<SendRight>) {
        let mut bytes = self.next(port, MOVE);
        bytes.extend(name.as_bytes());
        let call = self.rights[port].with(home.map(Right::from));
        let answer = call.call_timeout(&bytes, PATIENCE).unwrap();
        self.check(port, &answer);
    }

    /// Does any one thing.
    pub(crate) fn step(&mut self) -> Result<(), SendError> {
        let rights = self.rights;
        let port = self.any_port();
        let right = &rights[port];
        let kind = self.random.below(2);
        match self.random.below(9) {
            0 | 1 => self.call(port, kind)?,
            2 => {
                for _ in 0..=self.random.below(90) {
                    let bytes = self.next(port, PLAIN);
                    right.send_timeout(&bytes, PATIENCE)?;
                }
            }
            3 => {
                let count = self.random.below(100);
                let many: Vec<_> = (0..=count).map(|_| self.next(port, PLAIN)).collect();
                let sent = right.send_many_timeout(&many, PATIENCE);
                sent.map_err(|unsent| unsent.error)?;
            }
            // Given up at once, or soon.
            4 => {
                let bytes = self.next(port, kind);
                let Ok(call) = right.try_call(&bytes) else {
                    self.take_back(port);
                    return Ok(());
                };
                let soon = Duration::from_micros(self.random.below(60));
                if self.random.below(2) == 0
                    && let Ok(answer) = call.wait_timeout(soon)
                {
                    self.check(port, &answer);
                }
            }
            // Several under way, at several ports.
            5 => {
                let mut calls = Vec::new();
                for _ in 0..self.random.below(8) {
                    let port = self.any_port();
                    let bytes = self.next(port, kind);
                    match rights[port].try_call(&bytes) {
                        Ok(call) => calls.push((port, self.numbers[port], call)),
                        Err(_) => self.take_back(port),
                    }
                }
                for (port, number, call) in calls {
                    let answer = call.wait_timeout(PATIENCE)?;
                    self.check_number(port, number, &answer);
                }
            }
            6 => self.send_parts(port)?,
            7 => self.as_task(port)?,
            _ => match right.attenuate(0) {
                Ok(_) | Err(SendError::Full | SendError::Right(RightError::Indirect)) => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// A right to another of the ports, a descriptor, memory, and a loan; some of them.
    fn send_parts(&mut self, port: usize) -> Result<(), SendError> {
        let other = self.any_port();
        let bytes = vec![self.random.next() as u8; LENT_BYTES];
        let (mut goes, mut sum, mut comes_back) = (Vec::<Right>::new(), 0, 0);
        let which = self.random.below(16);
        if which & 1 != 0 {
            goes.push(self.rights[other].clone().into());
            comes_back += 1;
        }
        if which & 2 != 0 {
            let fd = std::fs::File::open("/dev/null").unwrap();
            goes.push(OwnedFd::from(fd).into());
            comes_back += 1;
        }
        if which & 4 != 0 {
            goes.push(Memory::from_bytes(&bytes).unwrap().into());
            (sum, comes_back) = (sum + sum_of(&bytes), comes_back + 1);
        }
        // A block that is lent to a port that moves cannot be passed on.
        if which & 8 != 0
            && port >= MOVING
            && let Ok(mut block) = self.arena.try_take(LENT_BYTES)
        {
            block.copy_from_slice(&bytes);
            goes.push(block.into());
            sum += sum_of(&bytes);
        }
        let bytes = self.next(port, PLAIN);
        let called = self.rights[port].with(goes).call_timeout(&bytes, PATIENCE);
        let mut answer = match called {
            Ok(answer) => answer,
            // Nothing was sent: blocks do not go by a vine, and few descriptors are on their way at once.
            Err(returned) if matches!(returned.error, SendError::Right(_)) => {
                self.take_back(port);
                return Ok(());
            }
            Err(returned) => return Err(returned.error),
        };
        self.check(port, &answer);
        assert_eq!(answer.take_rights().len(), comes_back, "port {port}");
        assert_eq!(word(&answer, 3), sum, "port {port}");
        Ok(())
    }

    fn as_task(&mut self, port: usize) -> Result<(), SendError> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        let (right, second) = (&self.rights[port], (port + 7) % self.rights.len());
        let [first_bytes, second_bytes] = [port, second].map(|port| self.next(port, PLAIN));
        let answers = runtime.block_on(async {
            let calls = [
                right.call_async(&first_bytes),
                self.rights[second].call_async(&second_bytes),
            ];
            let mut answers = Vec::new();
            for call in calls {
                let answer = tokio::time::timeout(PATIENCE, call).await;
                answers.push(answer.expect("a task hangs")?);
            }
            Ok::<_, SendError>(answers)
        })?;
        self.check(port, &answers[0]);
        self.check(second, &answers[1]);
        let bytes = self.next(port, PLAIN);
        let sent = runtime
            .block_on(async { tokio::time::timeout(PATIENCE, right.send_async(&bytes)).await });
        sent.expect("a task hangs")
    }
}
