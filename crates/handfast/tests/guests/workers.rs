//! Handlers of a port that is served on every CPU, and their drops.

use crate::closures::AtDrop;
use crate::common::{PATIENCE, within_patience};
use crate::deeds::{DEEDS, Deed, Guest, Scene, name};
use handfast::error::{Gone, SendError};
use handfast::{PerCpu, SendRight};
use std::sync::{Arc, Mutex};

/// A server of the first node, and the other node's right to it.
fn serve(
    scene: &Scene,
    handler: impl Fn() + Send + Sync + 'static,
) -> (Arc<Mutex<Option<PerCpu>>>, SendRight) {
    let name = name("workers");
    let served = scene
        .node
        .bind(&name)
        .unwrap()
        .serve_per_cpu(move |worker, request| {
            handler();
            let _ = worker.reply(request, b"handled");
        });
    let server = Arc::new(Mutex::new(Some(served.unwrap())));
    (server, scene.other.connect(&name).unwrap())
}

fn end(server: &Mutex<Option<PerCpu>>) {
    let server = server.lock().unwrap().take();
    drop(server);
}

#[test]
fn a_handler_that_does_in_its_worker() {
    for deed in DEEDS {
        for drops_itself in [false, true] {
            let case = format!("drops itself {drops_itself}: {deed:?}");
            println!("{case}");
            let scene = Scene::new();
            let own: Arc<Mutex<Option<PerCpu>>> = Arc::default();
            let belongings = (scene.belongings(), own.clone());
            let guest = Guest::new(deed, &scene.node, belongings);
            let (called, at_work) = (guest.clone(), own.clone());
            let (server, right) = serve(&scene, move || {
                called.act();
                if drops_itself {
                    end(&at_work);
                }
            });
            if drops_itself {
                *own.lock().unwrap() = server.lock().unwrap().take();
            }
            guest.arm();
            let answered = right
                .call_timeout(b"do", PATIENCE)
                .map(|answer| answer.to_vec());
            match deed {
                Deed::Panics => assert_eq!(answered, Err(SendError::Gone(Gone::Reply)), "{case}"),
                _ if drops_itself => {}
                _ => assert_eq!(answered.as_deref(), Ok(&b"handled"[..]), "{case}"),
            }
            guest.check(&case);
            assert_eq!(guest.done_by(), "handfast-worker", "{case}");
            if !drops_itself {
                let answered = right.call_timeout(b"again", PATIENCE).unwrap();
                assert_eq!(*answered, *b"handled", "{case}");
            }
            end(&server);
            end(&own);
            scene.works(&case);
            scene.end();
        }
    }
}

#[test]
fn a_handler_that_is_dropped_by_the_application() {
    for is_used in [false, true] {
        for deed in DEEDS {
            let case = format!("used {is_used}: {deed:?}");
            let scene = Scene::new();
            let guest = Guest::new(deed, &scene.node, scene.belongings());
            let kept = AtDrop(guest.clone());
            let (server, right) = serve(&scene, move || {
                let _ = &kept;
            });
            if is_used {
                right.call_timeout(b"do", PATIENCE).unwrap();
            }
            guest.arm();
            let dropped = std::thread::spawn(move || end(&server));
            assert!(within_patience(|| dropped.is_finished()), "{case}");
            // Its panic ends nothing but itself.
            dropped.join().unwrap();
            guest.check(&case);
            scene.works(&case);
            scene.end();
        }
    }
}

#[test]
fn a_handler_that_is_dropped_by_the_last_worker() {
    for deed in DEEDS {
        let case = format!("{deed:?}");
        let scene = Scene::new();
        let guest = Guest::new(deed, &scene.node, scene.belongings());
        let kept = AtDrop(guest.clone());
        let own: Arc<Mutex<Option<PerCpu>>> = Arc::default();
        let at_work = own.clone();
        let (server, right) = serve(&scene, move || {
            let _ = &kept;
            end(&at_work);
        });
        *own.lock().unwrap() = server.lock().unwrap().take();
        guest.arm();
        // It ends as the port does, or is answered before.
        let _ = right.call_timeout(b"the last", PATIENCE);
        // The control thread may hold it as long, to look for messages.
        assert!(guest.done_by().starts_with("handfast-"), "{case}");
        guest.check(&case);
        scene.works(&case);
        scene.end();
    }
}
