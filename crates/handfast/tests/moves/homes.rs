//! Processes that ports move between, and those who send to them.

use crate::common::{self, Child, within_patience};
use handfast::{Notice, ReceiveRight, Right, SendRight};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// A place where ports live. Its own port takes `bind NAME`, `make` (a port without a name, a right to
/// which with badge 7 comes back), `take STATE` with a receive right, `hand NAME` (gives a port that never had a sender to that
/// home), and `rest`: whether nothing goes through here any more.
pub(crate) fn home(name: &str) {
    common::say_cuts();
    let control = handfast::bind(name).unwrap();
    common::say("ready");
    let mut brief = Vec::new();
    loop {
        let mut request = control.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let mut rights = request.take_rights();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("bind", name) => {
                let port = handfast::bind(name).unwrap();
                std::thread::spawn(move || serve(port, Seen::default()));
                request.reply(b"").unwrap();
            }
            ("make", _) => {
                let port = handfast::anonymous().unwrap();
                let right = port.mint(7);
                std::thread::spawn(move || serve(port, Seen::default()));
                request.reply_with(b"", [right.into()]).unwrap();
            }
            ("take", state) => {
                // Nothing, where the old home has died since.
                let Some(Right::Receive(mut port)) = rights.pop() else {
                    let _ = request.reply(b"");
                    continue;
                };
                port.take_up_name().unwrap();
                let state = Seen::parse(state);
                std::thread::spawn(move || serve(port, state));
                // A one-way message wants no answer.
                let _ = request.reply(b"");
            }
            ("hand", to) => {
                let port = handfast::anonymous().unwrap();
                let _ = link(to).with([port.into()]).call(b"keep").unwrap();
                request.reply(b"").unwrap();
            }
            ("keep", _) => {
                // For ever: the ports in it are not received from.
                request.reply(b"").unwrap();
                std::mem::forget(rights);
            }
            ("spray", _) => {
                spray(rights.pop());
                request.reply(b"").unwrap();
            }
            ("direct", pid) => {
                let Some(Right::Send(port)) = rights.pop() else {
                    panic!("no right came");
                };
                let _ = port.call(b"98:1").unwrap();
                let pid = pid.parse().unwrap();
                std::thread::spawn(move || {
                    assert!(within_patience(|| port.peer().pid == pid));
                    common::say("direct");
                    let answer = port.call(b"98:2").map(drop);
                    common::say(&format!("{answer:?}"));
                });
                request.reply(b"").unwrap();
            }
            ("know", name) => {
                // A link that stays.
                let _ = link(name);
                request.reply(b"").unwrap();
            }
            ("brief", _) => {
                let port = handfast::anonymous().unwrap();
                let right = port.mint(8);
                brief.push(port);
                request.reply_with(b"", [right.into()]).unwrap();
            }
            ("end", _) => {
                brief.clear();
                request.reply(b"").unwrap();
            }
            ("answer", _) => {
                for held in HELD.lock().unwrap().drain(..) {
                    held.reply(b"after all").unwrap();
                }
                request.reply(b"").unwrap();
            }
            // Sleep: stands for work.
            ("busy", ms) => std::thread::sleep(Duration::from_millis(ms.parse().unwrap())),
            ("rest", _) => {
                let rests = handfast::wait_moved_timeout(Duration::from_millis(1));
                request.reply(rests.to_string().as_bytes()).unwrap();
            }
            _ => unreachable!("{text}"),
        }
    }
}

/// Calls a port until it ends.
pub(crate) fn spray(right: Option<Right>) {
    let Some(Right::Send(port)) = right else {
        panic!("no right came");
    };
    std::thread::spawn(move || {
        let mut number = 1;
        while port.call(format!("99:{number}").as_bytes()).is_ok() {
            number += 1;
        }
    });
}

/// Calls with the text through the right it is given, and answers with what it was answered.
pub(crate) fn friend(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let answer = match request.take_rights().pop() {
            Some(Right::Send(right)) => right.call(request.bytes()).unwrap(),
            other => panic!("{other:?}"),
        };
        request.reply(&answer).unwrap();
    }
}

/// The last number of each sender, and how many came out of order.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) BTreeMap<u64, u64>, pub(crate) u64);

impl Seen {
    pub(crate) fn take(&mut self, text: &str) {
        let (sender, number) = text.split_once(':').unwrap();
        let (sender, number) = (sender.parse().unwrap(), number.parse().unwrap());
        let last = self.0.insert(sender, number).unwrap_or_default();
        self.1 += u64::from(number != last + 1);
    }

    pub(crate) fn to_text(&self) -> String {
        let pairs = self
            .0
            .iter()
            .map(|(sender, number)| format!("{sender}:{number}"));
        let pairs: Vec<_> = pairs.collect();
        format!("{};{}", pairs.join(","), self.1)
    }

    pub(crate) fn parse(text: &str) -> Self {
        let (pairs, wrong) = text.split_once(';').unwrap();
        let pairs = pairs
            .split(',')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (sender, number) = pair.split_once(':').unwrap();
                (sender.parse().unwrap(), number.parse().unwrap())
            });
        Self(pairs.collect(), wrong.parse().unwrap())
    }
}

