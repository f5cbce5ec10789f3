//! The resources of a process, and tests that need a process for themselves.

use super::{is_child, sleeps, within_patience};
use std::any::type_name;
use std::process::Command;

/// Set in the process of a test that runs alone.
const OWN_PROCESS: &str = "HANDFAST_TEST_OWN_PROCESS";

/// Runs `test` once more, in a child process that runs no other test, and returns `true`. In that child it returns `false`.
///
/// For tests that count or change the state of their whole process. Such a test asks this first, and returns if the answer is
/// `true`.
pub(crate) fn ran_in_own_process<T: Fn()>(_test: T) -> bool {
    assert!(!is_child(), "a role has its own process");
    if std::env::var_os(OWN_PROCESS).is_some() {
        let kill = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(kill)).unwrap();
        return false;
    }
    let (_, name) = type_name::<T>().split_once("::").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = child.env(OWN_PROCESS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}", output.status);
    assert!(
        said.contains("1 passed"),
        "{name} is not the name of a test"
    );
    true
}

/// Makes all threads of this process another user's, if root runs the tests. Names that it binds are open to all users.
pub(crate) fn become_user(user: u32) {
    rustix::process::umask(rustix::fs::Mode::empty());
    if rustix::process::geteuid().is_root() {
        // SAFETY: it only changes the user of this process, which is a role's own.
        assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
    }
}

/// Memory of a process that is its own, in KiB.
pub(crate) fn own_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}

/// Open descriptors and lines of the memory map of a process.
pub(crate) fn holdings(pid: u32) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mappings = maps.lines().filter(|line| line.contains("memfd:")).count();
    (descriptors, mappings)
}

/// How many descriptors a process has once nothing changes any more: a control thread may be at the end of a
/// handshake still, or wait for a processor there.
pub(crate) fn at_rest(pid: u32) -> usize {
    let (mut last, mut looks) = (0, 0);
    assert!(within_patience(|| {
        let (now, _) = holdings(pid);
        let is_same = now == last && sleeps(pid);
        looks = if is_same { looks + 1 } else { 0 };
        last = now;
        looks == 20
    }));
    last
}

/// Whether a process soon has so many descriptors.
pub(crate) fn settles_at(pid: u32, count: usize) -> bool {
    within_patience(|| holdings(pid).0 == count)
}

/// The holdings of this process once the link it used last has gone: the control thread may be looking at it
/// for a moment longer than its last right is there. Its peer's bells are unmapped after its region; then those of this process are left.
pub(crate) fn holdings_alone() -> (usize, usize) {
    let is_of_link = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        target.starts_with("socket:") || target.contains("pidfd")
    };
    assert!(within_patience(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut open = std::fs::read_dir("/proc/self/fd").unwrap();
        let bells = maps.matches("memfd:handfast bells").count();
        let is_mapped = maps.contains("memfd:handfast link") || bells > 1;
        !is_mapped && !open.any(|entry| is_of_link(entry.unwrap()))
    }));
    holdings(std::process::id())
}

/// Does something as another user, on a thread of its own.
pub(crate) fn as_user<T: Send + 'static>(uid: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let act = move || {
        // SAFETY: changes the effective user of this thread only (the bare system call).
        let set = unsafe { libc::syscall(libc::SYS_setresuid, -1, libc::c_long::from(uid), -1) };
        assert_eq!(set, 0);
        act()
    };
    std::thread::spawn(act).join().unwrap()
}
