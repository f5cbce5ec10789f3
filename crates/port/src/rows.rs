//! Rows of the process's counters: each link has one, as long as there are any.

use crate::rank;
use handfast_layout::counters::{LINK_ROWS, ROW_WORDS, link_word};
use handfast_region::Tally;
use handfast_sys::sync::Mutex;
use std::sync::Arc;

/// Which rows links have.
pub(crate) struct Rows {
    tally: Arc<Tally>,
    taken: Mutex<Vec<bool>, rank::Rows>,
}

/// A link's row; none where a thousand others have them all.
pub(crate) struct Row {
    rows: Arc<Rows>,
    place: Option<u32>,
}

impl Rows {
    pub(crate) fn new(tally: Arc<Tally>) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { tally, taken })
    }

    /// A row that no other link has.
    pub(crate) fn take(self: &Arc<Self>) -> Row {
        let mut taken = self.taken.lock();
        let free = taken.iter().position(|taken| !taken);
        let place = free.unwrap_or(taken.len());
        let has_room = place < LINK_ROWS as usize;
        if has_room {
            if place == taken.len() {
                taken.push(true);
            }
            taken[place] = true;
        }
        Row {
            rows: self.clone(),
            place: has_room.then_some(place as u32),
        }
    }
}

impl Row {
    /// Adds to a column. No other thread does so meanwhile.
    pub(crate) fn add(&self, column: usize, amount: u64) {
        if let Some(place) = self.place {
            self.rows.tally.add(link_word(place, column), amount);
        }
    }

    pub(crate) fn set(&self, column: usize, amount: u64) {
        if let Some(place) = self.place {
            self.rows.tally.store(link_word(place, column), amount);
        }
    }

    /// The link has ended, once: from now on its row is another's.
    pub(crate) fn end(&self) {
        for column in 0..ROW_WORDS {
            self.set(column, 0);
        }
        if let Some(place) = self.place {
            self.rows.taken.lock()[place as usize] = false;
        }
    }
}
