//! Rows: collected over rounds, reduced to medians, printed as a table or as JSON.

use crate::session::Sample;
use crate::stats::median;
use serde::Serialize;

/// The results of one round for one row. Absent values stay absent in the output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Median time.
    pub p50_ns: Option<f64>,
    /// The time that one in a hundred exceeds.
    pub p99_ns: Option<f64>,
    /// Throughput.
    pub ops_per_s: Option<f64>,
    /// CPU time of all processes.
    pub cpu_ns_per_op: Option<f64>,
    /// To the limit of the benchmark.
    pub ratio_to_limit: Option<f64>,
    /// Median time, to one of a plain copy.
    pub ratio_to_copy: Option<f64>,
    /// Median time, to one of a unix stream socket.
    pub ratio_to_unix: Option<f64>,
    /// Throughput, to that of one.
    pub ratio_to_one: Option<f64>,
    /// The same at the pace of median calls.
    pub pace_to_one: Option<f64>,
    /// Time of each right in a call.
    pub ns_per_right: Option<f64>,
    /// Fairness, from 0 to 1.
    pub jain: Option<f64>,
    /// The longest wait.
    pub longest_wait_ns: Option<f64>,
    /// Context switches.
    pub switches: Option<f64>,
    /// CPU time in all.
    pub cpu_ns: Option<f64>,
}

impl Reading {
    /// Latency, throughput and CPU of a sample.
    pub fn of(sample: &Sample) -> Self {
        Self {
            p50_ns: sample.quantile_ns(0.5),
            p99_ns: sample.quantile_ns(0.99),
            ops_per_s: Some(sample.per_second()),
            cpu_ns_per_op: Some(sample.cpu_per_call_ns()),
            ..Self::default()
        }
    }
}

/// Which row a reading belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Which measurement of the benchmark.
    pub case: String,
    /// The system.
    pub system: &'static str,
    /// Bytes of a request.
    pub payload_bytes: Option<usize>,
    /// Client processes, or threads.
    pub clients: Option<usize>,
}

/// The readings of all rounds, rows in order of first appearance.
#[derive(Default)]
pub struct Board(Vec<(Key, Vec<Reading>)>);

impl Board {
    /// Adds a reading of one round.
    pub fn add(&mut self, key: Key, reading: Reading) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, readings)) => readings.push(reading),
            None => self.0.push((key, vec![reading])),
        }
    }

    /// How many rounds there are readings of.
    pub fn rounds(&self) -> usize {
        let counts = self.0.iter().map(|(_, readings)| readings.len());
        counts.max().unwrap_or_default()
    }

    /// The readings of one round. Where a turn of an earlier round has failed, that of a later one is in its place.
    #[must_use]
    pub fn only(&self, round: usize) -> Self {
        let rows = self.0.iter();
        let rows =
            rows.filter_map(|(key, readings)| Some((key.clone(), vec![*readings.get(round)?])));
        Self(rows.collect())
    }

    /// One row per key: medians over its readings; of the longest waits, the longest.
    pub fn rows(&self) -> Vec<Row> {
        self.0
            .iter()
            .map(|(key, readings)| Row::new(key, readings))
            .collect()
    }
}

/// A row as it is printed.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which measurement of the benchmark.
    pub case: String,
    /// The system.
    pub system: &'static str,
    /// Bytes of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<usize>,
    /// Client processes, or threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<usize>,
    /// Median time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// The time that one in a hundred exceeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// Throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// CPU time of all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_op: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_to_limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_to_copy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_to_unix: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio_to_one: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pace_to_one: Option<f64>,
    /// Time of each right in a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_right: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) longest_wait_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) switches: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_ns: Option<f64>,
}

