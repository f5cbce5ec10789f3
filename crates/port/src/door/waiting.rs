//! Rights of the vine that wait for a link or a lane, and go when the last of their copies does. A peer decides how many
//! there are: no step takes longer than the logarithm of their number, but those that are for all of them.

use crate::send::Upgrade;
use crate::users::Charge;
use core::ops::RangeInclusive;
use core::sync::atomic::Ordering;
use handfast_sys::clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// How soon a door that was not shown is asked for again.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// An exporter, and the introducer that may show the way to it, by the number of its link: each answers for the rights that came
/// from it, and is asked whatever the others say or leave unsaid.
type Way = ([u8; 20], u32);

fn way(upgrade: &Upgrade) -> Way {
    (upgrade.exporter, upgrade.introducer.serial)
}

/// See the module text.
#[derive(Default)]
pub(super) struct Waiting {
    for_links: BTreeMap<Way, Strangers>,
    for_lanes: BTreeMap<u64, Stranger>,
    last_place: u64,
}

/// The ways to `exporter`: all, or the one by an introducer.
fn ways(exporter: [u8; 20], by: Option<u32>) -> RangeInclusive<Way> {
    let (first, last) = by.map_or((0, u32::MAX), |serial| (serial, serial));
    (exporter, first)..=(exporter, last)
}

/// Strangers whose port belongs to one exporter, from one introducer.
#[derive(Default)]
struct Strangers {
    /// When the introducer was asked for the exporter's door.
    asked_ns: Option<u64>,
    rights: BTreeMap<u64, Stranger>,
}

/// A right of the vine that is to become a direct one.
pub(super) struct Stranger {
    pub(super) port: u32,
    pub(super) upgrade: Weak<Upgrade>,
    _charge: Charge,
}

impl Waiting {
    fn place(&mut self, upgrade: &Arc<Upgrade>, port: u32, charge: Charge) -> (u64, Stranger) {
        self.last_place += 1;
        // Relaxed: under the lock of these, as wherever it is read.
        upgrade.place.store(self.last_place, Ordering::Relaxed);
        let stranger = Stranger {
            port,
            upgrade: Arc::downgrade(upgrade),
            _charge: charge,
        };
        (self.last_place, stranger)
    }

    /// The right waits for a link with its exporter. Whether its introducer is to be asked for the exporter's door now; never unless
    /// it may be.
    pub(super) fn for_link(
        &mut self,
        upgrade: &Arc<Upgrade>,
        (port, charge): (u32, Charge),
        may_ask: bool,
    ) -> bool {
        let (place, stranger) = self.place(upgrade, port, charge);
        let strangers = self.for_links.entry(way(upgrade)).or_default();
        strangers.rights.insert(place, stranger);
        let now_ns = clock::ticks_ns();
        let is_old = |asked_ns| now_ns.saturating_sub(asked_ns) >= ASK_AGAIN_NS;
        let asks = may_ask && strangers.asked_ns.is_none_or(is_old);
        if asks {
            strangers.asked_ns = Some(now_ns);
        }
        asks
    }

    /// The rights that have waited for a link with `exporter`: all, or those from one introducer.
    pub(super) fn take(&mut self, exporter: [u8; 20], by: Option<u32>) -> Vec<Stranger> {
        let ways = ways(exporter, by);
        let taken = self.for_links.extract_if(ways, |_, _| true);
        taken
            .flat_map(|(_, strangers)| strangers.rights.into_values())
            .collect()
    }

    /// Whether a right waits for a link with `exporter`.
    pub(super) fn is_for_link(&self, exporter: [u8; 20]) -> bool {
        self.for_links.range(ways(exporter, None)).next().is_some()
    }

    /// The right waits for a lane.
    pub(super) fn for_lane(&mut self, upgrade: &Arc<Upgrade>, port: u32, charge: Charge) {
        let (place, stranger) = self.place(upgrade, port, charge);
        self.for_lanes.insert(place, stranger);
    }

    pub(super) fn is_for_lanes(&self) -> bool {
        !self.for_lanes.is_empty()
    }

    /// All that wait for lanes: those that still do are put back.
    pub(super) fn take_late(&mut self) -> BTreeMap<u64, Stranger> {
        core::mem::take(&mut self.for_lanes)
    }

    pub(super) fn put_back(&mut self, mut late: BTreeMap<u64, Stranger>) {
        // An upgrade dropped from here on removes itself; one dropped before found nothing.
        late.retain(|_, stranger| stranger.upgrade.strong_count() > 0);
        self.for_lanes.append(&mut late);
    }

    /// The last copy of the right is being dropped.
    pub(super) fn remove(&mut self, upgrade: &Upgrade) -> Option<Stranger> {
        // Relaxed: as where it is set.
        let place = upgrade.place.load(Ordering::Relaxed);
        if let Some(stranger) = self.for_lanes.remove(&place) {
            return Some(stranger);
        }
        let strangers = self.for_links.get_mut(&way(upgrade))?;
        let stranger = strangers.rights.remove(&place);
        if strangers.rights.is_empty() {
            self.for_links.remove(&way(upgrade));
        }
        stranger
    }
}
