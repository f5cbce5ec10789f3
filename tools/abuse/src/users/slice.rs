//! One measurement: fresh processes, an attacker or none, and what the others saw of it.

use super::kinds::{Kind, Newcomer};
use super::roles::Calls;
use super::{ATTACKER, BEHIND, DECOY, NEWCOMER, PATIENCE, Place, SERVER, process};
use crate::child::{Child, Spec};
use crate::leaks::Holdings;
use handfast_cli::temporary::Temporary;
use handfast_cli::usage::cpu_ns;
use rustix::process::Resource;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

type Result<T> = core::result::Result<T, Box<dyn std::error::Error>>;

/// The target of the attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Alone,
    Elsewhere,
    Struck,
}

/// The results of one slice.
#[derive(Default)]
pub(super) struct Slice {
    pub(super) calls: Calls,
    pub(super) newcomers_us: Vec<u64>,
    /// Why newcomers were refused.
    pub(super) refused: Vec<String>,
    /// The attacker's successes.
    pub(super) breaches: Vec<String>,
    /// Attackers that have not come to their attacks: what was measured says nothing.
    pub(super) absent: usize,
    /// The attacker's notes on its actions, or on actions it could not do.
    pub(super) notes: Vec<String>,
    /// How the server ended, which must not.
    pub(super) ended: Vec<String>,
    /// The server's growth since before.
    pub(super) memory_kib: i64,
    pub(super) descriptors: i64,
    /// The part of a processor that the server takes when nobody but the attacker is left.
    pub(super) busy: f64,
    /// How many want a processor for each that there is.
    pub(super) crowd: f64,
}

impl Slice {
    pub(super) fn add(&mut self, other: Self) {
        self.calls.took_us.extend(other.calls.took_us);
        self.calls.failures.extend(other.calls.failures);
        self.newcomers_us.extend(other.newcomers_us);
        self.refused.extend(other.refused);
        self.breaches.extend(other.breaches);
        self.absent += other.absent;
        self.notes.extend(other.notes);
        self.ended.extend(other.ended);
        self.memory_kib = self.memory_kib.max(other.memory_kib);
        self.descriptors = self.descriptors.max(other.descriptors);
        self.busy = self.busy.max(other.busy);
        self.crowd = self.crowd.max(other.crowd);
    }
}

/// The server's name, and the one by which an attacker knows the newcomer.
const NAME: &str = "struck";
pub(super) const KNOWN: &str = "known";
/// The name of a server to which this one passes calls on.
pub(super) const BEHIND_NAME: &str = "behind";

/// How long the server is watched when nobody calls it.
const QUIET: Duration = Duration::from_secs(1);
/// How long the attacker may take until its attack is under way.
pub(super) const BEGINS: Duration = Duration::from_secs(60);
/// How long the newcomer may take until it has said how it went.
const COMES: Duration = Duration::from_secs(12);

pub(super) fn take(place: &Place, kind: &Kind, setting: Setting) -> Result<Slice> {
    let mut slice = Slice::default();
    let directory = place.directory()?;
    let (mut server, _others) = start_server(SERVER, &directory, kind, &mut slice)?;
    let decoy = match setting {
        Setting::Elsewhere if kind.fair.is_none() => {
            let elsewhere = place.directory()?;
            Some((
                start_server(DECOY, &elsewhere, kind, &mut slice)?,
                elsewhere,
            ))
        }
        _ => None,
    };
    let mut victim = process(
        kind.victim,
        &Spec::new("users-victim", 0, &[NAME]),
        &directory,
        &[],
    )?;
    expect(&mut victim, "ready")?;
    let mut newcomer = start_newcomer(kind, &directory)?;
    let before = Holdings::of(server.id())?;
    victim.tell("go");
    let begun = Instant::now();
    let attacker = match setting {
        Setting::Alone => None,
        _ => {
            let aim = decoy
                .as_ref()
                .map_or(&directory, |(_, elsewhere)| elsewhere);
            let words = match setting {
                Setting::Elsewhere => kind.fair.unwrap_or(kind.words),
                _ => kind.words,
            };
            let mut attacker = start_attacker(place, kind, words, aim)?;
            hear(&mut attacker, BEGINS, true, &mut slice);
            Some(attacker)
        }
    };
    let mut attacker = attacker;
    let listen = |attacker: &mut Option<Child>, time, slice: &mut Slice| match attacker {
        Some(attacker) => hear(attacker, time, false, slice),
        None => std::thread::sleep(time),
    };
    listen(&mut attacker, kind.time / 2, &mut slice);
    newcomer.tell("go");
    let came = newcomer
        .line(COMES)
        .unwrap_or_else(|| "failed: no word of it".to_owned());
    match came
        .strip_prefix("took ")
        .and_then(|took| took.parse().ok())
    {
        Some(took) => slice.newcomers_us.push(took),
        None => slice
            .refused
            .push(came.trim_start_matches("failed ").to_owned()),
    }
    listen(&mut attacker, kind.time / 2, &mut slice);
    victim.tell("stop");
    if let Ok(after) = Holdings::of(server.id()) {
        slice.memory_kib = after.private_kib() as i64 - before.private_kib() as i64;
        slice.descriptors = after.descriptors() as i64 - before.descriptors() as i64;
    }
    match victim.line(PATIENCE) {
        Some(line) => slice.calls = serde_json::from_str(&line).unwrap_or_else(|_| lost(&line)),
        None => {
            slice.calls = lost(&match victim.wait(Duration::ZERO) {
                Some(status) => format!("a victim that has ended: {status}"),
                None => format!("a victim that says nothing: {}", threads(victim.id())),
            });
        }
    }
    if kind.is_quiet {
        // One that has ended is found below.
        let took_ns = || cpu_ns(server.id()).unwrap_or_default();
        let before_ns = took_ns();
        listen(&mut attacker, QUIET, &mut slice);
        slice.busy = took_ns().saturating_sub(before_ns) as f64 / QUIET.as_nanos() as f64;
    }
    if let Some(mut attacker) = attacker {
        attacker.close_input();
        hear(&mut attacker, Duration::from_millis(300), false, &mut slice);
        attacker.kill();
    }
    slice.crowd = crowd();
    if let Some(status) = server.wait(Duration::ZERO) {
        slice
            .ended
            .push(format!("{status} within {:?}", begun.elapsed()));
    }
    drop(server);
    if setting != Setting::Struck {
        // An attack on somebody else's server is no finding of this one's.
        slice.breaches.clear();
        slice.notes.clear();
    }
    Ok(slice)
}

