//! Implementations of a typed service, and values that say themselves how they travel.

use crate::common::PATIENCE;
use crate::deeds::{DEEDS, Deed, Guest, Scene, name};
use handfast::error::{Gone, SendError};
use handfast::service::CallError;
use handfast::{ReceiveRight, SendRight};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Calls the guest of its side, if there is one, when it is written or read.
#[derive(Debug)]
struct Talks;

/// Of the side that writes, and of the one that reads.
static TALKS: [Mutex<Option<Guest>>; 2] = [const { Mutex::new(None) }; 2];

fn talk(side: usize) {
    let guest = TALKS[side].lock().unwrap().clone();
    guest.as_ref().map(Guest::act).unwrap_or_default();
}

impl Serialize for Talks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        talk(0);
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Talks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        talk(1);
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

#[handfast::service]
trait Deeds {
    fn act(&self) -> u32;
    fn read(&self, talks: &Talks) -> u32;
}

#[handfast::service]
trait Later {
    async fn act(&self) -> u32;
}

struct Mine(Option<Guest>);

impl Deeds for Mine {
    fn act(&self) -> u32 {
        self.0.as_ref().map(Guest::act).unwrap_or_default();
        1
    }
    fn read(&self, _: &Talks) -> u32 {
        2
    }
}

impl Later for Mine {
    async fn act(&self) -> u32 {
        self.0.as_ref().map(Guest::act).unwrap_or_default();
        3
    }
}

/// Runs a task on this thread.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

const GONE: CallError = CallError::Send(SendError::Gone(Gone::Reply));

type Serve = fn(&ReceiveRight, &Mine);

/// The ways in which a thread serves methods, until no sender is left.
const WAYS: [(&str, Serve); 5] = [
    ("serve", |port, mine| {
        DeedsServer::serve(port, mine).unwrap()
    }),
    ("serve_async", |port, mine| {
        block_on(DeedsServer::serve_async(port, mine)).unwrap();
    }),
    ("dispatch", |port, mine| {
        loop {
            let request = port.receive_timeout(PATIENCE).unwrap();
            if request.notice().is_some() {
                return;
            }
            DeedsServer::dispatch(request, mine).unwrap();
        }
    }),
    ("tasks at once", |port, mine| {
        block_on(LaterServer::serve_async(port, mine)).unwrap();
    }),
    ("a task each", |port, mine| {
        loop {
            let request = port.receive_timeout(PATIENCE).unwrap();
            if request.notice().is_some() {
                return;
            }
            block_on(LaterServer::dispatch_async(request, mine)).unwrap();
        }
    }),
];

/// Calls twice by each way, while a guest does each deed in the first call, or in the values of `side`.
fn each(
    ways: &[(&str, Serve)],
    call: impl Fn(&str, SendRight) -> Result<u32, CallError>,
    side: Option<usize>,
) {
    for (way, serve) in ways {
        for deed in DEEDS {
            let case = format!("{way}: {deed:?}");
            println!("{case}");
            let scene = Scene::new();
            let guest = Guest::new(deed, &scene.node, scene.belongings());
            let mine = Mine(side.is_none().then(|| guest.clone()));
            if let Some(side) = side {
                *TALKS[side].lock().unwrap() = Some(guest.clone());
            }
            guest.arm();
            let name = name("service");
            let port = scene.node.bind(&name).unwrap();
            port.notify_no_senders();
            let client = scene.other.connect(&name).unwrap();
            thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let serve = || serve(&port, &mine);
                    // Again, where a method has panicked.
                    while catch_unwind(AssertUnwindSafe(serve)).is_err() {}
                });
                let [first, second] = [(); 2].map(|()| {
                    let call = || call(way, client.clone());
                    catch_unwind(AssertUnwindSafe(call))
                });
                match (deed, first) {
                    (Deed::Panics, Err(_)) => assert_eq!(side, Some(0), "{case}"),
                    (Deed::Panics, Ok(outcome)) => assert_eq!(outcome, Err(GONE), "{case}"),
                    (_, first) => assert!(matches!(first, Ok(Ok(_))), "{case}: {first:?}"),
                }
                assert!(matches!(second, Ok(Ok(_))), "{case}: {second:?}");
                drop(client);
                server.join().unwrap();
            });
            if let Some(side) = side {
                TALKS[side].lock().unwrap().take();
            }
            guest.check(&case);
            drop(port);
            scene.works(&case);
            scene.end();
        }
    }
}

#[test]
fn methods_of_a_typed_service() {
    let call = |way: &str, right| match way {
        "tasks at once" | "a task each" => LaterClient::new(right).act(),
        _ => DeedsClient::new(right).act(),
    };
    each(&WAYS, call, None);
}

#[test]
fn values_that_are_written_and_read() {
    for side in [0, 1] {
        let read = |_: &str, right| DeedsClient::new(right).read(&Talks);
        each(&WAYS[..3], read, Some(side));
    }
}
