//! Set-user-id programs: whoever starts one has fewer rights, and writes its environment.

use crate::common;
use handfast::domain::{CallContext, Domain, DomainOptions, Heap, Isolation, Table};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Says what this program has of its environment.
pub(crate) fn homeless() {
    let is_privileged = rustix::process::getuid() != rustix::process::geteuid();
    let directory = handfast::rendezvous::directory();
    common::say(&format!("{is_privileged} {}", directory.display()));
    common::say(&format!("{:?}", Isolation::here().1));
}

const OTHER: u32 = 3001;

/// A set-user-id copy of this program, in a directory that others can reach; removed on drop.
struct Privileged(PathBuf);

impl Privileged {
    /// `None` where there can be none.
    fn new(what: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            common::not_exercised("not root");
            return None;
        }
        let name = common::name(&format!("handfast-{what}"));
        let directory = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&directory.0).unwrap();
        std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o755)).unwrap();
        // By another process: a child that a test beside this one has just forked has this process's descriptors still, and a file that is open
        // for writing is not executed.
        let mut copy = Command::new("cp");
        copy.arg(std::env::current_exe().unwrap())
            .arg(directory.program());
        assert!(copy.status().unwrap().success());
        std::fs::set_permissions(directory.program(), PermissionsExt::from_mode(0o4755)).unwrap();
        Some(directory)
    }

    fn program(&self) -> PathBuf {
        self.0.join("program")
    }
}

impl Drop for Privileged {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program's report on itself, started by another user with these variables; by its owner with `None`.
fn said(program: &Path, user: Option<u32>, variables: &[(&str, &str)]) -> Vec<String> {
    let child = common::start_with("homeless", &[], |command| {
        let mut other = Command::new(program);
        other.args(command.get_args());
        for (name, value) in command.get_envs() {
            other.env(name, value.unwrap());
        }
        other.envs(variables.iter().copied());
        other.current_dir("/");
        other.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(user) = user {
            other.uid(user).gid(user);
        }
        *command = other;
    });
    child.rest()
}

/// Security finding 16: a server made a directory with its owner's rights where its caller said.
#[test]
fn a_set_user_id_program_has_no_environment() {
    let _alone = common::alone();
    let Some(copy) = Privileged::new("set-user-id") else {
        return;
    };
    let isolation = ("HANDFAST_ISOLATION", "process");
    let own = said(
        &copy.program(),
        None,
        &[("HANDFAST_DIR", "/own"), isolation],
    );
    assert_eq!(own, ["false /own", "Environment"]);
    let unset: [&[(&str, &str)]; 2] = [
        &[("HANDFAST_DIR", "/theirs"), isolation],
        &[
            ("HANDFAST_DIR", ""),
            ("XDG_RUNTIME_DIR", "/theirs"),
            isolation,
        ],
    ];
    for variables in unset {
        let said = said(&copy.program(), Some(OTHER), variables);
        if said.first().is_some_and(|line| line.starts_with("false")) {
            return common::not_exercised("no set-user-id programs in the temporary directory");
        }
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], "true /run/handfast");
        assert_ne!(said[1], "Environment");
    }
}

fn nothing(_: &Heap) -> u64 {
    0
}

fn who(_: &u64, call: &mut CallContext<'_>) {
    call.words()[0] = std::process::id().into();
}

/// Soundness finding 4: with the marker of a domain's child in the environment `main` was never run.
#[test]
fn a_set_user_id_program_with_the_marker_of_a_domain_runs_its_main_function() {
    let _alone = common::alone();
    let Some(copy) = Privileged::new("marked") else {
        return;
    };
    common::directory();
    let table = Table::new(nothing).entry(who);
    // SAFETY: the functions lend nothing, and run in a process of their own.
    let domain = unsafe { Domain::new(&table, DomainOptions::new().isolation(Isolation::Process)) };
    let domain = domain.unwrap();
    let pid = domain.call(0, [0; 8]).unwrap()[0];
    // The variables that it began with.
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let mut variables = environment.split(|byte| *byte == 0);
    let marker = variables.find_map(|line| line.strip_prefix(b"HANDFAST_DOMAIN="));
    let marker = String::from_utf8(marker.unwrap().to_vec()).unwrap();
    let variables = [("HANDFAST_DOMAIN", marker.as_str())];
    // Its owner's word counts: that is no child of a domain's, and so ends at once.
    assert_eq!(said(&copy.program(), None, &variables), [""; 0]);
    let said = said(&copy.program(), Some(OTHER), &variables);
    assert!(
        said.first()
            .is_some_and(|line| line.ends_with("/run/handfast")),
        "{said:?}"
    );
}
