//! Typed services in domains, and rights that go in and out of them: the client is the same as a process's.

use crate::common::{self, within_patience};
use handfast::domain::{
    CallContext, Domain, DomainOptions, Heap, Isolation, LoadError, Port, Table,
};
use handfast::error::{DomainError, Gone, SendError};
use handfast::service::{CallError, Refusal};
use handfast::{Notice, OwnRight, ReceiveRight, Right, SendRight};
use rustix::event::{PollFd, PollFlags};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

#[handfast::service]
trait Book {
    fn add(&self, number: u64) -> u64;
    fn shout(&self, text: &str) -> String;
    #[oneway]
    fn note(&self, number: u64);
    fn fail(&self);
    /// Calls the client back, and answers with what that says.
    fn ask(&self, whom: SendRight, text: &str) -> String;
    /// A right to this service, with a badge of its own.
    fn page(&self) -> OwnRight;
    /// The badge of such a right.
    fn number_of(&self, page: OwnRight) -> u64;
    fn keep(&self, right: Right);
    fn back(&self) -> Option<Right>;
    fn long(&self) -> String;
}

/// The other trait with methods of the same names.
mod other {
    #[handfast::service]
    pub(crate) trait Book {
        fn add(&self, number: u32) -> u64;
    }
}

struct Pages {
    sum: AtomicU64,
    kept: std::sync::Mutex<Option<Right>>,
}

impl Pages {
    const fn new() -> Self {
        Self {
            sum: AtomicU64::new(0),
            kept: std::sync::Mutex::new(None),
        }
    }
}

static PAGE: OnceLock<OwnRight> = OnceLock::new();

impl Book for Pages {
    fn add(&self, number: u64) -> u64 {
        self.sum.fetch_add(number, Ordering::Relaxed) + number
    }
    fn shout(&self, text: &str) -> String {
        text.to_uppercase()
    }
    fn note(&self, number: u64) {
        self.add(number);
    }
    fn fail(&self) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn ask(&self, whom: SendRight, text: &str) -> String {
        let said = whom.call(text.as_bytes()).unwrap();
        String::from_utf8(said.to_vec()).unwrap()
    }
    fn page(&self) -> OwnRight {
        PAGE.get().unwrap().clone()
    }
    fn number_of(&self, page: OwnRight) -> u64 {
        page.badge()
    }
    fn keep(&self, right: Right) {
        *self.kept.lock().unwrap() = Some(right);
    }
    fn back(&self) -> Option<Right> {
        self.kept.lock().unwrap().take()
    }
    fn long(&self) -> String {
        "x".repeat(70_000)
    }
}

fn load<T: Sync + 'static>(table: &Table<T>) -> Domain {
    crate::record_missing_keys();
    // SAFETY: the functions lend nothing, and what they do outside of the domain is whole at any instruction.
    let load = |options| unsafe { Domain::new(table, options) };
    match load(DomainOptions::new()) {
        Err(LoadError::NoKeys) => load(DomainOptions::new().unprotected()).unwrap(),
        loaded => loaded.unwrap(),
    }
}

pub(crate) fn served_by(receive: ReceiveRight) -> Port {
    PAGE.set(receive.mint(99)).unwrap();
    let domain = load(&Table::new(|_| Pages::new()).entry(BookServer::entry));
    Port::with_threads(receive, &domain, 0, 2).unwrap()
}

/// The role of a process that serves.
pub(crate) fn process(name: &str) {
    let port = handfast::bind(name).unwrap();
    PAGE.set(port.mint(99)).unwrap();
    common::say("ready");
    let pages = Pages::new();
    loop {
        let request = port.receive().unwrap();
        // A method that panics drops its call.
        let serve = || BookServer::dispatch(request, &pages);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
    }
}

/// The role of a process whose domain serves.
pub(crate) fn domain(name: &str) {
    let _port = served_by(handfast::bind(name).unwrap());
    common::say("ready");
    while common::told().is_some() {}
}

/// The role of a client of a domain.
pub(crate) fn client_of(name: &str) {
    let right = handfast::connect(name).unwrap();
    client(right, &SendError::Domain(DomainError::Panic));
    common::say("done");
}

