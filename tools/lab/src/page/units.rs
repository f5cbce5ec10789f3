//! Values as people read them: `1.23 µs`, `4.5M/s`, `32 KiB`.

/// The unit of an axis, from its text: `us`, `1/s`, `bytes`, `switches/message`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unit {
    kind: Kind,
    /// The text after the first slash: `s`, `call`.
    per: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// Nanoseconds in one unit.
    Time(f64),
    Bytes,
    /// Bytes in one unit, by powers of ten.
    Data(f64),
    Percent,
    Times,
    /// Anything else, by its name; empty for a number.
    Count(String),
}

const TIME: [(&str, f64); 4] = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
const BYTES: [(&str, f64); 4] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
const DATA: [(&str, f64); 5] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
const COUNT: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];

impl Unit {
    pub(super) fn parse(text: &str) -> Self {
        let split = text.strip_prefix("per ").map(|per| ("", per));
        let (first, per) = match split.or_else(|| text.split_once('/')) {
            Some((first, per)) => (first.trim(), Some(per.trim().to_owned())),
            None => (text.trim(), None),
        };
        let kind = match first {
            "ns" => Kind::Time(1.0),
            "us" | "µs" => Kind::Time(1e3),
            "ms" => Kind::Time(1e6),
            "s" | "seconds" => Kind::Time(1e9),
            "B" | "byte" | "bytes" => Kind::Bytes,
            "kB" => Kind::Data(1e3),
            "MB" => Kind::Data(1e6),
            "GB" => Kind::Data(1e9),
            "%" | "percent" => Kind::Percent,
            "x" | "times" | "ratio" => Kind::Times,
            "1" | "" => Kind::Count(String::new()),
            other => Kind::Count(other.to_owned()),
        };
        Self { kind, per }
    }

    pub(super) fn is_bytes(&self) -> bool {
        self.kind == Kind::Bytes
    }

    /// A value in three digits, with its unit; the part after the slash only where that is a second.
    pub(super) fn show(&self, value: f64) -> String {
        let per = self.per.as_deref().filter(|per| *per == "s");
        let per = per.map_or_else(String::new, |per| format!("/{per}"));
        format!("{}{per}", self.tick(value))
    }

    /// A value beside an axis whose title has the part after the slash.
    pub(super) fn tick(&self, value: f64) -> String {
        match &self.kind {
            _ if value == 0.0 => "0".to_owned(),
            Kind::Time(ns) => scaled(value * ns, &TIME, " "),
            Kind::Bytes => scaled(value, &BYTES, " "),
            Kind::Data(bytes) => scaled(value * bytes, &DATA, " "),
            Kind::Percent => format!("{} %", digits(value)),
            Kind::Times => format!("{}×", digits(value)),
            Kind::Count(_) => scaled(value, &COUNT, ""),
        }
    }

    /// The title of an axis: its label, and what the ticks do not say.
    pub(super) fn title(&self, label: &str) -> String {
        let per = match self.per.as_deref() {
            Some("s") => " per second",
            Some(per) => &format!(" per {per}"),
            None => "",
        };
        match &self.kind {
            Kind::Count(name) if !name.is_empty() && !label.contains(name.as_str()) => {
                format!("{label}, {name}{per}")
            }
            _ if label.ends_with(per) => label.to_owned(),
            _ => format!("{label}{per}"),
        }
    }
}

/// With the largest unit that leaves at least one before the point.
fn scaled(value: f64, units: &[(&str, f64)], space: &str) -> String {
    // 999.6 is shown as 1000: that belongs to the next unit.
    let fits = |(_, size): &&(&str, f64)| value.abs() >= size * 0.9995;
    let largest = units.iter().rev().find(fits).or(units.first());
    let (name, size) = largest.copied().unwrap_or(("", 1.0));
    match name {
        "" => digits(value / size),
        _ => format!("{}{space}{name}", digits(value / size)),
    }
}

/// Three digits, without zeros at the end of a fraction.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let after = usize::try_from(3 - before).unwrap_or(0).min(9);
    let text = format!("{value:.after$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A date and a minute, UTC, of seconds since 1970.
pub(super) fn date(unix_s: u64) -> String {
    let (days, rest) = (unix_s / 86_400, unix_s % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    // Years are few: a result is from this century, or its clock was not set.
    while year < 9_999 && day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
    ] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute) = (rest / 3_600, rest / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", day + 1)
}

/// `34 s`, `4 min 10 s`, `2 h 5 min`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
    }
}

/// A sentence with `12 us` as `12 µs`, and no line's end between a number and its unit.
pub(super) fn prose(text: &str) -> String {
    const UNITS: [&str; 11] = [
        "ns", "us", "µs", "ms", "s", "min", "B", "KiB", "MiB", "GiB", "%",
    ];
    let mut words = text.split(' ');
    let mut whole = words.next().unwrap_or_default().to_owned();
    for word in words {
        let bare = word.trim_end_matches([',', '.', ':', ';', ')']);
        let is_unit = UNITS.contains(&bare) && whole.ends_with(|c: char| c.is_ascii_digit());
        whole.push(if is_unit { '\u{a0}' } else { ' ' });
        match is_unit && bare == "us" {
            true => whole.push_str(&word.replacen("us", "µs", 1)),
            false => whole.push_str(word),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_the_unit_that_fits() {
        let show = |unit, value| Unit::parse(unit).show(value);
        assert_eq!(show("ns", 230.4), "230 ns");
        assert_eq!(show("ns", 0.5), "0.5 ns");
        assert_eq!(show("ns", 999.7), "1 µs");
        assert_eq!(show("us", 1_234.0), "1.23 ms");
        assert_eq!(show("ns/call", 1_234.0), "1.23 µs");
        assert_eq!(show("1/s", 4_512_000.0), "4.51M/s");
        assert_eq!(show("messages/s", 950.0), "950/s");
        assert_eq!(show("bytes", 32_768.0), "32 KiB");
        assert_eq!(show("MB/s", 1_250.0), "1.25 GB/s");
        assert_eq!(show("per message", 0.02), "0.02");
        assert_eq!(show("%", 12.34), "12.3 %");
        assert_eq!(show("x", 1.25), "1.25×");
        assert_eq!(show("", -2_500.0), "-2.5k");
        assert_eq!(show("us", 0.0), "0");
    }

    #[test]
    fn titles_say_what_ticks_do_not() {
        let title = |unit, label| Unit::parse(unit).title(label);
        assert_eq!(title("1/s", "echoes"), "echoes per second");
        assert_eq!(
            title("messages/s", "throughput"),
            "throughput, messages per second"
        );
        assert_eq!(title("per message", "switches"), "switches per message");
        assert_eq!(title("us/call", "CPU"), "CPU per call");
        assert_eq!(title("us/call", "CPU per call"), "CPU per call");
        assert_eq!(title("bytes", "message"), "message");
        assert_eq!(title("", "clients"), "clients");
    }

    #[test]
    fn dates_are_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_316_460), "2026-11-22 03:01 UTC");
        assert!(date(u64::MAX).starts_with("9999-"));
    }

    #[test]
    fn only_units_after_a_number_are_kept_with_it() {
        let text = "0 to 600 us, by us, for 3 B.";
        assert_eq!(prose(text), "0 to 600\u{a0}µs, by us, for 3\u{a0}B.");
    }
}
