//! A service with every kind of method, and its server.

use crate::common;
use handfast::{Loan, Memory, OwnRight, ReceiveRight, ReplyRight, Right, SendOnceRight, SendRight};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Tree {
    Leaf(String),
    Node(Vec<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, TryFromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) color: Color,
    pub(crate) is_big: bool,
    pub(crate) zero: [u8; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, TryFromBytes, IntoBytes, Immutable)]
#[repr(u8)]
pub(crate) enum Color {
    Red = 1,
    Blue = 7,
}

#[handfast::service]
pub(crate) trait All {
    fn nothing(&self);
    fn numbers(
        &self,
        a: u8,
        b: i128,
        c: f32,
        d: bool,
        e: [u16; 3],
    ) -> (u8, i128, f32, bool, [u16; 3]);
    #[fixed]
    fn mirror(&self, point: &Point, by: Point) -> Point;
    fn text(&self, text: &str, owned: String) -> String;
    fn bytes(&self, view: &[u8], owned: Vec<u8>) -> Vec<u8>;
    fn list(&self, numbers: &[u64], names: &[String]) -> BTreeMap<String, u64>;
    fn tree(&self, tree: &Tree, option: Option<Tree>) -> Result<Tree, Option<u32>>;
    fn long(&self, len_bytes: u32) -> Vec<u8>;
    fn unknown_length(&self) -> Endless;
    fn fails(&self);
    fn waits(&self) -> u8;
    #[oneway]
    fn note(&self, note: &str, number: u32);
    fn notes(&self) -> Vec<(String, u32)>;

    /// Names that the generated code has, too.
    fn names(&self, method: u8, output: &str, input: u8, part0: (u8, u8), inner: Option<u8>)
    -> u32;
    fn mint(&self, badge: u64) -> OwnRight;
    fn badges(&self, rights: (OwnRight, OwnRight), other: Option<OwnRight>) -> Vec<u64>;
    fn use_it(&self, callback: SendRight, word: &str) -> Result<Right, String>;
    fn either(&self, give: bool) -> Result<(OwnRight, u8, OwnRight), u16>;
    fn home(&self, right: SendRight) -> (u8, SendRight);
    fn answer(&self, call: ReplyRight, text: &str) -> bool;
    fn sums(&self, memory: (Memory, Option<Memory>), lent: Loan) -> [u64; 3];
    fn seal(&self, text: &str, times: u32) -> Result<Memory, u8>;
    fn read(&self, file: OwnedFd) -> (String, OwnedFd);
    fn adopt(&self, port: ReceiveRight) -> ReceiveRight;
    fn once(&self, rights: (SendOnceRight, Option<SendOnceRight>)) -> SendOnceRight;
    #[oneway]
    fn keep(&self, right: Right);
}

/// As a trait of this name may have looked in another version.
pub(crate) mod other {
    #[handfast::service]
    pub(crate) trait All {
        fn nothing(&self, it_has: u8);
    }
}

/// Its `Serialize` gives sequences without a length, which postcard does not have.
#[derive(Debug, Deserialize)]
pub(crate) struct Endless;

impl Serialize for Endless {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        serializer.serialize_seq(None)?.end()
    }
}

/// A hostile caller asks for any length.
pub(crate) const LONG_BYTES_MAX: u32 = 8 << 20;
/// But for this one: no reply is that long.
pub(crate) const TOO_LONG_BYTES: u32 = handfast::LONG_BYTES_MAX as u32;

#[derive(Default)]
pub(crate) struct Server<'a> {
    port: Option<&'a ReceiveRight>,
    notes: Mutex<Vec<(String, u32)>>,
    kept: Mutex<Vec<Right>>,
}

impl Server<'_> {
    fn port(&self) -> &ReceiveRight {
        self.port.unwrap()
    }
}

