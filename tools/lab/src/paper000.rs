//! "Efficient Sleep/Wake-up Protocols for User-Level IPC" (paper 000).
//!
//! Reading order: [`figures`] says what each figure claims, measures and comes to; [`sweep`] measures; [`claims`](crate::claims)
//! weighs; [`table1`] has the single operations, [`asynchronous`] messages without an answer.

mod asynchronous;
mod figures;
mod sweep;
mod table1;

use crate::claims::{Part, judge};
use crate::experiment::{Experiment, Findings};
use crate::result::{About, Axis, Figure};
use handfast_bench::Bench;
use handfast_bench::run::Run;
use std::io;
use sweep::{Panel, Sheet};

pub(crate) fn all() -> Vec<Box<dyn Experiment>> {
    let mut all: Vec<Box<dyn Experiment>> = vec![Box::new(table1::Table1)];
    for throughput in figures::ALL {
        all.push(Box::new(throughput));
    }
    all.push(Box::new(asynchronous::Asynchronous));
    all
}

fn about(name: &str, title: &str, claim: &str, method: &str) -> About {
    About {
        name: format!("000-{name}"),
        paper: Some("000".to_owned()),
        title: title.to_owned(),
        claim: claim.to_owned(),
        method: method.to_owned(),
    }
}

/// A figure of throughput by number of clients.
struct Throughput {
    name: &'static str,
    title: &'static str,
    claim: &'static str,
    panels: fn() -> Vec<Panel>,
    /// Given the sheets of the panels, in their order.
    judge: fn(&[Sheet]) -> Vec<Part>,
    /// The peculiarity of the figure.
    note: &'static str,
}

const METHOD: &str = "One server process with one receive queue, and client processes with a reply queue each, which start together and call \
     without pause: 24-byte messages with an opcode, the client's number and an argument that comes back. Queues are \
     two-lock queues in shared memory; the protocols' steps are the paper's, with System V semaphores where nothing else is \
     said. All curves of a panel take turns in each round; a point is the median of its rounds, a ratio in the verdict the \
     median of ratios within rounds. The paper counted to the last client's end, here a window in the middle is counted.";

const COUNTED: [&str; 3] = [
    "System calls: each process counts those that its protocol makes (semaphores, yields, message queues, sleeps), in a shared page of its \
     own; those of a queue lock that is held for long are not among them. handfast's are twice the voluntary switches of its \
     processes, each of which is a sleep that another's call ended, and the involuntary ones, of which nearly all are yields.",
    "Linux counts a yield that lets another process run as an involuntary switch; IRIX and AIX, which the paper used, as a voluntary \
     one.",
    "handfast's server wakes few clients at a time whenever it is overloaded, and needs no option for that: handfast-default is the \
     wake-throttled server, with clients that choose their spin limit; handfast-bss, -bsw, -bswy and -bsls are the \
     product with its strategies of these names (the steps are the same, which a test holds; queues and wake-ups are its own).",
];

impl Experiment for Throughput {
    fn about(&self) -> About {
        about(self.name, self.title, self.claim, METHOD)
    }

    fn bench(&self) -> Bench {
        Bench::Scale
    }

    fn run(&self, run: &mut Run) -> io::Result<Findings> {
        let panels = (self.panels)();
        let sheets = sweep::measure(run, &panels);
        let (verdict, reasons) = judge(&sheets, |sheets| (self.judge)(sheets));
        let mut measured = Vec::new();
        for panel in &panels {
            let names: Vec<_> = panel.lines.iter().map(|line| line.name).collect();
            let most = panel.clients.last().unwrap_or(&0);
            measured.push(format!(
                "{}, 1 to {most} clients: {}",
                panel.title,
                names.join(", ")
            ));
        }
        let mut notes: Vec<String> = COUNTED.map(str::to_owned).into();
        if !self.note.is_empty() {
            notes.insert(0, self.note.to_owned());
        }
        Ok(Findings {
            measured: format!("{}.", measured.join(". ")),
            verdict,
            reasons,
            figures: sheets.iter().flat_map(Sheet::figures).collect(),
            tables: Vec::new(),
            notes,
        })
    }
}
