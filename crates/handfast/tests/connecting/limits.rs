//! Limits and refusals: each has its own error, and nothing grows.

use crate::common::{self, answers};
use handfast::error::{BindError, ConnectError, SendError};
use handfast_sys::socket;
use rustix::fd::OwnedFd;
use rustix::process::{Resource, Rlimit};
use std::time::{Duration, Instant};

/// As many ports as a process can send to ports of another, and one more.
const PORTS: usize = 17;

pub(crate) fn many_ports(name: &str) {
    let bind = |number| handfast::bind(&format!("{name}-{number}")).unwrap();
    let ports: Vec<_> = (0..PORTS).map(bind).collect();
    common::say("ready");
    while common::told().is_some() {}
    drop(ports);
}

#[test]
fn who_sends_to_more_ports_than_there_are_lanes_where_nobody_receives_is_told_what_to_do() {
    let name = common::name("lanes");
    let mut server = common::start("many ports", &[&name]);
    server.expect("ready");
    let connect = |number| handfast::connect(&format!("{name}-{number}")).unwrap();
    let rights: Vec<_> = (0..PORTS).map(connect).collect();
    let (last, others) = rights.split_last().unwrap();
    for right in others {
        right.send(b"").unwrap();
    }
    let error = last.send(b"").unwrap_err();
    assert!(matches!(error, SendError::Exhausted(_)), "{error:?}");
    let told = error.to_string();
    for part in ["lanes to that process", "(limit 16)", "; send to fewer"] {
        assert!(told.contains(part), "{told}");
    }
    server.finish();
}

const VISITS: usize = 1000;

pub(crate) fn visitor(name: &str) {
    answers(name);
    let before = common::holdings_alone();
    (0..VISITS).for_each(|_| answers(name));
    let settled = || common::holdings(std::process::id()) == before;
    assert!(
        common::within_patience(settled),
        "{before:?}, then {:?}",
        common::holdings(std::process::id())
    );
    common::say("back where it was");
    while common::told().is_some() {}
}

#[test]
fn a_thousand_connects_and_disconnects_leave_no_descriptor_and_no_mapping_on_either_side() {
    let name = common::name("visits");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    answers(&name);
    let alone = common::holdings(server.pid());
    // Our own link may be on its way out.
    let start = Instant::now();
    let mut client = common::start("visitor", &[&name]);
    client.expect("back where it was");
    println!("{VISITS} visits in {:?}", start.elapsed());
    client.finish();
    let settled = || {
        common::holdings(server.pid()).0 <= alone.0 && common::holdings(server.pid()).1 <= alone.1
    };
    assert!(
        common::within_patience(settled),
        "{alone:?}, then {:?}",
        common::holdings(server.pid())
    );
}

/// Lowers the limit to `spare` descriptors more than are open, or takes all but that many.
fn leave_descriptors(spare: usize) -> Vec<OwnedFd> {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(64),
        maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(OwnedFd::from(file));
    }
    taken.truncate(taken.len() - spare);
    taken
}

pub(crate) fn client_without_descriptors(name: &str) {
    answers(name);
    let before = common::holdings_alone();
    // From none at all to one short of enough: every step on the way fails cleanly.
    for spare in 0.. {
        let taken = leave_descriptors(spare);
        let outcome = handfast::connect(name);
        drop(taken);
        match outcome {
            Err(ConnectError::Exhausted(exhausted)) => {
                assert_eq!(exhausted.limit, 64, "{exhausted}");
                let advice = exhausted.advice.unwrap_or_default();
                assert!(advice.contains("RLIMIT_NOFILE"), "{exhausted}");
            }
            Ok(right) => {
                assert!(spare >= 1, "a link without a descriptor");
                assert_eq!(
                    &*right.call_timeout(b"enough", common::PATIENCE).unwrap(),
                    b"enough"
                );
                break;
            }
            Err(error) => panic!("with {spare} descriptors left: {error:?}"),
        }
    }
    answers(name);
    assert!(common::within_patience(|| common::holdings(
        std::process::id()
    ) == before));
    common::say("recovered");
    while common::told().is_some() {}
}

pub(crate) fn newcomer_without_descriptors() {
    // From none at all to one short of enough: the node of the process does not begin, at each step of its start.
    for spare in 0.. {
        let taken = leave_descriptors(spare);
        let outcome = handfast::anonymous();
        drop(taken);
        match outcome {
            Err(BindError::Exhausted(exhausted)) => {
                assert_eq!(exhausted.limit, 64, "{exhausted}");
            }
            Ok(_) => {
                assert!(spare > 3, "a node of {spare} descriptors");
                break;
            }
            Err(error) => panic!("with {spare} descriptors left: {error:?}"),
        }
    }
    common::say("begun");
    while common::told().is_some() {}
}

