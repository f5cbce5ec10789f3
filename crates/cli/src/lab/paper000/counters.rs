//! What a handfast server has counted, read from outside without a link to it.

use handfast_layout::counters::{COLUMNS, PORT_ROWS, port_word};
use std::fs;
use std::path::Path;

/// System calls that a server and its callers have made so far to sleep and to wake. By the server's counters:
/// for each of its sleeps there is a caller's wake-up, for each of its wake-ups a caller's sleep.
pub(super) fn sleep_and_wake_calls(server: u32) -> Option<u64> {
    let is_file = |path: &Path| {
        fs::read_link(path).is_ok_and(|file| file.starts_with("/memfd:handfast counters (deleted)"))
    };
    let path = fs::read_dir(format!("/proc/{server}/fd"))
        .ok()?
        .flatten()
        .map(|fd| fd.path())
        .find(|path| is_file(path))?;
    let bytes = fs::read(path).ok()?;
    let mut sum = 0;
    for name in ["parks", "wakes"] {
        let column = COLUMNS.iter().position(|column| *column == name)?;
        for receiver in 0..PORT_ROWS {
            let word = bytes.get(port_word(receiver, column)..)?.first_chunk()?;
            sum += u64::from_ne_bytes(*word);
        }
    }
    Some(2 * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_process_are_found_from_outside() {
        let _port = handfast::anonymous_with(handfast::Options::new()).unwrap();
        assert!(sleep_and_wake_calls(std::process::id()).is_some());
        // Above the largest process id there can be.
        assert_eq!(sleep_and_wake_calls(4_194_305), None);
    }
}
