//! Which files a confined process may still open. Landlock only knows what is allowed, and always with everything
//! beneath: so everything is allowed but the directories that lead to paths that must stay closed; within those directories,
//! the entries that do not lead there are allowed.

use super::ConfineError;
use handfast_sys::landlock::{self, Rules, access};
use handfast_sys::{Errno, OwnedFd};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files of processes' memory, and of what looks into it.
const FORBIDDEN: [&str; 4] = ["proc", "tracefs", "debugfs", "bpf"];
const DEVICES: &str = "/dev";
/// Directories of devices' directory that are allowed whole.
const DEVICE_DIRECTORIES: [&str; 4] = ["shm", "pts", "mqueue", "hugepages"];

/// Places that are looked at, at most.
const PLACES_MAX: usize = 1 << 16;

/// A mounted file system.
struct Mount {
    at: PathBuf,
    kind: String,
    device: u64,
}

/// The mounts of this process's name space.
fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

/// `id parent major:minor root point options … - type source options`.
fn mount(line: &str) -> Option<Mount> {
    let (head, tail) = line.split_once(" - ")?;
    let mut words = head.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    Some(Mount {
        at: PathBuf::from(unescape(words.nth(1)?)),
        kind: tail.split(' ').next()?.to_owned(),
        device: libc::makedev(major.parse().ok()?, minor.parse().ok()?),
    })
}

/// Blanks and the like are written in octal.
fn unescape(word: &str) -> String {
    let mut all = word.split('\\');
    let mut text = all.next().unwrap_or_default().to_owned();
    for piece in all {
        let (number, rest) = piece.split_at_checked(3).unwrap_or((piece, ""));
        match u8::from_str_radix(number, 8) {
            Ok(byte) => text.push(byte.into()),
            Err(_) => text.push_str(number),
        }
        text.push_str(rest);
    }
    text
}

/// The device numbers of file systems whose files must not be open.
pub(super) fn forbidden_devices() -> Vec<u64> {
    let is_forbidden = |mount: &Mount| FORBIDDEN.contains(&mount.kind.as_str());
    let all = mounts().into_iter().filter(is_forbidden);
    all.map(|mount| mount.device).collect()
}

/// The paths that may be opened: all of `only`, or everything where that is empty.
pub(super) fn places(only: &[PathBuf]) -> Result<Vec<PathBuf>, ConfineError> {
    let (mut holes, mut devices) = (Vec::new(), vec![PathBuf::from(DEVICES)]);
    for mount in mounts() {
        if FORBIDDEN.contains(&mount.kind.as_str()) {
            holes.push(mount.at);
        } else if mount.kind == "devtmpfs" {
            devices.push(mount.at);
        }
    }
    if holes.is_empty() {
        return Err(ConfineError::Unsupported {
            what: "/proc/self/mountinfo does not name /proc",
        });
    }
    let mut found = Vec::new();
    for directory in &devices {
        device_places(directory, &mut found);
    }
    holes.extend(devices);
    let mut left = PLACES_MAX;
    let everything = [PathBuf::from("/")];
    for path in if only.is_empty() { &everything } else { only } {
        let bad = |why| ConfineError::Path {
            path: path.clone(),
            why,
        };
        let whole = path.canonicalize().map_err(|_| bad("it is not there"))?;
        if holes.iter().any(|hole| whole.starts_with(hole)) {
            return Err(bad(
                "it leads to processes' memory, to the kernel's own files or to devices, which stay closed; open what \
                 is needed before",
            ));
        }
        walk(&whole, &holes, &mut found, &mut left)
            .ok_or_else(|| bad("too many files lie beside what stays closed"))?;
    }
    Ok(found)
}

/// Adds `place`, or what is in it and leads to no hole.
fn walk(place: &Path, holes: &[PathBuf], found: &mut Vec<PathBuf>, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(1)?;
    if holes.iter().any(|hole| hole == place) {
        return Some(());
    }
    if !holes.iter().any(|hole| hole.starts_with(place)) {
        found.push(place.to_owned());
        return Some(());
    }
    // One that cannot be listed stays closed.
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        // The target of a link is allowed under its own name, or not.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            walk(&entry.path(), holes, found, left)?;
        }
    }
    Some(())
}

