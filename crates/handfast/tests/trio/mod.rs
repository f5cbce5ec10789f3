//! Three processes and a right: an exporter, to whose port it is, a recipient, and who introduces them.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use crate::common;
use handfast::{Counters, Notice, Right, SendRight};

/// The roles.
pub(crate) fn play(role: &str, arguments: &[&str]) {
    match role {
        "exporter" => exporter(arguments[0]),
        "introducer" => introducer(arguments[0], arguments[1], &arguments[2..]),
        "recipient" => recipient(arguments[0], arguments.get(1).copied()),
        _ => unreachable!("{role}"),
    }
}

/// Gives out a right with a badge for each call `open BADGE`. Its other port answers calls with badge,
/// text and how many rights came with it, keeps one-way messages until it is asked what it was `told`,
/// and says it when the last right to it is gone.
fn exporter(name: &str) {
    let door = handfast::bind(name).unwrap();
    let objects = handfast::anonymous().unwrap();
    common::say("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| serve_objects(&objects));
        loop {
            let request = door.receive().unwrap();
            let text = String::from_utf8_lossy(request.bytes()).into_owned();
            let badge = text.strip_prefix("open ").unwrap();
            objects.notify_no_senders();
            let right = objects.mint(badge.parse().unwrap());
            request.reply_with(b"", [right.into()]).unwrap();
        }
    });
}

fn serve_objects(objects: &handfast::ReceiveRight) {
    let mut told = Vec::new();
    loop {
        let mut request = objects.receive().unwrap();
        if request.notice() == Some(Notice::NoSenders) {
            common::say("no senders");
            continue;
        }
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let badge = request.badge();
        let rights = request.take_rights();
        match text.as_str() {
            "told" => request.reply(told.join(" ").as_bytes()).unwrap(),
            _ if !request.is_call() => told.push(format!("{badge}:{text}")),
            _ => {
                let answer = format!("{badge}: {text} {}", rights.len());
                request.reply(answer.as_bytes()).unwrap();
            }
        }
    }
}

/// Keeps the rights it is sent: `call N TEXT` and `send N TEXT` through the N-th, `give N` back, `drop`
/// all; `identity N M` compares two; `pass N NAME` copies the N-th on to the recipient NAME. With a link to `exporter`, if that is named.
fn recipient(name: &str, exporter: Option<&str>) {
    let port = handfast::bind(name).unwrap();
    let _link = exporter.map(|name| handfast::connect(name).unwrap());
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    loop {
        let mut request = port.receive().unwrap();
        kept.extend(request.take_rights());
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let words: Vec<_> = text.splitn(3, ' ').collect();
        let right = |place: &str| match &kept[place.parse::<usize>().unwrap()] {
            Right::Send(right) => right.clone(),
            other => panic!("{other:?}"),
        };
        let answer = match words[..] {
            ["keep"] => kept.len().to_string(),
            ["drop"] => {
                kept.clear();
                String::new()
            }
            ["call", place, text] => match right(place).call(text.as_bytes()) {
                Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
                Err(error) => format!("{error:?}"),
            },
            // With whom it is: the introducer until it is direct.
            ["peer", place] => right(place).peer().pid.to_string(),
            ["identity", one, other] => format!("{:?}", right(one).identity(&right(other))),
            ["send", place, text] => {
                right(place).send(text.as_bytes()).unwrap();
                String::new()
            }
            ["give", place] => {
                let right = right(place);
                request.reply_with(b"", [right.into()]).unwrap();
                continue;
            }
            ["pass", place, name] => {
                let to = handfast::connect(name).unwrap();
                let _ = to.with([right(place).into()]).call(b"keep").unwrap();
                String::new()
            }
            _ => unreachable!("{text}"),
        };
        if request.is_call() {
            // The caller may be gone.
            let _ = request.reply(answer.as_bytes());
        }
    }
}

/// A trio: this process introduces.
pub(crate) struct Trio {
    pub(crate) exporter: common::Child,
    pub(crate) recipient: common::Child,
    pub(crate) door: SendRight,
    pub(crate) to: SendRight,
    /// Of the exporter and the recipient.
    pub(crate) names: [String; 2],
}

impl Trio {
    /// Whose recipient has a link with the exporter, or is let in by its door, or not.
    pub(crate) fn new(what: &str, how: How) -> Self {
        let what = format!("{what}-{how:?}");
        let names = [format!("{what}-exporter"), format!("{what}-recipient")];
        let names @ [exporter, recipient] = &names.map(|name| common::name(&name));
        let first = common::start_with("exporter", &[exporter], |command| {
            if how == How::Vine {
                command.env("HANDFAST_INTRODUCTIONS", "vine");
            }
        });
        first.expect("ready");
        let second = match how == How::Linked {
            true => common::start("recipient", &[recipient, exporter]),
            false => common::start("recipient", &[recipient]),
        };
        second.expect("ready");
        Self {
            exporter: first,
            recipient: second,
            door: handfast::connect(exporter).unwrap(),
            to: handfast::connect(recipient).unwrap(),
            names: names.clone(),
        }
    }

    pub(crate) fn open(&self, badge: u64) -> Right {
        let mut answer = self.door.call(format!("open {badge}").as_bytes()).unwrap();
        answer.take_rights().pop().unwrap()
    }

    pub(crate) fn keep(&self, rights: impl IntoIterator<Item = Right>) {
        let _ = self.to.with(rights).call(b"keep").unwrap();
    }

    /// Waits until the recipient has a link with the exporter.
    pub(crate) fn is_linked(&self) -> bool {
        let pid = u64::from(self.exporter.pid());
        common::within_patience(|| {
            let counters = self.to.counters().unwrap();
            let mut links = counters.links.iter();
            links.any(|row| Counters::value(row, "peer_pid") == pid)
        })
    }

    pub(crate) fn ask(&self, text: &str) -> String {
        call(&self.to, text)
    }
}

pub(crate) fn call(right: &SendRight, text: &str) -> String {
    String::from_utf8(right.call(text.as_bytes()).unwrap().to_vec()).unwrap()
}

pub(crate) fn send(right: Right) -> SendRight {
    match right {
        Right::Send(right) => right,
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Linked,
    Door,
    Vine,
}

/// Passes rights with these badges on from the exporter to the recipient, and stays.
fn introducer(exporter: &str, recipient: &str, badges: &[&str]) {
    let door = handfast::connect(exporter).unwrap();
    let to = handfast::connect(recipient).unwrap();
    for badge in badges {
        let rights = door
            .call(format!("open {badge}").as_bytes())
            .unwrap()
            .take_rights();
        let _ = to.with(rights).call(b"keep").unwrap();
    }
    common::say("introduced");
    while common::told().is_some() {}
}
