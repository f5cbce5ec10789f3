//! Models that lack something and must fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Loom's report on two accesses of one message, of which one writes, with no order between them.
pub const OVERLAP: &str = "Causality violation";

/// Runs `model`, which lacks something, and expects it to panic with a message that has `text` in
/// it. For a model that can be unwound; see [`must_fail`].
///
/// # Panics
/// If it holds, or fails in another way.
#[track_caller]
pub fn must_panic(text: &str, model: impl FnOnce()) {
    let failed = catch_unwind(AssertUnwindSafe(model)).expect_err("the weakened model held");
    let literal = failed.downcast_ref::<&str>().copied().unwrap_or_default();
    let found = failed
        .downcast_ref::<String>()
        .map_or(literal, String::as_str);
    assert!(found.contains(text), "another failure: {found}");
}

/// As [`must_panic`], in a process of its own: a model that ends in a deadlock mostly aborts. To be
/// called once in a test, with a closure written there: the closure's type names the test.
///
/// # Panics
/// If it holds, or fails in another way.
pub fn must_fail<F: FnOnce()>(text: &str, model: F) {
    const BROKEN: &str = "HANDFAST_BROKEN_MODEL";
    if std::env::var_os(BROKEN).is_some() {
        return model();
    }
    let path = core::any::type_name::<F>();
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    let test = test.trim_end_matches("::{{closure}}");
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(BROKEN, "1")
        .output()
        .unwrap();
    let [said, failed] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        said.contains("running 1 test"),
        "the test's name is wrong: {test}"
    );
    assert!(!output.status.success(), "the weakened model held");
    assert!(failed.contains(text), "another failure: {failed}");
}
