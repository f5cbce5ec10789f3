//! Nodes: several of them in one process, each with ports, links, names and an end of its own.

pub(crate) mod shutdown;

use crate::common::{self, PATIENCE, within_patience};
use handfast::error::{
    BindError, ConnectError, Gone, Misuse, ReceiveError, ReplyError, RightError, SendError,
    SetError,
};
use handfast::{Counters, Node, Options, ReceiveRight, Right, SendRight, Strategy};
use std::path::PathBuf;
use std::thread::JoinHandle;

/// A node whose names lie where those of the tests do.
fn node() -> Node {
    node_in(common::directory().clone())
}

fn node_in(directory: PathBuf) -> Node {
    Node::builder().directory(directory).start().unwrap()
}

/// Answers each call with its bytes in capitals and the badge it came by, and gives back the rights that came; until its node
/// ends, or the port has moved.
fn serve(port: ReceiveRight) -> JoinHandle<ReceiveError> {
    std::thread::spawn(move || {
        loop {
            let mut request = match port.receive() {
                Ok(request) => request,
                Err(error) => return error,
            };
            if request.notice().is_some() {
                continue;
            }
            let rights = request.take_rights();
            let text = String::from_utf8(request.bytes().to_ascii_uppercase()).unwrap();
            let answer = format!("{text} {}", request.badge());
            let _ = request.reply_with(answer.as_bytes(), rights);
        }
    })
}

fn call(right: &SendRight, text: &str) -> String {
    String::from_utf8(
        right
            .call_timeout(text.as_bytes(), PATIENCE)
            .unwrap()
            .to_vec(),
    )
    .unwrap()
}

fn send(right: Right) -> SendRight {
    match right {
        Right::Send(right) => right,
        other => panic!("{other:?}"),
    }
}

const SHUT: Misuse = Misuse::Shutdown;

#[test]
fn nodes_of_one_process_call_one_another_and_give_one_another_rights() {
    let (server, client) = (node(), node());
    let name = common::name("pair");
    let port = server.bind(&name).unwrap();
    let minted = port.mint(7);
    let thread = serve(port);
    let right = client.connect(&name).unwrap();
    assert_eq!(call(&right, "by name"), "BY NAME 0");
    // One of the client's, to the server and back.
    let own = client.anonymous().unwrap();
    let mine = own.mint(3);
    let mut answer = right
        .with([mine.clone().into()])
        .call(b"there and back")
        .unwrap();
    let back = answer.take_rights().pop().unwrap();
    assert!(
        matches!(&back, Right::Own(own) if own.badge() == 3),
        "{back:?}"
    );
    let thread_of_own = serve(own);
    // One of the server's, in an answer.
    let giver = server.bind(&common::name("giver")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = giver.receive().unwrap();
            request.reply_with(b"", [minted.into()]).unwrap();
        });
        let giver = client.connect(&common::name("giver")).unwrap();
        let given = send(giver.call(b"").unwrap().take_rights().pop().unwrap());
        assert_eq!(call(&given, "given"), "GIVEN 7");
    });
    client.shutdown();
    server.shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
    assert_eq!(thread_of_own.join().unwrap(), ReceiveError::Misuse(SHUT));
}

#[test]
fn a_right_that_a_node_in_the_middle_gives_works_when_that_node_has_ended() {
    let (exporter, middle, recipient) = (node(), node(), node());
    let (far, near) = (common::name("far"), common::name("near"));
    let port = exporter.bind(&far).unwrap();
    let served = serve(port);
    let giver = middle.bind(&near).unwrap();
    let to_far = middle.connect(&far).unwrap();
    let thread = std::thread::spawn(move || {
        let request = giver.receive().unwrap();
        request.reply_with(b"", [to_far.clone().into()]).unwrap();
        // Its node keeps the way until it ends.
        giver.receive().unwrap_err()
    });
    let to_middle = recipient.connect(&near).unwrap();
    let given = send(
        to_middle
            .call(b"give")
            .unwrap()
            .take_rights()
            .pop()
            .unwrap(),
    );
    assert_eq!(call(&given, "first"), "FIRST 0");
    // Direct: nothing goes through the middle any more. Two calls: the middle counts one that it has passed on before it takes
    // the next.
    let passed_on = || {
        let rows = to_middle.counters().unwrap().links;
        let of = |row: &Vec<u64>| Counters::value(row, "vines") + Counters::value(row, "forwards");
        rows.iter().map(of).sum::<u64>()
    };
    assert!(within_patience(|| {
        let before = passed_on();
        call(&given, "more");
        call(&given, "more");
        passed_on() == before
    }));
    middle.shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
    assert_eq!(
        to_middle.call(b"").unwrap_err(),
        SendError::Gone(Gone::Process)
    );
    assert_eq!(call(&given, "last"), "LAST 0");
    exporter.shutdown();
    assert_eq!(served.join().unwrap(), ReceiveError::Misuse(SHUT));
    recipient.shutdown();
}

