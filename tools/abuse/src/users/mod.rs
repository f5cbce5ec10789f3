//! `handfast abuse --users`: a process of one user strikes a server of another while a third user's calls are timed.
//!
//! Each attack is a small program of `attackers/`, which is written from `spec/` alone. It runs in turns with two controls: nobody
//! attacks, and the same attacker at work on another user's server, which costs the machine as much and this server nothing.
//! `kinds` has the attacks, `slice` is one measurement, `roles` are the processes that are measured, `judge` compares.

mod judge;
mod kind;
mod kinds;
mod roles;
mod slice;

use crate::child::{Child, Spec};
use handfast_cli::Outcome;
use handfast_cli::output::{note, say};
use handfast_cli::temporary::Directory;
use handfast_testing::Random;
use judge::Measured;
use kinds::{KINDS, Kind};
pub(super) use roles::{newcomer, server, victim};
use slice::Setting;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Whether users strike one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Users {
    /// Where this is root: only root can be several users.
    Auto,
    On,
    Off,
    /// Nothing else is done.
    Only,
}

/// User numbers that nobody has, so that nothing else counts against them.
const SERVER: u32 = 3101;
const ATTACKER: u32 = 3102;
const VICTIM: u32 = 3103;
const NEWCOMER: u32 = 3104;
/// Whose server the one that is struck passes calls on to.
const BEHIND: u32 = 3106;
/// Whose server is struck instead in the control.
const DECOY: u32 = 3105;

/// A measurement in which something was late is made again so often: a busy machine has bad moments, and an attack that works does so
/// each time.
const TRIES: usize = 3;

/// Where the attackers' programs lie, and under it the directories of names.
struct Place {
    path: PathBuf,
    /// Directories made so far.
    made: std::cell::Cell<u32>,
}

const PROGRAMS: [(&str, &str); 24] = [
    ("wire.py", include_str!("../../../../attackers/wire.py")),
    ("linger.py", include_str!("../../../../attackers/linger.py")),
    (
        "listener.py",
        include_str!("../../../../attackers/listener.py"),
    ),
    ("names.py", include_str!("../../../../attackers/names.py")),
    (
        "answers.py",
        include_str!("../../../../attackers/answers.py"),
    ),
    ("unread.py", include_str!("../../../../attackers/unread.py")),
    (
        "unclaimed.py",
        include_str!("../../../../attackers/unclaimed.py"),
    ),
    (
        "strangers.py",
        include_str!("../../../../attackers/strangers.py"),
    ),
    ("vine.py", include_str!("../../../../attackers/vine.py")),
    ("users.py", include_str!("../../../../attackers/users.py")),
    ("crowds.py", include_str!("../../../../attackers/crowds.py")),
    ("holes.py", include_str!("../../../../attackers/holes.py")),
    (
        "requeue.py",
        include_str!("../../../../attackers/requeue.py"),
    ),
    (
        "untouched.py",
        include_str!("../../../../attackers/untouched.py"),
    ),
    (
        "unwhole.py",
        include_str!("../../../../attackers/unwhole.py"),
    ),
    ("behind.py", include_str!("../../../../attackers/behind.py")),
    ("doors.py", include_str!("../../../../attackers/doors.py")),
    ("flood.py", include_str!("../../../../attackers/flood.py")),
    (
        "control.py",
        include_str!("../../../../attackers/control.py"),
    ),
    (
        "waiting.py",
        include_str!("../../../../attackers/waiting.py"),
    ),
    ("deputy.py", include_str!("../../../../attackers/deputy.py")),
    (
        "options.py",
        include_str!("../../../../attackers/options.py"),
    ),
    ("said.py", include_str!("../../../../attackers/said.py")),
    ("posers.py", include_str!("../../../../attackers/posers.py")),
];
const LOCK: (&str, &str) = ("lock.py", include_str!("../../../../attackers/lock.py"));

impl Place {
    fn new(path: &Path) -> std::io::Result<Self> {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        for (name, text) in PROGRAMS.iter().chain([&LOCK]) {
            fs::write(path.join(name), text)?;
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o644))?;
        }
        Ok(Self {
            path: path.to_owned(),
            made: 0.into(),
        })
    }

    /// A new directory of names, in which every user may have some.
    fn directory(&self) -> std::io::Result<PathBuf> {
        self.made.set(self.made.get() + 1);
        let path = self.path.join(self.made.get().to_string());
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))?;
        Ok(path)
    }
}

