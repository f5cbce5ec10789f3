//! A node of a simulated run: the rights it has, and its calls to others.

use super::Scene;
use super::hub::Hub;
use crate::error::{ConnectError, Gone, Misuse, ReceiveError, SendError};
use crate::link::Link;
use crate::memory::Memory;
use crate::message::Message;
use crate::port::notices::Notice;
use crate::port::own::OwnRight;
use crate::receive_right::ReceiveRight;
use crate::right::Right;
use crate::send::{SendRight, route};
use crate::send_once::SendOnceRight;
use crate::{Node, links, paths, vine};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::simulation::random;
use handfast_sys::thread;
use std::sync::{Arc, Mutex};

/// A node, and the rights that its threads have.
pub(super) struct Home {
    pub(super) number: u32,
    pub(super) node: Node,
    /// Rights, and the numbers of their ports.
    held: Mutex<Vec<(u32, SendRight)>>,
    /// Send-once rights, likewise.
    once: Mutex<Vec<(u32, SendOnceRight)>>,
    /// To the port that mints rights, and its number.
    hub: Mutex<Option<(u32, OwnRight)>>,
    /// That port, once its thread is over.
    pub(super) hub_left: Mutex<Option<Hub>>,
    /// A port that is told of the ends of others, and the rights to those that have not ended yet.
    watch: ReceiveRight,
    watched: Mutex<Vec<(u32, SendRight)>>,
    /// Threads that have something to do still.
    busy: AtomicU32,
}

/// A call, and a message that is the same but has no answer, says one of these, the number of a port, and a number of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Wish {
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
    /// Answer the call whose reply right this is, in the place of that port.
    Answer,
}

impl Wish {
    pub(super) const fn is(self, said: u8) -> bool {
        self as u8 == said
    }
}

/// A thread that has something to do, also when it panics.
struct Busy<'a>(&'a AtomicU32);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const WISHES: [Wish; 4] = [Wish::Name, Wish::Keep, Wish::Pass, Wish::Give];
/// Calls of each node.
const CALLS: u64 = 12;
/// Longer than anything may take: a claim at a port's new home takes a minute where the port has ended since.
pub(super) const PATIENCE: Duration = Duration::from_secs(80);
/// As long as a connection may take. A connector waits for a port that is under way.
const CONNECTS: Duration = Duration::from_secs(1);
/// The same for a thread that serves, which may wait for itself there. Others wait a tenth of a second for it to receive.
pub(super) const CONNECTS_BESIDE: Duration = Duration::from_millis(10);
const HELD_MAX: usize = 12;

/// How long a server waits that has waited so often in vain.
pub(super) fn pause_of(idle: u32) -> Duration {
    Duration::from_micros(1 + (random(2_000) << (idle / 32).min(8)))
}

pub(super) fn words(bytes: &[u8]) -> Option<(u8, u32, u32)> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some((*bytes.first()?, word(1)?, word(5)?))
}

pub(super) fn bytes(first: u8, second: u32, third: u32) -> [u8; 9] {
    let mut bytes = [first; 9];
    bytes[1..5].copy_from_slice(&second.to_le_bytes());
    bytes[5..].copy_from_slice(&third.to_le_bytes());
    bytes
}

/// The links that are left of the node, in words. A link by which rights have gone both ways stays (`docs/limits.md`).
pub(super) fn links_left(node: &Node, number: u32) -> Vec<String> {
    let of = |link: &Arc<Link>| {
        let (peer, holders) = (link.peer.pid & 0xff, Arc::strong_count(link) - 1);
        let (is_down, usage, side) = (link.is_down(), &link.life.usage, link.calls);
        let exports = link.exports().len();
        let claims = link.introductions().claims.count();
        let imports = link.imports().len();
        let returns = link.returns().in_use().len();
        let uses = paths::uses(link);
        let is_idle = !is_down && (usage.is_granted() || uses > 0) && usage.has_uses(uses);
        (!is_idle || imports + exports + returns > 0).then(|| {
            format!(
                "{number} has {peer}: {side:?}, down {is_down}, rights {imports} and {exports}, claims {claims}, returns {returns}, \
                 {usage:?}, paths {uses}, held by {holders}"
            )
        })
    };
    let process = node.process();
    links::all(process).iter().filter_map(of).collect()
}

impl Home {
    pub(super) fn new(number: u32, node: Node) -> Self {
        Self {
            number,
            held: Mutex::default(),
            once: Mutex::default(),
            hub: Mutex::default(),
            hub_left: Mutex::default(),
            watch: node.anonymous().unwrap(),
            watched: Mutex::default(),
            node,
            busy: AtomicU32::new(0),
        }
    }

    fn name(number: u32) -> String {
        format!("node-{number}")
    }

