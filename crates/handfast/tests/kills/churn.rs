//! Five processes that connect to one another, give each other rights, move ports and are killed: none ever finds that another has
//! broken a rule.
//!
//! `HANDFAST_CAMPAIGN_SECS` says how long; `HANDFAST_SEED` fixes the choices, not what the kernel makes of them.

use crate::common::{self, Child, Random};
use handfast::{OwnRight, ReceiveRight, Request, Right, SendRight};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Rights that a member keeps, at most.
const KEPT_MAX: usize = 24;
/// Ports that a member serves beside its named one.
const PORTS_MAX: usize = 6;
/// How long any call waits.
const CALL: Duration = Duration::from_millis(50);

/// The rights of a member.
struct Bag {
    rights: Mutex<Vec<Right>>,
    /// Ports that a thread serves.
    served: AtomicUsize,
    random: Mutex<Random>,
}

impl Bag {
    fn below(&self, bound: u64) -> u64 {
        self.random.lock().unwrap().below(bound)
    }

    /// Keeps a right; a port that came is served from now on.
    fn keep(self: &Arc<Self>, right: Right) {
        let right = match right {
            Right::Receive(port) => return self.serve(port),
            Right::Send(_) | Right::Own(_) => right,
            _ => return,
        };
        let place = self.below(KEPT_MAX as u64) as usize;
        let mut rights = self.rights.lock().unwrap();
        let replaced = match rights.get_mut(place) {
            Some(kept) => Some(std::mem::replace(kept, right)),
            None => {
                rights.push(right);
                None
            }
        };
        drop(rights);
        drop(replaced);
    }

    /// Another right like one of those that are kept.
    fn copy(&self) -> Option<Right> {
        let place = self.below(KEPT_MAX as u64) as usize;
        Some(match self.rights.lock().unwrap().get(place)? {
            Right::Send(right) => right.clone().into(),
            Right::Own(own) => own.clone().into(),
            _ => return None,
        })
    }

    /// One to send by.
    fn sender(&self) -> Option<SendRight> {
        match self.copy()? {
            Right::Send(right) => Some(right),
            _ => None,
        }
    }

    fn some(&self) -> Vec<Right> {
        (0..self.below(3)).filter_map(|_| self.copy()).collect()
    }

    /// Serves a port until it is given away, or dropped.
    fn serve(self: &Arc<Self>, port: ReceiveRight) {
        if self.served.fetch_add(1, Ordering::Relaxed) >= PORTS_MAX {
            self.served.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let bag = self.clone();
        std::thread::spawn(move || {
            for _ in 0..bag.below(40) {
                if let Ok(request) = port.receive_timeout(Duration::from_millis(2)) {
                    bag.answer(request);
                }
            }
            bag.served.fetch_sub(1, Ordering::Relaxed);
            if bag.below(5) > 0
                && let Some(to) = bag.sender()
            {
                let _ = to.with([port.into()]).call_timeout(b"port", CALL);
            }
        });
    }

    /// Keeps what came with a message, and answers it in one of several ways.
    fn answer(self: &Arc<Self>, mut request: Request) {
        if request.notice().is_some() {
            return;
        }
        request
            .take_rights()
            .into_iter()
            .for_each(|right| self.keep(right));
        if !request.is_call() {
            return;
        }
        match self.below(8) {
            0 => drop(request),
            1 => {
                if let Some(to) = self.sender() {
                    let rights = self.some();
                    let _ = request.forward_with(&to, b"passed on", rights);
                }
            }
            2..=4 => {
                let _ = request.reply(b"");
            }
            _ => {
                let _ = request.reply_with(b"", self.some());
            }
        }
    }
}

/// Serves its own name, the first, and does by two threads whatever members do.
pub(crate) fn member(names: &[&str], seed: u64) {
    common::say_cuts();
    let named = handfast::bind(names[0]).unwrap();
    common::say("ready");
    let bag = Arc::new(Bag {
        rights: Mutex::default(),
        served: AtomicUsize::new(0),
        random: Mutex::new(Random::of(seed)),
    });
    let own: Vec<OwnRight> = (1..4).map(|badge| named.mint(badge)).collect();
    own.into_iter().for_each(|own| bag.keep(own.into()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    act(&bag, &names[1..]);
                }
            });
        }
        loop {
            if let Ok(request) = named.receive() {
                bag.answer(request);
            }
        }
    });
}

fn act(bag: &Arc<Bag>, others: &[&str]) {
    match bag.below(10) {
        0 => {
            let other = others[bag.below(others.len() as u64) as usize];
            if let Ok(right) = handfast::connect_timeout(other, CALL) {
                bag.keep(right.into());
            }
        }
        1 => {
            if let Ok(port) = handfast::anonymous() {
                bag.keep(port.mint(bag.below(3)).into());
                bag.serve(port);
            }
        }
        2 => {
            let place = bag.below(KEPT_MAX as u64) as usize;
            let mut rights = bag.rights.lock().unwrap();
            let dropped = (place < rights.len()).then(|| rights.swap_remove(place));
            drop(rights);
            drop(dropped);
        }
        3 => {
            if let Some(right) = bag.sender()
                && let Ok(fewer) = right.attenuate(1)
            {
                bag.keep(fewer.into());
            }
        }
        4..=5 => {
            if let Some(to) = bag.sender() {
                let _ = to.with(bag.some()).send_timeout(b"told", CALL);
            }
        }
        _ => {
            if let Some(to) = bag.sender()
                && let Ok(mut reply) = to.with(bag.some()).call_timeout(b"called", CALL)
            {
                reply
                    .take_rights()
                    .into_iter()
                    .for_each(|right| bag.keep(right));
            }
        }
    }
}

/// Of each five.
const MEMBERS: usize = 5;

#[test]
fn honest_processes_that_are_killed_at_any_moment_break_no_rule() {
    let _alone = common::alone();
    let mut random = Random::seeded("churn");
    let names: Vec<_> = (0..MEMBERS)
        .map(|at| common::name(&format!("churn{at}")))
        .collect();
    let start = |at: usize, random: &mut Random| {
        let mut arguments = vec![random.next().to_string(), names[at].clone()];
        arguments.extend(
            (0..MEMBERS)
                .filter(|to| *to != at)
                .map(|to| names[to].clone()),
        );
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let child = common::start("member", &arguments);
        child.expect("ready");
        child
    };
    let mut members: Vec<Child> = (0..MEMBERS).map(|at| start(at, &mut random)).collect();
    let end = Instant::now() + common::campaign(6);
    let mut cuts = Vec::new();
    while Instant::now() < end && cuts.is_empty() {
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_millis(random.below(800)));
        for (at, member) in members.iter().enumerate() {
            cuts.extend(std::iter::from_fn(|| member.said()).map(|line| (at, line)));
        }
        let victim = random.below(MEMBERS as u64) as usize;
        members[victim].kill();
        cuts.extend(
            members[victim]
                .rest()
                .into_iter()
                .map(|line| (victim, line)),
        );
        members[victim] = start(victim, &mut random);
    }
    assert!(cuts.is_empty(), "{cuts:?}");
}