/// Serves a port that moves: `SENDER:NUMBER`, one way or as a call, which is answered with the text, the badge and this process's
/// number; `hold` is not answered; `give NAME` sends a right with badge 5 to that port; `seen` asks what has come; `move NAME` moves
/// it to the home with that name, `flit NAME` by a right that is dropped at once, `lose NAME` gives it to one that does not receive; `tell` asks for the notice of no senders, which is printed.
pub(crate) fn serve(port: ReceiveRight, mut seen: Seen) {
    loop {
        let mut request = port.receive().unwrap();
        if request.notice() == Some(Notice::NoSenders) {
            common::say("no senders");
            continue;
        }
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let _ = request.take_rights();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("seen", _) => request.reply(seen.to_text().as_bytes()).unwrap(),
            ("hold", _) => HELD.lock().unwrap().push(request),
            ("give", to) => {
                let right = port.mint(5);
                link(to).with([right.into()]).send(b"").unwrap();
                request.reply(b"").unwrap();
            }
            ("tell", _) => {
                port.notify_no_senders();
                request.reply(b"").unwrap();
            }
            ("flit", to) => {
                let to = handfast::connect(to).unwrap();
                let what = format!("take {}", seen.to_text());
                request.reply(b"").unwrap();
                to.with([port.into()]).send(what.as_bytes()).unwrap();
                return;
            }
            ("move" | "lose", to) => {
                let to = link(to);
                let (_, reply) = request.split();
                let what = match text.starts_with("move") {
                    true => format!("take {}", seen.to_text()),
                    false => "keep".to_owned(),
                };
                if let Some(reply) = reply {
                    reply.reply(b"").unwrap();
                }
                // The new home may die meanwhile.
                let _ = to.with([port.into()]).call(what.as_bytes());
                return;
            }
            _ => {
                seen.take(&text);
                if request.is_call() {
                    let answer = format!("{text} {} {}", request.badge(), std::process::id());
                    // The caller may be gone.
                    let _ = request.reply(answer.as_bytes());
                }
            }
        }
    }
}

/// Calls that are answered when the home is told to `answer`.
static HELD: Mutex<Vec<handfast::Request>> = Mutex::new(Vec::new());

/// A right to a home; one that does not answer may have a link already.
pub(crate) fn link(name: &str) -> SendRight {
    static KNOWN: Mutex<Vec<(String, SendRight)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap();
    if let Some((_, right)) = known.iter().find(|(of, _)| of == name) {
        return right.clone();
    }
    let right = handfast::connect(name).unwrap();
    known.push((name.to_owned(), right.clone()));
    right
}

pub(crate) struct Homes {
    pub(crate) children: Vec<Child>,
    pub(crate) names: Vec<String>,
    pub(crate) controls: Vec<SendRight>,
}

impl Homes {
    pub(crate) fn new(what: &str, count: usize) -> Self {
        Self::with(("home", what), count, |_| {})
    }

    /// As [`Self::new`], whose ports share a receiver.
    pub(crate) fn of_members(what: &str, count: usize) -> Self {
        Self::with(("home of members", what), count, |_| {})
    }

    pub(crate) fn with(
        (role, what): (&'static str, &str),
        count: usize,
        change: impl Fn(&mut std::process::Command),
    ) -> Self {
        let names = (0..count).map(|place| common::name(&format!("{what}-home{place}")));
        let names: Vec<_> = names.collect();
        let children: Vec<_> = names
            .iter()
            .map(|name| common::start_with(role, &[name], |command| change(command)))
            .collect();
        children.iter().for_each(|child| child.expect("ready"));
        let controls = names.iter().map(|name| handfast::connect(name).unwrap());
        let controls = controls.collect();
        Self {
            children,
            names,
            controls,
        }
    }

    /// Lets go of the last home, until there is no link with it.
    pub(crate) fn leave_last(&mut self) {
        drop(self.controls.pop());
        let maps = format!("/proc/{}/maps", self.children[self.controls.len()].pid());
        let has_link = || {
            std::fs::read_to_string(&maps)
                .unwrap()
                .contains("memfd:handfast link")
        };
        assert!(within_patience(|| !has_link()));
    }

    /// Ends them. None has cut a link: all of them are honest.
    pub(crate) fn expect_no_cut(mut self) {
        self.children.iter_mut().for_each(Child::kill);
        let lines = self.children.iter().flat_map(Child::rest);
        let cuts: Vec<_> = lines.filter(|line| line.starts_with(common::CUT)).collect();
        assert_eq!(cuts, [""; 0]);
    }

    pub(crate) fn make(&self, place: usize) -> SendRight {
        let mut answer = self.controls[place].call(b"make").unwrap();
        match answer.take_rights().pop() {
            Some(Right::Send(right)) => right,
            other => panic!("{other:?}"),
        }
    }

    /// Returns once it is there.
    pub(crate) fn move_to(&self, port: &SendRight, place: usize) {
        self.begin_move(port, place);
        let _ = seen(port);
    }

    pub(crate) fn begin_move(&self, port: &SendRight, place: usize) {
        let text = format!("move {}", self.names[place]);
        let _ = port.call(text.as_bytes()).unwrap();
    }

    pub(crate) fn rests(&self, place: usize) -> bool {
        &*self.controls[place].call(b"rest").unwrap() == b"true"
    }

    pub(crate) fn pid(&self, place: usize) -> String {
        self.children[place].pid().to_string()
    }
}

/// Calls with the next number of a sender: badge and process that have answered.
pub(crate) fn call(port: &SendRight, sender: u64, number: u64) -> (String, String) {
    let text = format!("{sender}:{number}");
    let answer = port.call(text.as_bytes()).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let words: Vec<_> = answer.split(' ').collect();
    assert_eq!(words[0], text);
    (words[1].to_owned(), words[2].to_owned())
}

pub(crate) fn seen(port: &SendRight) -> Seen {
    let answer = port.call(b"seen").unwrap();
    Seen::parse(&String::from_utf8_lossy(&answer))
}
