//! Reading another process's counters through a link (design D13).

use crate::error::{Gone, SendError};
use crate::link::control;
use crate::send::SendRight;
use core::time::Duration;
use handfast_layout::counters::{
    COLUMNS, LINK_ROWS, NAME_BYTES, PORT_ROWS, REGION_BYTES, link_word, port_name, port_word,
};
use handfast_region::Tally;
use handfast_sys::clock;
use std::sync::PoisonError;

/// The counters of one process at one moment. Rows are read without stopping their owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bound ports: name, and a value per [column](Self::COLUMNS).
    pub ports: Vec<(String, Vec<u64>)>,
    /// Links: a value per column.
    pub links: Vec<Vec<u64>>,
}

impl Counters {
    /// What each value of a row counts.
    pub const COLUMNS: [&'static str; 16] = COLUMNS;

    /// The value of `column` in a row; zero for a name that is no column.
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
    /// Reads the counters of the process that holds the receive right, through the link: the first
    /// time its keeper hands out a descriptor of pages only it can write, which the link keeps.
    /// Three system calls; blocks for the keeper then, at most one second.
    ///
    /// # Errors
    /// [`SendError::Gone`] when the process is gone, [`SendError::TimedOut`] when it does not
    /// answer.
    pub fn counters(&self) -> Result<Counters, SendError> {
        let link = self.best().link();
        let deadline_ns = clock::deadline_ns(TIMEOUT);
        let (lock, arrived) = &link.slot_freed;
        let mut asked = false;
        loop {
            if link.is_down() {
                return Err(SendError::Gone(Gone::Process));
            }
            if let Some(fd) = &*link.counters.lock().unwrap_or_else(PoisonError::into_inner) {
                return match Tally::open(fd, REGION_BYTES) {
                    Ok(Some(tally)) => Ok(read(&tally)),
                    _ => Err(SendError::Gone(Gone::Process)),
                };
            }
            if clock::now_ns() >= deadline_ns {
                return Err(SendError::TimedOut);
            }
            if !asked {
                link.tell(control::STAT, 0);
                asked = true;
            }
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
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
