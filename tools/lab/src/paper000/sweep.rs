//! Throughput and its costs by number of clients: several lines, in turns.

use crate::claims::Rounds;
use crate::result::{Axis, Curve, Figure, Kind, Point};
use handfast_bench::plan::{Placement, Plan, Timing};
use handfast_bench::run::Run;
use handfast_bench::scheduling::Scheduling;
use handfast_bench::session::{Rest, Sample, Session, Told};
use handfast_bench::stats::median;
use handfast_bench::systems;
use handfast_sys::cpu;
use std::io;

/// One curve: a system, and how it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) name: &'static str,
    key: &'static str,
    scheduling: Scheduling,
    max_spin: u32,
}

/// Lines that are measured in turns, over the same numbers of clients.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) place: Place,
    pub(super) clients: &'static [usize],
    /// The numbers of clients of a quick run.
    pub(super) quick: &'static [usize],
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// All processes on one: the paper's uniprocessor.
    OneCpu,
    /// Wherever the scheduler puts them.
    AllCpus,
}

/// The results of a panel.
pub(super) struct Sheet {
    title: &'static str,
    place: Place,
    lines: Vec<Measured>,
}

struct Measured {
    name: &'static str,
    absent: Option<String>,
    turns: Vec<Turn>,
}

/// The results of one line in one round with one number of clients. Costs are sums over all processes, per message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    pub(super) round: u32,
    pub(super) clients: usize,
    pub(super) per_ms: f64,
    pub(super) voluntary: f64,
    pub(super) involuntary: f64,
    /// Switches of the server alone, both kinds.
    pub(super) server_switches: f64,
    pub(super) syscalls: f64,
    /// Clients' waits that ended asleep.
    pub(super) sleeps: f64,
    /// Clients' polls that found nothing.
    pub(super) polls: f64,
}

impl Line {
    pub(super) const fn new(name: &'static str, key: &'static str) -> Self {
        Self {
            name,
            key,
            scheduling: Scheduling::Default,
            max_spin: 20,
        }
    }

    pub(super) const fn under(self, scheduling: Scheduling) -> Self {
        Self { scheduling, ..self }
    }

    pub(super) const fn spinning(self, max_spin: u32) -> Self {
        Self { max_spin, ..self }
    }
}

/// Measures all panels.
pub(super) fn measure(run: &mut Run, panels: &[Panel]) -> Vec<Sheet> {
    let rounds = if run.args.quick { 2 } else { 5 };
    let is_quick = run.args.quick;
    let clients = |panel: &Panel| match is_quick {
        true => panel.quick,
        false => panel.clients,
    };
    let turns: usize = panels
        .iter()
        .map(|panel| panel.lines.len() * clients(panel).len())
        .sum();
    run.expect(turns * rounds as usize);
    let mut sheets = Vec::new();
    for panel in panels {
        let _aside = (panel.place == Place::OneCpu).then(|| Aside::step(run.server_cpu));
        let absent = |line: &Line| {
            let refused = line.scheduling.is_permitted().err();
            refused
                .map(|error| format!("{:?} scheduling is not permitted: {error}", line.scheduling))
        };
        let measured = |line: &Line| Measured {
            name: line.name,
            absent: absent(line),
            turns: Vec::new(),
        };
        let mut lines: Vec<Measured> = panel.lines.iter().map(measured).collect();
        for round in 0..rounds {
            for count in clients(panel) {
                for (line, measured) in panel.lines.iter().zip(&mut lines) {
                    if measured.absent.is_some() {
                        run.step();
                        continue;
                    }
                    measured
                        .turns
                        .extend(turn(run, panel.place, *line, (round, *count)));
                }
            }
        }
        for line in &mut lines {
            if line.turns.is_empty() && line.absent.is_none() {
                line.absent = Some("none of its turns went well".to_owned());
            }
        }
        sheets.push(Sheet {
            title: panel.title,
            place: panel.place,
            lines,
        });
    }
    sheets
}

fn turn(run: &mut Run, place: Place, line: Line, (round, clients): (u32, usize)) -> Option<Turn> {
    let system = systems::find(line.key)?;
    let placement = match place {
        Place::OneCpu => run.same_core(),
        Place::AllCpus => Placement::Free,
    };
    let plan = Plan {
        clients,
        placement,
        max_spin: line.max_spin,
        scheduling: line.scheduling,
        ..Plan::echo()
    };
    // Many processes come to their turns late.
    let timing = match clients {
        0..=8 => run.timing(Timing::ms(5, 20), Timing::ms(20, 60)),
        _ => run.timing(Timing::ms(30, 80), Timing::ms(100, 250)),
    };
    let (sample, looks) = run.attempt(system.as_ref(), &plan, |session| {
        session.measure_beside(timing, Look::at)
    })?;
    let is_told = !line.key.starts_with("handfast");
    Some(Turn {
        round,
        clients,
        ..Turn::of(&sample, &looks, is_told)
    })
}

/// The processes' work so far.
struct Look {
    calls: u64,
    used: Rest,
    told: Told,
}