impl Row {
    fn new(key: &Key, readings: &[Reading]) -> Self {
        let all = |field: fn(&Reading) -> Option<f64>| -> Vec<f64> {
            readings.iter().filter_map(field).collect()
        };
        let middle = |field| median(&all(field));
        Self {
            case: key.case.clone(),
            system: key.system,
            payload_bytes: key.payload_bytes,
            clients: key.clients,
            p50_ns: rounded(middle(|reading| reading.p50_ns), 1),
            p99_ns: rounded(middle(|reading| reading.p99_ns), 1),
            ops_per_s: rounded(middle(|reading| reading.ops_per_s), 1),
            cpu_ns_per_op: rounded(middle(|reading| reading.cpu_ns_per_op), 1),
            ratio_to_limit: rounded(middle(|reading| reading.ratio_to_limit), 4),
            ratio_to_copy: rounded(middle(|reading| reading.ratio_to_copy), 4),
            ratio_to_unix: rounded(middle(|reading| reading.ratio_to_unix), 4),
            ratio_to_one: rounded(middle(|reading| reading.ratio_to_one), 4),
            pace_to_one: rounded(middle(|reading| reading.pace_to_one), 4),
            ns_per_right: rounded(middle(|reading| reading.ns_per_right), 1),
            jain: rounded(middle(|reading| reading.jain), 4),
            longest_wait_ns: all(|reading| reading.longest_wait_ns)
                .into_iter()
                .reduce(f64::max),
            switches: rounded(middle(|reading| reading.switches), 1),
            cpu_ns: rounded(middle(|reading| reading.cpu_ns), 1),
        }
    }
}

pub(crate) fn rounded(value: Option<f64>, digits: i32) -> Option<f64> {
    let scale = 10f64.powi(digits);
    value.map(|value| (value * scale).round() / scale)
}

/// All of one benchmark.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) bench: &'static str,
    pub(crate) machine: String,
    pub(crate) rows: Vec<Row>,
    /// The meaning of the ratio here, and other remarks; under the table only.
    #[serde(skip)]
    pub(crate) notes: Vec<String>,
}

impl Report {
    /// The table: columns that have something in them, aligned, then the notes.
    pub(crate) fn table(&self) -> String {
        let columns: Vec<Vec<String>> = COLUMNS
            .iter()
            .map(|(title, cell)| {
                let title = std::iter::once((*title).to_owned());
                title.chain(self.rows.iter().map(cell)).collect()
            })
            .filter(|column: &Vec<String>| column[1..].iter().any(|cell| !cell.is_empty()))
            .collect();
        let mut text = format!("{} on {}\n\n", self.bench, self.machine);
        for line in 0..=self.rows.len() {
            for (index, column) in columns.iter().enumerate() {
                let width = column.iter().map(String::len).max().unwrap_or(0);
                let cell = &column[line];
                // Names to the left, numbers to the right.
                text += &if index < 2 {
                    format!("{cell:width$}  ")
                } else {
                    format!("{cell:>width$}  ")
                };
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        for note in &self.notes {
            text += &format!("\n{note}");
        }
        text
    }
}

type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 18] = [
    ("case", |row| row.case.clone()),
    ("system", |row| row.system.to_owned()),
    ("payload", |row| {
        show(row.payload_bytes, |len| len.to_string())
    }),
    ("clients", |row| {
        show(row.clients, |count| count.to_string())
    }),
    ("p50", |row| show(row.p50_ns, time)),
    ("p99", |row| show(row.p99_ns, time)),
    ("ops/s", |row| show(row.ops_per_s, count)),
    ("CPU/op", |row| show(row.cpu_ns_per_op, time)),
    ("ratio", |row| {
        show(row.ratio_to_limit, |ratio| format!("{ratio:.2}"))
    }),
    ("to copy", |row| {
        show(row.ratio_to_copy, |ratio| format!("{ratio:.2}"))
    }),
    ("to unix", |row| {
        show(row.ratio_to_unix, |ratio| format!("{ratio:.2}"))
    }),
    ("to one", |row| {
        show(row.ratio_to_one, |ratio| format!("{ratio:.2}"))
    }),
    ("at pace", |row| {
        show(row.pace_to_one, |ratio| format!("{ratio:.2}"))
    }),
    ("per right", |row| {
        show(row.ns_per_right, |ns| format!("{ns:.0} ns"))
    }),
    ("Jain", |row| show(row.jain, |jain| format!("{jain:.3}"))),
    ("longest wait", |row| show(row.longest_wait_ns, time)),
    ("switches", |row| {
        show(row.switches, |count| format!("{count:.0}"))
    }),
    ("CPU", |row| show(row.cpu_ns, time)),
];

fn show<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map(format).unwrap_or_default()
}