    /// Binds the node's name.
    pub(super) fn bind(&self) -> ReceiveRight {
        self.node.bind(&Self::name(self.number)).unwrap()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Makes the port that mints rights, and receives from it.
    pub(super) fn open_hub(self: &Arc<Self>, scene: &Arc<Scene>) {
        let (port, number) = (self.node.anonymous().unwrap(), scene.new_port());
        scene.is_minted(number);
        *self.hub.lock().unwrap() = Some((number, port.mint(0)));
        let hub = Hub::new(port, number);
        let (home, of) = (self.clone(), scene.clone());
        scene.spawn(self.number, move || home.serve_hub(&of, hub));
    }

    /// One of the rights to the ports of other nodes that mint rights.
    pub(super) fn right_to_hub(&self, scene: &Scene) -> Option<(u32, SendRight)> {
        let others = scene.homes.iter().filter(|home| home.number != self.number);
        let number =
            |home: &Arc<Self>| home.hub.lock().unwrap().as_ref().map(|(number, _)| *number);
        let hubs: Vec<_> = others.filter_map(number).collect();
        let held = self.held.lock().unwrap();
        let found: Vec<_> = held
            .iter()
            .filter(|(port, _)| hubs.contains(port))
            .collect();
        (!found.is_empty()).then(|| found[random(found.len() as u64) as usize].clone())
    }

    /// Drops all rights, but those to ports whose ends it is to be told of.
    pub(super) fn forget(&self) {
        let held = core::mem::take(&mut *self.held.lock().unwrap());
        let once = core::mem::take(&mut *self.once.lock().unwrap());
        let hub = self.hub.lock().unwrap().take();
        drop((held, once, hub));
    }

    /// Drops the port that mints rights: all have ended.
    pub(super) fn close_hub(&self) {
        let hub = self.hub_left.lock().unwrap().take();
        drop(hub);
    }

    /// Shuts the node down, while a thread goes to sleep that nobody else will ever wake.
    pub(super) fn shut_down(&self) {
        let port = self.node.anonymous().unwrap();
        let sleeper = thread::spawn("sleeper", 1 << 18, move || {
            let ended = port.receive().map(|_| ());
            assert_eq!(ended, Err(ReceiveError::Misuse(Misuse::Shutdown)));
        });
        self.node.shutdown();
        assert!(sleeper.unwrap().join(), "a receiver fails otherwise");
    }

    /// Drops all that is left.
    pub(super) fn end(&self) {
        self.forget();
        let watched = core::mem::take(&mut *self.watched.lock().unwrap());
        drop(watched);
        self.close_hub();
    }

    /// Hears of the ends of ports. The number of those it waits for still: all have ended by now but those that stay.
    pub(super) fn hear(&self, scene: &Scene) -> usize {
        while let Ok(request) = self.watch.try_receive() {
            let Some(Notice::Dead(port)) = request.notice() else {
                panic!("HANDFAST_SEED={}: {request:?}", scene.seed);
            };
            let port = port as u32;
            scene.tell(self.number, format_args!("hears of the end of {port}"));
            assert!(
                scene.may_fail(port),
                "HANDFAST_SEED={}: node {} is told that {port} has ended",
                scene.seed,
                self.number
            );
            let mut watched = self.watched.lock().unwrap();
            let place = watched.iter().position(|(of, _)| *of == port);
            let place = place.expect("a port it has asked after");
            let told = watched.swap_remove(place);
            drop(watched);
            drop(told);
        }
        let mut watched = self.watched.lock().unwrap();
        let stays = |port: &(u32, SendRight)| scene.stays(port.0);
        let staying: Vec<_> = watched.extract_if(.., |port| stays(port)).collect();
        let count = watched.len();
        scene.tell(
            self.number,
            format_args!("waits for the ends of {watched:?}"),
        );
        drop(watched);
        drop(staying);
        count
    }

    /// Notices that the hub waits for, once all rights to its ports have gone.
    pub(super) fn left_to_hear(&self, scene: &Scene) -> usize {
        let mut hub = self.hub_left.lock().unwrap().take();
        let left = hub.as_mut().map_or(0, |hub| hub.left(scene));
        *self.hub_left.lock().unwrap() = hub;
        left
    }

    fn ask_after(&self, scene: &Scene, (port, right): &(u32, SendRight)) {
        // Holders of indirect rights are not told (`docs/limits.md`).
        let (link, of) = (route::best(right).link(), route::best(right).port());
        let is_indirect = |home: &Arc<Self>| {
            let vine = vine::of(home.node.process()).get();
            home.number == link.peer.pid & 0xff && vine.is_some_and(|vine| vine.port.id == of)
        };
        if scene.homes.iter().any(is_indirect) {
            return;
        }
        scene.tell(self.number, format_args!("asks after {port}: {right:?}"));
        self.watched.lock().unwrap().push((*port, right.clone()));
        right.notify_death(&self.watch, u64::from(*port));
    }

    /// See [`links_left`].
    pub(super) fn left(&self) -> Vec<String> {
        links_left(&self.node, self.number)
    }

    pub(super) fn keep(&self, port: u32, right: Right) {
        let right = match right {
            Right::Send(right) => right,
            Right::Own(own) => match own.connect() {
                Ok(right) => right,
                Err(_) => return,
            },
            Right::SendOnce(right) => return self.once.lock().unwrap().push((port, right)),
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
    pub(super) fn any(&self, scene: &Scene, limit: Duration) -> Option<(u32, SendRight)> {
        if random(8) == 0 {
            let hub = self.hub.lock().unwrap().clone();
            if let Some((port, right)) = hub
                && let Ok(right) = right.connect()
            {
                return Some((port, right));
            }
        }
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
        match self.node.connect_timeout(&Self::name(to.number), limit) {
            Ok(right) => {
                self.keep(port, right.clone().into());
                Some((port, right))
            }
            Err(error) => {
                let is_under_way = matches!(error, ConnectError::TimedOut { .. })
                    && (limit < CONNECTS || scene.has_moved(port));
                assert!(
                    scene.may_fail(port) || is_under_way,
                    "HANDFAST_SEED={}: node {} connects: {error}",
                    scene.seed,
                    self.number
                );
                None
            }
        }
    }

    /// Starts to call others.
    pub(super) fn begin(self: &Arc<Self>, scene: &Arc<Scene>) {
        let (home, of) = (self.clone(), scene.clone());
        self.busy.fetch_add(1, Ordering::Relaxed);
        scene.spawn(self.number, move || home.act(&of));
    }

    fn act(self: &Arc<Self>, scene: &Arc<Scene>) {
        let _busy = Busy(&self.busy);
        for number in 0..CALLS as u32 {
            if random(3) == 0 {
                clock::sleep(Duration::from_micros(random(400)));
            }
            self.call(scene, self.number << 16 | number);
            if random(6) == 0
                && let Some(right) = self.any(scene, CONNECTS)
            {
                self.ask_after(scene, &right);
            }
            self.use_once(scene);
            if random(6) == 0 {
                let mut held = self.held.lock().unwrap();
                let last = held.pop();
                drop(held);
                drop(last);
            }
        }
    }

    /// Sends by one of the send-once rights, gives it away, or drops it.
    fn use_once(&self, scene: &Scene) {
        let (port, right) = {
            let mut once = self.once.lock().unwrap();
            if once.is_empty() {
                return;
            }
            let at = random(once.len() as u64) as usize;
            once.swap_remove(at)
        };
        match random(4) {
            0 => {
                scene.tell(self.number, format_args!("drops once of {port}"));
                drop(right);
            }
            1 | 2 => {
                scene.tell(self.number, format_args!("sends by once of {port}"));
                let sent = right.send(&bytes(Wish::Name as u8, port, 0));
                let sent = sent.map_err(|failed| failed.error);
                let _ = scene.expect(self, (Wish::Name, port, None), sent);
            }
            _ => {
                let Some((by, to)) = self.any(scene, CONNECTS) else {
                    return;
                };
                let said = bytes(Wish::Keep as u8, port, 0);
                scene.tell(self.number, format_args!("gives once of {port} to {by}"));
                let sent = to.with([right.into()]).send_timeout(&said, PATIENCE);
                let sent = sent.map_err(|returned| returned.error);
                let _ = scene.expect(self, (Wish::Keep, by, Some(port)), sent);
            }
        }
    }

    fn call(self: &Arc<Self>, scene: &Arc<Scene>, number: u32) {
        let Some((port, to)) = self.any(scene, CONNECTS) else {
            return;
        };
        let wish = WISHES[random(WISHES.len() as u64) as usize];
        let given = matches!(wish, Wish::Keep | Wish::Pass).then(|| self.any(scene, CONNECTS));
        let about = given
            .as_ref()
            .and_then(Option::as_ref)
            .map(|(port, _)| *port);
        let wish = match about {
            None if wish != Wish::Give => Wish::Name,
            _ => wish,
        };
        let given = given.flatten().map(|(_, right)| match random(6) {
            0 if !scene.is_indirect(&right) => right.attenuate(1).unwrap_or(right),
            _ => right,
        });
        let rights: Vec<_> = given.map(Right::from).into_iter().collect();
        let rights = match wish == Wish::Name && random(4) == 0 {
            true => vec![Memory::from_bytes(&number.to_le_bytes()).unwrap().into()],
            false => rights,
        };
        let said = bytes(wish as u8, about.unwrap_or(port), number);
        if random(8) == 0 && wish != Wish::Pass {
            let sent = to.with(rights).send_timeout(&said, PATIENCE);
            let sent = sent.map_err(|returned| returned.error);
            let _ = scene.expect(self, (wish, port, about), sent);
            return;
        }
        scene.tell(
            self.number,
            format_args!("{number:x} calls {port} by {to:?}: {wish:?}, {about:?}"),
        );
        let answer = to.with(rights).call_timeout(&said, PATIENCE);
        let answer = answer.map_err(|returned| returned.error);
        let by = scene.depends.lock().unwrap().get(&number).copied();
        if matches!(answer, Err(SendError::Gone(Gone::Reply)))
            && by.is_some_and(|by| by.is_none_or(|by| scene.may_fail(by)))
        {
            return;
        }
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
}
