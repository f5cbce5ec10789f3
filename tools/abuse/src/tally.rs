//! The faults, their outcomes, and the table of both.

use crate::client::{Report, STALLS_MAX};
use crate::kinds::{Fault, KINDS, name_of};
use handfast_cli::output::say;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The counts of all attacking threads.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Default)]
pub(crate) struct Counts {
    faults: BTreeMap<&'static str, u64>,
    /// Stages of killed clients.
    stages: BTreeMap<&'static str, u64>,
    impossible: BTreeMap<&'static str, String>,
    kills: u64,
    words: u64,
    links: u64,
    refused: u64,
    crashes: u64,
    hangs: u64,
    /// The report of newcomers.
    own: Report,
    /// Each fault with its victim, and its start and end in nanoseconds of the monotonic clock.
    log: VecDeque<(Fault, String, (u64, u64))>,
}

/// For so many faults their times are remembered.
const LOG_MAX: usize = 200_000;

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

impl Counts {
    /// The longest calls of all clients, and what was done meanwhile.
    fn stalls(&self, reports: &[Report]) -> Result<(), Box<dyn std::error::Error>> {
        let mut stalls: Vec<_> = (0..)
            .zip(reports)
            .flat_map(|(client, report)| report.stalls.iter().map(move |stall| (client, stall)))
            .collect();
        stalls.sort_by_key(|(_, stall)| std::cmp::Reverse(stall.took_us));
        for (client, stall) in stalls.iter().take(STALLS_MAX) {
            say!(
                "    {} ms: client {client} to {}",
                stall.took_us / 1000,
                stall.what
            )?;
            let begun_ns = stall.ended_ns.saturating_sub(stall.took_us * 1000);
            for (fault, whom, (from_ns, to_ns)) in &self.log {
                if *from_ns < stall.ended_ns && *to_ns > begun_ns {
                    let since_ms = |ns: &u64| (*ns as f64 - begun_ns as f64) / 1e6;
                    say!(
                        "        {} ({whom}) from {:.0} to {:.0} ms of it",
                        name_of(*fault),
                        since_ms(from_ns),
                        since_ms(to_ns)
                    )?;
                }
            }
        }
        Ok(())
    }

    /// In a line.
    pub(crate) fn so_far(&self) -> String {
        let faults: u64 = self.faults.values().sum();
        format!(
            "{faults} faults, {} kills, {} words",
            self.kills, self.words
        )
    }
}

impl Tally {
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fault(&self, fault: Fault, stage: &'static str) {
        let mut counts = self.counts();
        *counts.faults.entry(name_of(fault)).or_default() += 1;
        if !stage.is_empty() {
            *counts.stages.entry(stage).or_default() += 1;
        }
    }

    pub(crate) fn under_way(&self, fault: Fault, whom: String, when_ns: (u64, u64)) {
        let mut counts = self.counts();
        counts.log.push_back((fault, whom, when_ns));
        if counts.log.len() > LOG_MAX {
            counts.log.pop_front();
        }
    }

    pub(crate) fn not_possible(&self, fault: Fault, why: &str) {
        self.counts()
            .impossible
            .insert(name_of(fault), why.to_owned());
    }

    pub(crate) fn kill(&self) {
        self.counts().kills += 1;
    }

    pub(crate) fn words(&self, count: &str) {
        self.counts().words += number(count);
    }

    pub(crate) fn links(&self, count: &str) {
        self.counts().links += number(count);
    }

    pub(crate) fn calls(&self, count: &str) {
        self.counts().own.calls += number(count);
    }

    pub(crate) fn refused(&self) {
        self.counts().refused += 1;
    }

    pub(crate) fn wrong(&self, what: &str) {
        let mut counts = self.counts();
        counts.own.wrong += 1;
        counts.own.reason(what.to_owned());
    }

    pub(crate) fn lost(&self, what: &str) {
        let mut counts = self.counts();
        counts.own.lost += 1;
        counts.own.reason(format!("a newcomer: {what}"));
    }