#[test]
fn a_node_that_makes_no_links_with_strangers_depends_on_the_node_in_the_middle() {
    let (exporter, middle) = (node(), node());
    let builder = Node::builder().directory(common::directory().clone());
    let options = Options::new().strategy(Strategy::Block);
    let builder = builder.options(options).direct_introductions(false);
    let recipient = builder.start().unwrap();
    let (far, near) = (common::name("shy-far"), common::name("shy-near"));
    let served = serve(exporter.bind(&far).unwrap());
    let giver = middle.bind(&near).unwrap();
    let to_far = middle.connect(&far).unwrap();
    let to_middle = recipient.connect(&near).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = giver.receive().unwrap();
            request.reply_with(b"", [to_far.clone().into()]).unwrap();
        });
        let mut answer = to_middle.call(b"give").unwrap();
        let given = send(answer.take_rights().pop().unwrap());
        for _ in 0..50 {
            assert_eq!(call(&given, "through"), "THROUGH 0");
        }
        middle.shutdown();
        let lost = given.call(b"lost").unwrap_err();
        assert_eq!(lost, SendError::Gone(Gone::Process));
    });
    exporter.shutdown();
    recipient.shutdown();
    assert_eq!(served.join().unwrap(), ReceiveError::Misuse(SHUT));
}

#[test]
fn a_port_moves_from_node_to_node_and_its_senders_follow() {
    let (old, new, sender) = (node(), node(), node());
    let (name, home) = (common::name("moving"), common::name("home"));
    let port = old.bind(&name).unwrap();
    let right = sender.connect(&name).unwrap();
    let homes = new.bind(&home).unwrap();
    let thread = std::thread::spawn(move || {
        let mut request = homes.receive().unwrap();
        let Some(Right::Receive(port)) = request.take_rights().pop() else {
            panic!("no port");
        };
        request.reply(b"taken").unwrap();
        serve(port).join().unwrap()
    });
    let to_new = old.connect(&home).unwrap();
    to_new.with([port.into()]).call(b"take it").unwrap();
    assert_eq!(call(&right, "followed"), "FOLLOWED 0");
    drop(to_new);
    assert!(old.wait_moved_timeout(PATIENCE));
    old.shutdown();
    assert_eq!(call(&right, "alone"), "ALONE 0");
    new.shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
    sender.shutdown();
}

#[test]
fn a_name_that_was_taken_up_is_free_after_a_shutdown() {
    let (old, new, third) = (node(), node(), node());
    let (name, home) = (common::name("taken-up"), common::name("taken-up-home"));
    let port = old.bind(&name).unwrap();
    let homes = new.bind(&home).unwrap();
    let to_new = old.connect(&home).unwrap();
    to_new.with([port.into()]).send(b"take it").unwrap();
    let mut request = homes.receive().unwrap();
    let Some(Right::Receive(mut port)) = request.take_rights().pop() else {
        panic!("no port");
    };
    port.take_up_name().unwrap();
    drop(to_new);
    assert!(old.wait_moved_timeout(PATIENCE));
    let right = third.connect(&name).unwrap();
    right.send(b"up").unwrap();
    assert_eq!(port.receive().unwrap().bytes(), b"up");
    new.shutdown();
    // While the receive right is still there.
    let nobody = third.connect_timeout(&name, PATIENCE).unwrap_err();
    assert!(
        matches!(nobody, ConnectError::ServerDead { .. }),
        "{nobody}"
    );
    let again = third.bind(&name).unwrap();
    drop((port, again, request, homes));
    old.shutdown();
    third.shutdown();
}

#[test]
fn a_port_under_way_at_the_shutdown_has_not_moved() {
    let (old, new) = (node(), node());
    let home = common::name("under-way");
    let _homes = new.bind(&home).unwrap();
    let to_new = old.connect(&home).unwrap();
    let port = old.anonymous().unwrap();
    let minted = port.mint(1);
    to_new.with([port.into()]).send(b"never received").unwrap();
    let waiting = old.clone();
    let waiter = std::thread::spawn(move || waiting.wait_moved_timeout(PATIENCE));
    assert!(!old.wait_moved_timeout(std::time::Duration::from_millis(1)));
    old.shutdown();
    assert!(!waiter.join().unwrap());
    assert!(!old.wait_moved_timeout(PATIENCE));
    let connected = minted.connect().unwrap_err();
    assert!(
        matches!(
            connected,
            ConnectError::Misuse(SHUT) | ConnectError::Gone(_)
        ),
        "{connected}"
    );
    new.shutdown();
}

