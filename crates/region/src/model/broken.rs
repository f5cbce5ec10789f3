//! Models that lack something and must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What loom says of two accesses of one message, of which one writes, with no order between them.
pub const OVERLAP: &str = "Causality violation";

/// Runs `model`, which lacks something, and expects it to panic with a text that has `text` in it.
/// For a model that is known not to end in a deadlock, which may abort: see [`must_fail`].
///
/// # Panics
/// If it holds, or fails in another way.
#[track_caller]
pub fn must_panic(text: &str, model: impl FnOnce()) {
    let failed = catch_unwind(AssertUnwindSafe(model)).expect_err("the weakened model held");
    let found = failed.downcast_ref::<String>().map_or("", |found| found);
    assert!(found.contains(text), "another failure: {found}");
}

/// Runs `model`, which lacks something, in a process of its own (a deadlocked model aborts), and
/// expects it to fail. To be called once in a test, with a closure written there: the closure's
/// type names the test.
///
/// # Panics
/// If it does not fail.
pub fn must_fail<F: FnOnce()>(model: F) {
    const BROKEN: &str = "HANDFAST_BROKEN_MODEL";
    if std::env::var_os(BROKEN).is_some() {
        return model();
    }
    let path = core::any::type_name::<F>();
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    let test = test.trim_end_matches("::{{closure}}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(BROKEN, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("running 1 test"),
        "the test's name is wrong: {test}"
    );
    assert!(
        !output.status.success(),
        "the incomplete protocol should have failed"
    );
}
