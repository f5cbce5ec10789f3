//! Closures that the library keeps or calls: of quotas, of loans; and their drops.

use crate::common::{self, PATIENCE};
use crate::deeds::{DEEDS, Deed, Guest, Scene, panicked};
use handfast::{Node, Quotas, Right, SharedArena};

/// Calls the guest when it is dropped.
pub(crate) struct AtDrop(pub(crate) Guest);

impl Drop for AtDrop {
    fn drop(&mut self) {
        self.0.act();
    }
}

/// Another process, as it were, makes a link to the first node.
fn visit(scene: &Scene) {
    let builder = Node::builder().directory(common::directory().clone());
    let visitor = builder.start().unwrap();
    let right = visitor.connect(scene.port.name()).unwrap();
    right.send(b"from a visitor").unwrap();
    let message = scene.port.receive_timeout(PATIENCE).unwrap();
    assert_eq!(message.bytes(), b"from a visitor");
    visitor.shutdown();
}

#[test]
fn quotas_are_asked_for_by_the_thread_that_sets_them_and_for_a_new_link() {
    for by_control in [false, true] {
        for deed in DEEDS {
            let case = format!("control thread {by_control}: {deed:?}");
            println!("{case}");
            let scene = Scene::new();
            let guest = Guest::new(deed, &scene.node, scene.belongings());
            let called = guest.clone();
            if !by_control {
                guest.arm();
            }
            let quotas_of = move |_: &handfast::Peer| {
                called.act();
                Quotas::new()
            };
            scene.node.set_quotas_by(quotas_of).unwrap();
            if by_control {
                guest.arm();
                visit(&scene);
            }
            assert_eq!(guest.done_by() == "handfast-ctl", by_control, "{case}");
            guest.check(&case);
            scene.works(&case);
            // The closure has the guest, which has the node.
            scene.node.set_quotas(Quotas::new()).unwrap();
            scene.end();
        }
    }
}

#[test]
fn a_closure_of_quotas_that_is_replaced_or_ends_with_its_node() {
    for is_replaced in [true, false] {
        for deed in DEEDS {
            let case = format!("replaced {is_replaced}: {deed:?}");
            println!("{case}");
            let (scene, apart) = (Scene::new(), Scene::new());
            // The node whose end this is would be kept by anything of it.
            let guest = Guest::new(deed, &apart.node, apart.belongings());
            let kept = AtDrop(guest.clone());
            let quotas_of = move |_: &handfast::Peer| {
                let _ = &kept;
                Quotas::new().rights(1000)
            };
            scene.node.set_quotas_by(quotas_of).unwrap();
            guest.arm();
            if is_replaced {
                scene.node.set_quotas(Quotas::new()).unwrap();
                guest.check(&case);
                visit(&scene);
                scene.works(&case);
                scene.end();
            } else {
                scene.works(&case);
                scene.end();
                guest.done_by();
                guest.check(&case);
            }
            apart.works(&case);
            apart.end();
        }
    }
}

#[test]
fn a_loan_is_read_by_a_closure_that_does_and_is_dropped_then() {
    for is_drop in [false, true] {
        for deed in DEEDS {
            let case = format!("drop {is_drop}: {deed:?}");
            let scene = Scene::new();
            let guest = Guest::new(deed, &scene.node, scene.belongings());
            let arena = SharedArena::create(4096, 4).unwrap();
            let block = arena.try_take(4096).unwrap();
            // The library's own node has the arena, and is its own peer.
            let port = handfast::anonymous().unwrap();
            let right = port.mint(1).connect().unwrap();
            right.with([block.into()]).send(b"").unwrap();
            let Some(Right::Loan(loan)) = port.receive().unwrap().take_rights().pop() else {
                panic!("no loan came");
            };
            let (called, kept) = (guest.clone(), is_drop.then(|| AtDrop(guest.clone())));
            guest.arm();
            let panics = panicked(|| {
                let read = loan.for_each_line(move |_| {
                    let _ = &kept;
                    if !is_drop {
                        called.act();
                    }
                });
                read.unwrap();
            });
            assert_eq!(panics, deed == Deed::Panics, "{case}");
            guest.check(&case);
            drop(loan);
            scene.works(&case);
            scene.end();
        }
    }
}
