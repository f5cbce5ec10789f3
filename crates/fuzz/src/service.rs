//! Arguments and results of typed services, from callers and servers that make up theirs.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use handfast::{OwnRight, ReceiveRight, ReplyRight, Right, SendRight};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use zerocopy::{Immutable, IntoBytes, TryFromBytes};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tree {
    Leaf(String),
    Node(Vec<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, TryFromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Point {
    x: f64,
    color: Color,
    is_big: bool,
    zero: [u8; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, TryFromBytes, IntoBytes, Immutable)]
#[repr(u8)]
enum Color {
    Red = 1,
    Blue = 7,
}

/// Every kind of value.
#[handfast::service]
trait All {
    fn numbers(&self, a: u8, b: i128, c: bool, d: [u16; 3]) -> (u8, i128, bool, [u16; 3]);
    #[fixed]
    fn mirror(&self, point: &Point, by: Point) -> Point;
    fn text(&self, text: &str, owned: String) -> String;
    fn bytes(&self, view: &[u8], owned: Vec<u8>) -> Vec<u8>;
    fn list(&self, numbers: &[u64], names: &[String]) -> BTreeMap<String, u64>;
    fn tree(&self, tree: &Tree, option: Option<Tree>) -> Result<Tree, Option<u32>>;
    fn rights(&self, right: Option<Right>, call: Option<ReplyRight>) -> Result<OwnRight, u16>;
    #[oneway]
    fn note(&self, note: &str, number: u32);
}

const METHODS: u8 = 8;

struct Server;

impl All for Server {
    fn numbers(&self, a: u8, b: i128, c: bool, d: [u16; 3]) -> (u8, i128, bool, [u16; 3]) {
        (a, b, c, d)
    }

    fn mirror(&self, point: &Point, by: Point) -> Point {
        // Whatever else their bytes were.
        assert!(matches!(by.color, Color::Red | Color::Blue));
        *point
    }

    fn text(&self, text: &str, owned: String) -> String {
        owned + text
    }

    fn bytes(&self, view: &[u8], mut owned: Vec<u8>) -> Vec<u8> {
        owned.extend(view);
        owned
    }

    fn list(&self, numbers: &[u64], names: &[String]) -> BTreeMap<String, u64> {
        names.iter().cloned().zip(numbers.iter().copied()).collect()
    }

    fn tree(&self, tree: &Tree, option: Option<Tree>) -> Result<Tree, Option<u32>> {
        match (tree, option) {
            (Tree::Leaf(_), Some(option)) => Ok(option),
            (Tree::Leaf(text), None) => Ok(Tree::Leaf(text.clone())),
            (Tree::Node(children), _) => Err(Some(children.len() as u32)),
        }
    }

    fn rights(&self, right: Option<Right>, call: Option<ReplyRight>) -> Result<OwnRight, u16> {
        Err(u16::from(right.is_some()) + u16::from(call.is_some()))
    }

    fn note(&self, _: &str, _: u32) {}
}

struct Both {
    port: ReceiveRight,
    right: SendRight,
    client: AllAsyncClient,
    /// The first word of requests, but for the number of the method.
    word: u64,
}

thread_local! {
    static BOTH: Both = Both::new();
}

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first byte says for which method this is; what follows is its arguments or its result.
pub fn service(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    BOTH.with(|both| match first & 0x80 {
        0 => both.serve(u64::from(first % (METHODS + 1)), bytes),
        _ => both.call(first % METHODS, bytes),
    });
}

impl Both {
    fn new() -> Self {
        let port = handfast::anonymous().expect("a port");
        let right = port.mint(1).connect().expect("a right to it");
        let client = AllAsyncClient::new(right.clone());
        let call = client.numbers(1, 2, true, [3; 3]);
        assert!(
            pin!(call)
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        let request = port.receive_timeout(PATIENCE).expect("the call");
        let word = request
            .bytes()
            .first_chunk()
            .expect("what requests begin with");
        let word = u64::from_le_bytes(*word) & !0xffff;
        Self {
            port,
            right,
            client,
            word,
        }
    }

    /// A caller that makes up the arguments is answered.
    fn serve(&self, method: u64, bytes: &[u8]) {
        let word = self.word | method;
        let bytes = [&word.to_le_bytes(), bytes].concat();
        let is_call = method + 1 != u64::from(METHODS);
        if !is_call {
            self.right.send(&bytes).expect("there is room");
            let request = self.port.receive_timeout(PATIENCE).expect("the message");
            let _ = AllServer::dispatch(request, &Server);
            return;
        }
        let Ok(call) = self.right.try_call(&bytes) else {
            assert!(bytes.len() > handfast::MESSAGE_BYTES_MAX);
            return;
        };
        let request = self.port.receive_timeout(PATIENCE).expect("the call");
        assert_eq!(AllServer::dispatch(request, &Server), Ok(()));
        let answer = call.wait_timeout(PATIENCE).expect("an answer");
        assert!(!answer.is_empty(), "no status");
    }

    /// A server that makes up the result has given one, or the caller is told.
    fn call(&self, method: u8, bytes: &[u8]) {
        let color = if bytes.len().is_multiple_of(2) {
            Color::Red
        } else {
            Color::Blue
        };
        let point = Point {
            x: 1.0,
            color,
            is_big: true,
            zero: [0; 6],
        };
        let leaf = Tree::Leaf(String::new());
        match method {
            0 => self.answered(self.client.numbers(1, 2, true, [3; 3]), bytes),
            1 => self.answered(self.client.mirror(&point, point), bytes),
            2 => self.answered(self.client.text("a", "b".into()), bytes),
            3 => self.answered(self.client.bytes(&[1], vec![2]), bytes),
            4 => self.answered(self.client.list(&[1], &[]), bytes),
            5 => self.answered(self.client.tree(&leaf, None), bytes),
            _ => self.answered(self.client.rights(None::<Right>, None), bytes),
        }
    }

    fn answered<T>(&self, call: impl Future<Output = T>, bytes: &[u8]) {
        let mut call = pin!(call);
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        let request = self.port.receive_timeout(PATIENCE).expect("the call");
        let _ = request.reply(&bytes[..bytes.len().min(handfast::MESSAGE_BYTES_MAX)]);
        assert!(matches!(call.poll(&mut context), Poll::Ready(_)));
    }
}
