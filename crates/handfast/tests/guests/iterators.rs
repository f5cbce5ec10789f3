//! Iterators that yield rights, and their drops; and messages that are given as `AsRef`, which the library borrows and never
//! drops.

use crate::common::PATIENCE;
use crate::deeds::{DEEDS, Deed, Guest, Scene, panicked};
use handfast::Right;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Next,
    Drop,
}

/// Yields rights, and calls its guest on the way.
struct Yields {
    rights: std::vec::IntoIter<Right>,
    at: At,
    guest: Guest,
}

impl Iterator for Yields {
    type Item = Right;

    fn next(&mut self) -> Option<Right> {
        let right = self.rights.next();
        if self.at == At::Next {
            self.guest.act();
        }
        right
    }
}

impl Drop for Yields {
    fn drop(&mut self) {
        if self.at == At::Drop {
            self.guest.act();
        }
    }
}

type Send = fn(&Scene, Yields);

/// Each operation of the first node that takes rights, with a call that was received, and one right that can be used once.
const OPERATIONS: [(&str, Send); 6] = [
    ("send", |scene, rights| {
        scene.to_far.with(rights).send(b"given").unwrap();
    }),
    ("reply", |scene, rights| {
        let request = scene.port.receive_timeout(PATIENCE).unwrap();
        request.reply_with(b"given", rights).unwrap();
    }),
    ("reply and receive", |scene, rights| {
        let request = scene.port.receive_timeout(PATIENCE).unwrap();
        let received = scene.port.reply_with_and_receive(request, b"given", rights);
        assert_eq!(received.unwrap().bytes(), b"next");
    }),
    ("forward", |scene, rights| {
        let request = scene.port.receive_timeout(PATIENCE).unwrap();
        request
            .forward_with(&scene.to_far, b"given", rights)
            .unwrap();
    }),
    ("forward and receive", |scene, rights| {
        let request = scene.port.receive_timeout(PATIENCE).unwrap();
        let port = &scene.port;
        let received = port.forward_and_receive(request, &scene.to_far, b"given", rights);
        assert_eq!(received.unwrap().bytes(), b"next");
    }),
    ("send once", |scene, rights| {
        let once = scene.port.mint_once(5).unwrap();
        once.send_with(b"given", rights).unwrap();
    }),
];

#[test]
fn rights_that_are_yielded_with_any_operation() {
    for at in [At::Next, At::Drop] {
        for (operation, by) in OPERATIONS {
            for deed in DEEDS {
                let case = format!("{operation}, {at:?}: {deed:?}");
                println!("{case}");
                let scene = Scene::new();
                let guest = Guest::new(deed, &scene.node, scene.belongings());
                let given = scene.node.anonymous().unwrap();
                let rights: Vec<Right> = (1..=3).map(|badge| given.mint(badge).into()).collect();
                let rights = Yields {
                    rights: rights.into_iter(),
                    at,
                    guest: guest.clone(),
                };
                let call = scene.to_port.try_call(b"called").unwrap();
                scene.to_port.send(b"next").unwrap();
                guest.arm();
                let panics = panicked(|| by(&scene, rights));
                assert_eq!(panics, deed == Deed::Panics, "{case}");
                guest.check(&case);
                drop(call);
                scene.works(&case);
                drop(given);
                scene.end();
            }
        }
    }
}

/// The last of several messages calls the guest.
struct Piece<'a>(Option<&'a Guest>, &'a AtomicU32);

impl AsRef<[u8]> for Piece<'_> {
    fn as_ref(&self) -> &[u8] {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.map(Guest::act).unwrap_or_default();
        b"a piece"
    }
}

type SendAll = fn(&Scene, &[Piece<'_>]);

#[test]
fn messages_of_a_batch() {
    let operations: [(&str, SendAll); 3] = [
        ("send", |scene, pieces| {
            scene.to_far.send_many(pieces).unwrap()
        }),
        ("try", |scene, pieces| {
            scene.to_far.try_send_many(pieces).unwrap()
        }),
        ("timeout", |scene, pieces| {
            scene.to_far.send_many_timeout(pieces, PATIENCE).unwrap();
        }),
    ];
    for (operation, by) in operations {
        for deed in DEEDS {
            let case = format!("{operation}: {deed:?}");
            let scene = Scene::new();
            let guest = Guest::new(deed, &scene.node, scene.belongings());
            let asked = AtomicU32::new(0);
            let pieces = [None, None, Some(&guest)].map(|guest| Piece(guest, &asked));
            guest.arm();
            let panics = panicked(|| by(&scene, &pieces));
            assert_eq!(panics, deed == Deed::Panics, "{case}");
            assert_eq!(asked.load(Ordering::Relaxed), 3, "{case}");
            guest.check(&case);
            // The messages before a panic were sent.
            let count = if panics { 2 } else { 3 };
            for _ in 0..count {
                let message = scene.far.receive_timeout(PATIENCE).unwrap();
                assert_eq!(message.bytes(), b"a piece", "{case}");
            }
            assert!(scene.far.try_receive().is_err(), "{case}");
            scene.works(&case);
            scene.end();
        }
    }
}