#[test]
fn a_process_without_descriptors_may_use_the_library_later() {
    let mut newcomer = common::start("newcomer without descriptors", &[]);
    newcomer.expect("begun");
    newcomer.finish();
}

#[test]
fn a_client_without_descriptors_is_told_the_limit_and_recovers() {
    let name = common::name("poor-client");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let mut client = common::start("client without descriptors", &[&name]);
    client.expect("recovered");
    client.finish();
    answers(&name);
}

pub(crate) fn server_without_descriptors(name: &str) {
    let port: &'static _ = Box::leak(Box::new(handfast::bind(name).unwrap()));
    std::thread::spawn(|| {
        let mut request = port.receive().unwrap();
        loop {
            let bytes = request.bytes().to_vec();
            request = port.reply_and_receive(request, &bytes).unwrap();
        }
    });
    common::say("ready");
    let mut taken = Vec::new();
    while let Some(line) = common::told() {
        taken.clear();
        if let Ok(spare) = line.parse() {
            taken = leave_descriptors(spare);
        }
        common::say("done");
    }
}

/// Says how its connection went.
pub(crate) fn stranger(name: &str) {
    match handfast::connect(name) {
        Ok(right) => {
            right.call_timeout(b"hello", common::PATIENCE).unwrap();
            common::say("connected");
        }
        Err(error) => common::say(&format!("{error:?}")),
    }
    while common::told().is_some() {}
}

/// Connects, and says so.
pub(crate) fn connector(name: &str) {
    let _right = handfast::connect(name).unwrap();
    common::say("connected");
    while common::told().is_some() {}
}

#[test]
fn a_server_without_descriptors_refuses_and_serves_its_clients_on() {
    let name = common::name("poor-server");
    let mut server = common::start("server without descriptors", &[&name]);
    server.expect("ready");
    let old = handfast::connect(&name).unwrap();
    for spare in 0..4 {
        // Descriptors left over from the last client are no room for the next.
        common::at_rest(server.pid());
        server.tell(&spare.to_string());
        server.expect("done");
        // Another process: this one has its link already.
        let mut client = common::start("stranger", &[&name]);
        let outcome = client.line();
        println!("{spare} descriptors left: {outcome}");
        assert!(
            outcome.starts_with("Exhausted") && outcome.contains("64")
                || outcome == "connected" && spare > 2,
            "{outcome}"
        );
        client.finish();
        assert_eq!(&*old.call_timeout(b"on", common::PATIENCE).unwrap(), b"on");
    }
    server.tell("all back");
    server.expect("done");
    let mut client = common::start("stranger", &[&name]);
    client.expect("connected");
    client.finish();
    server.finish();
}

/// A server that at times may have no descriptor but the first three.
pub(crate) fn server_without_a_spare(name: &str) {
    let _port = handfast::bind(name).unwrap();
    let rich = rustix::process::getrlimit(Resource::Nofile);
    let poor = Rlimit {
        current: Some(3),
        ..rich
    };
    common::say("ready");
    while let Some(line) = common::told() {
        let limit = if line == "poor" { poor } else { rich };
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        common::say("done");
    }
}

/// Processor time of all threads of a process.
fn used_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let used = tasks.map(|task| {
        let schedule = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        schedule.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    used.sum()
}

#[test]
fn a_server_that_can_not_even_refuse_waits_for_a_descriptor_without_spinning() {
    let _alone = common::alone();
    let name = common::name("no-spare");
    let mut server = common::start("server without a spare", &[&name]);
    server.expect("ready");
    server.tell("poor");
    server.expect("done");
    let path = common::directory().join(&name);
    let waiting = socket::connect(&path, Duration::from_secs(1)).unwrap();
    let mut client = common::start("connector", &[&name]);
    let before = used_ns(server.pid());
    let window = Duration::from_millis(400);
    // Sleep: the time whose use of a processor is measured.
    std::thread::sleep(window);
    let used = used_ns(server.pid()) - before;
    assert!(u128::from(used) < window.as_nanos() / 4, "{used} ns");
    assert_eq!(client.said(), None);
    server.tell("rich");
    server.expect("done");
    client.expect("connected");
    drop(waiting);
    client.finish();
    server.finish();
}
