//! The paper's ideal case (its sections 1 and 2.1): messages that nobody answers. It has no figure of it, so nothing is judged.

use super::about;
use super::sweep::Aside;
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure, Kind, Verdict};
use crate::series::Series;
use handfast_bench::Bench;
use handfast_bench::plan::{Placement, Plan, Task, Timing};
use handfast_bench::run::Run;
use handfast_bench::systems;
use std::io;

pub(super) struct Asynchronous;

/// Messages that may wait in the server's queue.
const ROOM: [u32; 5] = [1, 4, 16, 64, 256];
const QUICK: [u32; 2] = [1, 64];

/// A curve: its name, the system's key, and whether the client waits for an answer.
struct Line(&'static str, &'static str, bool);

const ONE_WAY: &str = "BSS, asynchronous Send";
const SYSV_ONE_WAY: &str = "SysV queues, one way";
const LINES: [Line; 5] = [
    Line(ONE_WAY, "bss-oneway", false),
    Line("BSS, Send/Receive/Reply", "bss", true),
    Line(SYSV_ONE_WAY, "sysv-oneway", false),
    Line("SysV queues, Send/Receive/Reply", "sysv-queue", true),
    Line("handfast, one way", "handfast-singles", false),
];

impl Experiment for Asynchronous {
    fn about(&self) -> About {
        about(
            "asynchronous",
            "Asynchronous Send: a queue that is never empty",
            "Where a client enqueues several messages without waiting for a response, the server handles all that are pending without \
             a call of the kernel, also on one processor (the paper gives no figure).",
            "One client sends 24-byte messages that nobody answers, as fast as there is room in the server's queue, which holds 1 to \
             256. The steps are those of BSS and its Reply, as the paper has it: where the queue is full, or empty, a side yields on one \
             CPU and spins on several. Beside it, Send/Receive/Reply with one call under way, and System V queues, one way with as \
             much room and with replies. All take turns in each round. A message is one that the server has received, with replies \
             a whole round trip.",
        )
    }

    fn bench(&self) -> Bench {
        Bench::Stream
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let rounds = if run.args.quick { 2 } else { 5 };
        let room = if run.args.quick { &QUICK[..] } else { &ROOM };
        run.expect(2 * rounds * room.len() * LINES.len());
        let mut figures = Vec::new();
        let mut reasons = Vec::new();
        let places = [("one CPU", run.same_core()), ("all CPUs", Placement::Free)];
        for (title, placement) in places {
            let _aside = placement.same_core().then(|| Aside::step(run.server_cpu));
            let mut found = Found::default();
            for _ in 0..rounds {
                for room in room {
                    for line in &LINES {
                        found.turn(run, line, placement, *room);
                    }
                }
            }
            reasons.push(format!("{title}: {}", found.said(room)));
            figures.extend(found.figures(title));
        }
        Ok(Findings {
            measured: "BSS with two-lock queues and System V queues, one way and with replies; handfast's one-way messages, sent and \
                       received one by one with its default strategy."
                .to_owned(),
            verdict: Verdict::Shown,
            reasons: format!("shown, not judged; {}", reasons.join("; ")),
            figures,
            tables: Vec::new(),
            notes: vec![
                "The room is the receive queue's. Calls have one message under way, whatever the room, and handfast's lanes have their own."
                    .to_owned(),
                "System calls are those that each process counts of its protocol's: semaphores, yields, message queues. handfast's are not counted."
                    .to_owned(),
                "BSW, BSWY and BSLS have no curve: where a queue is full, their Send sleeps for a second (Figure 5)."
                    .to_owned(),
            ],
        })
    }
}

/// Each by curve and room.
#[derive(Default)]
struct Found {
    per_ms: Series,
    syscalls: Series,
    switches: Series,
}

impl Found {
    fn turn(&mut self, run: &mut Run, line: &Line, placement: Placement, room: u32) {
        let Line(name, key, is_answered) = *line;
        let Some(system) = systems::find(key) else {
            return;
        };
        let plan = Plan {
            task: if is_answered {
                Task::Echo
            } else {
                Task::Stream
            },
            placement,
            room,
            ..Plan::echo()
        };
        let timing = run.timing(Timing::ms(5, 20), Timing::ms(20, 60));
        let turn = run.attempt(system.as_ref(), &plan, |session| {
            session.measure_beside(timing, |session| Ok((session.told(), session.used()?)))
        });
        let Some((sample, [(told, used), (told_after, used_after)])) = turn else {
            return;
        };
        let each = |count: u64| count as f64 / sample.total().max(1) as f64;
        let x = f64::from(room);
        self.per_ms.add(name, x, sample.per_second() / 1e3);
        let switches = used_after.server.since(used.server).switches
            + used_after.clients.since(used.clients).switches;
        self.switches.add(name, x, each(switches));
        if !key.starts_with("handfast") {
            let syscalls = told_after.syscalls - told.syscalls;
            self.syscalls.add(name, x, each(syscalls));
        }
    }

    /// The numbers with the most room.
    fn said(&self, room: &[u32]) -> String {
        let most = room.iter().copied().max().map_or(0.0, f64::from);
        let of = |name: &str| {
            let numbers = self.per_ms.at(name, most).zip(self.syscalls.at(name, most));
            numbers.map_or_else(
                || format!("{name} not measured"),
                |(per_ms, syscalls)| {
                    format!("{name} {per_ms:.0} messages/ms with {syscalls:.3} system calls each")
                },
            )
        };
        format!(
            "with room for {most:.0}, {}, {}",
            of(ONE_WAY),
            of(SYSV_ONE_WAY)
        )
    }

    fn figures(&self, place: &str) -> [Figure; 3] {
        let names = LINES.map(|Line(name, ..)| name);
        let figure = |title: &str, y, series: &Series, names: &[&str]| Figure {
            title: format!("{title}, {place}"),
            kind: Kind::Lines,
            x: Axis::log("room in the queue", "messages"),
            y,
            curves: series.curves(names),
        };
        let told = &names[..names.len() - 1];
        [
            figure(
                "Messages received",
                Axis::log("throughput", "messages/ms"),
                &self.per_ms,
                &names,
            ),
            figure(
                "System calls",
                Axis::linear("system calls", "per message"),
                &self.syscalls,
                told,
            ),
            figure(
                "Context switches",
                Axis::linear("switches", "per message"),
                &self.switches,
                &names,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_systems_and_what_was_not_measured_says_so() {
        for Line(name, key, _) in LINES {
            assert!(systems::find(key).is_some(), "{name}");
        }
        let mut found = Found::default();
        for room in QUICK.map(f64::from) {
            found.per_ms.add(ONE_WAY, room, 100.0 * room);
            found.syscalls.add(ONE_WAY, room, 2.0 / room);
        }
        assert_eq!(
            found.said(&QUICK),
            "with room for 64, BSS, asynchronous Send 6400 messages/ms with 0.031 system calls each, SysV queues, one way not measured"
        );
        let [throughput, syscalls, _] = found.figures("one CPU");
        assert_eq!(throughput.curves[0].points.len(), 2);
        assert!(throughput.curves[1].absent.is_some());
        assert_eq!(syscalls.curves.len(), 4);
    }
}
