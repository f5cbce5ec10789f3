//! Typed services between real processes.

use crate::common;
use crate::common::Child;
use crate::server::{
    AllAsyncClient, AllClient, AllServer, ChainClient, Color, LONG_BYTES_MAX, Point,
    TOO_LONG_BYTES, Tree, other,
};
use handfast::Right;
use handfast::error::{Gone, SendError};
use handfast::service::{CallError, Malformed, Refusal, Unencodable};
use std::io::Read;
use std::time::Duration;

pub(crate) fn start(what: &str) -> (Child, AllClient) {
    let name = common::name(what);
    let server = started("server", &name);
    let right = handfast::connect(&name).unwrap();
    (server, AllClient::new(right).with_timeout(common::PATIENCE))
}

fn started(role: &'static str, name: &str) -> Child {
    let server = common::start(role, &[name]);
    server.expect("ready");
    server
}

fn method(error: &CallError) -> &'static str {
    match error {
        CallError::Arguments { method, .. }
        | CallError::Refused { method, .. }
        | CallError::Reply { method, .. } => {
            assert_eq!(method.service(), "All");
            method.name()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_of_every_kind_travel_both_ways() {
    let (mut server, all) = start("values");
    all.nothing().unwrap();
    assert_eq!(
        all.numbers(254, i128::MIN + 1, 1.5, false, [1, 2, 3])
            .unwrap(),
        (255, i128::MIN, 3.0, true, [3, 2, 1])
    );
    let (color, zero) = (Color::Blue, [0; 6]);
    let point = Point {
        x: 1.0,
        y: 2.0,
        color,
        is_big: true,
        zero,
    };
    let by = Point {
        x: 0.0,
        y: 0.0,
        color: Color::Red,
        is_big: false,
        zero,
    };
    let there = all.mirror(&point, by).unwrap();
    assert_eq!(
        there,
        Point {
            x: -1.0,
            y: -2.0,
            ..point
        }
    );
    assert_eq!(all.text("grüß", "dich".to_owned()).unwrap(), "grüß, dich");
    assert_eq!(all.text("", String::new()).unwrap(), ", ");
    assert_eq!(all.bytes(&[1, 2], vec![3]).unwrap(), [1, 2, 3]);
    let names = ["a", "b"].map(str::to_owned);
    let list = all.list(&[7, u64::MAX], &names).unwrap();
    assert_eq!(
        list.into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), 7), ("b".to_owned(), u64::MAX)]
    );
    let leaf = Tree::Leaf("12".to_owned());
    assert_eq!(all.tree(&leaf, None).unwrap(), Err(Some(12)));
    assert_eq!(
        all.tree(&Tree::Leaf(String::new()), None).unwrap(),
        Err(None)
    );
    let node = Tree::Node(vec![leaf.clone(), leaf.clone()]);
    assert_eq!(all.tree(&leaf, Some(leaf.clone())).unwrap(), Ok(node));
    assert_eq!(all.names(1, "22", 4, (8, 16), Some(32)).unwrap(), 63);
    for number in 0..100 {
        all.note("note", number).unwrap();
    }
    let notes = all.notes().unwrap();
    assert!(
        notes
            .into_iter()
            .eq((0..100).map(|number| ("note".to_owned(), number)))
    );
    server.kill();
}