/// By the load average of the last minute.
fn crowd() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    load.unwrap_or(0.0_f64) / processors as f64
}

/// The threads of a process, and where in the kernel each sleeps.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let said = tasks.flatten().flatten().map(|task| {
        let read = |what| fs::read_to_string(task.path().join(what)).unwrap_or_default();
        let [name, place, call] = ["comm", "wchan", "syscall"].map(read);
        format!("{} {place} {}", name.trim_end(), call.trim_end())
    });
    said.collect::<Vec<_>>().join("; ")
}

fn lost(why: &str) -> Calls {
    Calls {
        took_us: Vec::new(),
        failures: vec![why.to_owned()],
    }
}

fn expect(child: &mut Child, word: &str) -> Result<()> {
    match child.line(PATIENCE) {
        Some(line) if line == word => Ok(()),
        other => Err(format!("{word:?} was to be said, and this was: {other:?}").into()),
    }
}

/// Ended with the server: the one behind it, and its memory group.
type Others = (Option<Child>, Option<Temporary>);

fn start_server(
    user: u32,
    directory: &Path,
    kind: &Kind,
    slice: &mut Slice,
) -> Result<(Child, Others)> {
    let behind = match kind.is_between {
        false => None,
        true => {
            let spec = Spec::new("users-server", 0, &[BEHIND_NAME]);
            let mut behind = process(BEHIND, &spec, directory, &[])?;
            expect(&mut behind, "ready")?;
            Some(behind)
        }
    };
    let words = match kind.is_between {
        true => &[NAME, BEHIND_NAME][..],
        false => &[NAME],
    };
    let limits: Vec<_> = kind
        .descriptors
        .map(|most| (Resource::Nofile, most))
        .into_iter()
        .collect();
    let mut server = process(
        user,
        &Spec::new("users-server", 0, words),
        directory,
        &limits,
    )?;
    let group = kind.memory_mib.and_then(|most| {
        let group = memory_group(server.id(), most);
        if group.is_none() {
            slice
                .notes
                .push("no memory limit could be set for the server".to_owned());
        }
        group
    });
    expect(&mut server, "ready")?;
    Ok((server, (behind, group)))
}

/// Puts a process into a control group of its own with a limit for memory, where there are such.
fn memory_group(pid: u32, most_mib: u64) -> Option<Temporary> {
    let both = [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ];
    for (root, limit) in both {
        let group = PathBuf::from(root).join(format!("handfast-abuse-{pid}"));
        if !Path::new(root).join("cgroup.procs").exists() || fs::create_dir(&group).is_err() {
            continue;
        }
        let path = group.clone();
        // Once its processes have ended.
        let temporary = Temporary::new(move || {
            for _ in 0..100 {
                if fs::remove_dir(&path).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let is_set = fs::write(group.join(limit), (most_mib << 20).to_string()).is_ok()
            && fs::write(group.join("cgroup.procs"), pid.to_string()).is_ok();
        if is_set {
            return Some(temporary);
        }
    }
    None
}

fn start_newcomer(kind: &Kind, directory: &Path) -> Result<Child> {
    let does = format!("{:?}", kind.newcomer);
    let spec = Spec::new("users-newcomer", 0, &[NAME, &does, KNOWN]);
    let user = match kind.newcomer {
        Newcomer::Binds => SERVER,
        _ => NEWCOMER,
    };
    let mut newcomer = process(user, &spec, directory, &[])?;
    expect(&mut newcomer, "ready")?;
    Ok(newcomer)
}

fn start_attacker(place: &Place, kind: &Kind, words: &[&str], directory: &Path) -> Result<Child> {
    let mut command = Command::new("python3");
    // Without `-s` and the like it would look for modules where other users' are.
    command.args(["-sB".as_ref(), place.path.join(kind.program).as_os_str()]);
    command.arg(NAME).args(words).current_dir("/");
    if kind.attacker != 0 {
        command.uid(kind.attacker).gid(kind.attacker);
    }
    debug_assert!(kind.attacker != ATTACKER || kind.victim != ATTACKER);
    Ok(Child::launch(command, directory, &[], None)?)
}

/// Hears what an attacker says for so long, or until its attack is under way.
fn hear(attacker: &mut Child, patience: Duration, until_here: bool, slice: &mut Slice) {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Some(line) = attacker.line(left) else {
            let left = end.saturating_duration_since(Instant::now());
            if !until_here {
                std::thread::sleep(left);
            } else {
                slice.absent += 1;
            }
            return;
        };
        match line.split_once(' ') {
            None if until_here && line == "here" => return,
            Some(("breach", what)) => slice.breaches.push(what.to_owned()),
            Some(("note" | "unable", what)) => slice.notes.push(what.to_owned()),
            _ => {}
        }
    }
}
