//! Names: whose they are, what lies in their way, and what becomes of them when their binders die.

use crate::common;
use crate::common::answers;
use handfast::error::{BindError, ConnectError, Found, SendError};
use handfast_sys::socket;
use std::path::Path;
use std::time::Duration;

#[test]
fn a_name_nobody_has_bound_is_no_such_name() {
    let name = common::name("nobody");
    let error = handfast::connect(&name).unwrap_err();
    assert!(
        matches!(&error, ConnectError::NoSuchName { path, .. } if path.ends_with(&name)),
        "{error:?}"
    );
}

#[test]
fn the_name_of_a_killed_server_says_so() {
    let name = common::name("killed");
    let mut server = common::start("echo", &[&name]);
    server.expect("ready");
    server.kill();
    let error = handfast::connect(&name).unwrap_err();
    assert!(
        matches!(error, ConnectError::ServerDead { .. }),
        "{error:?}"
    );
    // And is free.
    drop(handfast::bind(&name).unwrap());
}

#[test]
fn a_name_of_a_live_server_is_taken_and_its_process_named() {
    let name = common::name("taken");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let error = handfast::bind(&name).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, BindError::NameTaken { pid, .. } if pid == server.pid()),
        "{error:?}"
    );
    answers(&name);
}

#[test]
fn names_that_are_no_names_are_refused_by_both_sides() {
    let long = "x".repeat(65);
    for bad in ["", "../up", ".", "a/b", "-h", "a b", &long] {
        assert!(matches!(
            handfast::bind(bad).map(|_| ()),
            Err(BindError::BadName(_))
        ));
        assert!(matches!(
            handfast::connect(bad).map(|_| ()),
            Err(ConnectError::BadName(_))
        ));
    }
}

#[test]
fn a_character_that_no_name_has_is_shown_as_it_was_written() {
    let error = handfast::bind("caf\u{e9}").map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("'\u{e9}' at position 3"), "{text}");
    assert!(text.contains("ASCII"), "{text}");
}

/// Binds and connects to a name where `found` lies, which must be said and left there.
fn in_the_way(name: &str, found: Found) {
    let path = common::directory().join(name);
    let before = std::fs::symlink_metadata(&path).unwrap();
    let bound = handfast::bind(name).map(|_| ()).unwrap_err();
    let connected = handfast::connect(name).unwrap_err();
    for text in [bound.to_string(), connected.to_string()] {
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        assert!(text.contains("move it away"), "{text}");
    }
    assert!(
        matches!(bound, BindError::Foreign { path: of, found: what } if of == path && what == found),
        "{found:?}"
    );
    assert!(
        matches!(connected, ConnectError::Foreign { path: of, found: what }
            if of == path && what == found),
        "{found:?}"
    );
    let after = std::fs::symlink_metadata(&path).unwrap();
    assert_eq!(before.file_type(), after.file_type());
}

#[test]
fn what_lies_where_the_socket_would_be_is_named_and_left_alone() {
    let name = common::name("in-the-way");
    let path = |what| common::directory().join(format!("{name}-{what}"));
    let way = |what, found| in_the_way(&format!("{name}-{what}"), found);
    std::fs::create_dir(path("directory")).unwrap();
    way("directory", Found::Directory);
    std::fs::write(path("file"), b"dear").unwrap();
    way("file", Found::File);
    assert_eq!(std::fs::read(path("file")).unwrap(), b"dear");
    std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
    way("link", Found::Link);
    let own = path("loop");
    std::os::unix::fs::symlink(&own, &own).unwrap();
    way("loop", Found::Link);
    dead_socket(&path("dead"));
    std::os::unix::fs::symlink(path("dead"), path("link-to-dead")).unwrap();
    way("link-to-dead", Found::Link);
    let _stream = std::os::unix::net::UnixListener::bind(path("stream")).unwrap();
    way("stream", Found::Socket);
    let _datagram = std::os::unix::net::UnixDatagram::bind(path("datagram")).unwrap();
    way("datagram", Found::Socket);
    // Another program's listener of the same kind is a server as far as one can see.
    let _packets = socket::listen(&path("packets"), 1).unwrap();
    let taken = handfast::bind(&format!("{name}-packets"))
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(taken, BindError::NameTaken { pid, .. } if pid == std::process::id()),
        "{taken:?}"
    );
}

