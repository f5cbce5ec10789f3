//! The work of a node in a simulated run.

use super::Scene;
use crate::error::{ReceiveError, SendError};
use crate::link::Link;
use crate::message::Message;
use crate::paths;
use crate::receive::ReceiveRight;
use crate::request::Request;
use crate::right::Right;
use crate::send::SendRight;
use crate::{Node, links};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::simulation::{pause, random};
use std::sync::{Arc, Mutex};

/// A node, and the rights that its threads have.
pub(super) struct Home {
    pub(super) number: u32,
    pub(super) node: Node,
    /// Rights, and the numbers of their ports.
    held: Mutex<Vec<(u32, SendRight)>>,
    /// Threads that have something to do still.
    busy: AtomicU32,
}

/// A call, and a message that is the same but has no answer, says one of these, the number of a port, and a number of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Wish {
    /// Say which port this is.
    Name,
    /// Keep the rights; they are to the port with that number.
    Keep,
    /// Have the port that the right leads to say which it is.
    Pass,
    /// Give a right.
    Give,
    /// Receive from the port.
    Take,
}

/// A thread that has something to do, also when it panics.
struct Busy<'a>(&'a AtomicU32);

impl<'a> Busy<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const WISHES: [Wish; 4] = [Wish::Name, Wish::Keep, Wish::Pass, Wish::Give];
/// Calls of each node.
const CALLS: u64 = 12;
/// Longer than anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const HELD_MAX: usize = 12;

fn words(bytes: &[u8]) -> Option<(u8, u32, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some((*bytes.first()?, word(1)?, word(5)?))
}

fn bytes(first: u8, second: u32, third: u32) -> [u8; 9] {
    let mut bytes = [first; 9];
    bytes[1..5].copy_from_slice(&second.to_le_bytes());
    bytes[5..].copy_from_slice(&third.to_le_bytes());
    bytes
}

impl Home {
    pub(super) fn new(number: u32, node: Node) -> Self {
        Self {
            number,
            node,
            held: Mutex::default(),
            busy: AtomicU32::new(0),
        }
    }

    fn name(number: u32) -> String {
        format!("node-{number}")
    }