/// A process of a user, in a role of this program.
fn process(
    user: u32,
    spec: &Spec,
    directory: &Path,
    limits: &[(rustix::process::Resource, u64)],
) -> std::io::Result<Child> {
    let mut command = Child::own(spec);
    command.uid(user).gid(user);
    Child::launch(command, directory, limits, None)
}

/// Why users cannot strike one another here.
fn obstacle(place: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("this process is not root, and only root can be several users".to_owned());
    }
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|it| it.status.success()) {
        return Some("python3 is not installed".to_owned());
    }
    // Each directory on the way must let others in, and this program, too.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("--help")
        .stdout(Stdio::null())
        .uid(NEWCOMER)
        .gid(NEWCOMER);
    if let Err(error) = command.status() {
        return Some(format!("other users cannot run this program ({error})"));
    }
    let mut command = Command::new("python3");
    command
        .arg(place.join("wire.py"))
        .uid(NEWCOMER)
        .gid(NEWCOMER);
    match command.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => None,
        _ => Some(format!(
            "other users cannot read {}; set TMPDIR to a directory that they may enter",
            place.display()
        )),
    }
}

/// The kinds with these names, or so many by the seed, or all.
fn chosen(
    names: &[String],
    count: Option<usize>,
    seed: u64,
) -> Result<Vec<&'static Kind>, Box<dyn std::error::Error>> {
    let unknown = |name: &&String| !KINDS.iter().any(|kind| kind.name == name.as_str());
    if let Some(name) = names.iter().find(unknown) {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(format!("no attack is called {name:?}: {}", known.join(", ")).into());
    }
    let is_named = |kind: &&Kind| names.is_empty() || names.iter().any(|name| name == kind.name);
    let mut kinds: Vec<_> = KINDS.iter().filter(is_named).collect();
    let mut random = Random::of(seed);
    while kinds.len() > count.unwrap_or(usize::MAX) {
        kinds.remove(random.below(kinds.len() as u64) as usize);
    }
    Ok(kinds)
}

/// Strikes by the kinds that are [`chosen`]. Whether all was well.
pub(super) fn run(
    users: Users,
    (names, count): (&[String], Option<usize>),
    seed: u64,
) -> Result<bool, Box<dyn std::error::Error>> {
    let kinds = chosen(names, count, seed)?;
    let directory = Directory::new("handfast-users-")?;
    let place = Place::new(directory.path())?;
    if let Some(why) = obstacle(&place.path) {
        say!("\nusers: skipped: {why}")?;
        return match users {
            Users::Auto => Ok(true),
            _ => Err(format!("users cannot strike one another here: {why}").into()),
        };
    }
    judge::heading()?;
    let mut well = true;
    if kinds.len() < KINDS.len() {
        let names: Vec<_> = kinds.iter().map(|kind| kind.name).collect();
        say!("of {} attacks: {}", KINDS.len(), names.join(", "))?;
    }
    for kind in kinds {
        let mut measured = Measured::default();
        for _ in 0..TRIES {
            measured = measure(&place, kind)?;
            if !measured.is_noisy(kind) {
                break;
            }
        }
        well &= measured.row(kind)?;
    }
    Ok(well)
}

/// Controls and attacks of a kind, in turns.
fn measure(place: &Place, kind: &Kind) -> Result<Measured, Box<dyn std::error::Error>> {
    let mut measured = Measured::default();
    for _ in 0..kinds::ROUNDS {
        measured
            .alone
            .add(slice::take(place, kind, Setting::Alone)?);
        if kind.has_decoy {
            measured
                .elsewhere
                .add(slice::take(place, kind, Setting::Elsewhere)?);
        }
        measured
            .struck
            .add(slice::take(place, kind, Setting::Struck)?);
    }
    note(format_args!("{}: measured", kind.name));
    Ok(measured)
}

/// The longest that a process is waited for which is to say something.
const PATIENCE: Duration = Duration::from_secs(20);

/// In a child: what the role is for has failed.
fn fails(what: &str) -> Outcome {
    crate::child::say(&format!("failed {what}"));
    Ok(())
}
