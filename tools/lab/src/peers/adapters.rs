//! The systems that are compared: handfast in three strategies, and the adapters of `peers/` where they are built.

use super::leftovers;
use handfast_bench::control::LAYOUT;
use handfast_bench::plan::{Plan, Task};
use handfast_bench::session::unique_name;
use handfast_bench::systems::child::Seat;
use handfast_bench::systems::{self, Bundle, Named, Runnable, Waits};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One system of the comparison.
pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    /// How it is run, or why it cannot be.
    pub(super) system: Result<Box<dyn Runnable>, String>,
}

/// How both sides wait: what a system is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// They poll.
    Busy,
    /// They sleep.
    Blocking,
    /// They poll a while and then sleep.
    Adaptive,
}

impl Mode {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Blocking => "blocking",
            Self::Adaptive => "adaptive",
        }
    }
}

/// Name, key, mode.
type Own = (&'static str, &'static str, Mode);

const HANDFAST: [Own; 3] = [
    ("handfast-default", "handfast-default", Mode::Adaptive),
    ("handfast-spin", "handfast-spin", Mode::Busy),
    ("handfast-block", "handfast-block", Mode::Blocking),
];

/// With payloads that stay where they are made.
const LOANS: [Own; 2] = [
    ("handfast-default", "loan-default", Mode::Adaptive),
    ("handfast-spin", "loan-spin", Mode::Busy),
];

/// Name, program, mode.
const PEERS: [(&str, &str, Mode); 12] = [
    ("iceoryx2-busy", "peer-iceoryx2", Mode::Busy),
    ("iceoryx2-event", "peer-iceoryx2", Mode::Blocking),
    ("boost-queue-busy", "peer-boost", Mode::Busy),
    ("boost-queue", "peer-boost", Mode::Blocking),
    ("boost-condition", "peer-boost", Mode::Blocking),
    ("ipc-channel-busy", "peer-ipc-channel", Mode::Busy),
    ("ipc-channel", "peer-ipc-channel", Mode::Blocking),
    ("zeromq-busy", "peer-zeromq", Mode::Busy),
    ("zeromq", "peer-zeromq", Mode::Blocking),
    ("nng", "peer-nng", Mode::Blocking),
    ("capnp", "peer-capnp", Mode::Blocking),
    ("grpc", "peer-grpc", Mode::Blocking),
];

/// Whether it is one of ours.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with("handfast")
}

/// The systems of an experiment.
pub(super) struct Candidates {
    pub(super) all: Vec<Candidate>,
    /// Which versions the peers are of.
    pub(super) versions: String,
}

impl Candidates {
    /// All of them, for what is sent and comes back.
    pub(super) fn echoing() -> Self {
        Self::new(&HANDFAST, |_| true)
    }

    /// The adapters that can leave a payload where it was made.
    pub(super) fn in_place() -> Self {
        Self::new(&LOANS, |program| program == IN_PLACE)
    }

    fn new(own: &[Own], wanted: impl Fn(&str) -> bool) -> Self {
        let folder = folder();
        let mut versions: Vec<String> = Vec::new();
        let own = own.iter().map(|(name, key, mode)| Candidate {
            name,
            mode: *mode,
            system: systems::find(key).ok_or_else(|| "not known".to_owned()),
        });
        let mut all: Vec<_> = own.collect();
        for (name, program, mode) in PEERS {
            if !wanted(program) {
                continue;
            }
            let built = built(folder.as_deref(), program);
            let system = built.map(|(program, version)| {
                if !versions.contains(&version) {
                    versions.push(version);
                }
                Peer {
                    name,
                    program,
                    mode,
                }
                .boxed()
            });
            all.push(Candidate { name, mode, system });
        }
        Self {
            all,
            versions: versions.join(", "),
        }
    }

    /// The candidates that can be run.
    pub(super) fn there(&self) -> impl Iterator<Item = &dyn Runnable> {
        self.all
            .iter()
            .filter_map(|one| Some(one.system.as_ref().ok()?.as_ref()))
    }

    /// The peers we are compared with: the ones that wait so, or all.
    pub(super) fn peers(&self, mode: Option<Mode>) -> impl Iterator<Item = &'static str> {
        let fits = move |one: &&Candidate| mode.is_none_or(|mode| one.mode == mode);
        let peers = self.all.iter().filter(|one| !is_own(one.name)).filter(fits);
        peers.map(|one| one.name)
    }
}

/// The program that can leave payloads in place.
const IN_PLACE: &str = "peer-iceoryx2";

/// Where adapters are: `HANDFAST_PEERS`, else `peers/target/release` here or beside this program's own build.
fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("HANDFAST_PEERS") {
        return Some(folder.into());
    }
    let here = std::env::current_dir().ok();
    let own = std::env::current_exe().ok();
    let above = own.iter().flat_map(|path| path.ancestors().skip(1));
    let mut places = here.iter().map(PathBuf::as_path).chain(above);
    places.find_map(|place| {
        let folder = place.join("peers/target/release");
        folder.is_dir().then_some(folder)
    })
}

/// An adapter's description of itself.
#[derive(Deserialize)]
struct About {
    layout: Vec<usize>,
    version: String,
}

const BUILD: &str = "run peers/build, or set HANDFAST_PEERS to where the adapters are";

/// The adapter and its system's description, or why there is none.
fn built(folder: Option<&Path>, program: &str) -> Result<(PathBuf, String), String> {
    let path = folder
        .map(|folder| folder.join(program))
        .filter(|path| path.is_file())
        .ok_or_else(|| format!("{program} is not built: {BUILD}"))?;
    let output = Command::new(&path).arg("version").output();
    let output = output.map_err(|error| format!("{program} does not start: {error}"))?;
    let about: About = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{program} does not say what it is: {error}"))?;
    if about.layout != LAYOUT {
        return Err(format!("{program} is of another build: {BUILD}"));
    }
    Ok((path, about.version))
}

/// A system behind an adapter.
struct Peer {
    name: &'static str,
    program: PathBuf,
    mode: Mode,
}

impl Peer {
    fn boxed(self) -> Box<dyn Runnable> {
        Box::new(self)
    }
}

impl Named for Peer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn waits(&self) -> Waits {
        match self.mode {
            Mode::Busy => Waits::Spins,
            Mode::Blocking => Waits::Blocks,
            Mode::Adaptive => Waits::Adapts,
        }
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.program)
    }

    fn supports(&self, plan: &Plan) -> Result<(), String> {
        match plan.task {
            Task::Echo => Ok(()),
            Task::Consume if self.program.ends_with(IN_PLACE) => Ok(()),
            _ => Err("its adapter does not do that".to_owned()),
        }
    }

    fn prepare(&self, _: &Plan) -> io::Result<Bundle> {
        let address = unique_name();
        Ok(Bundle {
            guard: Some(Box::new(leftovers::swept(&address))),
            address,
            ..Bundle::default()
        })
    }
}

impl Runnable for Peer {
    fn named(&self) -> &dyn Named {
        self
    }

    fn run_server(&self, _: &Seat) -> io::Result<()> {
        Err(io::Error::other("its adapter serves"))
    }

    fn run_client(&self, _: &Seat) -> io::Result<()> {
        Err(io::Error::other("its adapter calls"))
    }
}