/// A time with three or so digits.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e4 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// A rate, with a unit for people.
pub fn count(per_s: f64) -> String {
    match per_s {
        per_s if per_s < 1e3 => format!("{per_s:.0}"),
        per_s if per_s < 1e6 => format!("{:.1} k", per_s / 1e3),
        per_s => format!("{:.2} M", per_s / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(system: &'static str) -> Key {
        Key {
            case: "case".to_owned(),
            system,
            payload_bytes: None,
            clients: Some(3),
        }
    }

    #[test]
    fn rows_are_medians_over_rounds_and_keep_the_longest_wait() {
        let mut board = Board::default();
        for (ratio, wait) in [(1.0, 5.0), (9.0, 70.0), (1.2, 6.0)] {
            let reading = Reading {
                ratio_to_limit: Some(ratio),
                longest_wait_ns: Some(wait),
                ..Reading::default()
            };
            board.add(key("limit"), reading);
        }
        board.add(key("futex"), Reading::default());
        let rows = board.rows();
        assert_eq!((rows.len(), rows[0].system), (2, "limit"));
        assert_eq!(rows[0].ratio_to_limit, Some(1.2));
        assert_eq!(rows[0].longest_wait_ns, Some(70.0));
        let json = serde_json::to_string(&rows[1]).unwrap();
        assert_eq!(json, r#"{"case":"case","system":"futex","clients":3}"#);
    }

    #[test]
    fn the_help_names_whatever_json_has() {
        let some = Some(1.0);
        let all = Reading {
            p50_ns: some,
            p99_ns: some,
            ops_per_s: some,
            cpu_ns_per_op: some,
            ratio_to_limit: some,
            ratio_to_copy: some,
            ratio_to_unix: some,
            ratio_to_one: some,
            pace_to_one: some,
            ns_per_right: some,
            jain: some,
            longest_wait_ns: some,
            switches: some,
            cpu_ns: some,
        };
        let key = Key {
            payload_bytes: Some(24),
            ..key("limit")
        };
        let row = serde_json::to_value(Row::new(&key, &[all])).unwrap();
        let fields = row.as_object().unwrap();
        assert_eq!(fields.len(), 18);
        let words = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
        let named: Vec<_> = crate::HELP.split(words).collect();
        for field in fields.keys() {
            assert!(named.contains(&&**field), "{field}");
        }
    }

    #[test]
    fn the_table_is_aligned_and_leaves_empty_columns_out() {
        let mut board = Board::default();
        board.add(key("a"), Reading::default());
        board.add(key("longer"), Reading::default());
        let report = Report {
            bench: "rtt",
            machine: "here".to_owned(),
            rows: board.rows(),
            notes: Vec::new(),
        };
        let table = report.table();
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines[0], "case  system  clients");
        assert_eq!(lines[1], "case  a             3");
        assert_eq!(lines[2], "case  longer        3");
    }

    #[test]
    fn numbers_carry_their_unit() {
        assert_eq!(
            (time(250.0), time(1234.0)),
            ("250 ns".to_owned(), "1.23 us".to_owned())
        );
        assert_eq!(
            (count(12.0), count(3.2e6)),
            ("12".to_owned(), "3.20 M".to_owned())
        );
    }
}
