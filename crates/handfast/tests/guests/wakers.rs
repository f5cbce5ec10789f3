//! Wakers of every future, that do each deed when they are copied, woken and dropped; in the control thread, and in threads of
//! the application.

use crate::common::{PATIENCE, within_patience};
use crate::deeds::{DEEDS, Deed, Guest, Scene, name, panicked};
use crate::hooks::{Hooks, Operation};
use handfast::error::SendError;
use handfast::{Event, Options, Request, WaitSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// An event that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A message.
    Receive,
    /// Room for a message.
    Send,
    /// A reply.
    Call,
    /// The end of a caller's patience.
    Cancelled,
}

const WAITS: [Wait; 4] = [Wait::Receive, Wait::Send, Wait::Call, Wait::Cancelled];

const CONTROL: &str = "handfast-ctl";

/// A call that the first node has received, in a set of the other one's.
struct Held {
    request: Request,
    set: WaitSet,
    call: handfast::Token,
}

/// Makes a task wait for the event.
fn prepare(scene: &Scene, wait: Wait) -> Option<Held> {
    match wait {
        Wait::Receive | Wait::Call => None,
        Wait::Send => {
            while scene.to_far.try_send(b"fills") != Err(SendError::Full) {}
            None
        }
        Wait::Cancelled => {
            let mut set = scene.other.wait_set(Options::new()).unwrap();
            let call = set.add_call(scene.to_port.try_call(b"given up").unwrap());
            let request = scene.port.receive_timeout(PATIENCE).unwrap();
            assert_eq!(request.bytes(), b"given up");
            Some(Held { request, set, call })
        }
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn task<'a>(scene: &'a Scene, wait: Wait, request: Option<&'a Request>) -> Task<'a> {
    match wait {
        Wait::Receive => Box::pin(async { drop(scene.port.receive_async().await) }),
        Wait::Send => Box::pin(async {
            let _ = scene.to_far.send_async(b"one more").await;
        }),
        Wait::Call => Box::pin(async { drop(scene.to_far.call_async(b"called").await) }),
        Wait::Cancelled => Box::pin(request.unwrap().cancelled()),
    }
}

/// Brings about what the task waits for, by the other node.
fn bring(scene: &Scene, wait: Wait, held: Option<(&mut WaitSet, handfast::Token)>) {
    match wait {
        Wait::Receive => scene.to_port.send(b"came").unwrap(),
        Wait::Send => while scene.far.receive_timeout(Duration::from_millis(1)).is_ok() {},
        Wait::Call => {
            let request = scene.far.receive_timeout(PATIENCE).unwrap();
            request.reply(b"answered").unwrap();
        }
        Wait::Cancelled => {
            let (set, call) = held.unwrap();
            assert!(set.remove(call).is_none());
        }
    }
}

fn poll(task: &mut Task<'_>, waker: &Waker) -> bool {
    task.as_mut()
        .poll(&mut Context::from_waker(waker))
        .is_ready()
}

fn ends(task: &mut Task<'_>) -> bool {
    within_patience(|| poll(task, Waker::noop()))
}

/// A wait of a task whose waker calls a guest at `operation`; `then` is given the task, and what it waits for can be brought about
/// by the second function. Afterwards all works as before.
fn each(
    operation: Operation,
    waits: &[Wait],
    then: impl Fn(&str, &Guest, &'static Hooks, Task<'_>, &mut dyn FnMut()),
) {
    for wait in waits {
        for deed in DEEDS {
            let case = format!("{wait:?}, {operation:?}: {deed:?}");
            println!("{case}");
            let scene = Scene::new();
            let guest = Guest::new(deed, &scene.node, scene.belongings());
            let hooks = Hooks::leak(operation, &guest);
            let mut held = prepare(&scene, *wait);
            let (request, mut at) = match &mut held {
                Some(held) => (Some(&held.request), Some((&mut held.set, held.call))),
                None => (None, None),
            };
            let task = task(&scene, *wait, request);
            let mut bring = || {
                let at = at.as_mut().map(|(set, call)| (&mut **set, *call));
                bring(&scene, *wait, at);
            };
            then(&case, &guest, hooks, task, &mut bring);
            guest.check(&case);
            drop(held);
            scene.works(&case);
            scene.end();
        }
    }
}

/// The deed is done by the control thread, when it wakes the task.
fn by_the_control_thread(operation: Operation, waits: &[Wait]) {
    each(operation, waits, |case, guest, hooks, mut task, bring| {
        assert!(!poll(&mut task, &hooks.waker()), "{case}");
        guest.arm();
        bring();
        assert!(hooks.is_woken(), "{case}");
        assert_eq!(guest.done_by(), CONTROL, "{case}");
        assert!(ends(&mut task), "{case}");
    });
}

#[test]
fn wakers_that_the_control_thread_wakes() {
    by_the_control_thread(Operation::Wake, &WAITS);
}

#[test]
fn wakers_that_are_copied() {
    each(
        Operation::Clone,
        &WAITS,
        |case, guest, hooks, mut task, bring| {
            guest.arm();
            let mut is_ready = false;
            let panics = panicked(|| is_ready = poll(&mut task, &hooks.waker()));
            assert!(!is_ready, "{case}");
            assert_ne!(guest.done_by(), CONTROL, "{case}");
            // A task whose poll has panicked is not polled again: that would be another panic.
            if !panics {
                bring();
                assert!(hooks.is_woken(), "{case}");
                assert!(ends(&mut task), "{case}");
            }
        },
    );
}

#[test]
fn wakers_that_a_task_replaces() {
    each(
        Operation::Drop,
        &WAITS,
        |case, guest, hooks, mut task, bring| {
            assert!(!poll(&mut task, &hooks.waker()), "{case}");
            guest.arm();
            // A panic there is that of the waker alone.
            assert!(!poll(&mut task, Waker::noop()), "{case}");
            assert_ne!(guest.done_by(), CONTROL, "{case}");
            bring();
            assert!(ends(&mut task), "{case}");
        },
    );
}

#[test]
fn wakers_of_tasks_that_find_what_they_wait_for() {
    // That of a caller's patience is dropped once it was woken.
    let waits = [Wait::Receive, Wait::Send, Wait::Call];
    each(
        Operation::Drop,
        &waits,
        |case, guest, hooks, mut task, bring| {
            let waker = hooks.waker();
            assert!(!poll(&mut task, &waker), "{case}");
            bring();
            assert!(hooks.is_woken(), "{case}");
            guest.arm();
            // With the same waker, of which one copy more may be made and dropped.
            assert!(within_patience(|| poll(&mut task, &waker)), "{case}");
            assert_ne!(guest.done_by(), CONTROL, "{case}");
        },
    );
}

#[test]
fn wakers_that_a_task_drops_with_itself() {
    each(
        Operation::Drop,
        &WAITS,
        |case, guest, hooks, mut task, _| {
            assert!(!poll(&mut task, &hooks.waker()), "{case}");
            guest.arm();
            drop(task);
            assert_ne!(guest.done_by(), CONTROL, "{case}");
        },
    );
}

#[test]
fn wakers_that_the_control_thread_drops() {
    // The wakers of the others stay with their tasks.
    by_the_control_thread(Operation::Drop, &[Wait::Receive, Wait::Cancelled]);
}

#[test]
fn wakers_that_are_woken_by_a_thread_that_shuts_the_node_down() {
    for wait in WAITS {
        for deed in DEEDS {
            let case = format!("{wait:?}, shutdown: {deed:?}");
            println!("{case}");
            let scene = Scene::new();
            // The deed is done in a third node: this one has ended.
            let apart = Scene::new();
            let guest = Guest::new(deed, &apart.node, (apart.belongings(), scene.belongings()));
            let hooks = Hooks::leak(Operation::Wake, &guest);
            let held = prepare(&scene, wait);
            let mut task = task(&scene, wait, held.as_ref().map(|held| &held.request));
            assert!(!poll(&mut task, &hooks.waker()), "{case}");
            guest.arm();
            scene.node.shutdown();
            assert!(hooks.is_woken(), "{case}");
            assert_ne!(guest.done_by(), CONTROL, "{case}");
            assert!(ends(&mut task), "{case}");
            guest.check(&case);
            apart.works(&case);
            drop(task);
            scene.end();
            apart.end();
        }
    }
}

#[test]
fn a_task_that_is_called_in_place_of_one_that_went() {
    for deed in DEEDS {
        let case = format!("{deed:?}");
        let scene = Scene::new();
        let guest = Guest::new(deed, &scene.node, scene.belongings());
        let (first, second) = (
            Hooks::leak(Operation::Clone, &guest),
            Hooks::leak(Operation::Wake, &guest),
        );
        let mut goes = task(&scene, Wait::Receive, None);
        let mut stays = task(&scene, Wait::Receive, None);
        assert!(!poll(&mut goes, &first.waker()));
        assert!(!poll(&mut stays, &second.waker()));
        scene.to_port.send(b"came").unwrap();
        assert!(first.is_woken());
        guest.arm();
        // Without a look: this thread calls the next one.
        drop(goes);
        assert!(second.is_woken());
        assert_ne!(guest.done_by(), CONTROL, "{case}");
        assert!(ends(&mut stays));
        guest.check(&case);
        drop(stays);
        scene.works(&case);
        scene.end();
    }
}

#[test]
fn tasks_that_wait_for_room_are_woken_by_a_set_that_takes_a_reply() {
    for deed in DEEDS {
        let case = format!("{deed:?}");
        let scene = Scene::new();
        let guest = Guest::new(deed, &scene.node, scene.belongings());
        let hooks = Hooks::leak(Operation::Wake, &guest);
        let mut set = scene.node.wait_set(Options::new()).unwrap();
        while let Ok(call) = scene.to_far.try_call(b"in the set") {
            set.add_call(call);
        }
        let mut waits = task(&scene, Wait::Call, None);
        assert!(!poll(&mut waits, &hooks.waker()));
        let request = scene.far.receive_timeout(PATIENCE).unwrap();
        guest.arm();
        request.reply(b"first").unwrap();
        // The control thread wakes tasks for room as well, when it looks.
        let event = set.receive_timeout(PATIENCE);
        assert!(matches!(event, Ok(Event::Reply(_, Ok(_)))), "{event:?}");
        assert!(hooks.is_woken(), "{case}");
        assert_ne!(guest.done_by(), "", "{case}");
        drop(set);
        drop(waits);
        guest.check(&case);
        scene.works(&case);
        scene.end();
    }
}

#[test]
fn a_task_that_waits_where_a_set_was() {
    for deed in DEEDS {
        let case = format!("{deed:?}");
        let scene = Scene::new();
        let guest = Guest::new(deed, &scene.node, scene.belongings());
        let hooks = Hooks::leak(Operation::Wake, &guest);
        let mut set = scene.node.wait_set(Options::new()).unwrap();
        let name = name("set");
        let token = set.add(scene.node.bind(&name).unwrap());
        let right = scene.other.connect(&name).unwrap();
        right.send(b"for the set").unwrap();
        assert!(matches!(
            set.receive_timeout(PATIENCE),
            Ok(Event::Message(..))
        ));
        let port = set.remove(token).unwrap();
        let mut waits: Task<'_> = Box::pin(async { drop(port.receive_async().await) });
        assert!(!poll(&mut waits, &hooks.waker()));
        guest.arm();
        right.send(b"for the task").unwrap();
        assert!(hooks.is_woken(), "{case}");
        assert_eq!(guest.done_by(), CONTROL, "{case}");
        assert!(ends(&mut waits));
        guest.check(&case);
        scene.works(&case);
        drop(waits);
        scene.end();
    }
}

/// Messages come at every moment of a poll: also while it prepares to wait.
#[test]
fn wakers_of_tasks_that_share_a_busy_port() {
    const MESSAGES: usize = 20_000;
    let scene = Scene::new();
    let guest = Guest::new(Deed::Uses, &scene.node, ());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for operation in [Operation::Clone, Operation::Drop] {
            let (hooks, over, port) = (Hooks::leak(operation, &guest), &over, &scene.port);
            scope.spawn(move || {
                let waker = hooks.waker();
                while !over.load(Ordering::Relaxed) {
                    let mut receive = std::pin::pin!(port.receive_async());
                    let context = &mut Context::from_waker(&waker);
                    while !over.load(Ordering::Relaxed) {
                        match receive.as_mut().poll(context) {
                            Poll::Ready(request) => {
                                let is_last = request.unwrap().bytes() == b"last";
                                over.fetch_or(is_last, Ordering::Relaxed);
                            }
                            Poll::Pending => continue,
                        }
                        break;
                    }
                }
            });
        }
        for _ in 0..MESSAGES {
            scene.to_port.send_timeout(b"next", PATIENCE).unwrap();
        }
        scene.to_port.send_timeout(b"last", PATIENCE).unwrap();
    });
    guest.arm();
    guest.act();
    guest.check("busy");
    scene.works("busy");
    scene.end();
}

#[test]
fn wakers_of_tasks_that_were_forgotten() {
    for deed in DEEDS {
        let case = format!("{deed:?}");
        let scene = Scene::new();
        let guest = Guest::new(deed, &scene.node, scene.belongings());
        let hooks = Hooks::leak(Operation::Drop, &guest);
        let port = scene.node.anonymous().unwrap();
        let mut waits: Task<'_> = Box::pin(async { drop(port.receive_async().await) });
        assert!(!poll(&mut waits, &hooks.waker()), "{case}");
        std::mem::forget(waits);
        guest.arm();
        drop(port);
        guest.done_by();
        guest.check(&case);
        scene.works(&case);
        scene.end();
    }
}
