//! Which system is ahead, row by row.

use crate::result::{Table, Verdict};

/// One row of a comparison: our figure, and the best of the peers'.
pub(super) struct Line {
    pub(super) what: String,
    pub(super) own: (&'static str, f64),
    pub(super) peer: (&'static str, f64),
    /// How many times ahead we are; below one, behind.
    pub(super) ahead: f64,
}

impl Line {
    /// A line of times, where less is better. `None` where either is missing.
    pub(super) fn of_times(
        what: String,
        own: Option<(&'static str, f64)>,
        peers: impl Iterator<Item = (&'static str, f64)>,
    ) -> Option<Self> {
        let (own, peer) = own.zip(peers.min_by(|a, b| a.1.total_cmp(&b.1)))?;
        let ahead = peer.1 / own.1;
        Some(Self {
            what,
            own,
            peer,
            ahead,
        })
    }

    /// A line of rates, where more is better.
    pub(super) fn of_rates(
        what: String,
        own: Option<(&'static str, f64)>,
        peers: impl Iterator<Item = (&'static str, f64)>,
    ) -> Option<Self> {
        let (own, peer) = own.zip(peers.max_by(|a, b| a.1.total_cmp(&b.1)))?;
        let ahead = own.1 / peer.1;
        Some(Self {
            what,
            own,
            peer,
            ahead,
        })
    }
}

/// Whether we are ahead in all, and where not.
pub(super) fn verdict(lines: &[Line]) -> (Verdict, String) {
    let (ahead, behind): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| line.ahead > 1.0);
    let verdict = match (ahead.len(), behind.len()) {
        (0, 0) => return (Verdict::Absent, "no peer was measured".to_owned()),
        (_, 0) => Verdict::Holds,
        (ahead, behind) if ahead > behind => Verdict::Partly,
        _ => Verdict::Fails,
    };
    let mut reasons = format!(
        "ahead of every peer in {} of {} rows",
        ahead.len(),
        lines.len()
    );
    let mut factors: Vec<f64> = ahead.iter().map(|line| line.ahead).collect();
    factors.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (factors.first(), factors.last()) {
        reasons += &format!(", {least:.1} to {most:.1} times the best of them");
    }
    if behind.is_empty() {
        return (verdict, reasons);
    }
    for line in &behind {
        reasons += &format!(
            "; {}: {} has {:.2} of {}",
            line.what, line.own.0, line.ahead, line.peer.0
        );
    }
    let mut said: Vec<&str> = Vec::new();
    for line in &behind {
        if let Some(why) = saves(line.peer.0).filter(|why| !said.contains(why)) {
            said.push(why);
            reasons += &format!("; {}: {why}", line.peer.0);
        }
    }
    reasons += "; what was tried: docs/decisions/0017-beside-the-peers.md";
    (verdict, reasons)
}

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

/// All rows.
pub(super) fn table(lines: &[Line], show: impl Fn(f64) -> String) -> Table {
    let row = |line: &Line| {
        let (own, peer) = (line.own, line.peer);
        vec![
            line.what.clone(),
            format!("{} ({})", show(own.1), own.0),
            format!("{} ({})", show(peer.1), peer.0),
            format!("{:.2}", line.ahead),
        ]
    };
    let columns = ["row", "handfast", "best of the peers", "times ahead"];
    Table {
        title: "Rows".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_behind_is_named_and_its_factor_said() {
        let line = |what: &str, own, peers: [f64; 2]| {
            let peers = ["a", "b"].into_iter().zip(peers);
            Line::of_times(what.to_owned(), Some(("handfast", own)), peers).unwrap()
        };
        let (which, _) = verdict(&[line("24 B", 1.0, [4.0, 2.0])]);
        assert_eq!(which, Verdict::Holds);
        let lines = [
            line("24 B", 1.0, [4.0, 2.0]),
            line("1 KiB", 4.0, [2.0, 8.0]),
        ];
        let (which, reasons) = verdict(&lines);
        assert_eq!(which, Verdict::Fails);
        assert!(
            reasons.contains("1 KiB: handfast has 0.50 of a"),
            "{reasons}"
        );
        assert_eq!(verdict(&[]).0, Verdict::Absent);
        let rate = Line::of_rates(
            String::new(),
            Some(("handfast", 6.0)),
            [("a", 2.0), ("b", 3.0)].into_iter(),
        );
        assert!((rate.unwrap().ahead - 2.0).abs() < 1e-9);
    }
}