impl All for Server<'_> {
    fn nothing(&self) {}

    fn numbers(
        &self,
        a: u8,
        b: i128,
        c: f32,
        d: bool,
        e: [u16; 3],
    ) -> (u8, i128, f32, bool, [u16; 3]) {
        (a + 1, b - 1, c * 2.0, !d, [e[2], e[1], e[0]])
    }

    fn mirror(&self, point: &Point, by: Point) -> Point {
        let (x, y) = (by.x - point.x, by.y - point.y);
        Point { x, y, ..*point }
    }

    fn text(&self, text: &str, owned: String) -> String {
        format!("{text}, {owned}")
    }

    fn bytes(&self, view: &[u8], owned: Vec<u8>) -> Vec<u8> {
        [view, &owned].concat()
    }

    fn list(&self, numbers: &[u64], names: &[String]) -> BTreeMap<String, u64> {
        names.iter().cloned().zip(numbers.iter().copied()).collect()
    }

    fn tree(&self, tree: &Tree, option: Option<Tree>) -> Result<Tree, Option<u32>> {
        match (tree, option) {
            (tree, Some(other)) => Ok(Tree::Node(vec![tree.clone(), other])),
            (Tree::Leaf(text), None) => Err(text.parse().ok()),
            (tree, None) => Ok(tree.clone()),
        }
    }

    fn long(&self, len_bytes: u32) -> Vec<u8> {
        let len_bytes = match len_bytes {
            TOO_LONG_BYTES => len_bytes,
            _ => len_bytes.min(LONG_BYTES_MAX),
        };
        vec![7; len_bytes as usize]
    }

    fn unknown_length(&self) -> Endless {
        Endless
    }

    fn fails(&self) {
        panic!("on purpose");
    }

    fn waits(&self) -> u8 {
        common::say("waiting");
        loop {
            std::thread::park();
        }
    }

    fn note(&self, note: &str, number: u32) {
        self.notes.lock().unwrap().push((note.to_owned(), number));
    }

    fn notes(&self) -> Vec<(String, u32)> {
        self.notes.lock().unwrap().clone()
    }

    fn names(
        &self,
        method: u8,
        output: &str,
        input: u8,
        part0: (u8, u8),
        inner: Option<u8>,
    ) -> u32 {
        let reply = [method, input, part0.0, part0.1, inner.unwrap_or(0)];
        reply.into_iter().map(u32::from).sum::<u32>() + output.len() as u32
    }

    fn mint(&self, badge: u64) -> OwnRight {
        self.port().mint(badge)
    }

    fn badges(&self, rights: (OwnRight, OwnRight), other: Option<OwnRight>) -> Vec<u64> {
        let rights = [Some(rights.0), Some(rights.1), other];
        rights.iter().flatten().map(OwnRight::badge).collect()
    }

    fn use_it(&self, callback: SendRight, word: &str) -> Result<Right, String> {
        if word.is_empty() {
            return Err("no word".to_owned());
        }
        callback.send(word.as_bytes()).unwrap();
        Ok(callback.into())
    }

    fn either(&self, give: bool) -> Result<(OwnRight, u8, OwnRight), u16> {
        if give {
            Ok((self.mint(1), 9, self.mint(2)))
        } else {
            Err(513)
        }
    }

    fn home(&self, right: SendRight) -> (u8, SendRight) {
        (5, right)
    }

    fn answer(&self, call: ReplyRight, text: &str) -> bool {
        call.reply(text.as_bytes()).is_ok()
    }

    fn sums(&self, memory: (Memory, Option<Memory>), lent: Loan) -> [u64; 3] {
        let sum = |bytes: &[u8]| bytes.iter().copied().map(u64::from).sum();
        let (one, other) = memory;
        [
            sum(one.bytes()),
            other.map_or(0, |other| sum(other.bytes())),
            sum(&lent.to_vec().unwrap()),
        ]
    }

    fn seal(&self, text: &str, times: u32) -> Result<Memory, u8> {
        match times {
            1..=50_000 => Ok(Memory::from_bytes(text.repeat(times as usize).as_bytes()).unwrap()),
            _ => Err(7),
        }
    }

    fn read(&self, file: OwnedFd) -> (String, OwnedFd) {
        let mut file = File::from(file);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        (text, file.into())
    }

    fn adopt(&self, port: ReceiveRight) -> ReceiveRight {
        port
    }

    fn once(&self, (first, other): (SendOnceRight, Option<SendOnceRight>)) -> SendOnceRight {
        first.send(b"first").unwrap();
        other.unwrap()
    }

    fn keep(&self, right: Right) {
        self.kept.lock().unwrap().push(right);
    }
}

/// Serves, and goes on after a method has panicked.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    let server = Server {
        port: Some(&port),
        ..Server::default()
    };
    common::say("ready");
    // The stage's hook would end the process.
    std::panic::set_hook(Box::new(|_| {}));
    loop {
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            AllServer::serve(&port, &server)
        }));
        assert!(served.is_err(), "{served:?}");
    }
}

/// As [`server`], by tasks.
pub(crate) fn tasks(name: &str) {
    let port: &'static ReceiveRight = Box::leak(Box::new(handfast::bind(name).unwrap()));
    let server: &'static Server<'_> = Box::leak(Box::new(Server {
        port: Some(port),
        ..Server::default()
    }));
    common::say("ready");
    // The stage's hook would end the process.
    std::panic::set_hook(Box::new(|_| {}));
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let serve = async || {
            loop {
                let served = tokio::spawn(AllServer::serve_async(port, server)).await;
                assert!(served.is_err(), "{served:?}");
            }
        };
        tokio::join!(serve(), serve(), serve());
    });
}

#[handfast::service]
pub(crate) trait Chain {
    /// Calls in turn.
    fn call(&self, next: SendRight) -> String;
    /// The outcomes of such calls.
    fn called(&self) -> Vec<String>;
    fn end(&self);
}

#[derive(Default)]
struct MyChain(Mutex<Vec<String>>);

impl Chain for MyChain {
    fn call(&self, next: SendRight) -> String {
        let called = format!("{:?}", ChainClient::new(next).end());
        self.0.lock().unwrap().push(called.clone());
        called
    }

    fn called(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn end(&self) {}
}

/// Serves `Chain`, by one thread.
pub(crate) fn chain(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    ChainServer::serve(&port, &MyChain::default()).unwrap();
}
