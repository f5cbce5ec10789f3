//! The deeds of an application's code where the library calls it.

use crate::common::{self, PATIENCE, within_patience};
use handfast::{Node, ReceiveRight, Right, SendRight};
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Panics,
    /// Makes, uses and ends ports and rights.
    Uses,
    /// Drops all that it has of the library.
    Drops,
}

pub(crate) const DEEDS: [Deed; 3] = [Deed::Panics, Deed::Uses, Deed::Drops];

/// Code of the application: does its deed once, when it is called for the first time after [`Self::arm`], and looks at each call
/// whether the library holds a lock.
#[derive(Clone)]
pub(crate) struct Guest(Arc<State>);

struct State {
    deed: Deed,
    node: Node,
    belongings: Mutex<Option<Box<dyn Any + Send>>>,
    is_armed: AtomicBool,
    /// The name of the thread that has done the deed.
    done_by: Mutex<Option<String>>,
    /// Said of the first call under a lock.
    trouble: Mutex<Option<String>>,
}

impl Guest {
    pub(crate) fn new(deed: Deed, node: &Node, belongings: impl Any + Send) -> Self {
        hush();
        Self(Arc::new(State {
            deed,
            node: node.clone(),
            belongings: Mutex::new(Some(Box::new(belongings))),
            is_armed: AtomicBool::new(false),
            done_by: Mutex::default(),
            trouble: Mutex::default(),
        }))
    }

    /// The next call does the deed.
    pub(crate) fn arm(&self) {
        self.0.is_armed.store(true, Ordering::SeqCst);
    }

    /// Called by the library.
    pub(crate) fn act(&self) {
        let state = &*self.0;
        let thread = thread::current().name().unwrap_or("unnamed").to_owned();
        // Looks in debug builds, as those of the tests are.
        if catch_unwind(handfast_sys::sync::check_none_held).is_err() {
            let at = std::backtrace::Backtrace::force_capture();
            let said = format!("the library holds a lock in the thread {thread}: {at}");
            state.trouble.lock().unwrap().get_or_insert(said);
        }
        // Not while a failed test unwinds: a second panic would hide the first.
        if thread::panicking() || !state.is_armed.swap(false, Ordering::SeqCst) {
            return;
        }
        match state.deed {
            Deed::Panics => {
                *state.done_by.lock().unwrap() = Some(thread);
                panic!("this guest panics");
            }
            Deed::Uses => assert!(uses(&state.node), "it is called by itself"),
            Deed::Drops => {
                let belongings = state.belongings.lock().unwrap().take();
                drop(belongings);
            }
        }
        *state.done_by.lock().unwrap() = Some(thread);
    }

    /// The name of the thread that has done the deed, which it has by now, or soon.
    pub(crate) fn done_by(&self) -> String {
        let done_by = || self.0.done_by.lock().unwrap().clone();
        assert!(within_patience(|| done_by().is_some()), "not called");
        done_by().unwrap()
    }

    /// It has done its deed, and the library held no lock at any call.
    pub(crate) fn check(&self, case: &str) {
        assert!(
            !self.0.is_armed.load(Ordering::SeqCst),
            "{case}: never called"
        );
        let trouble = self.0.trouble.lock().unwrap().take();
        assert!(trouble.is_none(), "{case}: {}", trouble.unwrap_or_default());
        assert!(!self.done_by().is_empty(), "{case}");
    }
}

/// Panics of guests say nothing.
pub(crate) fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let said = panic.to_string();
            // The second is the look for a lock, which is reported with a trace.
            if !said.contains("this guest panics") && !said.contains("the lock of an application") {
                usual(panic);
            }
        }));
    });
}

pub(crate) fn panicked(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Makes, uses and drops ports and rights. False within itself, where it does nothing.
pub(crate) fn uses(node: &Node) -> bool {
    thread_local! {
        static IS_USING: Cell<bool> = const { Cell::new(false) };
    }
    if IS_USING.replace(true) {
        return false;
    }
    let port = node.anonymous().unwrap();
    let right = port.mint(1).connect().unwrap();
    let other = node.anonymous().unwrap();
    let rights = vec![Right::from(other.mint(3)), right.clone().into()];
    right.with(rights).send(b"by a guest").unwrap();
    let mut received = port.try_receive().unwrap();
    assert_eq!(received.bytes(), b"by a guest");
    drop((received.take_rights(), other));
    port.revoke(1);
    drop(port);
    drop(right);
    IS_USING.set(false);
    true
}

/// A name of its own each time.
pub(crate) fn name(of: &str) -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    common::name(&format!("{of}-{number}"))
}

/// Two nodes of this process, each with a port and a right to the other's.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) port: ReceiveRight,
    /// To `port`, of the other node.
    pub(crate) to_port: SendRight,
    pub(crate) other: Node,
    pub(crate) far: ReceiveRight,
    /// To `far`, of the first node.
    pub(crate) to_far: SendRight,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let start = || {
            let builder = Node::builder().directory(common::directory().clone());
            builder.start().unwrap()
        };
        let (node, other) = (start(), start());
        let names = ["near", "far"].map(name);
        let (port, far) = (
            node.bind(&names[0]).unwrap(),
            other.bind(&names[1]).unwrap(),
        );
        Self {
            to_port: other.connect(&names[0]).unwrap(),
            to_far: node.connect(&names[1]).unwrap(),
            node,
            port,
            other,
            far,
        }
    }

    /// All kinds of things of the first node: rights, ports, a call in hand, a send-once right.
    pub(crate) fn belongings(&self) -> impl Any + Send + use<> {
        let port = self.node.anonymous().unwrap();
        let right = port.mint(1).connect().unwrap();
        right.send(b"unread").unwrap();
        let own = port.mint(2);
        let once = port.mint_once(3).unwrap();
        let far = self.to_far.clone();
        // A call that is dropped unanswered.
        let mut set = self.other.wait_set(handfast::Options::new()).unwrap();
        set.add_call(self.to_port.try_call(b"held").unwrap());
        let request = self.port.receive_timeout(PATIENCE).unwrap();
        assert_eq!(request.bytes(), b"held");
        (far, request, set, (own, once, right), port)
    }

    /// Calls go both ways, and tasks are woken. Calls from before may wait there, and are dropped.
    pub(crate) fn works(&self, case: &str) {
        for (port, right) in [(&self.port, &self.to_port), (&self.far, &self.to_far)] {
            let answered = thread::scope(|scope| {
                scope.spawn(|| {
                    while let Ok(request) = port.receive_timeout(PATIENCE) {
                        if request.bytes() == b"there?" {
                            return request.reply(b"still").unwrap();
                        }
                    }
                });
                right
                    .call_timeout(b"there?", PATIENCE)
                    .map(|answer| answer.to_vec())
            });
            assert_eq!(answered.as_deref(), Ok(&b"still"[..]), "{case}");
        }
    }

    pub(crate) fn end(self) {
        let Self { node, other, .. } = &self;
        node.shutdown();
        other.shutdown();
    }
}