/// Nothing, zeros, random numbers, and terminals.
pub(super) fn is_known(device: u64) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    matches!(
        (major, minor),
        (1, 3 | 5 | 7 | 8 | 9) | (4, _) | (5, 0..=2) | (136..=143, _)
    )
}

/// Devices that are known to be harmless.
fn device_places(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else {
            continue;
        };
        let kind = about.file_type();
        let is_device = kind.is_char_device() && is_known(about.rdev());
        let name = entry.file_name();
        let is_directory = DEVICE_DIRECTORIES.iter().any(|known| name == *known);
        // A socket is no device: of the system's log, mostly.
        if is_device || kind.is_socket() || kind.is_dir() && is_directory {
            found.push(entry.path());
        }
    }
}

/// The rules that allow these places and no others; they hold once they are put on the process.
pub(super) fn rules(places: &[PathBuf]) -> Result<Rules, ConfineError> {
    let os = |call| {
        move |errno: Errno| ConfineError::Os {
            call,
            errno: errno.into(),
        }
    };
    let refer = match landlock::version() {
        0 => {
            return Err(ConfineError::Unsupported {
                what: "the kernel has no Landlock, or it is turned off",
            });
        }
        1 => 0,
        _ => access::REFER,
    };
    let files = access::READ_FILE | access::WRITE_FILE;
    // Making a device is allowed nowhere.
    let handled = files | refer | access::MAKE_CHAR | access::MAKE_BLOCK;
    let rules = Rules::new(handled).map_err(os("landlock_create_ruleset"))?;
    for place in places {
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(place);
        // Gone since it was listed: nothing to allow.
        let Ok(opened) = opened else {
            continue;
        };
        let is_directory = opened.metadata().is_ok_and(|about| about.is_dir());
        let allowed = if is_directory { files | refer } else { files };
        match rules.allow(OwnedFd::from(opened), allowed) {
            // A file system that Landlock has nothing to say about.
            Ok(()) | Err(Errno::BADFD) => {}
            Err(errno) => return Err(os("landlock_add_rule")(errno)),
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_blanks() {
        let line = r"36 35 0:5 / /a\040b\134c rw,noatime master:1 - proc none rw";
        let found = mount(line).unwrap();
        assert_eq!(found.at, Path::new(r"/a b\c"));
        assert_eq!(
            (found.kind.as_str(), found.device),
            ("proc", libc::makedev(0, 5))
        );
        assert!(mount("36 35 0:5 / /a rw").is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no files")]
    fn directories_with_a_hole_are_taken_apart_and_others_are_not() {
        let base = std::env::temp_dir().join(format!("handfast-places-{}", std::process::id()));
        for directory in ["one/two/hole/in", "one/other", "three"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        fs::write(base.join("one/file"), "").unwrap();
        std::os::unix::fs::symlink("two/hole", base.join("one/link")).unwrap();
        let (mut found, mut left) = (Vec::new(), 100);
        let holes = [base.join("one/two/hole")];
        walk(&base, &holes, &mut found, &mut left).unwrap();
        found.sort();
        let expected = ["one/file", "one/other", "three"].map(|path| base.join(path));
        assert_eq!(found, expected);
        // A bound on what is looked at.
        assert_eq!(walk(&base, &holes, &mut found, &mut 3), None);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no mounts")]
    fn nothing_allowed_leads_to_processes() {
        let Ok(places) = places(&[]) else {
            return handfast_testing::not_exercised("the places of files are not found");
        };
        let proc = Path::new("/proc");
        assert!(
            places
                .iter()
                .all(|place| !proc.starts_with(place) && !place.starts_with(proc))
        );
        assert!(places.iter().any(|place| place == Path::new("/dev/null")));
        assert!(!places.iter().any(|place| place == Path::new("/dev")));
        let refused = super::places(&[PathBuf::from("/proc/self")]);
        assert!(matches!(refused, Err(ConfineError::Path { .. })));
        let refused = super::places(&[PathBuf::from("/no/such/file")]);
        assert!(matches!(refused, Err(ConfineError::Path { .. })));
    }
}
