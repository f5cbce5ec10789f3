//! Which system is ahead, row by row.

use crate::claims::Part;
use crate::result::Table;

/// One row of a comparison.
pub(super) struct Line {
    pub(super) what: String,
    /// `None` where either was not measured.
    compared: Option<Compared>,
}

/// Our figure, and the best of the peers'.
struct Compared {
    own: (&'static str, f64),
    peer: (&'static str, f64),
    /// How many times ahead we are; below one, behind.
    ahead: f64,
}

impl Line {
    /// A line of times, where less is better.
    pub(super) fn of_times(
        what: String,
        own: Option<(&'static str, f64)>,
        peers: impl Iterator<Item = (&'static str, f64)>,
    ) -> Self {
        let peer = peers.min_by(|a, b| a.1.total_cmp(&b.1));
        Self::new(what, own, peer, |own, peer| peer / own)
    }

    /// A line of rates, where more is better.
    pub(super) fn of_rates(
        what: String,
        own: Option<(&'static str, f64)>,
        peers: impl Iterator<Item = (&'static str, f64)>,
    ) -> Self {
        let peer = peers.max_by(|a, b| a.1.total_cmp(&b.1));
        Self::new(what, own, peer, |own, peer| own / peer)
    }

    fn new(
        what: String,
        own: Option<(&'static str, f64)>,
        peer: Option<(&'static str, f64)>,
        ahead: impl Fn(f64, f64) -> f64,
    ) -> Self {
        let compared = own.zip(peer).map(|(own, peer)| Compared {
            own,
            peer,
            ahead: ahead(own.1, peer.1),
        });
        Self { what, compared }
    }

    /// Whether we are ahead of every peer.
    fn part(&self) -> Part {
        let what = &self.what;
        match &self.compared {
            None => Part::missing(what),
            Some(Compared { ahead, .. }) if !ahead.is_finite() || *ahead <= 0.0 => {
                Part::senseless(what)
            }
            Some(Compared { own, peer, ahead }) => {
                let (own, peer) = (own.0, peer.0);
                let found = format!(
                    "{what}: {own} is {ahead:.2} times as good as {peer} (to hold: over 1)"
                );
                let part = Part::new(*ahead > 1.0, found);
                match saves(peer) {
                    Some(why) => part.unless(&format!("{peer} {why}")),
                    None => part,
                }
            }
        }
    }
}

/// The parts of the claim to be ahead, row by row.
pub(super) fn parts(lines: &[Line]) -> Vec<Part> {
    lines.iter().map(Line::part).collect()
}

/// Said after the parts.
pub(super) const TRIED: &str =
    "Where a peer is ahead, what was tried: docs/decisions/0017-beside-the-peers.md.";

/// The work that a peer that is ahead somewhere saves by doing without.
fn saves(peer: &str) -> Option<&'static str> {
    let saved = [
        (
            "iceoryx2-busy",
            "polls on both sides for ever, and reads requests where their client can still write (one copy fewer)",
        ),
        (
            "iceoryx2",
            "reads requests where their client can still write (one copy fewer)",
        ),
        (
            "boost",
            "all processes trust one mutex and one piece of memory; one that dies with it stops the others",
        ),
        (
            "ipc-channel",
            "has the kernel copy and check, which at small sizes costs little beside two wake-ups",
        ),
    ];
    let mut saved = saved.into_iter();
    saved
        .find(|(name, _)| peer.starts_with(name))
        .map(|(_, what)| what)
}

/// The rows that were measured.
pub(super) fn table(lines: &[Line], show: impl Fn(f64) -> String) -> Table {
    let row = |line: &Line| {
        let Compared { own, peer, ahead } = line.compared.as_ref()?;
        Some(vec![
            line.what.clone(),
            format!("{} ({})", show(own.1), own.0),
            format!("{} ({})", show(peer.1), peer.0),
            format!("{ahead:.2}"),
        ])
    };
    let columns = ["row", "handfast", "best of the peers", "times ahead"];
    Table {
        title: "Rows".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: lines.iter().filter_map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{judge, weigh};
    use crate::result::Verdict;
    use crate::series::Series;

    #[test]
    fn a_row_behind_is_named_and_its_factor_said() {
        let line = |what: &str, own, peers: [f64; 2]| {
            let peers = ["a", "boost-queue"].into_iter().zip(peers);
            Line::of_times(what.to_owned(), Some(("handfast", own)), peers)
        };
        let ahead = || line("24 B", 1.0, [4.0, 2.0]);
        assert_eq!(weigh(&parts(&[ahead()])).0, Verdict::Holds);
        let behind = line("1 KiB", 4.0, [8.0, 2.0]);
        assert_eq!(table(&[ahead()], |ns| ns.to_string()).rows[0][3], "2.00");
        let (which, reasons) = weigh(&parts(&[ahead(), behind]));
        assert_eq!(which, Verdict::Partly);
        assert!(
            reasons.contains("not so: 1 KiB: handfast is 0.50 times as good as boost-queue (to hold: over 1) (a likely"),
            "{reasons}"
        );
        let rates = [("a", 2.0), ("b", 3.0)];
        let rate = |own| Line::of_rates("rate".to_owned(), own, rates.into_iter()).part();
        assert_eq!(rate(Some(("handfast", 6.0))).holds, Some(true));
        assert_eq!(rate(Some(("handfast", 2.9))).holds, Some(false));
        // A rate of nothing is none.
        assert_eq!(
            weigh(&[rate(Some(("handfast", 0.0)))]).0,
            Verdict::Undecided
        );
        assert_eq!(weigh(&[rate(None)]).0, Verdict::Absent);
    }

    #[test]
    fn a_row_that_rounds_disagree_on_is_undecided() {
        let verdict = |own_ns: [f64; 4]| {
            let mut series = Series::default();
            for ns in own_ns {
                series.add("handfast", 0.0, ns);
                series.add("a", 0.0, 10.0);
            }
            let claims = |series: &Series| {
                let at = |name: &'static str| Some((name, series.at(name, 0.0)?));
                let line = Line::of_times("24 B".to_owned(), at("handfast"), at("a").into_iter());
                parts(&[line])
            };
            judge(&series, claims).0
        };
        assert_eq!(verdict([5.0, 6.0, 12.0, 5.0]), Verdict::Holds);
        assert_eq!(verdict([5.0, 6.0, 12.0, 12.0]), Verdict::Undecided);
        assert_eq!(verdict([15.0, 16.0, 12.0, 5.0]), Verdict::Fails);
    }
}
