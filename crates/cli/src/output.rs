//! Standard output: a reader that goes away early is no error.

use crate::temporary;
use std::fmt;
use std::io::{self, Write};

/// Nobody reads standard output any more (`handfast ls | head -1`): the command ends, silently.
#[derive(Debug)]
pub struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output")
    }
}

impl std::error::Error for Unread {}

/// The status of a command that nobody reads: what a shell says of one ended by `SIGPIPE`.
pub const UNREAD: u8 = 128 + 13;

type Written = Result<(), Box<dyn std::error::Error>>;

/// Writes a line, formatted as by `println!`, or says why not.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => {
        $crate::output::line(format_args!($($what)*))
    };
}
pub use say;

/// Writes a line: what [`say!`] does.
///
/// # Errors
/// [`Unread`], or the reason why standard output cannot be written.
pub fn line(text: fmt::Arguments<'_>) -> Written {
    written(|out| writeln!(out, "{text}"))
}

/// Writes bytes.
///
/// # Errors
/// As [`line()`].
pub fn bytes(bytes: &[u8]) -> Written {
    written(|out| out.write_all(bytes))
}

fn written(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> Written {
    drop(temporary::goes_on());
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Unread.into()),
        Err(error) => Err(format!("standard output: {error}").into()),
    }
}

/// A line for people, on standard error; not written where nobody reads that.
pub fn note(text: fmt::Arguments<'_>) {
    drop(temporary::goes_on());
    let _ = writeln!(io::stderr(), "{text}");
}