#[test]
fn long_values_travel_and_too_long_ones_say_so_and_harm_nothing() {
    let (mut server, all) = start("long");
    let most = handfast::LONG_BYTES_MAX;
    for len_bytes in [
        handfast::MESSAGE_BYTES_MAX as u32 - 4,
        handfast::MESSAGE_BYTES_MAX as u32 - 3,
        LONG_BYTES_MAX,
    ] {
        assert_eq!(all.long(len_bytes).unwrap().len(), len_bytes as usize);
    }
    let why_of = |result: Result<Vec<u8>, CallError>| match result {
        Ok(bytes) => panic!("{} bytes came", bytes.len()),
        Err(CallError::Refused {
            method,
            why: Refusal::Result(why),
        }) => (method.name(), why),
        Err(CallError::Arguments { method, why }) => (method.name(), why),
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(
        why_of(all.long(TOO_LONG_BYTES)),
        ("long", Unencodable::TooLong)
    );
    // Eight bytes before, four and one for the lengths.
    for len_bytes in [handfast::MESSAGE_BYTES_MAX, most - 13] {
        let bytes = vec![1; len_bytes];
        assert!(all.bytes(&bytes, Vec::new()).unwrap() == bytes);
    }
    for len_bytes in [most - 12, most, most * 2] {
        let why = why_of(all.bytes(&vec![1; len_bytes], Vec::new()));
        assert_eq!(why, ("bytes", Unencodable::TooLong));
    }
    let error = all.unknown_length().unwrap_err();
    let why = Refusal::Result(Unencodable::Value);
    assert!(
        matches!(error, CallError::Refused { why: is, .. } if is == why),
        "{error}"
    );
    all.nothing().unwrap();
    server.kill();
}

#[test]
fn memory_descriptors_and_ports_travel_in_arguments_and_results() {
    let (mut server, all) = start("memory");
    let memory = |bytes: &[u8]| handfast::Memory::from_bytes(bytes).unwrap();
    let arena = handfast::SharedArena::create(4096, 2).unwrap();
    let block = || {
        let mut block = arena.try_take(4096).unwrap();
        block.fill(5);
        block
    };
    let sums = all.sums((memory(&[1; 100_000]), Some(memory(&[2; 9]))), block());
    assert_eq!(sums.unwrap(), [100_000, 18, 4096 * 5]);
    assert_eq!(
        all.sums((memory(&[3]), None), block()).unwrap()[..2],
        [3, 0]
    );
    let sealed = all.seal("ab", 50_000).unwrap().unwrap();
    assert_eq!(sealed.bytes(), "ab".repeat(50_000).as_bytes());
    assert_eq!(all.seal("ab", 0).unwrap().unwrap_err(), 7);

    let path = std::env::temp_dir().join(common::name("file"));
    std::fs::write(&path, "written").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let (text, mut again) = all
        .read(Right::Descriptor(file.into()))
        .map(|(text, file)| (text, std::fs::File::from(file)))
        .unwrap();
    assert_eq!(text, "written");
    // One file position for both.
    let mut rest = String::new();
    again.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    std::fs::remove_file(&path).unwrap();

    let name = common::name("adopted");
    let port = handfast::bind(&name).unwrap();
    let sender = port.mint(3);
    let port = all.adopt(port).unwrap();
    assert_eq!(port.name(), name);
    drop(sender);
    // Another kind than was asked for.
    let error = all.adopt(memory(&[1])).unwrap_err();
    assert!(matches!(error, CallError::Refused { .. }), "{error:?}");
    server.kill();
}

#[test]
fn rights_travel_in_arguments_and_results() {
    let (mut server, all) = start("rights");
    let minted = [7, 8, 9].map(|badge| all.mint(badge).unwrap());
    let [a, b, c] = minted.clone().map(Right::from);
    assert_eq!(all.badges((a, b), Some(c)).unwrap(), [7, 8, 9]);
    let [a, b, _] = minted.clone().map(Right::from);
    assert_eq!(all.badges((b, a), None).unwrap(), [8, 7]);
    // A client may be made of any right to the service.
    AllClient::new(minted[1].clone()).nothing().unwrap();

    let mine = handfast::bind(&common::name("callback")).unwrap();
    let Right::Own(back) = all.use_it(mine.mint(5), "hello").unwrap().unwrap() else {
        panic!("not mine");
    };
    assert!(back.is_to(&mine));
    let said = mine.receive_timeout(common::PATIENCE).unwrap();
    assert_eq!((said.badge(), said.bytes()), (5, &b"hello"[..]));
    let [first, other] = [6, 7].map(|badge| mine.mint_once(badge).unwrap());
    all.once((first, Some(other)))
        .unwrap()
        .send(b"other")
        .unwrap();
    for (badge, bytes) in [(6, &b"first"[..]), (7, b"other")] {
        let said = mine.receive_timeout(common::PATIENCE).unwrap();
        assert!(said.is_send_once());
        assert_eq!((said.badge(), said.bytes()), (badge, bytes));
    }
    assert_eq!(
        all.use_it(mine.mint(5), "").unwrap().unwrap_err(),
        "no word"
    );
    assert_eq!(all.either(false).unwrap().unwrap_err(), 513);
    let (one, nine, two) = all.either(true).unwrap().unwrap();
    assert_eq!(
        (nine, all.badges((two.into(), one.into()), None).unwrap()),
        (9, vec![2, 1])
    );
    let (five, home) = all.home(mine.mint(6)).unwrap();
    assert!(matches!((five, home), (5, Right::Own(own)) if own.badge() == 6));
    // The server answers a call that came to us.
    std::thread::scope(|scope| {
        let own = handfast::connect(mine.name()).unwrap();
        let caller = scope.spawn(move || own.call_timeout(b"ask", common::PATIENCE));
        let request = mine.receive_timeout(common::PATIENCE).unwrap();
        let (_, call) = request.split();
        assert!(all.answer(call.unwrap(), "told").unwrap());
        assert_eq!(&*caller.join().unwrap().unwrap(), b"told");
    });
    // Sent one-way, and gone with the server.
    mine.notify_no_senders();
    all.keep(mine.mint(7)).unwrap();
    drop((back, said));
    all.nothing().unwrap();
    assert!(mine.receive_timeout(Duration::from_millis(30)).is_err());
    server.kill();
    assert!(
        mine.receive_timeout(common::PATIENCE)
            .unwrap()
            .notice()
            .is_some()
    );
}

#[test]
fn a_right_of_the_wrong_kind_is_refused() {
    let (mut server, all) = start("kinds");
    let mine = handfast::bind(&common::name("kinds-mine")).unwrap();
    // The server wants its own back, and gets others'.
    let error = all
        .badges((mine.mint(1).into(), mine.mint(2).into()), None)
        .unwrap_err();
    let why = Refusal::Arguments(Malformed::Rights);
    assert!(
        matches!(error, CallError::Refused { why: is, .. } if is == why),
        "{error}"
    );
    assert_eq!(method(&error), "badges");
    // It wants a callback, and gets its own.
    let own = all.mint(3).unwrap();
    let error = all.use_it(own, "x").unwrap_err();
    assert!(
        matches!(error, CallError::Refused { why: is, .. } if is == why),
        "{error}"
    );
    all.nothing().unwrap();
    server.kill();
}

#[test]
fn another_version_of_the_trait_is_told_so() {
    let (mut server, all) = start("version");
    let old = other::AllClient::new(all.right().clone());
    let error = old.nothing(1).unwrap_err();
    let serves = AllServer::SERVICE.fingerprint();
    let why = Refusal::OtherService { serves };
    assert!(
        matches!(error, CallError::Refused { why: is, .. } if is == why),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with("All.nothing was refused") && text.contains(&format!("{serves:012x}")),
        "{text}"
    );
    all.nothing().unwrap();
    server.kill();
}

#[test]
fn a_method_that_panics_ends_its_call_and_no_other() {
    let (mut server, all) = start("panic");
    for _ in 0..3 {
        assert_eq!(
            all.fails().unwrap_err(),
            CallError::Send(SendError::Gone(Gone::Reply))
        );
        all.nothing().unwrap();
    }
    server.kill();
}

#[test]
fn a_server_that_is_killed_in_a_method_or_is_slow_is_told_of() {
    let (mut server, all) = start("killed");
    let quick = all.clone().with_timeout(Duration::from_millis(20));
    assert_eq!(
        quick.waits().unwrap_err(),
        CallError::Send(SendError::TimedOut)
    );
    server.expect("waiting");
    let caller = std::thread::spawn(move || all.nothing());
    server.kill();
    assert_eq!(
        caller.join().unwrap().unwrap_err(),
        CallError::Send(SendError::Gone(Gone::Process))
    );
    assert_eq!(
        quick.nothing().unwrap_err(),
        CallError::Send(SendError::Gone(Gone::Process))
    );
    let (mut server, all) = start("killed-inside");
    let caller = std::thread::spawn(move || all.waits());
    server.expect("waiting");
    server.kill();
    assert_eq!(
        caller.join().unwrap().unwrap_err(),
        CallError::Send(SendError::Gone(Gone::Process))
    );
}

#[test]
fn tasks_call_as_threads_do() {
    tasks_call("server");
}

#[test]
fn tasks_serve_as_threads_do() {
    tasks_call("tasks");
}

fn tasks_call(role: &'static str) {
    let name = common::name(role);
    let mut server = started(role, &name);
    let all = AllAsyncClient::new(handfast::connect(&name).unwrap());
    let mine = handfast::bind(&common::name(&format!("{role}-mine"))).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        all.nothing().await.unwrap();
        let numbers = all.numbers(1, 2, 3.0, true, [4, 5, 6]).await.unwrap();
        assert_eq!(numbers, (2, 1, 6.0, false, [6, 5, 4]));
        let text = all.text("a", "b".to_owned()).await.unwrap();
        assert_eq!(text, "a, b");
        let first = all.mint(7).await.unwrap();
        let badges = all.badges((first.clone().into(), first.into()), None);
        assert_eq!(badges.await.unwrap(), [7, 7]);
        let home = all.use_it(mine.mint(5), "x").await.unwrap().unwrap();
        assert!(matches!(home, Right::Own(own) if own.badge() == 5));
        all.note("note", 3).await.unwrap();
        all.keep(mine.mint(6)).await.unwrap();
        assert_eq!(all.notes().await.unwrap(), [("note".to_owned(), 3)]);
        let error = all.fails().await.unwrap_err();
        assert_eq!(error, CallError::Send(SendError::Gone(Gone::Reply)));
        let error = all
            .use_it(all.mint(1).await.unwrap(), "x")
            .await
            .unwrap_err();
        assert_eq!(method(&error), "use_it");
        // Futures of stubs may be spawned, and one that is dropped gives its call up.
        let tasks = (0..64u8).map(|number| {
            let all = all.clone();
            tokio::spawn(async move { all.bytes(&[number], vec![1]).await })
        });
        for (number, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(task.await.unwrap().unwrap(), [number as u8, 1]);
        }
        let waits = tokio::time::timeout(Duration::from_millis(20), all.waits());
        assert!(waits.await.is_err());
        server.expect("waiting");
        let dies = tokio::spawn({
            let all = all.clone();
            async move { all.nothing().await }
        });
        tokio::task::yield_now().await;
        server.kill();
        let gone = CallError::Send(SendError::Gone(Gone::Process));
        assert_eq!(dies.await.unwrap(), Err(gone));
    });
}

