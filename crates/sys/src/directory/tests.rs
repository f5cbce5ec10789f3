//! Places of users in directories that others can change.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

/// A directory of this test's with this mode; removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str, mode: u32) -> Self {
        let path = std::env::temp_dir().join(format!("{what}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

/// Security finding 17: a file that somebody put where the socket was became open to all.
#[test]
fn a_place_that_was_exchanged_for_another_makes_no_other_file_open_to_all() {
    let scratch = Scratch::new("exchanged", 0o777);
    let victim = scratch.0.join("victim");
    std::fs::write(&victim, b"").unwrap();
    std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
    let turn = Turn::take(&scratch.0).unwrap();
    let path = turn.path("door");
    let place = path.parent().unwrap().to_owned();
    let _door = UnixListener::bind(&path).unwrap();
    // Any process that may write the directory can do this.
    let aside = scratch.0.join("aside");
    std::fs::rename(&place, &aside).unwrap();
    std::fs::create_dir(&place).unwrap();
    symlink(&victim, place.join("door")).unwrap();
    turn.open_to_all("door").unwrap();
    assert_eq!(mode_of(&victim), 0o600);
    assert_eq!(mode_of(&aside.join("door")), 0o666);
    turn.path_of("door").unwrap();
    turn.remove("door").unwrap();
    assert!(place.join("door").is_symlink() && !aside.join("door").exists());
}

#[test]
fn turns_of_one_user_exclude_each_other_whatever_lies_in_the_places_first_names() {
    let scratch = Scratch::new("taken", 0o777);
    let name = |number| scratch.0.join(place_of(crate::process::uid(), number));
    std::fs::write(name(0), b"").unwrap();
    symlink(&scratch.0, name(1)).unwrap();
    std::fs::create_dir(name(2)).unwrap();
    std::fs::set_permissions(name(2), PermissionsExt::from_mode(0o755)).unwrap();
    let turn = Turn::take(&scratch.0).unwrap();
    assert_eq!(turn.path("x"), name(3).join("x"));
    assert_eq!(mode_of(&name(3)), 0o700);
    assert_eq!(Turn::take(&scratch.0).unwrap_err(), Errno::AGAIN);
    drop(turn);
    drop(Turn::take(&scratch.0).unwrap());
    for number in 4..PLACES {
        std::fs::write(name(number), b"").unwrap();
    }
    drop(Turn::take(&scratch.0).unwrap());
    std::fs::remove_dir_all(name(3)).unwrap();
    std::fs::write(name(3), b"").unwrap();
    assert_eq!(Turn::take(&scratch.0).unwrap_err(), Errno::EXIST);
}