/// Makes a socket at which nobody listens.
pub(crate) fn dead_socket(path: &Path) {
    drop(socket::listen(path, 1).unwrap());
    // Children of other tests have copies of the listener until they are programs of their own.
    assert!(common::within_patience(|| {
        let probe = socket::connect(path, Duration::from_millis(1));
        probe.is_err_and(|errno| errno == handfast_sys::Errno::CONNREFUSED)
    }));
}

/// Says how its `bind` went.
pub(crate) fn binder(name: &str) {
    match handfast::bind(name) {
        Ok(_) => common::say("bound"),
        Err(error) => {
            common::say(&format!("{error:?}"));
            common::say(&error.to_string());
        }
    }
    while common::told().is_some() {}
}

/// Says why its connection was not made.
pub(crate) fn unconnected(name: &str) {
    let error = handfast::connect(name).map(|_| ()).unwrap_err();
    common::say(&format!("{error:?}"));
    common::say(&error.to_string());
    while common::told().is_some() {}
}

/// The outcome that a process with `directory` for its names says when it binds one.
pub(crate) fn bind_in(directory: &Path, kind: &str, parts: &[&str]) {
    role_in("binder", directory, kind, parts);
}

/// The outcome that a process says when it connects there.
fn connect_in(directory: &Path, kind: &str, parts: &[&str]) {
    role_in("unconnected", directory, kind, parts);
}