#[test]
fn calls_of_a_method_end_when_its_caller_gives_up_waiting() {
    let name = common::name("chained");
    let _server = started("chain", &name);
    let right = handfast::connect(&name).unwrap();
    let chain = ChainClient::new(right.clone()).with_timeout(common::PATIENCE);
    let brief = ChainClient::new(right).with_timeout(Duration::from_millis(100));
    let mute = handfast::anonymous().unwrap();
    // The inner call ends first, and its end is told if there is time.
    let timed_out = "Err(Send(TimedOut))";
    // All of its time may have passed before it has made that.
    assert!(common::within_patience(|| {
        match brief.call(mute.mint(0)) {
            Ok(inner) => assert_eq!(inner, timed_out),
            outer => assert_eq!(outer, Err(CallError::Send(SendError::TimedOut))),
        }
        // The server's one thread would still wait there.
        let called = chain.called().unwrap();
        assert!(called.iter().all(|inner| inner == timed_out), "{called:?}");
        mute.try_receive().is_ok()
    }));
    // The next caller has more time.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let next = loop {
                let next = mute.receive().unwrap();
                if !next.is_cancelled() {
                    break next;
                }
            };
            // Sleep: stands for work.
            std::thread::sleep(Duration::from_millis(200));
            next.reply(&[0]).unwrap();
        });
        assert_eq!(chain.call(mute.mint(0)).unwrap(), "Ok(())");
    });
}