impl Look {
    fn at(session: &Session) -> io::Result<Self> {
        Ok(Self {
            used: session.used()?,
            told: session.told(),
            calls: session.calls(),
        })
    }
}

impl Turn {
    fn of(sample: &Sample, [before, after]: &[Look; 2], is_told: bool) -> Self {
        let calls = (after.calls - before.calls).max(1) as f64;
        let each = |count: u64| count as f64 / calls;
        let server = after.used.server.since(before.used.server);
        let clients = after.used.clients.since(before.used.clients);
        let involuntary = server.involuntary + clients.involuntary;
        let voluntary = server.switches + clients.switches - involuntary;
        let syscalls = match is_told {
            true => after.told.syscalls - before.told.syscalls,
            // A sleep, and a call that ended it; a yield.
            false => 2 * voluntary + involuntary,
        };
        Self {
            per_ms: sample.per_second() / 1e3,
            voluntary: each(voluntary),
            involuntary: each(involuntary),
            server_switches: each(server.switches),
            syscalls: each(syscalls),
            sleeps: each(after.told.sleeps - before.told.sleeps),
            polls: each(after.told.polls - before.told.polls),
            ..Self::default()
        }
    }
}

/// Keeps this thread, which starts and watches, off a CPU; on all it had before when dropped.
pub(super) struct Aside(Vec<u32>);

impl Aside {
    pub(super) fn step(from: u32) -> Self {
        let all = cpu::allowed();
        let others: Vec<u32> = all.iter().copied().filter(|cpu| *cpu != from).collect();
        if !others.is_empty() {
            // Where that is forbidden it is in the way now and then.
            let _ = cpu::pin(&others);
        }
        Self(all)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = cpu::pin(&self.0);
    }
}

impl Sheet {
    /// The median of `field` over the rounds of a line.
    pub(super) fn at(
        &self,
        line: &str,
        clients: usize,
        field: impl Fn(&Turn) -> f64,
    ) -> Option<f64> {
        let turns = self.turns(line).filter(|turn| turn.clients == clients);
        median(&turns.map(field).collect::<Vec<_>>())
    }

    /// The median throughput of one line over another's in the same round, at the numbers of clients
    /// that `among` lets through.
    pub(super) fn ratio(
        &self,
        (line, other): (&str, &str),
        among: impl Fn(usize) -> bool,
    ) -> Option<f64> {
        let mut ratios = Vec::new();
        for turn in self.turns(line).filter(|turn| among(turn.clients)) {
            let same = |other: &&Turn| (other.round, other.clients) == (turn.round, turn.clients);
            let other = self.turns(other).find(same);
            ratios.extend(other.map(|other| turn.per_ms / other.per_ms));
        }
        median(&ratios)
    }

    /// The throughput of a line with the most clients over its own best.
    pub(super) fn kept(&self, line: &str) -> Option<f64> {
        let most = self.turns(line).map(|turn| turn.clients).max()?;
        Some(self.at(line, most, |turn| turn.per_ms)? / self.best(line, usize::MAX)?)
    }

    /// The best throughput of a line with at most so many clients.
    pub(super) fn best(&self, line: &str, clients_max: usize) -> Option<f64> {
        self.counts(line)
            .into_iter()
            .filter(|clients| *clients <= clients_max)
            .filter_map(|clients| self.at(line, clients, |turn| turn.per_ms))
            .reduce(f64::max)
    }

    fn counts(&self, line: &str) -> Vec<usize> {
        let mut counts: Vec<usize> = self.turns(line).map(|turn| turn.clients).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    fn turns(&self, line: &str) -> impl Iterator<Item = &Turn> {
        let line = self
            .lines
            .iter()
            .find(move |measured| measured.name == line);
        line.into_iter().flat_map(|measured| &measured.turns)
    }

    /// Throughput, then its cost.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let title = |what: &str| format!("{what}, {}", self.title);
        let most = |line: &Measured| line.turns.iter().map(|turn| turn.clients).max();
        let is_wide = self.lines.iter().filter_map(most).any(|most| most > 8);
        let axis = if is_wide { Axis::log } else { Axis::linear };
        let figure = |title, y, field: fn(&Turn) -> f64| Figure {
            title,
            kind: Kind::Lines,
            x: axis("clients", ""),
            y,
            curves: self.curves(field),
        };
        let per_message = |what| Axis::linear(what, "per message");
        let mut figures = vec![
            figure(
                title("Server throughput"),
                axis("throughput", "messages/ms"),
                |turn| turn.per_ms,
            ),
            figure(
                title("Voluntary context switches"),
                per_message("switches"),
                |turn| turn.voluntary,
            ),
            figure(
                title("Involuntary context switches"),
                per_message("switches"),
                |turn| turn.involuntary,
            ),
            figure(title("System calls"), per_message("system calls"), |turn| {
                turn.syscalls
            }),
        ];
        if self.place == Place::OneCpu {
            let y = per_message("switches");
            figures.push(figure(title("The server's context switches"), y, |turn| {
                turn.server_switches
            }));
        }
        figures
    }