/// Refusing such a message claims its right, which asked for locks in the wrong order; debug builds check that.
#[test]
fn a_message_with_a_third_nodes_right_is_refused_when_its_port_goes() {
    let (exporter, sender, receiver) = (node(), node(), node());
    let (name, port) = (common::name("third"), common::name("going"));
    let thread = serve(exporter.bind(&name).unwrap());
    let known = receiver.connect(&name).unwrap();
    let _ = call(&known, "linked");
    let own = sender.connect(&name).unwrap();
    for _ in 0..40 {
        let going = receiver.bind(&port).unwrap();
        let right = sender.connect(&port).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| while right.with([own.clone().into()]).try_send(b"late").is_ok() {});
            std::thread::yield_now();
            drop(going);
            // Refuses what comes for a port that has gone.
            for _ in 0..5 {
                drop(receiver.anonymous().unwrap());
            }
        });
    }
    let _ = call(&own, "still there");
    for node in [sender, receiver, exporter] {
        node.shutdown();
    }
    thread.join().unwrap();
}

#[test]
fn rights_of_another_node_are_refused_and_come_back() {
    let (one, other) = (node(), node());
    let name = common::name("foreign");
    let thread = serve(one.bind(&name).unwrap());
    let (by_one, by_other) = (one.connect(&name).unwrap(), other.connect(&name).unwrap());
    let port = other.anonymous().unwrap();
    let foreign: [Right; 2] = [port.mint(1).into(), by_other.clone().into()];
    for right in foreign {
        // Twice: what has been sent once goes another way.
        for _ in 0..2 {
            let sent = by_one.with([clone_of(&right)]).call(b"x");
            let returned = sent.unwrap_err();
            assert_eq!(returned.error, SendError::Right(RightError::OtherNode));
            assert_eq!(returned.rights.len(), 1);
            by_other.with([clone_of(&right)]).call(b"x").unwrap();
        }
    }
    let returned = by_one.with([port.into()]).call(b"x").unwrap_err();
    assert_eq!(returned.error, SendError::Right(RightError::OtherNode));
    let Right::Receive(port) = returned.rights.into_iter().next().unwrap() else {
        panic!("it is gone");
    };
    // A call that came to one node is not passed on by another.
    let to_port = port.mint(0).connect().unwrap();
    let caller = std::thread::spawn(move || call(&to_port, "call"));
    let request = port.receive().unwrap();
    let failed = request.forward(&by_one, b"on").unwrap_err();
    assert_eq!(failed.error, SendError::Right(RightError::OtherNode));
    failed.request.reply(b"answered here").unwrap();
    assert_eq!(caller.join().unwrap(), "answered here");
    one.shutdown();
    other.shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
}

fn clone_of(right: &Right) -> Right {
    match right {
        Right::Own(own) => own.clone().into(),
        Right::Send(send) => send.clone().into(),
        other => panic!("{other:?}"),
    }
}

#[test]
#[should_panic(expected = "a port of another node")]
fn a_wait_set_takes_ports_of_its_own_node_only() {
    let (one, other) = (node(), node());
    let mut set = one.wait_set(Options::new()).unwrap();
    set.add(other.anonymous().unwrap());
}