    pub(crate) fn reason(&self, what: &str) {
        self.counts().own.reason(what.to_owned());
    }

    pub(crate) fn crash(&self, what: &str) {
        let mut counts = self.counts();
        counts.crashes += 1;
        counts.own.reason(format!("crashed: {what}"));
    }

    pub(crate) fn hang(&self, what: &str) {
        let mut counts = self.counts();
        counts.hangs += 1;
        counts.own.reason(format!("hangs: {what}"));
    }
}

/// Leftovers, by kind, in words.
#[derive(Default)]
pub(crate) struct Leaks {
    pub(crate) memory: Vec<String>,
    pub(crate) descriptors: Vec<String>,
    pub(crate) files: Vec<String>,
    pub(crate) processes: Vec<String>,
    /// The holdings of each, where they are no leak.
    pub(crate) held: Vec<String>,
}

/// How late a call to a server that is killed may end.
const LATE: Duration = Duration::from_secs(5);

/// Writes the table. Whether all was well.
pub(crate) fn table(
    counts: &Counts,
    reports: &[Report],
    leaks: &Leaks,
    limit: Duration,
) -> Result<bool, Box<dyn std::error::Error>> {
    let sum = |of: fn(&Report) -> u64| reports.iter().chain([&counts.own]).map(of).sum::<u64>();
    let longest = |of: fn(&Report) -> u64| reports.iter().map(of).max().unwrap_or(0);
    say!("\n{:<58}{:>14}", "faults injected", "")?;
    for (_, _, name) in KINDS {
        let count = counts.faults.get(name).copied().unwrap_or(0);
        match counts.impossible.get(name) {
            Some(why) => say!("  {name:<56}{count:>14}   not possible here: {why}")?,
            None => say!("  {name:<56}{count:>14}")?,
        }
    }
    let stages = counts
        .stages
        .iter()
        .map(|(stage, count)| format!("{stage} {count}"));
    say!(
        "  of the killed clients, at: {}",
        stages.collect::<Vec<_>>().join(", ")
    )?;
    let line = |name: &str, count: u64| say!("{name:<58}{count:>14}");
    line("processes killed", counts.kills)?;
    line("words scribbled", counts.words)?;
    line("links of floods", counts.links)?;
    line("newcomers refused for want of room or time", counts.refused)?;
    say!("")?;
    line("calls to servers that live", sum(|it| it.calls))?;
    line("  lost", sum(|it| it.lost))?;
    line("  answered wrongly (any call)", sum(|it| it.wrong))?;
    line("  longest stall, ms", longest(|it| it.longest_us) / 1000)?;
    counts.stalls(reports)?;
    line(
        "calls to servers that are killed or lie",
        sum(|it| it.mortal_calls),
    )?;
    line("  ended by an error", sum(|it| it.mortal_errors))?;
    line(
        "  latest after the deadline, ms",
        longest(|it| it.late_us) / 1000,
    )?;
    line("hangs", counts.hangs)?;
    line("crashes", counts.crashes)?;
    for (name, left) in [
        ("leaks of memory", &leaks.memory),
        (
            "leaks of descriptors, mappings and threads",
            &leaks.descriptors,
        ),
        ("leaks of files", &leaks.files),
        ("leaks of processes", &leaks.processes),
    ] {
        line(name, left.len() as u64)?;
        for what in left {
            say!("  {what}")?;
        }
    }
    for held in &leaks.held {
        say!("  {held}")?;
    }
    for reason in reports
        .iter()
        .chain([&counts.own])
        .flat_map(|it| &it.reasons)
    {
        say!("  {reason}")?;
    }
    let left = [
        &leaks.memory,
        &leaks.descriptors,
        &leaks.files,
        &leaks.processes,
    ];
    Ok(
        sum(|it| it.lost + it.wrong) + counts.hangs + counts.crashes == 0
            && left.iter().all(|left| left.is_empty())
            && Duration::from_micros(longest(|it| it.longest_us)) <= limit
            && Duration::from_micros(longest(|it| it.late_us)) <= LATE,
    )
}
