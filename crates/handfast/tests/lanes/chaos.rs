//! Everything at once through more ports of one process than a link has lanes.

use crate::common::{PATIENCE, Random};
use crate::{common, crowd};
use handfast::error::{RightError, SendError};
use handfast::{ReceiveRight, Right, SendRight};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PORTS: usize = 40;
const THREADS: u64 = 6;
const LASTS: Duration = Duration::from_secs(2);

/// Actions that a message asks for, besides an answer.
const FORWARD: u64 = 1;
const LATE: u64 = 2;
const ECHO: u64 = 3;
const KINDS: u64 = 4;
/// In no order.
const FORWARDED: u64 = KINDS;
/// Ports that end and come again.
const CHURNED: usize = 6;

pub(crate) fn ports(name: &str, next: Option<&str>) {
    crowd::cuts_end_it();
    let control = handfast::bind(name).unwrap();
    let next = next.map(rights_of).unwrap_or_default();
    let next: &'static [SendRight] = Vec::leak(next);
    let begin = |number: usize| {
        let port = handfast::anonymous().unwrap();
        let right = port.mint(0);
        std::thread::spawn(move || serve(&port, next.get(number)));
        right
    };
    let mut rights: Vec<_> = (0..PORTS + CHURNED).map(begin).collect();
    common::say("ready");
    loop {
        let request = control.receive().unwrap();
        let said = String::from_utf8_lossy(request.bytes()).into_owned();
        let right = match said.split_once(' ') {
            // The port ends, and another comes in its place.
            Some(("new", number)) => {
                let number: usize = number.parse().unwrap();
                let old = std::mem::replace(&mut rights[number], begin(number));
                old.connect().unwrap().send(b"").unwrap();
                rights[number].clone()
            }
            _ => rights[said.parse::<usize>().unwrap()].clone(),
        };
        request.reply_with(b"", [right.into()]).unwrap();
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap())
}

/// Takes numbers of senders, which must come in turn; answers with what came and how many were not in turn.
fn serve(port: &ReceiveRight, next: Option<&SendRight>) {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut wrong = 0_u64;
    loop {
        let mut request = port.receive().unwrap();
        if request.bytes().is_empty() {
            return;
        }
        let [sender, number, kind] = [0, 1, 2].map(|at| word(request.bytes(), at));
        let before = last.insert(sender, number).unwrap_or(0);
        let is_in_order = number == before + 1 || kind == FORWARDED;
        wrong += u64::from(!is_in_order);
        if !request.is_call() {
            continue;
        }
        let answer = [sender, number, wrong].map(u64::to_le_bytes).concat();
        let rights = request.take_rights();
        let answered = match (kind, next) {
            (FORWARD, Some(next)) if wrong == 0 => {
                let asks = [sender, number, FORWARDED].map(u64::to_le_bytes).concat();
                if let Err(failed) = request.forward(next, &asks) {
                    panic!("{:?}", failed.error);
                }
                Ok(())
            }
            (LATE, _) => {
                // Sleep: stands for work.
                std::thread::sleep(Duration::from_micros(300));
                request.reply(&answer)
            }
            _ => request
                .reply_with(&answer, rights)
                .map_err(|_| unreachable!()),
        };
        answered.unwrap();
    }
}

fn rights_of(name: &str) -> Vec<SendRight> {
    let control = handfast::connect(name).unwrap();
    (0..PORTS)
        .map(|number| ask(&control, &number.to_string()))
        .collect()
}

fn ask(control: &SendRight, what: &str) -> SendRight {
    let mut answer = control.call_timeout(what.as_bytes(), PATIENCE).unwrap();
    match answer.take_rights().pop() {
        Some(Right::Send(right)) => right,
        other => panic!("{other:?}"),
    }
}

/// The messages that a thread has sent through each right.
struct Sender<'a> {
    rights: &'a [SendRight],
    sender: u64,
    numbers: Vec<u64>,
    random: Random,
}