#[test]
fn a_shutdown_ends_every_wait_with_its_error_and_frees_the_name() {
    let (server, client) = (node(), node());
    let name = common::name("ending");
    let port = server.bind(&name).unwrap();
    let right = client.connect(&name).unwrap();
    let asleep = [server.anonymous().unwrap(), server.anonymous().unwrap()];
    let mut set = server.wait_set(Options::new()).unwrap();
    set.add(server.anonymous().unwrap());
    std::thread::scope(|scope| {
        // A caller, a receiver by each way to wait, a follower of another receiver, a set, a task.
        let (sent, is_sent) = std::sync::mpsc::channel();
        let caller = scope.spawn(|| right.call(b"never answered").unwrap_err());
        let held = port.receive().unwrap();
        let other = scope.spawn(|| right.call(b"nor this").unwrap_err());
        let with_right = port.receive().unwrap();
        let receivers = asleep.each_ref().map(|port| {
            let sent = sent.clone();
            scope.spawn(move || {
                sent.send(()).unwrap();
                port.receive().unwrap_err()
            })
        });
        let follower = scope.spawn(|| asleep[0].receive().unwrap_err());
        let waits = scope.spawn(|| set.receive().unwrap_err());
        receivers.iter().for_each(|_| is_sent.recv().unwrap());
        server.shutdown();
        for thread in [caller, other] {
            assert_eq!(thread.join().unwrap(), SendError::Gone(Gone::Process));
        }
        for thread in receivers {
            assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
        }
        assert_eq!(follower.join().unwrap(), ReceiveError::Misuse(SHUT));
        assert_eq!(waits.join().unwrap(), ReceiveError::Misuse(SHUT));
        // Its caller is there still: it is this node that answers no more.
        let shut = ReplyError::Misuse(SHUT);
        assert_eq!(held.reply(b"late").unwrap_err(), shut);
        assert_eq!(with_right.reply_with(b"late", []).unwrap_err().error, shut);
    });
    assert_eq!(port.try_receive().unwrap_err(), ReceiveError::Misuse(SHUT));
    assert!(matches!(port.readiness(), Err(SetError::Misuse(SHUT))));
    assert_eq!(set.try_receive().unwrap_err(), ReceiveError::Misuse(SHUT));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let received = runtime.block_on(port.receive_async());
    assert_eq!(received.unwrap_err(), ReceiveError::Misuse(SHUT));
    assert!(matches!(server.bind("x"), Err(BindError::Misuse(SHUT))));
    assert!(matches!(server.anonymous(), Err(BindError::Misuse(SHUT))));
    assert!(matches!(
        server.connect("x"),
        Err(ConnectError::Misuse(SHUT))
    ));
    // Nobody is there; another may have the name, while the old right lives.
    assert!(matches!(
        client.connect(&name),
        Err(ConnectError::ServerDead { .. })
    ));
    let thread = serve(client.bind(&name).unwrap());
    assert_eq!(call(&client.connect(&name).unwrap(), "again"), "AGAIN 0");
    drop(port);
    assert_eq!(call(&client.connect(&name).unwrap(), "still"), "STILL 0");
    client.shutdown();
    client.shutdown();
    assert_eq!(thread.join().unwrap(), ReceiveError::Misuse(SHUT));
}

#[test]
fn directories_are_each_nodes_own() {
    let place = common::directory().join("nodes");
    let other = common::directory().join("others");
    std::fs::create_dir(&place).unwrap();
    std::fs::create_dir(&other).unwrap();
    let (one, two) = (node_in(place.clone()), node_in(other));
    assert_eq!(one.directory(), place);
    let of_default = node_in(PathBuf::new());
    assert_eq!(of_default.directory(), PathBuf::from("/run/handfast"));
    of_default.shutdown();
    let (first, second) = (one.bind("same").unwrap(), two.bind("same").unwrap());
    let (first, second) = (serve(first), serve(second));
    let client = node_in(place);
    assert_eq!(call(&client.connect("same").unwrap(), "one"), "ONE 0");
    two.shutdown();
    assert_eq!(second.join().unwrap(), ReceiveError::Misuse(SHUT));
    assert_eq!(
        call(&client.connect("same").unwrap(), "one still"),
        "ONE STILL 0"
    );
    one.shutdown();
    assert_eq!(first.join().unwrap(), ReceiveError::Misuse(SHUT));
    client.shutdown();
}

#[test]
fn a_process_has_links_with_each_node_of_another() {
    let name = common::name("echo");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let nodes = [node(), node(), node()];
    let rights: Vec<_> = nodes
        .iter()
        .flat_map(|node| [node.connect(&name).unwrap(), node.connect(&name).unwrap()])
        .collect();
    for right in &rights {
        assert_eq!(call(right, "x"), "x");
    }
    let rows = rights[0].counters().unwrap().links;
    let is_ours =
        |row: &&Vec<u64>| Counters::value(row, "peer_pid") == u64::from(std::process::id());
    assert_eq!(rows.iter().filter(is_ours).count(), nodes.len());
    nodes[0].shutdown();
    for (place, right) in rights.iter().enumerate() {
        let outcome = right.call(b"y").map(|reply| reply.to_vec());
        match place {
            0 | 1 => assert_eq!(outcome, Err(SendError::Misuse(SHUT))),
            _ => assert_eq!(outcome.unwrap(), b"y"),
        }
    }
    drop(rights);
    nodes.iter().for_each(Node::shutdown);
}
