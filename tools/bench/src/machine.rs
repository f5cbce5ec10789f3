//! The machine: its description, and which of its CPUs to use.

use handfast_sys::{clock, cpu};
use std::sync::OnceLock;
use std::time::Duration;

/// One line about this machine: processor, CPUs this process may use, kernel.
pub fn describe() -> String {
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |(_, model)| model.trim().to_owned(),
        );
    let cpus = cpu::available();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{model}, {cpus} CPUs, Linux {}", kernel.trim())
}

/// Two CPUs for a server and a client: the idlest allowed one over a tenth of a second, and the
/// idlest that is not its hyper-thread. `None` with one CPU.
pub(crate) fn choose_pair() -> Option<(u32, u32)> {
    let before = read("/proc/stat");
    std::thread::sleep(Duration::from_millis(100));
    let after = read("/proc/stat");
    let mut cpus = cpu::allowed();
    // Later CPUs first among equals: the first ones tend to take the interrupts.
    cpus.reverse();
    cpus.sort_by_key(|cpu| {
        std::cmp::Reverse(idle(&after, *cpu).saturating_sub(idle(&before, *cpu)))
    });
    let server = *cpus.first()?;
    let siblings = siblings(server);
    let others = || cpus.iter().copied().filter(|cpu| *cpu != server);
    let client = others()
        .find(|cpu| !siblings.contains(cpu))
        .or_else(|| others().next())?;
    Some((server, client))
}

/// The smallest difference two readings of the tick clock show, in nanoseconds: its step (10 ns
/// on some processors), or the time a reading takes. Measured once.
pub(crate) fn clock_step_ns() -> f64 {
    static STEP_NS: OnceLock<u64> = OnceLock::new();
    let measure = || {
        clock::calibrate();
        let steps = (0..1_000).map(|_| clock::ticks_ns().abs_diff(clock::ticks_ns()));
        let smallest = steps.filter(|step| *step > 0).min();
        smallest.unwrap_or(1).min(STEP_NS_MAX)
    };
    *STEP_NS.get_or_init(measure) as f64
}

/// A larger difference was no step of a clock.
const STEP_NS_MAX: u64 = 50;

/// Ticks CPU `cpu` has been idle, from the text of `/proc/stat`.
fn idle(stat: &str, cpu: u32) -> u64 {
    let name = format!("cpu{cpu}");
    stat.lines()
        .map(str::split_whitespace)
        .find_map(|mut fields| (fields.next()? == name).then_some(fields))
        .and_then(|mut fields| fields.nth(3)?.parse().ok())
        .unwrap_or(0)
}

/// The CPUs that share a core with `cpu`.
fn siblings(cpu: u32) -> Vec<u32> {
    let list = read(&format!(
        "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    ));
    parse_list(list.trim())
}

/// Parses a list such as `0-2,7`.
fn parse_list(list: &str) -> Vec<u32> {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_idle_ticks_are_read() {
        assert_eq!(parse_list("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(parse_list(""), [0; 0]);
        let stat = "cpu  9 9 9 9\ncpu1 1 2 3 44 5\ncpu10 1 2 3 55 5\n";
        assert_eq!((idle(stat, 1), idle(stat, 10), idle(stat, 2)), (44, 55, 0));
    }

    #[test]
    fn a_chosen_pair_is_two_allowed_cpus() {
        if let Some((server, client)) = choose_pair() {
            assert_ne!(server, client);
            assert!(cpu::allowed().contains(&server) && cpu::allowed().contains(&client));
        }
    }
}
