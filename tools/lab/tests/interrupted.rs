//! A run that a signal ends.

use handfast_testing::Directory;
use handfast_testing::commands::ends_by_signals;

#[test]
fn an_interrupted_run_ends_by_the_signal_and_leaves_nothing() {
    let directory = Directory::new("interrupted");
    let results = directory.0.join("results");
    let run = ["run", "000-figure-10", "--results"];
    let arguments = [&run[..], &[results.to_str().unwrap()]].concat();
    let lab = env!("CARGO_BIN_EXE_handfast-lab");
    ends_by_signals(lab, &arguments, &directory.0, 1);
}
