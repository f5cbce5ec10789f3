//! The small commands, as a shell uses them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A rendezvous directory of one test, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("handfast-c{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn handfast(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.env("HANDFAST_DIR", directory);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_timeout_of_a_call_bounds_its_connection_too() {
    let directory = Directory::new();
    let _silent = handfast_sys::socket::listen(&directory.0.join("silent"), 4).unwrap();
    let start = Instant::now();
    let call = ["call", "silent", "--timeout-ms", "40"];
    let output = handfast(&directory.0).args(call).output().unwrap();
    let said = text(&output);
    assert!(!output.status.success());
    assert!(
        said.contains("\"silent\"") && said.contains("40ms"),
        "{said}"
    );
    // A connection without a limit has five seconds.
    assert!(start.elapsed() < Duration::from_secs(4));
}
