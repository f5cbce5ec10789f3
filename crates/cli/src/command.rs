//! The life of a command: how it starts, what it logs, the status by which it ends.

use crate::{Outcome, output, temporary};
use clap::Parser;
use handfast::Strategy;
use std::process::ExitCode;

/// Does the command's work, which begins with its arguments, and says how it ended.
pub fn main(work: impl FnOnce() -> Outcome) -> ExitCode {
    let _log = std::env::var_os("HANDFAST_LOG").map(|_| log());
    let result = work();
    // A signal that has come by now ends this.
    let _goes_on = temporary::goes_on();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<output::Unread>() => ExitCode::from(output::UNREAD),
        Err(error) => {
            // Where nobody reads that either, the status says it.
            output::note(format_args!("handfast: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Control-path events on request; never anything on the data path. A peer causes such lines at any rate, and a slow reader of
/// standard error must not hold up the control thread: a thread writes the lines, and those that find more than
/// [`LOG_LINES`] waiting are lost.
fn log() -> tracing_appender::non_blocking::WorkerGuard {
    let writer = tracing_appender::non_blocking::NonBlockingBuilder::default();
    let writer = writer.buffered_lines_limit(LOG_LINES);
    let (writer, guard) = writer.finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_writer(writer)
        // Where nobody reads that, it would say so there, and panic.
        .log_internal_errors(false)
        .init();
    guard
}

const LOG_LINES: usize = 1024;

/// The life of a development tool with the arguments `A`. Processes that it starts have `role` as their first argument, and then the
/// arguments `C`.
pub fn tool<A: Parser, C: Parser>(
    role: &str,
    run: impl FnOnce(&A) -> Outcome,
    run_child: impl FnOnce(&C) -> Outcome,
) -> ExitCode {
    main(|| {
        if std::env::args_os()
            .nth(1)
            .is_some_and(|first| first == role)
        {
            let args = C::parse_from(std::env::args_os().skip(1));
            temporary::leave_to_parent();
            return run_child(&args);
        }
        let args = A::parse();
        say_what_is_ignored();
        temporary::watch()?;
        run(&args)
    })
}

/// The library ignores values in its environment that it does not understand, silently; here somebody may have written one for
/// this command.
pub fn say_what_is_ignored() {
    let ignored = |name, why: &dyn std::fmt::Display| {
        output::note(format_args!("handfast: {name} is ignored: {why}"));
    };
    let value = |name| std::env::var(name).ok();
    if let Some(Err(error)) = value("HANDFAST_STRATEGY").map(|text| text.parse::<Strategy>()) {
        ignored("HANDFAST_STRATEGY", &error);
    }
    if let Some(text) = value("HANDFAST_SPIN_CAP_US")
        && text.parse::<u64>().is_err()
    {
        let why = format!("{text:?} is no number of microseconds");
        ignored("HANDFAST_SPIN_CAP_US", &why);
    }
}
