//! Domains: the ports and services that they serve, their deadlines, and those that are processes.
//!
//! A process has few memory keys. Tests that load domains with keys take turns.

#[path = "../common/mod.rs"]
mod common;

#[cfg(target_arch = "x86_64")]
mod deadlines;
#[cfg(target_arch = "x86_64")]
mod no_keys;
mod ports;
mod processes;
#[cfg(feature = "service")]
mod services;

/// Records a test of domains that are isolated in whatever way this machine has, where that is not memory keys.
fn record_missing_keys() {
    if !handfast_sys::keys::are_supported() {
        common::not_exercised("no memory keys");
    }
}

#[test]
fn a_child_process_plays_its_role() {
    common::play(|role, arguments| match role {
        "domain" => ports::domain_server(arguments[0]),
        "process" => ports::process_server(arguments[0]),
        "client" => ports::client_of(arguments[0]),
        "caller" => ports::caller(arguments[0]),
        #[cfg(feature = "service")]
        "typed process" => services::process(arguments[0]),
        #[cfg(feature = "service")]
        "typed domain" => services::domain(arguments[0]),
        #[cfg(feature = "service")]
        "typed client" => services::client_of(arguments[0]),
        #[cfg(target_arch = "x86_64")]
        "silent" => deadlines::silent(arguments[0]),
        #[cfg(target_arch = "x86_64")]
        "domain with a limit" => deadlines::domain_server(arguments[0]),
        #[cfg(target_arch = "x86_64")]
        "stepped" => no_keys::stepped(),
        "parent" => processes::parent(),
        "poor parent" => processes::poor_parent(),
        "ordinary" => processes::ordinary(),
        _ => unreachable!(),
    });
}
