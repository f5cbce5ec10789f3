//! The attacks: what each does, by which program, and whom it may hurt.

use super::VICTIM;
use super::kind::DEPUTY;
pub(super) use super::kind::{Kind, MANY_LINKS, Newcomer, PLAIN};
use std::time::Duration;

/// How often each of the three settings is measured.
pub(super) const ROUNDS: usize = 2;

/// Memory of a server that has a limit, and what an attacker would have it take.
const LIMIT_MIB: u64 = 96;
const BEYOND_MIB: &str = "160";
/// Memory whose pages take tens of milliseconds to count.
const COUNTED_MIB: &str = "512";
/// Links of 256 rights that the server keeps, each of about 0.16 MiB: 38 to 44 MiB, and no more in four times the time.
const KEPT_LINKS_MIB: i64 = 64;

pub(super) const KINDS: [Kind; 54] = [
    Kind {
        name: "linger-hello",
        what: "sockets whose close waits, with a hello",
        program: "linger.py",
        words: &["hello"],
        ..PLAIN
    },
    Kind {
        name: "linger-control",
        what: "the same, surplus or unclaimed in control messages",
        program: "linger.py",
        words: &["control"],
        ..PLAIN
    },
    Kind {
        name: "linger-message",
        what: "the same, in messages that nobody asked for",
        program: "linger.py",
        words: &["message"],
        ..PLAIN
    },
    Kind {
        name: "listener",
        what: "receive right whose listener blocks after its arrival",
        program: "listener.py",
        ..PLAIN
    },
    Kind {
        name: "unread-counters",
        what: "counters asked for and never read",
        program: "unread.py",
        words: &["counters"],
        ..PLAIN
    },
    Kind {
        name: "unread-doors",
        what: "doors asked for and never read",
        program: "unread.py",
        words: &["door"],
        ..PLAIN
    },
    Kind {
        name: "unclaimed",
        what: "unclaimed descriptors by many links",
        program: "unclaimed.py",
        time: Duration::from_millis(1200),
        ..PLAIN
    },
    Kind {
        name: "strangers",
        what: "101 users, one after the other",
        program: "strangers.py",
        words: &["4000", "101"],
        attacker: 0,
        has_decoy: false,
        ..PLAIN
    },
    Kind {
        name: "users",
        what: "80 users at once, who stay",
        program: "users.py",
        words: &["4000", "80"],
        attacker: 0,
        // Each link takes some 60 KiB.
        grows_mib: 8,
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "crowd-room",
        what: "25,600 sleepers at the word of a full lane's sender",
        program: "crowds.py",
        words: &["room"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "crowd-bells",
        what: "the same in the server's bells, and links come and go",
        program: "crowds.py",
        words: &["bells"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "holes",
        what: "holes punched into a link in use",
        program: "holes.py",
        time: Duration::from_millis(1200),
        ..PLAIN
    },
    Kind {
        name: "requeue",
        what: "sleepers of the server's bells moved to another futex",
        program: "requeue.py",
        ..PLAIN
    },
    Kind {
        name: "requeue-own",
        what: "the same, by the victim's own user",
        program: "requeue.py",
        attacker: VICTIM,
        time: Duration::from_millis(1500),
        ..PLAIN
    },
    Kind {
        name: "unwhole-memory",
        what: "memory that has its blocks behind its end",
        program: "unwhole.py",
        words: &["memory", BEYOND_MIB],
        memory_mib: Some(LIMIT_MIB),
        ..PLAIN
    },
    Kind {
        name: "unwhole-arena",
        what: "arena that has its blocks behind its end",
        program: "unwhole.py",
        words: &["arena", BEYOND_MIB],
        memory_mib: Some(LIMIT_MIB),
        ..PLAIN
    },
    Kind {
        name: "behind-end",
        what: "memory with many pages behind its end",
        program: "behind.py",
        words: &[COUNTED_MIB, "behind"],
        ..PLAIN
    },
    Kind {
        name: "behind-one",
        what: "large memory with one page behind its end",
        program: "behind.py",
        words: &[COUNTED_MIB, "one"],
        ..PLAIN
    },
    Kind {
        name: "behind-holes",
        what: "memory with as many pages behind its end as are missing",
        program: "behind.py",
        words: &[COUNTED_MIB, "holes"],
        ..PLAIN
    },
    Kind {
        name: "untouched-replies",
        what: "calls whose answers lie where nobody has touched anything",
        program: "untouched.py",
        words: &["replies"],
        memory_mib: Some(LIMIT_MIB),
        ..PLAIN
    },
    Kind {
        name: "untouched-blocks",
        what: "messages that were never written",
        program: "untouched.py",
        words: &["blocks"],
        memory_mib: Some(LIMIT_MIB),
        ..PLAIN
    },
    Kind {
        name: "untouched-looks",
        what: "lanes and reply slots that were never written",
        program: "untouched.py",
        words: &["looks"],
        memory_mib: Some(LIMIT_MIB),
        ..PLAIN
    },
    Kind {
        name: "parts",
        what: "rights to ports of strangers, answers never read",
        program: "unread.py",
        words: &["parts"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "parts-kept",
        what: "rights to ports of strangers that are kept and dropped, answers never read",
        program: "unread.py",
        words: &["kept"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "names",
        what: "rights by ever new names, which the server drops, and the peer reads nothing of it",
        program: "names.py",
        time: Duration::from_millis(3000),
        // Names that the peer is to be told of, as many as its user may leave unread.
        grows_mib: 16,
        ..PLAIN
    },
    Kind {
        name: "doors",
        what: "doors of strangers that whoever connects to pays for",
        program: "doors.py",
        ..PLAIN
    },
    Kind {
        name: "flood",
        what: "calls in all lanes of 190 links, by callers that are awake",
        program: "flood.py",
        words: &["190", "1", "16", "awake"],
        fair: Some(&["1", "1", "16", "awake"]),
        time: Duration::from_millis(1500),
        ..MANY_LINKS
    },
    Kind {
        name: "flood-asleep",
        what: "the same, by callers that sleep",
        program: "flood.py",
        words: &["190", "2", "16", "asleep"],
        fair: Some(&["2", "2", "16", "asleep"]),
        time: Duration::from_millis(1500),
        ..MANY_LINKS
    },
    Kind {
        name: "deaths",
        what: "190 links with calls in all lanes that end at once, again and again",
        program: "flood.py",
        words: &["190", "1", "16", "dying"],
        fair: Some(&["1", "1", "16", "awake"]),
        time: Duration::from_secs(4),
        // Links whose messages are served still count, and so do the next process's: up to the user's share, with 0.1 MiB each.
        grows_mib: 256,
        ..MANY_LINKS
    },
    Kind {
        name: "waiting",
        what: "a thousand lanes whose messages wait for rights that are never provided",
        program: "waiting.py",
        words: &["63", "stay"],
        time: Duration::from_millis(1500),
        ..MANY_LINKS
    },
    Kind {
        name: "waiting-dead",
        what: "messages that wait for a claim, of links that end, and a client ends its rights",
        program: "waiting.py",
        words: &["10000", "dead"],
        newcomer: Newcomer::Opens,
        is_quiet: true,
        time: Duration::from_millis(1500),
        ..MANY_LINKS
    },
    Kind {
        name: "flood-notices",
        what: "calls that have the server work all the time, and a client ends its rights",
        program: "flood.py",
        words: &["1", "1", "1", "working"],
        // A busy server is no attack: whether it is told is what counts.
        fair: Some(&["1", "1", "1", "working"]),
        newcomer: Newcomer::Opens,
        time: Duration::from_millis(1500),
        ..MANY_LINKS
    },
    Kind {
        name: "thinned",
        what: "a right attenuated in 65,536 ways, to a port that ends",
        program: "said.py",
        words: &["thinned"],
        time: Duration::from_millis(1200),
        // Claims of rights that have ended.
        grows_mib: 64,
        ..PLAIN
    },
    Kind {
        name: "ends",
        what: "ports that end all the time, beside a right attenuated 400,000 times",
        program: "said.py",
        words: &["ends"],
        time: Duration::from_millis(2000),
        // Claims of those rights.
        grows_mib: 96,
        ..PLAIN
    },
    Kind {
        name: "claimed",
        what: "claims of rights that are never provided, by the hundred thousand",
        program: "said.py",
        words: &["claimed"],
        is_quiet: true,
        // Some 200 bytes each.
        grows_mib: 64,
        ..PLAIN
    },
    Kind {
        name: "provided",
        what: "rights provided to unknown recipients, by processes that have ended",
        program: "said.py",
        words: &["provided"],
        time: Duration::from_millis(1500),
        is_quiet: true,
        grows_mib: 16,
        ..PLAIN
    },
    Kind {
        name: "told",
        what: "ends of ports by the million",
        program: "said.py",
        words: &["told"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "answers-claims",
        what: "claims answered with rights, which are claimed in turn",
        program: "answers.py",
        words: &["claims"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "answers-replies",
        what: "rights given back while answers lie unread, ever others of them",
        program: "answers.py",
        words: &["replies"],
        time: Duration::from_millis(4000),
        grows_mib: 8,
        ..PLAIN
    },
    Kind {
        name: "circle",
        what: "rights that are said to have moved to where the server passes messages on, in a circle",
        program: "vine.py",
        words: &["circle"],
        time: Duration::from_millis(3000),
        is_quiet: true,
        grows_mib: KEPT_LINKS_MIB,
        ..PLAIN
    },
    Kind {
        name: "homes",
        what: "rights that are said to have moved to ever new processes, and are given back",
        program: "vine.py",
        words: &["homes"],
        time: Duration::from_millis(3000),
        grows_mib: KEPT_LINKS_MIB,
        ..PLAIN
    },
    Kind {
        name: "relays",
        what: "thousands of calls that the server passes on to links that do not answer",
        program: "vine.py",
        words: &["relays", "60"],
        time: Duration::from_millis(1500),
        is_between: true,
        grows_mib: 32,
        ..MANY_LINKS
    },
    Kind {
        name: "deputy-kept",
        what: "rights that do not exist, to ports of a server to which this one passes calls on",
        words: &[super::slice::BEHIND_NAME, "kept"],
        ..DEPUTY
    },
    Kind {
        name: "deputy-used",
        what: "the same, and each is used",
        words: &[super::slice::BEHIND_NAME, "used"],
        ..DEPUTY
    },
    Kind {
        name: "deputy-moved",
        what: "rights to ports that are said to have moved to such a server",
        words: &[super::slice::BEHIND_NAME, "moved"],
        ..DEPUTY
    },
    Kind {
        name: "deputy-thin",
        what: "rights that are said to have moved to such a server, attenuated",
        words: &[super::slice::BEHIND_NAME, "thin"],
        ..DEPUTY
    },
    Kind {
        name: "deputy-passed",
        what: "the same, given on",
        words: &[super::slice::BEHIND_NAME, "pass"],
        ..DEPUTY
    },
    Kind {
        name: "deputy-many",
        what: "thousands of rights that are said to have moved to such a server",
        words: &[super::slice::BEHIND_NAME, "many"],
        // Rights that the server keeps, some 350 bytes each.
        grows_mib: 24,
        ..DEPUTY
    },
    Kind {
        name: "deputy-calls",
        what: "calls that are passed on to such a server, which does not answer them",
        words: &[super::slice::BEHIND_NAME, "calls"],
        // Return slots of the one user's share, 72 KiB each.
        grows_mib: 16,
        ..DEPUTY
    },
    Kind {
        name: "options",
        what: "name whose connections bring process descriptors unasked",
        program: "options.py",
        words: &["2000"],
        time: Duration::from_millis(3000),
        ..PLAIN
    },
    Kind {
        name: "control",
        what: "control messages through hundreds of links",
        program: "control.py",
        words: &["190"],
        // Messages that wait for the user to read them: 8 MiB, each in memory of its own.
        grows_mib: 32,
        ..MANY_LINKS
    },
    Kind {
        name: "squatter",
        what: "hello under another's incarnation, before that one's",
        program: "posers.py",
        words: &["squat", super::slice::KNOWN],
        newcomer: Newcomer::IsKnown,
        has_decoy: false,
        ..PLAIN
    },
    Kind {
        name: "dead",
        what: "connectors that have ended before their hello is read",
        program: "posers.py",
        words: &["dead"],
        has_decoy: false,
        ..PLAIN
    },
    Kind {
        name: "lock",
        what: "locks on the directory, and a server binds",
        program: "lock.py",
        newcomer: Newcomer::Binds,
        has_decoy: false,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attack_has_a_name_of_its_own_and_a_program() {
        for (number, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..number].iter().all(|other| other.name != kind.name));
            let mut programs = super::super::PROGRAMS.iter().chain([&super::super::LOCK]);
            assert!(
                programs.any(|(name, _)| *name == kind.program),
                "{}",
                kind.name
            );
        }
    }
}
