//! The constants in the tables of `docs/limits.md` exist, and have the values that the tables give.
//!
//! A row's third cell names constants and their crate: `` `A_MAX`, `B_MAX`, port ``. A file in parentheses tells constants of one
//! name apart, and a semicolon separates crates. Its second cell gives as many numbers, in the same order, or something that only
//! a reader understands. In that case, and where a constant's expression is none of plain arithmetic, it only has to exist.

use crate::{read, sources};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The page whose tables are checked.
const PAGE: &str = "docs/limits.md";

/// A constant as the code has it.
struct Constant {
    name: String,
    file: PathBuf,
    expression: String,
}

/// The constants of each crate.
type Crates = BTreeMap<String, Vec<Constant>>;

/// A constant as a row names it.
struct Named<'a> {
    name: &'a str,
    of: &'a str,
    file: Option<&'a str>,
}

/// Rows whose constants do not exist or have other values. Prints how many were compared.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let crates = constants(root);
    let text = read(&root.join(PAGE));
    let (mut problems, mut compared, mut found) = (Vec::new(), 0, 0);
    for (number, line) in text.lines().enumerate() {
        let mut tell = |what: String| problems.push(format!("{PAGE}:{}: {what}", number + 1));
        let Some(cells) = cells(line) else {
            if let Some(name) = named_in_prose(line, &crates) {
                tell(format!("{name} is a limit outside the tables"));
            }
            continue;
        };
        let (named, is_plain) = match named(cells[2], &crates) {
            Ok(named) => named,
            Err(name) => {
                tell(format!("{name} has no crate behind it"));
                continue;
            }
        };
        let numbers = numbers(cells[1]);
        let is_comparable = is_plain && numbers.len() == named.len();
        for (at, constant) in named.iter().enumerate() {
            let defined = definitions(&crates, constant);
            if defined.is_empty() {
                tell(format!("{} is not in {}", constant.name, constant.of));
                continue;
            }
            found += 1;
            let Some(&said) = numbers.get(at).filter(|_| is_comparable) else {
                continue;
            };
            let values = defined.iter().map(|is| value(&crates, constant.of, is, 0));
            let Some(mut values) = values.collect::<Option<Vec<_>>>() else {
                continue;
            };
            compared += 1;
            values.dedup();
            match *values {
                [is] if close(is, said) => {}
                [is] => tell(format!("{} is {is}, not {said}", constant.name)),
                _ => tell(format!(
                    "{} has several values; name its file",
                    constant.name
                )),
            }
        }
    }
    println!("limits: {found} constants exist, the values of {compared} were compared");
    problems
}

/// Numbers with fractions, such as 0.5 ms, are compared with a tolerance.
fn close(is: f64, said: f64) -> bool {
    (is - said).abs() <= said.abs() * 1e-9
}

/// The five cells of a row that is no header.
fn cells(line: &str) -> Option<[&str; 5]> {
    let cells: Vec<_> = line
        .strip_prefix('|')?
        .strip_suffix('|')?
        .split(" | ")
        .map(str::trim)
        .collect();
    let cells: [&str; 5] = cells.try_into().ok()?;
    (cells[0] != "limit").then_some(cells)
}

/// A constant of the code that a line outside the tables names with its crate: `` `A_MAX`, port ``.
fn named_in_prose<'a>(line: &'a str, crates: &Crates) -> Option<&'a str> {
    let pieces: Vec<_> = line.split('`').collect();
    let names = pieces.iter().enumerate().skip(1).step_by(2);
    let with_crate = names.filter(|(at, name)| {
        let behind = pieces.get(at + 1).and_then(|text| text.strip_prefix(", "));
        let word = behind.and_then(|text| text.split(|c: char| !c.is_alphanumeric()).next());
        is_constant(name) && word.is_some_and(|word| crates.contains_key(word))
    });
    with_crate.map(|(_, name)| *name).next()
}

fn is_constant(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(is_part)
}

/// The constants in a cell, and whether the cell has nothing else; or the name of one without a crate.
fn named<'a>(cell: &'a str, crates: &'a Crates) -> Result<(Vec<Named<'a>>, bool), &'a str> {
    let (mut found, mut is_plain) = (Vec::new(), true);
    for group in cell.split(';') {
        let pieces: Vec<_> = group.split('`').collect();
        let marked = || pieces.iter().skip(1).step_by(2).copied();
        let file = marked().find(|piece| piece.ends_with(".rs"));
        let names: Vec<_> = marked().filter(|piece| is_constant(piece)).collect();
        let others = pieces.iter().step_by(2);
        let words = others.flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
        let (known, unknown): (Vec<_>, Vec<_>) = words
            .filter(|word| !word.is_empty())
            .partition(|word| crates.contains_key(*word));
        is_plain &= unknown.is_empty();
        let Some(first) = names.first() else {
            continue;
        };
        let [of] = *known else {
            return Err(first);
        };
        found.extend(names.iter().map(|name| Named { name, of, file }));
    }
    Ok((found, is_plain))
}

/// The numbers in a text that are in no parentheses, with their units: in bytes, nanoseconds or as they are.
fn numbers(text: &str) -> Vec<f64> {
    let mut depth = 0;
    let no_remark = |c: &char| {
        depth += i32::from(*c == '(');
        let is_outside = depth == 0;
        depth -= i32::from(*c == ')');
        is_outside
    };
    let text: String = text.chars().filter(no_remark).collect();
    let words: Vec<_> = text.split([' ', ';']).collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let digits = word.trim_end_matches([',', '.', ':']).replace(',', "");
        let Ok(number) = digits.parse::<f64>() else {
            continue;
        };
        let unit = words
            .get(at + 1)
            .map(|word| word.trim_end_matches([',', '.']));
        found.push(number * unit.map_or(1.0, size));
    }
    found
}

