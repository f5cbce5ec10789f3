//! Rights that the new home of a port revokes, while senders still use the old home.

use super::homes::Homes;
use crate::common::{self, Child, PATIENCE};
use crate::ring;
use handfast::error::{Gone, SendError};
use handfast::{Node, Notice, ReceiveRight, Right, SendRight};

/// Takes a port and revokes the rights with some badges at once. Then answers with the badge, `revoke` with a number revokes the rights
/// with that badge, `disown` those of the old home; `ask` asks for the notice of no senders, which is printed.
pub(crate) fn heir_that_revokes(name: &str, badges: &str) {
    common::say_cuts();
    let control = handfast::bind(name).unwrap();
    common::say("ready");
    let mut request = control.receive().unwrap();
    let Some(Right::Receive(port)) = request.take_rights().pop() else {
        panic!("no port came");
    };
    let old_home = request.holder();
    for badge in badges.split_whitespace() {
        port.revoke(badge.parse().unwrap());
    }
    request.reply(b"").unwrap();
    loop {
        let request = port.receive().unwrap();
        if let Some(notice) = request.notice() {
            common::say(&format!("{notice:?}"));
            continue;
        }
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let (what, badge) = text.rsplit_once(' ').unwrap_or((&text, "0"));
        let badge = badge.parse().unwrap();
        match what {
            "revoke" => port.revoke(badge),
            "disown" => port.revoke_from(old_home, badge),
            "ask" => port.notify_no_senders(),
            "ask of" => port.notify_no_senders_of(badge),
            _ => {}
        }
        common::say(what);
        let answer = request.badge().to_string();
        request.reply(answer.as_bytes()).unwrap();
    }
}

/// A port that has moved, and rights that its old home gave: with badge 0, and with badge 5.
struct Scene {
    homes: Homes,
    heir: Child,
    rights: [SendRight; 2],
}

impl Scene {
    /// The new home revokes these badges before the old home says anything to it.
    fn new(what: &str, badges: &str, introductions: &str) -> Self {
        let homes = Homes::with(("home", what), 1, |command| {
            command.env("HANDFAST_INTRODUCTIONS", introductions);
        });
        let heir_name = common::name(&format!("{what}-heir"));
        let heir = common::start_with("heir that revokes", &[&heir_name, badges], |command| {
            command.env("HANDFAST_INTRODUCTIONS", introductions);
        });
        heir.expect("ready");
        let name = common::name(&format!("{what}-port"));
        let _ = homes.controls[0].call(format!("bind {name}").as_bytes());
        let zero = handfast::connect(&name).unwrap();
        let own_name = common::name(&format!("{what}-own"));
        let own = handfast::bind(&own_name).unwrap();
        let _ = zero.call(format!("give {own_name}").as_bytes()).unwrap();
        let mut given = own.receive_timeout(PATIENCE).unwrap();
        let Some(Right::Send(five)) = given.take_rights().pop() else {
            panic!("no right came");
        };
        let _ = zero.call(format!("move {heir_name}").as_bytes()).unwrap();
        Self {
            homes,
            heir,
            rights: [zero, five],
        }
    }

    fn calls(&self, right: usize, text: &str) {
        let badge = ["0", "5"][right];
        // As many as a right takes that follows its port meanwhile.
        for _ in 0..20 {
            let answer = self.rights[right].call_timeout(text.as_bytes(), PATIENCE);
            assert_eq!(answer.map(|answer| answer.to_vec()), Ok(badge.into()));
            let what = text.rsplit_once(' ').map_or(text, |(what, _)| what);
            self.heir.expect(what);
        }
    }

    fn refuses(&self, right: usize) {
        for _ in 0..20 {
            let refused = self.rights[right].call_timeout(b"call", PATIENCE);
            let refused = refused.map(|answer| answer.to_vec());
            // A call that the old home has passed on is not told why.
            let is_refused = matches!(refused, Err(SendError::Gone(Gone::Right | Gone::Reply)));
            assert!(is_refused, "{refused:?}");
        }
    }

    /// No sender is left once the rights have been dropped, and none has been cut.
    fn end(mut self) {
        let live = self.rights.iter().find(|right| right.call(b"ask").is_ok());
        assert!(live.is_some());
        self.heir.expect("ask");
        self.rights.into_iter().for_each(drop);
        self.heir.expect("NoSenders");
        self.heir.kill();
        let cuts = self.heir.rest();
        assert_eq!(cuts, [""; 0]);
        self.homes.expect_no_cut();
    }
}

/// The old home's own right was revoked with badge 0, and the old home was cut for what it said by that.
#[test]
fn a_new_home_that_revokes_the_old_homes_badge_cuts_nobody() {
    for (introductions, what) in [("", "zero"), ("vine", "zero-apart")] {
        let scene = Scene::new(what, "0", introductions);
        scene.calls(1, "call");
        scene.refuses(0);
        scene.calls(1, "call");
        scene.end();
    }
}