/// The checks that every client makes. `panicked` is how a method ends that panics.
fn client(right: SendRight, panicked: &SendError) {
    let wrong = other::BookClient::new(right.clone());
    assert!(matches!(
        wrong.add(1),
        Err(CallError::Refused {
            why: Refusal::OtherService { .. },
            ..
        })
    ));
    let book = BookClient::new(right);
    let before = book.add(0).unwrap();
    assert_eq!(book.add(5).unwrap(), before + 5);
    book.note(2).unwrap();
    assert!(within_patience(|| book.add(0).unwrap() == before + 7));
    assert_eq!(book.shout("quiet").unwrap(), "QUIET");
    assert_eq!(book.shout(&"q".repeat(60_000)).unwrap(), "Q".repeat(60_000));
    let long = book.long();
    match panicked {
        // The one in a process of its own.
        SendError::Gone(_) => assert_eq!(long.unwrap().len(), 70_000),
        _ => assert!(matches!(
            long,
            Err(CallError::Refused {
                why: Refusal::Result(_),
                ..
            })
        )),
    }
    // Called back.
    let own = handfast::anonymous().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                let request = own.receive().unwrap();
                let text = format!(
                    "{} {}",
                    request.badge(),
                    String::from_utf8_lossy(request.bytes())
                );
                request.reply(text.as_bytes()).unwrap();
            }
        });
        assert_eq!(book.ask(own.mint(4), "me").unwrap(), "4 me");
        let own = own.mint(5).connect().unwrap();
        assert_eq!(book.ask(own, "again").unwrap(), "5 again");
    });
    // A right to the service itself, which goes home. A process has none: its port lives with its parent.
    let is_process = Isolation::here().0 == Isolation::Process;
    if !is_process || matches!(panicked, SendError::Gone(_)) {
        let page = book.page().unwrap();
        let same = BookClient::new(page.clone());
        assert_eq!(same.shout("by it").unwrap(), "BY IT");
        assert_eq!(same.number_of(page).unwrap(), 99);
    }
    // A right that is kept counts, and a right that comes back is what it was.
    own.notify_no_senders_of(6);
    book.keep(own.mint(6)).unwrap();
    assert!(own.try_receive().is_err());
    std::thread::scope(|scope| {
        // Meanwhile: what comes home from a process by way of another is known once its port has been received at.
        let told = scope.spawn(|| own.receive_timeout(common::PATIENCE).unwrap().notice());
        match book.back().unwrap() {
            Some(Right::Own(own)) => assert_eq!(own.badge(), 6),
            // The process that has called it.
            Some(Right::Send(right)) => drop(right),
            other => panic!("{other:?}"),
        }
        assert_eq!(told.join().unwrap(), Some(Notice::NoSendersOf(6)));
    });
    assert!(book.back().unwrap().is_none());
    let mut pipe = std::io::pipe().unwrap();
    book.keep(Right::Descriptor(pipe.1.into())).unwrap();
    match book.back().unwrap() {
        Some(Right::Descriptor(fd)) => pipe.1 = fd.into(),
        other => panic!("{other:?}"),
    }
    std::io::Write::write_all(&mut pipe.1, b"x").unwrap();
    assert!(matches!(book.fail(), Err(CallError::Send(error)) if error == *panicked));
    let _ = book.add(1).unwrap();
}

#[test]
fn the_same_typed_client_calls_processes_and_domains() {
    let _alone = common::alone();
    for (role, panicked) in [
        ("typed process", SendError::Gone(Gone::Reply)),
        ("typed domain", SendError::Domain(DomainError::Panic)),
    ] {
        let name = common::name(&role.replace(' ', "-"));
        let mut server = common::start(role, &[&name]);
        server.expect("ready");
        client(handfast::connect(&name).unwrap(), &panicked);
        server.kill();
    }
    let name = common::name("typed");
    let port = served_by(handfast::bind(&name).unwrap());
    client(
        port.connect().unwrap(),
        &SendError::Domain(DomainError::Panic),
    );
    client(
        handfast::connect(&name).unwrap(),
        &SendError::Domain(DomainError::Panic),
    );
    let mut other = common::start("typed client", &[&name]);
    other.expect("done");
    other.finish();
}

/// Answers with the rights that came, the last one first; says how many those were.
fn turn_round((): &(), call: &mut CallContext<'_>) {
    let mut rights = handfast::domain::take_rights();
    assert!(handfast::domain::take_rights().is_empty());
    rights.reverse();
    let len_bytes = call.request().len();
    call.reply()[..len_bytes].fill(rights.len() as u8);
    call.set_reply_len(len_bytes);
    if let Err(rights) = handfast::domain::reply_rights(rights) {
        panic!("{rights:?}");
    }
}

struct Turn(OnceLock<SendRight>);