fn size(unit: &str) -> f64 {
    match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    }
}

fn definitions<'a>(crates: &'a Crates, named: &Named<'_>) -> Vec<&'a Constant> {
    let all = crates.get(named.of).into_iter().flatten();
    let is_it = |constant: &&Constant| {
        constant.name == named.name && named.file.is_none_or(|file| constant.file.ends_with(file))
    };
    all.filter(is_it).collect()
}

/// The constants of all crates, in models and tests too.
fn constants(root: &Path) -> Crates {
    let entries = std::fs::read_dir(root.join("crates"));
    let mut crates = Crates::new();
    for directory in entries.into_iter().flatten().flatten() {
        let of = directory.file_name().to_string_lossy().into_owned();
        let mut files = Vec::new();
        sources(&directory.path().join("src"), &mut files);
        let found = files.iter().flat_map(|file| in_file(file));
        crates.insert(of, found.collect());
    }
    crates
}

fn in_file(file: &Path) -> Vec<Constant> {
    let code = read(file);
    let code = code.split("mod tests {").next().unwrap_or_default();
    let after = code.split("const ").skip(1);
    let constants = after.filter_map(|after| {
        let (name, rest) = after.split_once(':')?;
        let (_, expression) = rest.split_once('=')?;
        let expression = expression.split(';').next()?;
        is_constant(name).then(|| Constant {
            name: name.to_owned(),
            file: file.to_owned(),
            expression: expression.trim().to_owned(),
        })
    });
    constants.collect()
}

/// Its value in bytes, nanoseconds or as it is, if its expression is plain arithmetic with constants.
fn value(crates: &Crates, of: &str, constant: &Constant, depth: u32) -> Option<f64> {
    let mut left = tokens(&constant.expression)?;
    left.reverse();
    let names = |name: &str| {
        let is_it = |other: &&Constant| other.name == name;
        let own = crates.get(of)?;
        let beside = own
            .iter()
            .filter(is_it)
            .find(|other| other.file == constant.file);
        let elsewhere = || {
            let others = crates
                .iter()
                .flat_map(|(of, all)| all.iter().map(move |one| (of, one)));
            let found: Vec<_> = others.filter(|(_, other)| is_it(other)).collect();
            let own = found.iter().find(|(other, _)| *other == of).copied();
            own.or_else(|| (found.len() == 1).then(|| found[0]))
        };
        let (of, found) = match beside {
            Some(found) => (of, found),
            None => elsewhere().map(|(of, found)| (of.as_str(), found))?,
        };
        (depth < 8).then(|| value(crates, of, found, depth + 1))?
    };
    let is = sum(&mut left, &names)?;
    left.is_empty().then_some(is)
}

/// Names (the last part of a path), numbers and signs; `as` and its type are left out.
fn tokens(expression: &str) -> Option<Vec<String>> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = expression.trim();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.');
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(end);
        rest = behind.trim_start();
        if token == "as" {
            rest = rest.trim_start_matches(char::is_alphanumeric).trim_start();
        } else if !is_word(first) && !matches!(first, '+' | '-' | '*' | '/' | '(' | ')' | '<') {
            return None;
        } else {
            tokens.push(token.rsplit("::").next()?.to_owned());
        }
    }
    Some(tokens)
}

/// Takes a sum off the end of the reversed tokens.
fn sum(left: &mut Vec<String>, names: &impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let mut total = product(left, names)?;
    loop {
        match left.last().map(String::as_str) {
            Some("+") => {
                left.pop();
                total += product(left, names)?;
            }
            Some("-") => {
                left.pop();
                total -= product(left, names)?;
            }
            Some("<") => {
                left.pop();
                left.pop().filter(|sign| sign == "<")?;
                total *= product(left, names)?.exp2();
            }
            _ => return Some(total),
        }
    }
}

fn product(left: &mut Vec<String>, names: &impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let mut total = factor(left, names)?;
    loop {
        match left.last().map(String::as_str) {
            Some("*") => {
                left.pop();
                total *= factor(left, names)?;
            }
            Some("/") => {
                left.pop();
                total = (total / factor(left, names)?).trunc();
            }
            _ => return Some(total),
        }
    }
}

fn factor(left: &mut Vec<String>, names: &impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let token = left.pop()?;
    let scale = match token.as_str() {
        "(" => 1.0,
        "from_secs" => 1e9,
        "from_millis" => 1e6,
        "from_micros" => 1e3,
        name if is_constant(name) => return names(name),
        number => {
            let digits = number.replace('_', "");
            if let Some(digits) = digits.strip_prefix("0x") {
                return u32::from_str_radix(digits, 16).ok().map(f64::from);
            }
            let digits = digits.trim_end_matches("u8").trim_end_matches("u16");
            let digits = digits.trim_end_matches("u32").trim_end_matches("u64");
            return digits.trim_end_matches("usize").parse().ok();
        }
    };
    if token != "(" {
        left.pop().filter(|sign| sign == "(")?;
    }
    let within = sum(left, names)?;
    left.pop().filter(|sign| sign == ")")?;
    Some(within * scale)
}
