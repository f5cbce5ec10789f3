//! Properties of this machine that tests need.

use handfast_sys::keys;

/// Whether this processor has memory keys. A test without them is recorded as not exercised, and fails where the
/// environment requires them (`HANDFAST_REQUIRE_KEYS=1`, as on the processor that `tests/emulated/run` emulates).
pub(crate) fn has_keys() -> bool {
    let has_keys = keys::are_supported();
    if !has_keys {
        leave_out("no memory keys");
    }
    has_keys
}

/// Records that something is not exercised; fails where it must be.
pub(crate) fn leave_out(why: &str) {
    let must = std::env::var("HANDFAST_REQUIRE_KEYS").as_deref() == Ok("1");
    assert!(!must, "HANDFAST_REQUIRE_KEYS=1, but {why}");
    handfast_testing::not_exercised(why);
}
