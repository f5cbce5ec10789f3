//! Names whose binders come and go, and are killed.

use crate::common;
use crate::common::answers;
use crate::names::{OTHER, bind_in, dead_socket, names_with_mode};
use handfast::error::{BindError, ConnectError, Found};
use handfast_sys::socket;
use std::path::Path;
use std::time::{Duration, Instant};

const REBINDS: usize = 500;

/// Binds and drops a name that others bind and drop.
pub(crate) fn rebinder(name: &str) {
    let mut bound = 0;
    for _ in 0..REBINDS {
        match handfast::bind(name) {
            Ok(_) => bound += 1,
            Err(BindError::NameTaken { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    common::say(if bound > 0 { "had it" } else { "never had it" });
    while common::told().is_some() {}
}

#[test]
fn processes_that_bind_and_drop_one_name_find_it_taken_or_free_and_nothing_else() {
    let name = common::name("rebound");
    let mut binders: Vec<_> = (0..3)
        .map(|_| common::start("rebinder", &[&name]))
        .collect();
    for binder in &mut binders {
        binder.expect("had it");
        binder.finish();
    }
    drop(handfast::bind(&name).unwrap());
}

/// Binds and drops a name for as long as it is not told to end.
pub(crate) fn flicker(name: &str) {
    std::thread::spawn(|| {
        while common::told().is_some() {}
        std::process::exit(0);
    });
    for round in 0u64.. {
        let port = handfast::bind(name).unwrap();
        if round.is_multiple_of(8) {
            let _ = port.receive_timeout(Duration::from_micros(300));
        }
    }
}

#[test]
fn a_server_that_comes_and_goes_is_there_or_not_but_never_dead() {
    let _alone = common::alone();
    let name = common::name("flickers");
    let mut server = common::start("flicker", &[&name]);
    let end = Instant::now() + common::campaign(2);
    let (mut there, mut gone) = (0, 0);
    let patience = end + common::PATIENCE;
    while Instant::now() < end || ((there == 0 || gone == 0) && Instant::now() < patience) {
        match handfast::connect_timeout(&name, common::PATIENCE) {
            Ok(_) => there += 1,
            Err(ConnectError::NoSuchName { .. }) => gone += 1,
            Err(error) => panic!("after {there} and {gone}: {error:?}"),
        }
    }
    println!("{there} times there, {gone} times not");
    assert!(there > 0 && gone > 0);
    server.finish();
}

/// The files in the rendezvous directory that belong to `name`.
fn files_of(name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(common::directory()).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let of_it = |file: &String| file.len() == name.len() && file.ends_with(&name[1..]);
    files.filter(of_it).collect()
}

#[test]
fn a_binder_killed_at_any_instant_leaves_nothing_that_the_next_does_not_take_over() {
    let mut random = common::Random::seeded("killed binders");
    let name = common::name("killed-binder");
    let end = Instant::now() + common::campaign(2);
    let mut left = std::collections::BTreeMap::new();
    while Instant::now() < end {
        let mut binder = common::start("flicker", &[&name]);
        assert!(common::within_patience(|| !files_of(&name).is_empty()));
        // A random instant is what is wanted here.
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(2000)));
        binder.kill();
        let files = files_of(&name);
        assert!(files.len() <= 2, "{files:?}");
        *left.entry(files).or_insert(0) += 1;
        let port = handfast::bind(&name).unwrap();
        assert_eq!(files_of(&name), [&*name]);
        answered_by(&port);
        drop(port);
        assert_eq!(files_of(&name), [""; 0]);
    }
    println!("left by the killed: {left:?}");
}

/// Calls a port of this process.
fn answered_by(port: &handfast::ReceiveRight) {
    std::thread::scope(|scope| {
        scope.spawn(|| answers(port.name()));
        let request = port.receive_timeout(common::PATIENCE).unwrap();
        request.reply(b"there?").unwrap();
    });
}

#[test]
fn what_a_binder_killed_midway_left_is_removed_by_the_next_and_nothing_else_is() {
    for name in [common::name("midway"), "m".to_owned()] {
        let unfinished = common::directory().join(format!("~{}", &name[1..]));
        dead_socket(&unfinished);
        let port = handfast::bind(&name).unwrap();
        assert_eq!(files_of(&name), [&*name]);
        // Nor does one that is refused leave anything.
        assert!(handfast::bind(&name).is_err());
        assert_eq!(files_of(&name), [&*name]);
        drop(port);
        std::fs::write(&unfinished, b"mine").unwrap();
        let error = handfast::bind(&name).map(|_| ()).unwrap_err();
        assert!(
            matches!(&error, BindError::Foreign { path, found: Found::File } if *path == unfinished),
            "{error:?}"
        );
        assert_eq!(std::fs::read(&unfinished).unwrap(), b"mine");
        std::fs::remove_file(&unfinished).unwrap();
    }
}

/// The files of a binder that is killed before it has given its socket its name go with the next `bind` of any name.
#[test]
fn unfinished_sockets_of_dead_binders_go_with_any_bind_and_those_of_living_ones_stay() {
    let name = common::name("leftover");
    let of = |what: &str| common::directory().join(format!("~{what}-{}", std::process::id()));
    let dead = [of("dead"), of("also-dead")];
    for path in &dead {
        drop(socket::listen(path, 1).unwrap());
    }
    let living = of("living");
    let listener = socket::listen(&living, 1).unwrap();
    let file = of("file");
    std::fs::write(&file, b"mine").unwrap();
    // Children of other tests have copies of the listeners until they are programs of their own.
    let go = |paths: &[std::path::PathBuf]| {
        common::within_patience(|| {
            drop(handfast::bind(&name).unwrap());
            paths.iter().all(|path| !path.exists())
        })
    };
    assert!(go(&dead));
    assert!(living.exists() && file.exists());
    drop(listener);
    assert!(go(&[living]));
    std::fs::remove_file(&file).unwrap();
    if rustix::process::geteuid().is_root() {
        // Another user's is that user's business.
        let path = of("others");
        drop(socket::listen(&path, 1).unwrap());
        std::os::unix::fs::chown(&path, Some(OTHER), None).unwrap();
        drop(handfast::bind(&name).unwrap());
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
    } else {
        common::not_exercised("not root");
    }
}

#[test]
fn binders_killed_at_any_instant_leave_nothing_once_any_name_is_bound() {
    let mut random = common::Random::seeded("killed binders of many names");
    let directory = names_with_mode("many-killed", 0o700);
    let end = Instant::now() + common::campaign(2);
    let (mut rounds, mut unfinished) = (0, 0);
    while Instant::now() < end {
        rounds += 1;
        let binders = ["first", "second", "third"].map(|name| {
            common::start_with("flicker", &[name], |command| {
                command.env("HANDFAST_DIR", &directory);
            })
        });
        assert!(common::within_patience(|| files_in(&directory) != [""; 0]));
        // A random instant is what is wanted here.
        // Sleep: a moment chosen at random.
        std::thread::sleep(Duration::from_micros(random.below(4000)));
        for mut binder in binders {
            binder.kill();
        }
        let left = files_in(&directory);
        unfinished += left.iter().filter(|file| file.starts_with('~')).count();
        bind_in(&directory, "bound", &[]);
        let left = files_in(&directory);
        assert!(left.iter().all(|file| !file.starts_with('~')), "{left:?}");
    }
    println!("{unfinished} unfinished sockets in {rounds} rounds");
}

/// The files in a directory of names, except places.
fn files_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_file = |file: &String| !file.starts_with(handfast_sys::directory::PLACE);
    files.filter(is_file).collect()
}