/// A first call without bytes brings the right by which others are passed on.
fn pass_all_on(turn: &Turn, call: &mut CallContext<'_>) {
    let mut rights = handfast::domain::take_rights();
    if call.request().is_empty() {
        let Some(Right::Send(right)) = rights.pop() else {
            panic!("{rights:?}");
        };
        return turn.0.set(right).unwrap();
    }
    let turn = turn.0.get().unwrap().clone();
    handfast::domain::pass_on(turn, call.request(), rights).unwrap();
}

fn deaf((): &(), call: &mut CallContext<'_>) {
    if call.request() == b"panic" {
        std::panic::resume_unwind(Box::new(()));
    }
}

#[test]
fn rights_go_in_and_come_out_in_their_order_or_are_dropped() {
    let _alone = common::alone();
    let domain = load(&Table::new(|_| ()).entry(turn_round));
    let port = Port::new(handfast::anonymous().unwrap(), &domain, 0).unwrap();
    let right = port.connect().unwrap();
    let own = handfast::anonymous().unwrap();
    let four = || (1..=4).map(|badge| Right::from(own.mint(badge)));
    let mut reply = right.with(four()).call(b"12").unwrap();
    assert_eq!(&*reply, &[4, 4]);
    let back = common::send_rights(reply.take_rights());
    for (right, badge) in back.iter().zip([4, 3, 2, 1]) {
        right.send(b"").unwrap();
        assert_eq!(own.receive().unwrap().badge(), badge);
    }
    // By the link of this process with itself.
    let mut reply = right.with(four()).try_call(b"1").unwrap().wait().unwrap();
    assert_eq!((reply.take_rights().len(), &*reply), (4, &[4][..]));
    // Passed on.
    let new = |_: &Heap| Turn(OnceLock::new());
    let domain = load(&Table::new(new).entry(pass_all_on));
    let name = common::name("passes-rights");
    let on = Port::new(handfast::bind(&name).unwrap(), &domain, 0).unwrap();
    let bring = on.connect().unwrap();
    let _ = bring.with([right.clone().into()]).call(b"").unwrap();
    for by in [on.connect().unwrap(), handfast::connect(&name).unwrap()] {
        let mut reply = by.with(four()).call(b"1").unwrap();
        assert_eq!((reply.take_rights().len(), &*reply), (4, &[4][..]));
    }
    // Rights that nobody takes end with the call, also when it goes wrong.
    let domain = load(&Table::new(|_| ()).entry(deaf));
    let deaf_port = Port::new(handfast::anonymous().unwrap(), &domain, 0).unwrap();
    let deaf_right = deaf_port.connect().unwrap();
    for (badge, bytes) in [(8, &b""[..]), (9, b"panic")] {
        own.notify_no_senders_of(badge);
        let called = deaf_right.with([own.mint(badge).into()]).call(bytes);
        assert_eq!(called.is_ok(), bytes.is_empty());
        let told = own.receive_timeout(common::PATIENCE).unwrap();
        assert_eq!(told.notice(), Some(Notice::NoSendersOf(badge)));
    }
    // And so does a descriptor: its pipe has no writer any more.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let _ = deaf_right.with([writer.into()]).call(b"").unwrap();
    let mut ends = [PollFd::new(&reader, PollFlags::IN)];
    let patience = rustix::time::Timespec::try_from(common::PATIENCE).unwrap();
    rustix::event::poll(&mut ends, Some(&patience)).unwrap();
    assert_eq!(ends[0].revents(), PollFlags::HUP);
    // Too many.
    let five = four().chain([Right::Dead]);
    let returned = right.with(five).call(b"").map(drop).unwrap_err();
    assert_eq!(returned.rights.len(), 5);
    drop(returned);
    // Nobody takes those of a call without room for them; and none of another call's.
    assert_eq!(right.call_into(b"1", &mut [0]), Ok(1));
    assert!(handfast::domain::take_rights().is_empty());
    assert_eq!(
        handfast::domain::reply_rights(vec![Right::Dead])
            .unwrap_err()
            .len(),
        1
    );
    // To a dead port nothing goes.
    own.notify_no_senders();
    drop((back, port));
    let returned = right.with(four()).call(b"").map(drop).unwrap_err();
    assert_eq!(
        (returned.error, returned.rights.len()),
        (SendError::Gone(Gone::Port), 4)
    );
    drop(returned);
    assert_eq!(
        own.receive_timeout(common::PATIENCE).unwrap().notice(),
        Some(Notice::NoSenders)
    );
}