/// The old home made the right anew with the badge that had been revoked.
#[test]
fn a_badge_that_the_new_home_has_revoked_is_refused_to_senders_of_the_old_home() {
    for (introductions, what) in [("", "five"), ("vine", "five-apart")] {
        let scene = Scene::new(what, "5", introductions);
        scene.refuses(1);
        scene.calls(0, "call");
        scene.refuses(1);
        scene.end();
    }
}

/// The trail ended at the first message by a right that it could not send through any more, and with it all its senders.
#[test]
fn senders_who_go_by_the_old_home_go_on_when_another_badge_is_revoked() {
    for (text, what) in [("revoke 5", "later"), ("disown 5", "later-disowned")] {
        let scene = Scene::new(what, "", "vine");
        scene.calls(1, "call");
        scene.calls(0, text);
        scene.refuses(1);
        scene.calls(0, "call");
        scene.end();
    }
}

/// The notice came at once, and the only one: the new home hears of a sender with that badge when it sends.
#[test]
fn a_badge_has_a_sender_as_long_as_the_old_home_may_have_one() {
    for (introductions, what) in [("", "asked"), ("vine", "asked-apart")] {
        let scene = Scene::new(what, "", introductions);
        scene.calls(0, "ask of 5");
        scene.calls(1, "call");
        let Scene {
            homes,
            mut heir,
            rights,
        } = scene;
        rights.into_iter().for_each(drop);
        heir.expect("NoSendersOf(5)");
        heir.kill();
        assert_eq!(heir.rest(), [""; 0]);
        homes.expect_no_cut();
    }
}

/// A port of this home, and rights to it that it has given to a node, with these badges.
fn given(home: &ring::Home, to: &Node, badges: [u64; 2]) -> (ReceiveRight, Vec<SendRight>) {
    let name = common::name("desk");
    let desk = home.node.bind(&name).unwrap();
    let to_desk = to.connect(&name).unwrap();
    let port = home.node.anonymous().unwrap();
    let rights = std::thread::scope(|threads| {
        threads.spawn(|| {
            let rights = badges.map(|badge| port.mint(badge).into());
            let request = desk.receive().unwrap();
            request.reply_with(b"", rights).unwrap();
        });
        to_desk.call(b"").unwrap().take_rights()
    });
    let rights = rights.into_iter().map(|right| match right {
        Right::Send(right) => right,
        other => panic!("{other:?}"),
    });
    (port, rights.collect())
}

/// It does not follow its port, and the thread's other rights do not wait for it.
#[test]
fn a_right_that_was_revoked_before_the_move_is_refused_at_once() {
    let homes = ring::homes("before", 2);
    let sender = ring::node();
    let (port, rights) = given(&homes[0], &sender, [7, 8]);
    port.revoke(7);
    homes[0].next.with([port.into()]).send(b"").unwrap();
    let came = homes[1].mail.receive().unwrap().take_rights().pop();
    let Some(Right::Receive(port)) = came else {
        panic!("{came:?}");
    };
    assert!(homes[0].node.wait_moved_timeout(PATIENCE));
    for _ in 0..3 {
        let refused = rights[0].call_timeout(b"", PATIENCE);
        assert_eq!(refused.err(), Some(SendError::Gone(Gone::Right)));
        rights[1].send(b"follows").unwrap();
        let request = port.receive_timeout(PATIENCE).unwrap();
        assert_eq!((request.badge(), request.bytes()), (8, &b"follows"[..]));
    }
    for node in homes.iter().map(|home| &home.node).chain([&sender]) {
        node.shutdown();
    }
}

/// The right has become another at the new home, and so has the one that was asked after.
#[test]
fn a_revocation_at_the_new_home_is_told_to_those_who_asked_at_the_old_one() {
    let homes = ring::homes("asked", 2);
    let sender = ring::node();
    let told = sender.anonymous().unwrap();
    let (port, rights) = given(&homes[0], &sender, [7, 8]);
    for (right, number) in rights.iter().zip([7, 8]) {
        right.notify_death(&told, number);
    }
    homes[0].next.with([port.into()]).send(b"").unwrap();
    let came = homes[1].mail.receive().unwrap().take_rights().pop();
    let Some(Right::Receive(port)) = came else {
        panic!("{came:?}");
    };
    // The trail has ended, and the new home has heard of both: they have followed.
    assert!(homes[0].node.wait_moved_timeout(PATIENCE));
    for right in &rights {
        right.send(b"").unwrap();
        let _ = port.receive().unwrap();
    }
    port.revoke(7);
    let next = || told.receive_timeout(PATIENCE).unwrap().notice();
    assert_eq!(next(), Some(Notice::Dead(7)));
    // Told of with the port, and not before.
    assert!(told.try_receive().is_err());
    assert_eq!(rights[0].send(b""), Err(SendError::Gone(Gone::Right)));
    drop(port);
    assert_eq!(next(), Some(Notice::Dead(8)));
    for node in homes.iter().map(|home| &home.node).chain([&sender]) {
        node.shutdown();
    }
}
