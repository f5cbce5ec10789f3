//! The crossing, in two forms that do the same: with protection, in assembly (`protected`), and in plain Rust
//! (`plain`), which is its reference and what there is on other processors.

pub(crate) mod plain;
#[cfg(target_arch = "x86_64")]
pub(crate) mod protected;
