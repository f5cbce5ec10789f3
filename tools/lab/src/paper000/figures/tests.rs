//! The claims, with data for and against each.

use super::*;
use crate::claims;
use crate::paper000::sweep::Counts;
use crate::result::Verdict;

/// Figure 11 as the paper has it, with a server of ours that keeps its numbers.
fn multiprocessor(ours_with_64: f64, bsls_with_64: f64) -> Sheet {
    let bsls: Counts<'_> = &[(1, &[95.0]), (3, &[190.0]), (64, &[bsls_with_64])];
    let ours: Counts<'_> = &[(1, &[100.0]), (3, &[250.0]), (64, &[ours_with_64])];
    Sheet::with(
        Place::AllCpus,
        &[
            (BSS.name, &[(1, &[100.0]), (3, &[200.0]), (64, &[150.0])]),
            (BSLS.name, bsls),
            (SYSV.name, &[(1, &[20.0]), (3, &[25.0]), (64, &[20.0])]),
            (DEFAULT.name, ours),
            (THROTTLED.name, ours),
        ],
    )
}

#[test]
fn the_collapse_must_be_there_for_bsls_and_absent_for_ours() {
    let verdict = |sheet: &Sheet| claims::weigh(&figure_11(sheet, 4));
    let (holds, reasons) = verdict(&multiprocessor(240.0, 9.5));
    assert_eq!(holds, Verdict::Holds, "{reasons}");
    assert!(reasons.contains("BSLS, MAX_SPIN 20 0.05"), "{reasons}");
    // Ours falls, too.
    let (partly, reasons) = verdict(&multiprocessor(100.0, 9.5));
    assert_eq!(partly, Verdict::Partly, "{reasons}");
    assert!(reasons.contains("not so: handfast-default"), "{reasons}");
    // BSLS does not.
    let (partly, reasons) = verdict(&multiprocessor(240.0, 180.0));
    assert_eq!(partly, Verdict::Partly);
    assert!(reasons.contains("not so: BSLS, throughput"), "{reasons}");
}

#[test]
fn figure_2_wants_half_the_switches_with_twice_the_clients() {
    let lines: [(&str, Counts<'_>); 2] = [
        (BSS.name, &[(1, &[300.0]), (2, &[310.0])]),
        (SYSV.name, &[(1, &[150.0]), (2, &[150.0])]),
    ];
    let mut sheet = Sheet::with(Place::OneCpu, &lines);
    let judged = |sheet: &Sheet| (FIGURE_2.judge)(std::slice::from_ref(sheet));
    sheet.change(BSS.name, |turn| {
        turn.server_switches = 1.0 / turn.clients as f64;
        turn.syscalls = 5.0;
    });
    assert_eq!(claims::weigh(&judged(&sheet)).0, Verdict::Holds);
    sheet.change(BSS.name, |turn| turn.server_switches = 1.0);
    assert_eq!(judged(&sheet)[1].holds, Some(false));
    // Each yield lets the other run; and none does for long.
    for yields in [1.0, 20.0] {
        sheet.change(BSS.name, |turn| turn.syscalls = 2.0 * yields);
        assert_eq!(judged(&sheet)[2].holds, Some(false));
    }
}

#[test]
fn figure_10_wants_more_sleeps_and_polls_with_more_clients() {
    let twenty: Counts<'_> = &[(1, &[150.0]), (6, &[150.0])];
    let one: Counts<'_> = &[(1, &[100.0]), (6, &[100.0])];
    let mut sheet = Sheet::with(Place::OneCpu, &[(BSLS.name, twenty), (SPINS[0].name, one)]);
    let mut judged = |sleeps: [f64; 2], polls: [f64; 2]| {
        sheet.change(BSLS.name, |turn| {
            let place = usize::from(turn.clients > 1);
            (turn.sleeps, turn.polls) = (sleeps[place], polls[place]);
        });
        (FIGURE_10.judge)(std::slice::from_ref(&sheet))
    };
    let paper = judged([0.03, 0.1], [2.0, 4.0]);
    assert_eq!(claims::weigh(&paper).0, Verdict::Holds);
    let failed = |parts: Vec<Part>| {
        let parts = parts.iter().enumerate();
        let failed = parts.filter(|(_, part)| part.holds == Some(false));
        failed.map(|(place, _)| place).collect::<Vec<_>>()
    };
    // The counts of a machine where each yield lets the server run.
    assert_eq!(failed(judged([0.0; 2], [1.0; 2])), [1, 2, 3, 4, 5, 6]);
    // No growth.
    assert_eq!(failed(judged([0.05; 2], [3.0; 2])), [5, 6]);
    // Too much of it.
    assert_eq!(failed(judged([0.03, 0.19], [1.5, 8.0])), [5, 6]);
}

#[test]
fn figure_12_does_not_judge_a_stand_in() {
    let sheet = |stand_in: f64| {
        let rates = [
            (BSS, 100.0),
            (BSS_FIFO, 100.0),
            (BSWY, 95.0),
            (BSWY_FIFO, 95.0),
            (HAND_OFF_ANY, stand_in),
            (SERVER_FIRST, stand_in),
        ];
        let rounds = rates.map(|(_, rate)| [rate]);
        let counts = rounds.each_ref().map(|rounds| [(1, &rounds[..])]);
        let names = rates.iter().map(|(line, _)| line.name);
        let lines: Vec<_> = names.zip(counts.iter().map(|count| &count[..])).collect();
        Sheet::with(Place::OneCpu, &lines)
    };
    let judged = |stand_in| claims::weigh(&(FIGURE_12.judge)(&[sheet(stand_in)]));
    assert_eq!(judged(100.0), judged(1.0));
    // All of it but the two hand-offs.
    assert_eq!(judged(100.0).0, Verdict::Partly);
    assert!(judged(100.0).1.starts_with("2 of 4 as claimed"));
}

#[test]
fn every_figure_judges_what_it_measures() {
    for figure in ALL {
        // The same throughput for all lines and numbers: each claim finds the lines and numbers it asks for.
        let sheet = |panel: &Panel| {
            let counts: Vec<(usize, &[f64])> = panel
                .clients
                .iter()
                .map(|clients| (*clients, &[5.0][..]))
                .collect();
            let lines: Vec<_> = panel
                .lines
                .iter()
                .map(|line| (line.name, &counts[..]))
                .collect();
            Sheet::with(panel.place, &lines)
        };
        let mut sheets: Vec<Sheet> = (figure.panels)().iter().map(sheet).collect();
        for sheet in &mut sheets {
            sheet.change(BSS.name, |turn| turn.server_switches = 1.0);
        }
        for claim in (figure.judge)(&sheets) {
            let is_absent = claim.found.starts_with("handoff(") || claim.found.contains(WANTS_CPUS);
            assert!(
                claim.holds.is_some() != is_absent,
                "{}: {}",
                figure.name,
                claim.found
            );
        }
        for panel in (figure.panels)() {
            for line in &panel.lines {
                let same = panel.lines.iter().filter(|other| other.name == line.name);
                assert_eq!(same.count(), 1, "{} in {}", line.name, figure.name);
            }
        }
    }
}
