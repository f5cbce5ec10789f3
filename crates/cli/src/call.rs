//! `handfast call`: one call from the shell.

use handfast::error::{ConnectError, SendError};
use handfast_cli::Outcome;
use handfast_cli::output::{self, say};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Arguments of `call`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name to call.
    name: String,
    /// The message, as text; without any of the three it is empty.
    #[arg(long, conflicts_with_all = ["hex", "file"])]
    bytes: Option<String>,
    /// The message, as hexadecimal digits; the reply is printed in the same way.
    #[arg(long, conflicts_with = "file")]
    hex: Option<String>,
    /// The message, as the content of a file.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Give up after this many milliseconds, reading the file and connecting included.
    #[arg(long, default_value_t = 5_000)]
    timeout_ms: u64,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let (start, limit) = (Instant::now(), Duration::from_millis(args.timeout_ms));
    let message = match (&args.bytes, &args.hex, &args.file) {
        (Some(text), ..) => text.clone().into_bytes(),
        (_, Some(digits), _) => parse_hex(digits)?,
        (_, _, Some(path)) => read_until(path, limit)?,
        (None, None, None) => Vec::new(),
    };
    // In milliseconds, as it was given: errors name it.
    let passed = || Duration::from_millis(start.elapsed().as_millis() as u64);
    let left = || limit.saturating_sub(passed());
    let port = handfast::connect_timeout(&args.name, left()).map_err(|error| match error {
        // Not what was left of it.
        ConnectError::TimedOut { name, .. } => ConnectError::TimedOut { name, limit },
        other => other,
    })?;
    let reply = port
        .call_timeout(&message, left())
        .map_err(|error| match error {
            SendError::TimedOut => {
                format!("no reply from {:?} within {limit:?}: {error}", args.name)
            }
            _ => format!("{:?}: {error}", args.name),
        })?;
    if args.hex.is_some() {
        let digits: String = reply.iter().map(|byte| format!("{byte:02x}")).collect();
        say!("{digits}")
    } else {
        output::bytes(&reply)
    }
}

/// [`read`] in a thread that is left behind at the limit: possibly nobody ever writes to the path.
fn read_until(path: &Path, limit: Duration) -> Result<Vec<u8>, String> {
    let (sender, content) = channel();
    let own = path.to_owned();
    std::thread::spawn(move || sender.send(read(&own)));
    let why = match content.recv_timeout(limit) {
        Ok(Ok(bytes)) => return Ok(bytes),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not read within {limit:?}; see who writes it, or allow more time"),
    };
    Err(format!("{}: {why}", path.display()))
}

/// A file's content, or one byte more than a message can have of it.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = handfast::LONG_BYTES_MAX as u64 + 1;
    std::fs::File::open(path)?
        .take(limit)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = digits.chars().filter(|c| !c.is_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(format!(
            "--hex takes an even number of digits, got {}",
            digits.len()
        ));
    }
    let nibble = |c: &char| {
        c.to_digit(16)
            .ok_or(format!("{c:?} is not a hexadecimal digit"))
    };
    digits
        .chunks(2)
        .map(|pair| Ok((nibble(&pair[0])? << 4 | nibble(&pair[1])?) as u8))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse_hex;

    #[test]
    fn hex_is_read_or_refused_with_a_reason() {
        assert_eq!(parse_hex("00 ffA5"), Ok(vec![0, 255, 0xa5]));
        assert!(parse_hex("0").unwrap_err().contains("even"));
        assert!(parse_hex("zz").unwrap_err().contains("'z'"));
    }
}
