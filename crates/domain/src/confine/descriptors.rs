//! Which open descriptors lead around the rules.

use super::ConfineError;
use super::paths;
use handfast_sys::Errno;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Descriptors that the kernel makes without a file, and that reach no memory.
const ANONYMOUS: [&str; 7] = [
    "anon_inode:[eventpoll]",
    "anon_inode:[eventfd]",
    "anon_inode:[signalfd]",
    "anon_inode:[timerfd]",
    "anon_inode:[pidfd]",
    "anon_inode:inotify",
    "anon_inode:[inotify]",
];

/// Refuses descriptors of processes' memory, of devices that are not known to be harmless, and of what does things
/// to memory by itself.
pub(super) fn check() -> Result<(), ConfineError> {
    let os = |error: std::io::Error| ConfineError::Os {
        call: "reading /proc/self/fd",
        errno: error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)
            .into(),
    };
    for entry in fs::read_dir("/proc/self/fd").map_err(os)? {
        let entry = entry.map_err(os)?;
        let Some(number) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // The descriptor this loop reads from is gone when it is looked up again by others, but not here.
        let Ok(target) = fs::read_link(entry.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        let Ok(about) = fs::metadata(entry.path()) else {
            continue;
        };
        if !is_harmless(&target, &about) {
            return Err(ConfineError::Descriptor {
                number,
                leads_to: target.into_owned(),
            });
        }
    }
    Ok(())
}

fn is_harmless(target: &str, about: &fs::Metadata) -> bool {
    let kind = about.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return kind.is_char_device() && paths::is_known(about.rdev());
    }
    if target.starts_with("anon_inode:") {
        return ANONYMOUS.contains(&target);
    }
    // Opening what lies in a directory is Landlock's to decide.
    kind.is_dir() || !has_forbidden_system(about, target)
}

/// A file of the kernel's own about processes.
fn has_forbidden_system(about: &fs::Metadata, target: &str) -> bool {
    paths::forbidden_devices().contains(&about.dev()) || target.starts_with("/proc/")
}
