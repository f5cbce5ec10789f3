//! A port that mints rights, which it may revoke, and makes ports that share its receiver. It stays where it is; those ports move to
//! other such receivers.

use super::Scene;
use super::home::{Home, PATIENCE, Wish, bytes, pause_of, words};
use crate::error::{ReceiveError, RightError, SendError};
use crate::member::MemberPort;
use crate::port::notices::Notice;
use crate::port::own::OwnRight;
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::right::Right;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_sys::simulation::random;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(super) struct Hub {
    port: ReceiveRight,
    number: u32,
    /// By the numbers of the ports they stand for, which are their badges.
    badges: Vec<u32>,
    members: HashMap<u32, (u32, MemberPort)>,
    /// Rights of which it is to be told when the last has ended: all with a badge, or to a member.
    asked: HashSet<(Option<u32>, u64)>,
    /// Badges of send-once rights of which neither a message nor a notice has come; and the last one.
    once: HashSet<u64>,
    last_once: u64,
}

impl Hub {
    pub(super) fn new(port: ReceiveRight, number: u32) -> Self {
        port.notify_no_senders();
        MemberPort::accept_at(&port);
        Self {
            port,
            number,
            badges: Vec::new(),
            members: HashMap::new(),
            asked: HashSet::from([(None, 0)]),
            once: HashSet::new(),
            last_once: 0,
        }
    }

    /// The port that a message is for.
    fn number_of(&self, scene: &Scene, request: &Request) -> u32 {
        match (request.member(), request.badge()) {
            (Some(member), badge) => {
                let known = self.members.get(&member);
                let (number, _) = known.expect("a message to a port that is there");
                assert_eq!(badge, u64::from(*number), "HANDFAST_SEED={}", scene.seed);
                *number
            }
            (None, 0) => self.number,
            (None, badge) => badge as u32,
        }
    }

    /// A right to a new port, and its number.
    fn mint(&mut self, scene: &Scene) -> (u32, OwnRight) {
        let number = scene.new_port();
        scene.is_minted(number);
        let badge = u64::from(number);
        if random(2) == 0 {
            let right = self.port.mint(badge);
            self.badges.push(number);
            if random(2) == 0 {
                self.asked.insert((None, badge));
                self.port.notify_no_senders_of(badge);
            }
            return (number, right);
        }
        let member = match self.port.member() {
            Ok(member) => member,
            // The node is shut down.
            Err(error) => {
                assert!(scene.may_fail(self.number), "{error}");
                return (number, self.port.mint(badge));
            }
        };
        let (key, right) = (member.key(), member.mint(badge));
        if random(2) == 0 {
            self.asked.insert((Some(key), 0));
            member.notify_no_senders();
        }
        self.members.insert(key, (number, member));
        (number, right)
    }

    /// A right to send one message to it.
    fn mint_once(&mut self) -> Option<Right> {
        let right = self.port.mint_once(self.last_once + 1).ok()?;
        self.last_once += 1;
        self.once.insert(self.last_once);
        Some(right.into())
    }

    /// The outcome of a send-once right has come.
    fn has_come(&mut self, scene: &Scene, badge: u64, how: &str) {
        scene.tell(self.number, format_args!("{how} by once {badge}"));
        let is_first = self.once.remove(&badge);
        assert!(
            is_first,
            "HANDFAST_SEED={}: {how} by once {badge}",
            scene.seed
        );
    }

    /// Some of the rights are revoked, or the port is dropped to which they are.
    fn end_one(&mut self, scene: &Scene) {
        let keys: Vec<_> = self.members.keys().copied().collect();
        let count = self.badges.len() + keys.len();
        if count == 0 {
            return;
        }
        let at = random(count as u64) as usize;
        if at < self.badges.len() {
            let number = self.badges.swap_remove(at);
            scene.ends(number);
            self.port.revoke(u64::from(number));
            return;
        }
        let mut keys = keys;
        keys.sort_unstable();
        let key = keys[at - self.badges.len()];
        let (number, member) = self.members.remove(&key).expect("a port that is there");
        scene.ends(number);
        self.asked.remove(&(Some(key), 0));
        drop(member);
    }