    fn curves(&self, field: fn(&Turn) -> f64) -> Vec<Curve> {
        let curve = |line: &Measured| {
            let point = |clients: usize| {
                let turns = line.turns.iter().filter(|turn| turn.clients == clients);
                let values: Vec<f64> = turns.map(field).collect();
                let lowest = values.iter().copied().reduce(f64::min)?;
                let highest = values.iter().copied().reduce(f64::max)?;
                Some(Point {
                    x: clients as f64,
                    y: median(&values)?,
                    range: Some((lowest, highest)),
                    label: None,
                })
            };
            let points: Vec<Point> = self
                .counts(line.name)
                .into_iter()
                .filter_map(point)
                .collect();
            Curve {
                name: line.name.to_owned(),
                absent: line.absent.clone(),
                points,
            }
        };
        self.lines.iter().map(curve).collect()
    }
}

impl Rounds for Sheet {
    fn count(&self) -> usize {
        let turns = self.lines.iter().flat_map(|line| &line.turns);
        let last = turns.map(|turn| turn.round as usize).max();
        last.map_or(0, |last| last + 1)
    }

    fn only(&self, round: usize) -> Self {
        let line = |line: &Measured| {
            let turns = line.turns.iter().copied();
            Measured {
                name: line.name,
                absent: line.absent.clone(),
                turns: turns.filter(|turn| turn.round as usize == round).collect(),
            }
        };
        Self {
            title: self.title,
            place: self.place,
            lines: self.lines.iter().map(line).collect(),
        }
    }
}

/// For each number of clients, the messages/ms of each round.
#[cfg(test)]
pub(super) type Counts<'a> = &'a [(usize, &'a [f64])];

#[cfg(test)]
impl Sheet {
    /// A sheet with these throughputs: name, then number of clients and messages in each round.
    pub(super) fn with(place: Place, lines: &[(&'static str, Counts<'_>)]) -> Self {
        let line = |(name, counts): &(&'static str, Counts<'_>)| {
            let mut turns = Vec::new();
            for (clients, rounds) in *counts {
                for (round, per_ms) in (0..).zip(*rounds) {
                    turns.push(Turn {
                        round,
                        clients: *clients,
                        per_ms: *per_ms,
                        ..Turn::default()
                    });
                }
            }
            Measured {
                name,
                absent: None,
                turns,
            }
        };
        Self {
            title: "test",
            place,
            lines: lines.iter().map(line).collect(),
        }
    }

    /// Changes all turns of a line.
    pub(super) fn change(&mut self, line: &str, change: impl Fn(&mut Turn)) {
        let lines = self
            .lines
            .iter_mut()
            .filter(|measured| measured.name == line);
        lines.flat_map(|line| &mut line.turns).for_each(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_compares_turns_of_one_round_and_medians_the_rest() {
        // The machine was twice as slow in the second round, and the third had no turn of the other.
        let sheet = Sheet::with(
            Place::OneCpu,
            &[
                ("a", &[(1, &[30.0, 15.0, 900.0]), (2, &[40.0])]),
                ("b", &[(1, &[10.0, 5.0]), (2, &[10.0])]),
            ],
        );
        assert_eq!(sheet.ratio(("a", "b"), |clients| clients == 1), Some(3.0));
        assert_eq!(sheet.ratio(("a", "b"), |clients| clients == 2), Some(4.0));
        assert_eq!(sheet.ratio(("a", "none"), |_| true), None);
        assert_eq!(sheet.at("a", 1, |turn| turn.per_ms), Some(30.0));
    }

    #[test]
    fn what_is_kept_with_the_most_clients_refers_to_the_lines_own_best() {
        let flat: Counts<'_> = &[(1, &[50.0]), (3, &[100.0]), (64, &[90.0])];
        let fallen: Counts<'_> = &[(1, &[100.0]), (3, &[200.0]), (64, &[10.0])];
        let sheet = Sheet::with(Place::AllCpus, &[("flat", flat), ("fallen", fallen)]);
        assert_eq!(sheet.kept("flat"), Some(0.9));
        assert_eq!(sheet.kept("fallen"), Some(0.05));
        assert_eq!(sheet.best("fallen", 2), Some(100.0));
        assert_eq!(sheet.kept("none"), None);
    }

    #[test]
    fn a_line_without_turns_says_why_and_one_with_them_has_a_range() {
        let mut sheet = Sheet::with(
            Place::OneCpu,
            &[("a", &[(1, &[3.0, 1.0, 2.0]), (6, &[4.0])]), ("b", &[])],
        );
        sheet.lines[1].absent = Some("forbidden".to_owned());
        let figures = sheet.figures();
        let curves = &figures[0].curves;
        assert_eq!(
            (curves[0].points[0].y, curves[0].points[0].range),
            (2.0, Some((1.0, 3.0)))
        );
        assert_eq!((curves[0].points[1].x, curves[0].points.len()), (6.0, 2));
        assert_eq!(curves[1].absent.as_deref(), Some("forbidden"));
    }
}