    /// Binds the node's name.
    pub(super) fn begin(self: &Arc<Self>, scene: &Arc<Scene>) {
        let port = self.node.bind(&Self::name(self.number)).unwrap();
        self.serve(scene, port, scene.new_port());
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Drops all rights.
    pub(super) fn forget(&self) {
        let held = core::mem::take(&mut *self.held.lock().unwrap());
        drop(held);
    }

    /// The links that are left of the node, in words. A link by which rights have gone both ways stays (`docs/limits.md`).
    pub(super) fn left(&self) -> Vec<String> {
        let of = |link: &Arc<Link>| {
            let (peer, holders) = (link.peer.pid & 0xff, Arc::strong_count(link) - 1);
            let (is_down, usage, side) = (link.is_down(), &link.life.usage, link.calls);
            let exports = link.exports().len();
            let imports = link.imports().len();
            let returns = link.returns().in_use().len();
            let uses = paths::uses(link);
            let is_idle = !is_down && (usage.is_granted() || uses > 0) && usage.has_uses(uses);
            (!is_idle || imports + exports + returns > 0).then(|| {
                format!(
                    "{} has {peer}: {side:?}, down {is_down}, rights {imports} and {exports}, returns {returns}, \
                     {usage:?}, paths {uses}, held by {holders}",
                    self.number
                )
            })
        };
        let process = self.node.process();
        links::all(process).iter().filter_map(of).collect()
    }

    fn keep(&self, port: u32, right: Right) {
        let right = match right {
            Right::Send(right) => right,
            Right::Own(own) => match own.connect() {
                Ok(right) => right,
                Err(_) => return,
            },
            _ => return,
        };
        let mut held = self.held.lock().unwrap();
        let dropped = if held.len() == HELD_MAX {
            let at = random(HELD_MAX as u64) as usize;
            Some(core::mem::replace(&mut held[at], (port, right)))
        } else {
            held.push((port, right));
            None
        };
        drop(held);
        drop(dropped);
    }

    /// One of the rights, or a new connection.
    fn any(&self, scene: &Scene) -> Option<(u32, SendRight)> {
        {
            let held = self.held.lock().unwrap();
            if !held.is_empty() && random(4) > 0 {
                let (port, right) = &held[random(held.len() as u64) as usize];
                return Some((*port, right.clone()));
            }
        }
        let to = &scene.homes[random(scene.homes.len() as u64) as usize];
        if to.number == self.number {
            return None;
        }
        // The ports of the names are the first.
        let port = to.number - 1;
        match self.node.connect_timeout(&Self::name(to.number), PATIENCE) {
            Ok(right) => {
                self.keep(port, right.clone().into());
                Some((port, right))
            }
            Err(error) => {
                assert!(
                    scene.may_fail(port),
                    "HANDFAST_SEED={}: node {} connects: {error}",
                    scene.seed,
                    self.number
                );
                None
            }
        }
    }

    /// Calls others.
    pub(super) fn act(self: &Arc<Self>, scene: &Arc<Scene>) {
        let _busy = Busy::new(&self.busy);
        for number in 0..CALLS as u32 {
            if random(3) == 0 {
                clock::sleep(Duration::from_micros(random(400)));
            }
            self.call(scene, number);
            if random(6) == 0 {
                let mut held = self.held.lock().unwrap();
                let last = held.pop();
                drop(held);
                drop(last);
            }
        }
    }

    fn call(self: &Arc<Self>, scene: &Arc<Scene>, number: u32) {
        let Some((port, to)) = self.any(scene) else {
            return;
        };
        let wish = WISHES[random(WISHES.len() as u64) as usize];
        let given = matches!(wish, Wish::Keep | Wish::Pass).then(|| self.any(scene));
        let about = given
            .as_ref()
            .and_then(Option::as_ref)
            .map(|(port, _)| *port);
        let wish = match about {
            None if wish != Wish::Give => Wish::Name,
            _ => wish,
        };
        let rights = given.flatten().map(|(_, right)| Right::from(right));
        let said = bytes(wish as u8, about.unwrap_or(port), number);
        if random(8) == 0 && wish != Wish::Pass {
            let sent = to.with(rights).send_timeout(&said, PATIENCE);
            let sent = sent.map_err(|returned| returned.error);
            let _ = scene.expect(self, (wish, port, about), sent);
            return;
        }
        let answer = to.with(rights).call_timeout(&said, PATIENCE);
        let answer = answer.map_err(|returned| returned.error);
        let from = match wish {
            Wish::Pass => about.unwrap_or(port),
            _ => port,
        };
        if let Ok(mut answer) = scene.expect(self, (wish, port, about), answer) {
            let (_, named, of) = words(&answer).unwrap();
            let is_gift = wish == Wish::Give;
            assert!(
                of == number && (is_gift || named == from),
                "HANDFAST_SEED={}: node {} hears of {named} {of}, wanted {wish:?} of {from} {number}",
                scene.seed,
                self.number
            );
            if is_gift {
                self.take_gift(named, &mut answer);
            }
        }
    }

    fn take_gift(&self, port: u32, answer: &mut Message) {
        for right in answer.take_rights() {
            self.keep(port, right);
        }
    }

    /// Receives from a port in a thread of its own.
    fn serve(self: &Arc<Self>, scene: &Arc<Scene>, port: ReceiveRight, number: u32) {
        let (home, of) = (self.clone(), scene.clone());
        scene.spawn(self.number, move || home.serve_here(&of, port, number));
    }

    fn serve_here(self: &Arc<Self>, scene: &Arc<Scene>, mut port: ReceiveRight, number: u32) {
        while !scene.is_over.load(Ordering::Relaxed) {
            match port.receive_timeout(Duration::from_micros(1 + random(2_000))) {
                Ok(request) => self.answer(scene, request, number),
                Err(ReceiveError::TimedOut) => {}
                Err(_) if scene.may_fail(number) => return,
                Err(error) => panic!("HANDFAST_SEED={}: {error}", scene.seed),
            }
            if scene.is_lively && random(24) == 0 {
                match self.move_away(scene, port, number) {
                    Some(same) => port = same,
                    None => return,
                }
            }
        }
    }

    fn answer(self: &Arc<Self>, scene: &Arc<Scene>, mut request: Request, number: u32) {
        let Some((wish, about, of)) = words(request.bytes()) else {
            return;
        };
        if random(8) == 0 {
            clock::sleep(Duration::from_micros(random(200)));
        }
        scene.tell(
            self.number,
            format_args!(
                "{number} has {wish} about {about} of {}",
                request.peer().pid & 0xff
            ),
        );
        let mut rights = request.take_rights();
        let right = rights.pop();
        let said = bytes(0, number, of);
        match (wish, right) {
            (wish, Some(right)) if wish == Wish::Keep as u8 => {
                self.keep(about, right);
                let _ = request.reply(&said);
            }
            (wish, Some(Right::Send(to))) if wish == Wish::Pass as u8 => {
                let said = bytes(Wish::Name as u8, about, of);
                let passed = request.forward_timeout(&to, &said, PATIENCE);
                let failed = passed.as_ref().err().map(|not| not.error);
                scene.tell(self.number, format_args!("{number} passes on: {failed:?}"));
                if let Err(not) = passed {
                    let _ = scene.expect(self, (Wish::Pass, about, None), Err::<(), _>(not.error));
                }
            }
            (wish, Some(Right::Own(_))) if wish == Wish::Pass as u8 => {
                let _ = request.reply(&bytes(0, about, of));
            }
            (wish, Some(Right::Receive(port))) if wish == Wish::Take as u8 => {
                self.serve(scene, port, about);
            }
            (wish, None) if wish == Wish::Give as u8 => {
                let gift = self.any(scene);
                let named = gift.as_ref().map_or(number, |(port, _)| *port);
                let rights = gift.map(|(_, right)| Right::from(right));
                let _ = request.reply_with(&bytes(0, named, of), rights);
            }
            _ => {
                let _ = request.reply(&said);
            }
        }
        pause();
    }

    /// Moves the port to wherever one of the rights leads, or drops it. It comes back if it cannot move.
    fn move_away(
        self: &Arc<Self>,
        scene: &Scene,
        port: ReceiveRight,
        number: u32,
    ) -> Option<ReceiveRight> {
        if random(6) == 0 {
            scene.ends(number);
            scene.tell(self.number, format_args!("drops {number}"));
            return None;
        }
        let Some((to, right)) = self.any(scene).filter(|(to, _)| *to != number) else {
            return Some(port);
        };
        let said = bytes(Wish::Take as u8, number, 0);
        let sent = right.with([port.into()]).send_timeout(&said, PATIENCE);
        let failed = sent.as_ref().err().map(|returned| returned.error);
        scene.tell(
            self.number,
            format_args!("moves {number} with {to}: {failed:?}"),
        );
        let Err(returned) = sent else { return None };
        let _ = scene.expect(
            self,
            (Wish::Take, to, Some(number)),
            Err::<(), _>(returned.error),
        );
        let mut back = returned.rights.into_iter();
        let Some(Right::Receive(port)) = back.next() else {
            panic!("HANDFAST_SEED={}: a port is lost", scene.seed);
        };
        Some(port)
    }
}

impl Scene {
    /// That something has gone well, or has failed as it may.
    fn expect<T>(
        &self,
        home: &Home,
        (wish, port, about): (Wish, u32, Option<u32>),
        outcome: Result<T, SendError>,
    ) -> Result<T, SendError> {
        match &outcome {
            Ok(_) => self.done.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.failed.fetch_add(1, Ordering::Relaxed),
        };
        if self.victim.load(Ordering::Relaxed) == home.number {
            return outcome;
        }
        let failed = outcome.as_ref().err();
        self.tell(
            home.number,
            format_args!("{wish:?} to {port}, about {about:?}: {failed:?}"),
        );
        if let Err(error) = &outcome {
            let may_fail = self.may_fail(port) || about.is_some_and(|about| self.may_fail(about));
            let is_typed = !matches!(error, SendError::TimedOut | SendError::Fault(_));
            assert!(
                may_fail && is_typed,
                "HANDFAST_SEED={}: {wish:?} of node {} to {port}, about {about:?}: {error:?}",
                self.seed,
                home.number
            );
        }
        outcome
    }
}