    /// One of the ports moves to wherever one of the node's rights leads, if another such receiver is there.
    fn move_one(&mut self, scene: &Scene, home: &Home) {
        let mut keys: Vec<_> = self.members.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        keys.sort_unstable();
        let Some((to, right)) = home.right_to_hub(scene) else {
            return;
        };
        let key = keys[random(keys.len() as u64) as usize];
        let (number, member) = self.members.remove(&key).expect("a port that is there");
        let is_asked = self.asked.remove(&(Some(key), 0));
        scene.moves(number, to);
        let said = bytes(Wish::Take as u8, number, is_asked.into());
        let sent = right.with([member.into()]).send_timeout(&said, PATIENCE);
        let failed = sent.as_ref().err().map(|returned| returned.error);
        scene.tell(
            home.number,
            format_args!("moves member {number} with {to}: {failed:?}"),
        );
        let Err(returned) = sent else { return };
        // An indirect right takes none along.
        if !matches!(returned.error, SendError::Right(RightError::Vine)) {
            let failed = Err::<(), _>(returned.error);
            let _ = scene.expect(home, (Wish::Take, to, Some(number)), failed);
        }
        self.take(
            scene,
            (number, is_asked),
            returned.rights.into_iter().next(),
        );
    }

    /// A port that shared another's receiver has come, or has come back.
    fn take(&mut self, scene: &Scene, (number, is_asked): (u32, bool), right: Option<Right>) {
        let Some(Right::Member(member)) = right else {
            assert!(
                scene.may_fail(number),
                "HANDFAST_SEED={}: {number} came as {right:?}",
                scene.seed
            );
            return;
        };
        scene.arrives(number);
        let key = member.key();
        if is_asked {
            self.asked.insert((Some(key), 0));
        }
        self.members.insert(key, (number, member));
    }

    /// It is told that no right is left.
    fn hear(&mut self, scene: &Scene, notice: Notice, member: Option<u32>) {
        let of = match notice {
            Notice::NoSenders => (member, 0),
            Notice::NoSendersOf(badge) => (member, badge),
            Notice::SendOnceUnused(badge) => return self.has_come(scene, badge, "nothing"),
            Notice::Dead(_) => panic!("HANDFAST_SEED={}: {notice:?}", scene.seed),
        };
        assert!(
            self.asked.remove(&of),
            "HANDFAST_SEED={}: {notice:?} of {member:?}, which nobody has asked for",
            scene.seed
        );
    }

    /// Hears of rights that have gone. The number of notices that it waits for still: all rights have gone.
    pub(super) fn left(&mut self, scene: &Scene) -> usize {
        // Messages that wait for a right wait while somebody receives.
        while let Ok(request) = self.port.receive_timeout(Duration::from_millis(20)) {
            if let Some(notice) = request.notice() {
                self.hear(scene, notice, request.member());
            } else if request.is_send_once() {
                self.has_come(scene, request.badge(), "a message");
            }
        }
        let waits_for = (&self.asked, &self.once);
        scene.tell(self.number, format_args!("waits for {waits_for:?}"));
        self.asked.len() + self.once.len()
    }
}

impl Home {
    pub(super) fn serve_hub(self: &Arc<Self>, scene: &Arc<Scene>, mut hub: Hub) {
        let mut idle = 0;
        while !scene.is_over.load(Ordering::Relaxed) {
            match hub.port.receive_timeout(pause_of(idle)) {
                Ok(request) => {
                    idle = 0;
                    self.answer_at_hub(scene, request, &mut hub);
                }
                Err(ReceiveError::TimedOut) => idle += 1,
                Err(_) if scene.may_fail(hub.number) => return,
                Err(error) => panic!("HANDFAST_SEED={}: {error}", scene.seed),
            }
            if scene.is_lively && random(16) == 0 {
                hub.end_one(scene);
            }
            if scene.is_lively && random(6) == 0 {
                hub.move_one(scene, self);
            }
        }
        *self.hub_left.lock().unwrap() = Some(hub);
    }

    fn answer_at_hub(self: &Arc<Self>, scene: &Arc<Scene>, request: Request, hub: &mut Hub) {
        if let Some(notice) = request.notice() {
            return hub.hear(scene, notice, request.member());
        }
        if request.is_send_once() {
            return hub.has_come(scene, request.badge(), "a message");
        }
        let number = hub.number_of(scene, &request);
        let Some((wish, about, of)) = words(request.bytes()) else {
            return;
        };
        if Wish::Take.is(wish) {
            let mut request = request;
            return hub.take(scene, (about, of != 0), request.take_rights().pop());
        }
        if !Wish::Give.is(wish) {
            return self.answer(scene, request, number);
        }
        if random(3) == 0 {
            scene.depends.lock().unwrap().insert(of, Some(hub.number));
            let right = hub.mint_once();
            let _ = request.reply_with(&bytes(0, hub.number, of), right);
            return;
        }
        let (named, right) = hub.mint(scene);
        scene.tell(self.number, format_args!("{number} mints {named}"));
        // An answer that another node passes on is lost there with a right in it that has ended meanwhile.
        let mut depends = scene.depends.lock().unwrap();
        depends.insert(of, Some(named));
        drop(depends);
        let _ = request.reply_with(&bytes(0, named, of), [Right::Own(right)]);
    }
}
