//! Reading another process's counters through a link.

use crate::error::{Gone, Misuse, SendError};
use crate::link::backlog;
use crate::send::{self, SendRight, route};
use core::time::Duration;
use handfast_layout::control::ControlMessage;
use handfast_layout::counters::{
    COLUMNS, LINK_ROWS, NAME_BYTES, PORT_ROWS, REGION_BYTES, link_word, port_name, port_word,
};
use handfast_region::Tally;
use handfast_sys::clock;

/// The counters of one process at one moment. Rows are read without stopping their owner, whose receivers add their
/// counts now and then: the last messages may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bound ports: name, and a value per [column](Self::COLUMNS).
    pub ports: Vec<(String, Vec<u64>)>,
    /// Links, at most 1,024, in arbitrary order: a value per column.
    pub links: Vec<Vec<u64>>,
}

impl Counters {
    /// The meaning of each value of a row, since the port or link was made; zero where a row does not count it.
    ///
    /// For a port: `calls` and `sends` (one-way) received, `bytes_in` of both, `spins` (waits that went on beyond the first
    /// looks), `bytes_out` (of the answers), `parks` (sleeps), `wakes` (peers woken by an answer or by passing a call on),
    /// `defers` (calls put off under overload), `faults` (links cut for messages that came through them to the port), `muted`
    /// (pauses, since it was woken for nothing). For a link: `peer_pid`, `peer_uid`, `calls` (messages of all kinds received),
    /// `rights` (rights its peer has to ports of the process, now), `forwards` and `vines` (calls passed on through it by a path,
    /// and without one), `muted` (times its peer was not listened to). An answer counts for the port that has the receiver of its
    /// call when it is given.
    pub const COLUMNS: [&'static str; 16] = COLUMNS;

    /// The value of `column` in a row; zero for an unknown name.
    ///
    /// # Panics
    /// If the row is shorter than the rows of [`Self::ports`] and [`Self::links`].
    #[must_use]
    pub fn value(row: &[u64], column: &str) -> u64 {
        COLUMNS
            .iter()
            .position(|name| *name == column)
            .map_or(0, |index| row[index])
    }
}

/// How long a process may take to hand out its counters.
const TIMEOUT: Duration = Duration::from_secs(1);

impl SendRight {
    /// Reads the counters of the process that holds the receive right, through the link. The first
    /// time that process's control thread hands out a descriptor of pages that only that process can write, which the link keeps.
    /// That takes three system calls, and blocks for at most one second.
    ///
    /// The counters tell of all peers of that process, so only processes of its own user, and of root, get them.
    ///
    /// # Errors
    /// [`SendError::NotShown`] where that process runs as another user, and this one not as root;
    /// [`SendError::Gone`] when the process is gone, [`SendError::TimedOut`] when it does not
    /// answer.
    pub fn counters(&self) -> Result<Counters, SendError> {
        if send::is_forked(self) {
            return Err(SendError::Misuse(Misuse::Forked));
        }
        let link = route::best(self).link();
        let deadline_ns = clock::deadline_ns(TIMEOUT);
        let (lock, arrived) = &link.waiters.slot_freed;
        let mut asked = false;
        loop {
            if let Some(end) = link.end() {
                return Err(end);
            }
            if let Some(fd) = &*link.counters.shown() {
                return match Tally::open(fd, REGION_BYTES) {
                    Ok(Some(tally)) => Ok(read(&tally)),
                    _ => Err(SendError::Gone(Gone::Process)),
                };
            }
            if link.counters.are_hidden() {
                return Err(SendError::NotShown);
            }
            if clock::now_ns() >= deadline_ns {
                return Err(SendError::TimedOut);
            }
            if !asked {
                link.counters.ask();
                backlog::tell(link, ControlMessage::ShowCounters);
                asked = true;
            }
            let guard = lock.lock();
            drop(arrived.wait_timeout(guard, Duration::from_millis(1)));
        }
    }
}

fn read(tally: &Tally) -> Counters {
    let row = |word: &dyn Fn(usize) -> usize| -> Vec<u64> {
        (0..COLUMNS.len())
            .map(|column| tally.load(word(column)))
            .collect()
    };
    let ports = (0..PORT_ROWS).filter_map(|receiver| {
        let row = row(&|column| port_word(receiver, column));
        let bytes: Vec<u8> = (0..NAME_BYTES / 8)
            .flat_map(|word| tally.load(port_name(receiver) + word * 8).to_le_bytes())
            .take_while(|byte| *byte != 0)
            .collect();
        (row[0] != 0).then(|| (String::from_utf8_lossy(&bytes).into_owned(), row))
    });
    let links = (0..LINK_ROWS).map(|link| row(&|column| link_word(link, column)));
    Counters {
        ports: ports.collect(),
        links: links.filter(|row| row[0] != 0).collect(),
    }
}