fn role_in(role: &'static str, directory: &Path, kind: &str, parts: &[&str]) {
    let mut binder = common::start_with(role, &["name"], |command| {
        command.env("HANDFAST_DIR", directory);
    });
    let outcome = binder.line();
    assert!(outcome.starts_with(kind), "{outcome}");
    if !parts.is_empty() {
        let text = binder.line();
        for part in [&[directory.to_str().unwrap()], parts].concat() {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
    binder.finish();
}

#[test]
fn a_directory_that_cannot_hold_names_is_named_with_the_reason() {
    let name = common::name("directories");
    let base = common::directory().join(&name);
    std::fs::create_dir(&base).unwrap();
    bind_in(&base.join("fresh"), "bound", &[]);
    let parts = ["set XDG_RUNTIME_DIR or HANDFAST_DIR", "No such file"];
    bind_in(&base.join("not/there"), "Directory", &parts);
    std::fs::write(base.join("file"), b"").unwrap();
    let parts = ["set XDG_RUNTIME_DIR or HANDFAST_DIR", "is a file"];
    for file in ["file", "file/in"] {
        bind_in(&base.join(file), "Directory", &parts);
        connect_in(&base.join(file), "Directory", &parts);
    }
    connect_in(&base.join("not/there"), "NoSuchName", &["does not exist"]);
    let locked = base.join("locked");
    std::fs::create_dir(&locked).unwrap();
    let turn = handfast_sys::directory::Turn::take(&locked).unwrap();
    bind_in(&locked, "Directory", &["another program", "HANDFAST_DIR"]);
    drop(turn);
    bind_in(&locked, "bound", &[]);
    // The whole path, with "/name", has 108 bytes, then 109.
    let room = 108 - "/name".len() - base.as_os_str().len() - 1;
    bind_in(&base.join("x".repeat(room)), "bound", &[]);
    let parts = ["109 bytes", "the limit is 108", "shorter HANDFAST_DIR"];
    bind_in(&base.join("x".repeat(room + 1)), "PathTooLong", &parts);
}

/// Says which directory its names are in.
pub(crate) fn homeless() {
    common::say(handfast::rendezvous::directory().to_str().unwrap());
    while common::told().is_some() {}
}

#[test]
fn a_variable_that_is_empty_counts_as_not_set() {
    let said = |runtime| {
        let mut child = common::start_with("homeless", &[], |command| {
            command.env("HANDFAST_DIR", "");
            command.env("XDG_RUNTIME_DIR", runtime);
        });
        let directory = child.line();
        child.finish();
        directory
    };
    assert_eq!(said("/somewhere"), "/somewhere/handfast");
    assert_eq!(said(""), "/run/handfast");
}

#[test]
fn an_error_without_a_number_shows_none() {
    let exhausted = |limit, advice| {
        let what = "rights";
        let exhausted = handfast::error::Exhausted {
            what,
            limit,
            advice,
        };
        exhausted.to_string()
    };
    assert_eq!(exhausted(0, None), "out of rights");
    assert_eq!(exhausted(7, None), "out of rights (limit 7)");
    let advice = Some("drop some");
    assert_eq!(exhausted(0, advice), "out of rights; drop some");
    assert_eq!(exhausted(7, advice), "out of rights (limit 7); drop some");
    let taken = |pid| {
        let name = "name".to_owned();
        BindError::NameTaken { name, pid }.to_string()
    };
    assert!(taken(7).contains("process 7"));
    let unseen = taken(0);
    assert!(unseen.contains("cannot be seen from here"), "{unseen}");
    assert!(!unseen.contains('0'), "{unseen}");
}

#[test]
fn another_user_without_permission_is_told_so() {
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let name = common::name("private");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    // The directory belongs to root alone.
    std::fs::set_permissions(
        common::directory(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    common::as_user(65_534, move || {
        let connected = handfast::connect(&name).unwrap_err();
        let bound = handfast::bind(&format!("{name}-other"))
            .map(|_| ())
            .unwrap_err();
        assert!(
            matches!(connected, ConnectError::Permission { .. }),
            "{connected:?}"
        );
        assert!(matches!(bound, BindError::Permission { .. }), "{bound:?}");
    });
}

/// A directory for names with this mode.
pub(crate) fn names_with_mode(what: &str, mode: u32) -> std::path::PathBuf {
    let path = common::directory().join(common::name(what));
    std::fs::create_dir(&path).unwrap();
    for (path, mode) in [(common::directory(), 0o755), (&path, mode)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    }
    path
}

pub(crate) const OTHER: u32 = 3001;

/// Security finding 15: whoever could read the directory could lock it, and so keep others from binding.
#[test]
fn a_user_who_may_read_the_directory_or_write_a_shared_one_keeps_nobody_from_binding() {
    use handfast_sys::directory::{Turn, lock, place_of};
    if !rustix::process::geteuid().is_root() {
        return common::not_exercised("not root");
    }
    let readable = names_with_mode("readable", 0o755);
    // There is a place before the other user looks for one.
    bind_in(&readable, "bound", &[]);
    let path = readable.clone();
    let held = common::as_user(OTHER, move || {
        let place = path.join(place_of(0, 0));
        let refused = |path: &Path| {
            let error = std::fs::File::open(path).unwrap_err();
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::PermissionDenied,
                "{path:?}"
            );
        };
        refused(&place);
        refused(&place.join("lock"));
        assert!(std::fs::rename(&place, path.join("aside")).is_err());
        lock(&path).unwrap()
    });
    bind_in(&readable, "bound", &[]);
    drop(held);

    // Each user has a lock of its own, also where others were in its place before it.
    let shared = names_with_mode("shared", 0o1777);
    let path = shared.clone();
    let held = common::as_user(OTHER, move || {
        for number in 0..3 {
            std::fs::create_dir(path.join(place_of(0, number))).unwrap();
        }
        let file = std::fs::File::create(path.join(place_of(0, 3))).unwrap();
        (lock(&path).unwrap(), Turn::take(&path).unwrap(), file)
    });
    bind_in(&shared, "bound", &[]);
    drop(held);
    // One who takes all of them is named.
    common::as_user(OTHER, {
        let path = shared.clone();
        move || {
            for number in 0..64 {
                let _ = std::fs::create_dir(path.join(place_of(65_534, number)));
            }
        }
    });
    let turn = common::as_user(65_534, move || Turn::take(&shared).map(|_| ()));
    assert_eq!(turn, Err(rustix::io::Errno::EXIST));
}

#[test]
fn a_dropped_port_is_gone_and_its_name_free() {
    let name = common::name("dropped");
    let port = handfast::bind(&name).unwrap();
    let right = handfast::connect(&name).unwrap();
    drop(port);
    let gone = right.call_timeout(b"x", common::PATIENCE).unwrap_err();
    assert!(matches!(gone, SendError::Gone(_)), "{gone:?}");
    assert!(matches!(
        handfast::connect(&name).unwrap_err(),
        ConnectError::NoSuchName { .. }
    ));
    drop(handfast::bind(&name).unwrap());
}