impl Sender<'_> {
    fn message(&self, port: usize, kind: u64) -> Vec<u8> {
        let words = [self.sender, self.numbers[port] + 1, kind];
        words.map(u64::to_le_bytes).concat()
    }

    fn check(&self, port: usize, answer: &[u8]) {
        let words = [0, 1, 2].map(|at| word(answer, at));
        assert_eq!(words, [self.sender, self.numbers[port], 0], "port {port}");
    }

    fn step(&mut self) {
        let rights = self.rights;
        let among = [3, 14, 20, PORTS as u64][self.random.below(4) as usize];
        let port = self.random.below(among) as usize;
        let right = &rights[port];
        let kind = self.random.below(KINDS);
        match self.random.below(9) {
            0 | 1 => {
                let bytes = self.message(port, kind);
                let answer = right.call_timeout(&bytes, PATIENCE).unwrap();
                self.numbers[port] += 1;
                self.check(port, &answer);
            }
            2 => {
                for _ in 0..=self.random.below(90) {
                    right
                        .send_timeout(&self.message(port, 0), PATIENCE)
                        .unwrap();
                    self.numbers[port] += 1;
                }
            }
            3 => {
                let mut many = Vec::new();
                for _ in 0..=self.random.below(100) {
                    many.push(self.message(port, 0));
                    self.numbers[port] += 1;
                }
                right.send_many_timeout(&many, PATIENCE).unwrap();
            }
            // Given up at once, or soon.
            4 => {
                let bytes = self.message(port, kind);
                if let Ok(call) = right.try_call(&bytes) {
                    self.numbers[port] += 1;
                    let soon = Duration::from_micros(self.random.below(60));
                    if self.random.below(2) == 0
                        && let Ok(answer) = call.wait_timeout(soon)
                    {
                        self.check(port, &answer);
                    }
                }
            }
            // Several under way, at several ports.
            5 => {
                let mut calls = Vec::new();
                for _ in 0..self.random.below(8) {
                    let port = self.random.below(PORTS as u64) as usize;
                    let kind = self.random.below(KINDS);
                    let bytes = self.message(port, kind);
                    if let Ok(call) = rights[port].try_call(&bytes) {
                        self.numbers[port] += 1;
                        calls.push((port, self.numbers[port], call));
                    }
                }
                for (port, number, call) in calls {
                    let answer = call.wait_timeout(PATIENCE).unwrap();
                    let words = [0, 1, 2].map(|at| word(&answer, at));
                    assert_eq!(words, [self.sender, number, 0], "port {port}");
                }
            }
            // With a right to another of the ports, and a descriptor.
            6 => {
                let other = rights[self.random.below(PORTS as u64) as usize].clone();
                let fd = std::fs::File::open("/dev/null").unwrap();
                let goes: [Right; 2] = [other.into(), std::os::fd::OwnedFd::from(fd).into()];
                let bytes = self.message(port, ECHO);
                let mut answer = right.with(goes).call_timeout(&bytes, PATIENCE).unwrap();
                self.numbers[port] += 1;
                self.check(port, &answer);
                assert_eq!(answer.take_rights().len(), 2);
            }
            7 => {
                let bytes = self.message(port, kind);
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_time().build().unwrap();
                let answer = runtime.block_on(async {
                    tokio::time::timeout(PATIENCE, right.call_async(&bytes)).await
                });
                let answer = answer.expect("a task hangs").unwrap();
                self.numbers[port] += 1;
                self.check(port, &answer);
                let bytes = self.message(port, 0);
                let sent = runtime.block_on(async {
                    tokio::time::timeout(PATIENCE, right.send_async(&bytes)).await
                });
                sent.expect("a task hangs").unwrap();
                self.numbers[port] += 1;
            }
            _ => match right.attenuate(0) {
                Ok(_) | Err(SendError::Full | SendError::Right(RightError::Indirect)) => {}
                Err(error) => panic!("{error:?}"),
            },
        }
    }
}

#[test]
fn all_kinds_of_use_of_more_ports_than_there_are_lanes_disturb_no_other() {
    crowd::cuts_end_it();
    let [end_name, name] = ["end", "middle"].map(|of| common::name(&format!("chaos-{of}")));
    let end = common::start("end", &[&end_name]);
    end.expect("ready");
    let middle = common::start("middle", &[&name, &end_name]);
    middle.expect("ready");
    let rights = rights_of(&name);
    let control = handfast::connect(&name).unwrap();
    let random = Mutex::new(Random::seeded("lanes-chaos"));
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let senders = (1..=THREADS).map(|sender| {
            let mut sender = Sender {
                rights: &rights,
                sender,
                numbers: vec![0; PORTS],
                random: Random::of(random.lock().unwrap().next()),
            };
            scope.spawn(move || {
                let mut steps = 0;
                while started.elapsed() < LASTS {
                    sender.step();
                    steps += 1;
                }
                steps
            })
        });
        let senders: Vec<_> = senders.collect();
        // Ports that end and come again.
        let (control, is_over, random) = (&control, &is_over, &random);
        let pid = rustix::process::Pid::from_raw(middle.pid() as i32).unwrap();
        let churn = scope.spawn(move || {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                let number = PORTS as u64 + random.lock().unwrap().below(CHURNED as u64);
                let right = ask(control, &format!("new {number}"));
                let bytes = [999, 1, 0_u64].map(u64::to_le_bytes).concat();
                let answer = right.call_timeout(&bytes, PATIENCE).unwrap();
                assert_eq!(word(&answer, 2), 0);
                count += 1;
            }
            count
        });
        let stops = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_millis(random.lock().unwrap().below(3)));
                rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_millis(random.lock().unwrap().below(60)));
            }
        });
        let steps: Vec<_> = senders.into_iter().map(|one| one.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        stops.join().unwrap();
        // None has panicked.
        let steps: Vec<u64> = steps.into_iter().map(Result::unwrap).collect();
        println!("{steps:?} {}", churn.join().unwrap());
    });
}
