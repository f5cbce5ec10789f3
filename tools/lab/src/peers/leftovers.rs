//! Leftovers of processes: files, and objects of System V.

use handfast_cli::temporary::Temporary;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Removes a measurement's leftovers: all that carries its name.
pub(super) fn swept(name: &str) -> Temporary {
    let name = name.to_owned();
    Temporary::new(move || {
        for path in named(&name) {
            // A leftover that is gone already is as well.
            let _ = remove(&path);
        }
    })
}

fn remove(path: &Path) -> std::io::Result<()> {
    match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Where processes leave things whose place their users do not choose.
const SHARED: [&str; 2] = ["/dev/shm", "/tmp"];

/// All directly in the shared places whose name has this one in it.
fn named(name: &str) -> Vec<PathBuf> {
    let entries = SHARED.iter().filter_map(|place| fs::read_dir(place).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let has_name = |path: &PathBuf| {
        let last = path.file_name().and_then(|last| last.to_str());
        last.is_some_and(|last| last.contains(name))
    };
    paths.filter(has_name).collect()
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// In `/dev/shm`.
    pub(super) memory_files: usize,
    /// Pages of those files.
    pub(super) memory_bytes: u64,
    /// Sockets, locks and other files elsewhere.
    pub(super) files: usize,
    /// Queues, semaphores and segments of System V.
    pub(super) objects: usize,
}

impl Left {
    /// The leftovers of a measurement with this name, in `own` and where all may leave things.
    pub(super) fn of(name: &str, own: &Path) -> Self {
        let mut left = Self {
            objects: objects(),
            ..Self::default()
        };
        for path in named(name) {
            if path.starts_with("/dev/shm") {
                left.memory_files += 1;
                left.memory_bytes += fs::metadata(&path).map_or(0, |data| data.blocks() * 512);
            } else {
                left.files += files(&path);
            }
        }
        left.files += files(own);
        left
    }

    /// The leftovers that came after `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            memory_files: self.memory_files.saturating_sub(before.memory_files),
            memory_bytes: self.memory_bytes.saturating_sub(before.memory_bytes),
            files: self.files.saturating_sub(before.files),
            objects: self.objects.saturating_sub(before.objects),
        }
    }
}

/// How many files there are at and below `path`; folders do not count.
fn files(path: &Path) -> usize {
    let Ok(entries) = fs::read_dir(path) else {
        return usize::from(path.symlink_metadata().is_ok());
    };
    entries.flatten().map(|entry| files(&entry.path())).sum()
}

/// Objects of System V in this namespace.
fn objects() -> usize {
    let lines = |kind| {
        let list = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        // The first line is the heading.
        list.lines().count().saturating_sub(1)
    };
    ["msg", "sem", "shm"].into_iter().map(lines).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_name_is_counted_and_swept() {
        let name = format!("handfast-left-{}", std::process::id());
        let own = std::env::temp_dir().join(format!("own-of-{}", std::process::id()));
        fs::create_dir_all(own.join("deeper")).unwrap();
        fs::write(own.join("deeper/file"), "x").unwrap();
        fs::write(format!("/tmp/{name}-lock"), "x").unwrap();
        let left = Left::of(&name, &own);
        assert_eq!((left.memory_files, left.files), (0, 2));
        drop(swept(&name));
        assert_eq!(Left::of(&name, &own).since(left), Left::default());
        assert_eq!(Left::of(&name, &own).files, 1);
        fs::remove_dir_all(own).unwrap();
    }
}
