//! Receiving by tasks and by descriptors, from senders in other processes.

pub(crate) mod scenes;

use crate::common;
use crate::common::{Child, Random};
use handfast::error::{Gone, ReceiveError, SendError};
use handfast::{Notice, ReceiveRight, Request};
use handfast_sys::poll::{Poll as Epoll, Trigger};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// Makes so many calls, now back to back and now with pauses between them, and checks the replies.
pub(crate) fn caller(name: &str, calls: u64) {
    let port = handfast::connect(name).unwrap();
    let mut random = Random::of(std::process::id().into());
    common::say("ready");
    while common::told().is_some() {
        for call in 0..calls {
            if random.below(20) == 0 {
                // No synchronisation: the server falls asleep meanwhile, or nearly.
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
            let bytes = common::content(random.below(200) as usize, call);
            let reply = port.call_timeout(&bytes, common::PATIENCE).unwrap();
            assert_eq!(*reply, *bytes);
        }
        common::say("done");
    }
}

/// Sends numbers, one way.
pub(crate) fn sender(name: &str, messages: u64) {
    let port = handfast::connect(name).unwrap();
    let mut random = Random::of(std::process::id().into());
    common::say("ready");
    while common::told().is_some() {
        for number in 0..messages {
            if random.below(50) == 0 {
                // Sleep: a moment chosen at random.
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
            port.send_timeout(&number.to_le_bytes(), common::PATIENCE)
                .unwrap();
        }
        common::say("done");
    }
}

/// Holds a right until it is told to drop it.
pub(crate) fn holds(name: &str) {
    let port = handfast::connect(name).unwrap();
    common::say("ready");
    common::told();
    drop(port);
    common::say("dropped");
    common::told();
}

/// Rings for every receiver, and for none, as fast as it can.
pub(crate) fn rings(name: &str) {
    let _port = handfast::connect(name).unwrap();
    let socket = common::link_socket();
    common::say("ready");
    let flags = rustix::net::SendFlags::DONTWAIT;
    for receiver in (0..=u8::MAX).cycle() {
        let _ = rustix::net::send(&socket, &[1, receiver], flags);
    }
}

/// A server that waits: in a task, or for its descriptor.
pub(crate) fn sleeper(name: &str, how: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    if how == "task" {
        block_on(async {
            loop {
                answer(port.receive_async().await.unwrap());
            }
        });
    }
    let poll = Epoll::new().unwrap();
    poll.add(port.readiness().unwrap(), 0, Trigger::Level)
        .unwrap();
    loop {
        poll.wait(None, &mut Vec::new());
        while let Ok(request) = port.try_receive() {
            answer(request);
        }
    }
}

fn answer(mut request: Request) {
    let message = request.take_message();
    if request.is_call() {
        // Its caller may have been killed.
        let _ = request.reply(&message);
    }
}

/// An executor of a few lines: one task, on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A port's descriptor, as tokio waits for it.
fn readiness(port: &ReceiveRight) -> AsyncFd<OwnedFd> {
    let descriptor = port.readiness().unwrap().try_clone_to_owned().unwrap();
    // SAFETY: it owns its descriptor, which nobody else closes or replaces.
    unsafe { AsyncFd::register(descriptor) }.unwrap()
}

fn bind(what: &str) -> (Arc<ReceiveRight>, String) {
    let name = common::name(what);
    (Arc::new(handfast::bind(&name).unwrap()), name)
}

fn start(role: &'static str, name: &str, count: u64) -> Child {
    let child = common::start(role, &[name, &count.to_string()]);
    child.expect("ready");
    child
}

#[test]
fn futures_can_be_sent_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn is_sync<T: Sync>() {}
    is_sync::<ReceiveRight>();
    is_sync::<Request>();
    let (port, name) = bind("send");
    is_send(&port.receive_async());
    is_send(&async { port.receive_async().await.map(answer) });
    let client = handfast::connect(&name).unwrap();
    is_send(&client.call_async(b"now"));
}

#[test]
fn tasks_on_tokio_share_a_port_and_each_message_goes_to_one() {
    let (port, name) = bind("shared");
    let mut callers: Vec<_> = (0..3).map(|_| start("caller", &name, 2000)).collect();
    let served: Arc<[AtomicU64; 4]> = Arc::default();
    let runtime = common::runtime(2);
    for task in 0..4 {
        let (port, served) = (port.clone(), served.clone());
        runtime.spawn(async move {
            loop {
                answer(port.receive_async().await.unwrap());
                served[task].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    callers.iter_mut().for_each(|caller| caller.tell("go"));
    callers.iter().for_each(|caller| caller.expect("done"));
    let served: Vec<_> = served
        .iter()
        .map(|served| served.load(Ordering::Relaxed))
        .collect();
    println!("served {served:?}");
    assert!(served.iter().all(|served| *served > 0));
    // A reply is counted after the caller has it.
    assert!(served.iter().sum::<u64>() + 4 >= 6000);
}

#[test]
fn a_task_without_any_runtime_receives() {
    let (port, name) = bind("alone");
    let mut caller = start("caller", &name, 2000);
    caller.tell("go");
    block_on(async {
        for _ in 0..2000 {
            answer(port.receive_async().await.unwrap());
        }
    });
    caller.expect("done");
}

#[test]
fn a_sleeping_task_is_woken_by_the_post_and_not_by_a_clock() {
    for how in ["task", "descriptor"] {
        let name = common::name(how);
        let server = common::start("sleeper", &[&name, how]);
        server.expect("ready");
        let port = handfast::connect(&name).unwrap();
        let mut pace = common::Pace::new();
        let mut delays: Vec<_> = (0..60)
            .map(|_| {
                pace.look();
                // Sleep: the server sleeps by then, or is about to.
                std::thread::sleep(Duration::from_millis(2));
                let posted = Instant::now();
                port.call_timeout(b"awake?", common::PATIENCE).unwrap();
                posted.elapsed()
            })
            .collect();
        let (middle, _, longest) = common::spread(&mut delays);
        println!("{how}: answered after {middle:?}, {longest:?} at the longest");
        // A caller that sleeps is looked after every 50 ms anyway.
        let limit = pace.allows(Duration::from_millis(20));
        assert!(middle < limit, "{how}: {middle:?}, {limit:?}");
        // And while nothing comes nobody wakes up.
        assert!(common::within_patience(|| {
            let before = switches(server.pid());
            // Sleep: the time in which no thread may wake up.
            std::thread::sleep(Duration::from_millis(200));
            switches(server.pid()) == before
        }));
    }
}

/// Context switches of all threads of a process.
fn switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        let counts = counts.filter_map(|line| line.split_whitespace().nth(1));
        counts
            .map(|count| count.parse::<u64>().unwrap())
            .sum::<u64>()
    };
    tasks.map(|task| of(task.unwrap())).sum()
}

#[test]
fn the_descriptor_works_with_tokio() {
    let (port, name) = bind("readiness");
    let mut callers: Vec<_> = (0..3).map(|_| start("caller", &name, 2000)).collect();
    let runtime = common::runtime(2);
    runtime.spawn(async move {
        let readiness = readiness(&port);
        loop {
            let mut ready = readiness.readable().await.unwrap();
            // One at a time, as a loop that is fair to others does it.
            match port.try_receive() {
                Ok(request) => answer(request),
                Err(ReceiveError::Empty) => ready.clear_ready(),
                Err(error) => panic!("{error}"),
            }
        }
    });
    callers.iter_mut().for_each(|caller| caller.tell("go"));
    callers.iter().for_each(|caller| caller.expect("done"));
}

#[test]
fn a_future_that_is_dropped_loses_no_message_whoever_comes_and_goes() {
    const MESSAGES: u64 = 20_000;
    let (port, name) = bind("dropped");
    let mut senders: Vec<_> = (0..2).map(|_| start("sender", &name, MESSAGES)).collect();
    let seed = Random::seeded("dropped receivers").next();
    let seen: Arc<Mutex<HashSet<(u32, u64)>>> = Arc::default();
    let runtime = common::runtime(3);
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let (port, seen) = (port.clone(), seen.clone());
            let mut random = Random::of(seed + task);
            runtime.spawn(async move {
                loop {
                    let brief = Duration::from_micros(random.below(2000));
                    let Ok(received) = tokio::time::timeout(brief, port.receive_async()).await
                    else {
                        continue;
                    };
                    let request = received.unwrap();
                    let number = u64::from_le_bytes(request.bytes().try_into().unwrap());
                    let peer = request.peer().pid;
                    assert!(seen.lock().unwrap().insert((peer, number)), "twice");
                    if random.below(100) == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    senders.iter_mut().for_each(|sender| sender.tell("go"));
    senders.iter().for_each(|sender| sender.expect("done"));
    let all = || seen.lock().unwrap().len() as u64 == 2 * MESSAGES;
    assert!(common::within_patience(all));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn tasks_threads_and_a_descriptor_at_one_port_leave_no_call_unanswered() {
    let (port, name) = bind("mixed");
    let mut callers: Vec<_> = (0..3).map(|_| start("caller", &name, 300)).collect();
    let mut random = Random::seeded("mixed receivers");
    let runtime = common::runtime(2);
    let end = Instant::now() + common::campaign(3);
    while Instant::now() < end {
        let stop = Arc::new(AtomicBool::new(false));
        let (tasks, threads) = (random.below(4), random.below(3));
        let looped = random.below(2) == 0 || tasks + threads == 0;
        let brief = random.below(2) == 0;
        let seed = random.next();
        let tasks: Vec<_> = (0..tasks)
            .map(|task| {
                let (port, stop) = (port.clone(), stop.clone());
                let mut random = Random::of(seed + task);
                runtime.spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let timeout = match brief {
                            true => Duration::from_micros(random.below(1000)),
                            false => Duration::from_millis(5),
                        };
                        if let Ok(received) =
                            tokio::time::timeout(timeout, port.receive_async()).await
                        {
                            answer(received.unwrap());
                        }
                    }
                })
            })
            .collect();
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (port, stop) = (port.clone(), stop.clone());
                let mut random = Random::of(!seed + thread);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let timeout = match brief {
                            true => Duration::from_micros(random.below(1000)),
                            false => Duration::from_millis(5),
                        };
                        match port.receive_timeout(timeout) {
                            Ok(request) => answer(request),
                            Err(ReceiveError::TimedOut) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let readiness = looped.then(|| {
            let (port, stop) = (port.clone(), stop.clone());
            runtime.spawn(async move {
                let readiness = readiness(&port);
                while !stop.load(Ordering::Relaxed) {
                    let tick = Duration::from_millis(5);
                    let Ok(ready) = tokio::time::timeout(tick, readiness.readable()).await else {
                        continue;
                    };
                    let mut ready = ready.unwrap();
                    match port.try_receive() {
                        Ok(request) => answer(request),
                        Err(_) => ready.clear_ready(),
                    }
                }
            })
        });
        callers.iter_mut().for_each(|caller| caller.tell("go"));
        callers.iter().for_each(|caller| caller.expect("done"));
        stop.store(true, Ordering::Relaxed);
        runtime.block_on(async {
            for task in tasks.into_iter().chain(readiness) {
                task.await.unwrap();
            }
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn callers_that_are_killed_midway_disturb_no_other() {
    let (port, name) = bind("killed");
    let runtime = common::runtime(2);
    for _ in 0..3 {
        let port = port.clone();
        runtime.spawn(async move {
            loop {
                answer(port.receive_async().await.unwrap());
            }
        });
    }
    let mut random = Random::seeded("killed callers");
    let mut survivor = start("caller", &name, 3000);
    survivor.tell("go");
    for _ in 0..12 {
        let mut victim = start("caller", &name, 1_000_000);
        victim.tell("go");
        // No synchronisation: at any moment.
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        victim.kill();
    }
    survivor.expect("done");
}

#[test]
fn a_peer_that_rings_for_nothing_all_the_time_delays_others_and_no_more() {
    let (port, name) = bind("rings");
    let runtime = common::runtime(2);
    for _ in 0..2 {
        let port = port.clone();
        runtime.spawn(async move {
            loop {
                answer(port.receive_async().await.unwrap());
            }
        });
    }
    let _hostile = start("rings", &name, 0);
    let mut caller = start("caller", &name, 500);
    caller.tell("go");
    caller.expect("done");
}

#[test]
fn a_server_of_tasks_that_is_killed_leaves_typed_errors() {
    let name = common::name("dies");
    let mut server = common::start("sleeper", &[&name, "task"]);
    server.expect("ready");
    let port = handfast::connect(&name).unwrap();
    port.call_timeout(b"there?", common::PATIENCE).unwrap();
    let calling = std::thread::spawn(move || {
        loop {
            if let Err(error) = port.call_timeout(b"more", common::PATIENCE) {
                return error;
            }
        }
    });
    server.kill();
    assert_eq!(calling.join().unwrap(), SendError::Gone(Gone::Process));
}

#[test]
fn notices_come_to_tasks_and_make_the_descriptor_readable() {
    for by_descriptor in [false, true] {
        let (port, name) = bind(&format!("notice-{by_descriptor}"));
        let holder = common::start("holds", &[&name]);
        holder.expect("ready");
        port.notify_no_senders();
        let runtime = common::runtime(1);
        let waiting = runtime.spawn(async move {
            if !by_descriptor {
                return port.receive_async().await.unwrap().notice();
            }
            let readiness = readiness(&port);
            loop {
                let mut ready = readiness.readable().await.unwrap();
                match port.try_receive() {
                    Ok(request) => return request.notice(),
                    Err(_) => ready.clear_ready(),
                }
            }
        });
        // A holder that is killed counts as well.
        let mut holder = holder;
        match by_descriptor {
            true => holder.kill(),
            false => holder.tell("drop"),
        }
        let notice = runtime.block_on(async {
            let ended = tokio::time::timeout(common::PATIENCE, waiting).await;
            ended.expect("no notice").unwrap()
        });
        assert_eq!(notice, Some(Notice::NoSenders));
    }
}
