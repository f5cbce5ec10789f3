//! The small commands, as a shell uses them.

use handfast_testing::Directory;
use handfast_testing::commands::{ends_without_a_word, leaves_no_names, said, unread};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A rendezvous directory of one test.
fn directory() -> Directory {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Directory::new(&format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn handfast(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handfast"));
    command.env("HANDFAST_DIR", directory);
    command
}

#[test]
fn the_timeout_of_a_call_bounds_its_connection_too() {
    let directory = directory();
    let _silent = handfast_sys::socket::listen(&directory.0.join("silent"), 4).unwrap();
    let start = Instant::now();
    let call = ["call", "silent", "--timeout-ms", "40"];
    let output = handfast(&directory.0).args(call).output().unwrap();
    let said = said(&output);
    assert!(!output.status.success());
    assert!(
        said.contains("\"silent\"") && said.contains("40ms"),
        "{said}"
    );
    // A connection without a limit has five seconds.
    assert!(start.elapsed() < Duration::from_secs(4));
}

#[test]
fn the_timeout_of_a_call_bounds_the_reading_of_its_message_too() {
    let directory = directory();
    let _echo = Echo::start(&directory.0, "echo");
    let pipe = directory.0.join("~pipe");
    let pipe = pipe.to_str().unwrap();
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let call = |timeout_ms| {
        let mut command = handfast(&directory.0);
        command.args(["call", "echo", "--file", pipe, "--timeout-ms", timeout_ms]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // Nobody writes it.
    let mut unwritten = call("40");
    let end = Instant::now() + handfast_testing::PATIENCE;
    while unwritten.try_wait().unwrap().is_none() && Instant::now() < end {
        // Sleep: the interval of a poll with an end.
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = unwritten.kill();
    let output = unwritten.wait_with_output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(pipe) && said.contains("40ms"), "{said}");
    let written = call("10000");
    std::fs::write(pipe, "from a pipe").unwrap();
    assert_eq!(written.wait_with_output().unwrap().stdout, b"from a pipe");
}

/// A server that ends with the test.
struct Echo(Child);

impl Echo {
    fn start(directory: &Path, name: &str) -> Self {
        let mut command = handfast(directory);
        let mut echo = Self(
            command
                .args(["echo", name])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut line = String::new();
        let says = echo.0.stderr.take().unwrap();
        BufReader::new(says).read_line(&mut line).unwrap();
        assert!(line.contains("serving"), "{line}");
        echo
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ls_asks_silent_servers_all_at_once_and_names_everybody_in_order() {
    let directory = directory();
    let listen = |name: &str| handfast_sys::socket::listen(&directory.0.join(name), 4).unwrap();
    let _silent = ["b-silent", "d-silent", "e-silent"].map(listen);
    let _echoes = ["a-live", "c-live"].map(|name| Echo::start(&directory.0, name));
    drop(listen("f-dead"));
    // Children of other tests have copies of the listener until they are programs of their own.
    assert!(handfast_testing::within_patience(|| {
        let path = directory.0.join("f-dead");
        let probe = handfast_sys::socket::connect(&path, Duration::from_millis(1));
        probe.is_err_and(|errno| errno == handfast_sys::Errno::CONNREFUSED)
    }));
    // One that is being bound, one whose bind was killed, and something else.
    let _unfinished = listen("~nfinished");
    drop(listen("~left"));
    std::fs::write(directory.0.join("g-file"), "").unwrap();
    let start = Instant::now();
    let output = handfast(&directory.0).arg("ls").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    // One silent server takes five seconds.
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "{:?}",
        start.elapsed()
    );
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().skip(1).collect();
    let names = lines.iter().map(|line| line.split(' ').next().unwrap());
    let silent = "no connection to";
    let expected = [
        ("a-live", "live"),
        ("b-silent", silent),
        ("c-live", "live"),
        ("d-silent", silent),
        ("e-silent", silent),
        ("f-dead", "dead"),
        ("g-file", "is a file"),
    ];
    assert!(names.eq(expected.map(|(name, _)| name)), "{said}");
    for (line, (_, state)) in lines.iter().zip(expected) {
        assert!(line.contains(state), "{line}");
    }
}

const PRINTERS: [&[&str]; 7] = [
    &["ls"],
    &["doctor"],
    &["call", "echo", "--bytes", "hello"],
    &["call", "echo", "--hex", "00ff"],
    &["demo"],
    &["--version"],
    &["--help"],
];

#[test]
fn a_command_whose_output_nobody_reads_ends_without_a_word() {
    let directory = directory();
    let _echo = Echo::start(&directory.0, "echo");
    for arguments in PRINTERS {
        ends_without_a_word(handfast(&directory.0).args(arguments));
    }
}

#[test]
fn a_command_leaves_nothing_where_the_names_are() {
    let directory = directory();
    // This is the start only: it ends its server then.
    leaves_no_names(handfast(&directory.0).arg("demo"), &directory.0);
}

#[test]
fn a_command_that_can_complain_to_nobody_goes_on() {
    let directory = directory();
    let status = |arguments: &[&str]| {
        let mut command = handfast(&directory.0);
        command.args(arguments).stderr(unread());
        command.output().unwrap().status.code()
    };
    assert_eq!(status(&["call", "nobody"]), Some(1));
    // It logs that it has bound the name.
    let mut logging = handfast(&directory.0);
    logging.env("HANDFAST_LOG", "1").args(["echo", "logs"]);
    let mut echo = Echo(logging.stderr(unread()).spawn().unwrap());
    while status(&["call", "logs"]) != Some(0) {
        assert_eq!(echo.0.try_wait().unwrap(), None, "it has ended");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_with_its_reason() {
    let directory = directory();
    for arguments in [["ls"], ["doctor"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = handfast(&directory.0);
        command.args(arguments).stdout(full.unwrap());
        let output = command.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("standard output: No space left"), "{said}");
    }
}

/// Uses a CPU until dropped.
struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_doctor_has_time_on_a_busy_machine_too() {
    let directory = directory();
    // All on two CPUs, of which its two threads get turns.
    let on_two = |program: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0,1", program]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    if !on_two("true").status().is_ok_and(|status| status.success()) {
        return handfast_testing::not_exercised("no taskset, or one processor");
    }
    let hog = |_| {
        Hog(on_two("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap())
    };
    let _hogs: Vec<_> = (0..20).map(hog).collect();
    let mut doctor = on_two("timeout");
    doctor.args(["100", env!("CARGO_BIN_EXE_handfast"), "doctor"]);
    let status = doctor.env("HANDFAST_DIR", &directory.0).status();
    assert_eq!(status.unwrap().code(), Some(0), "it was not done in 100 s");
}

#[test]
fn one_cpu_of_many_is_not_called_a_machine_with_one() {
    let directory = directory();
    let mut doctor = Command::new("taskset");
    doctor.args(["-c", "0", env!("CARGO_BIN_EXE_handfast"), "doctor"]);
    let Ok(output) = doctor.env("HANDFAST_DIR", &directory.0).output() else {
        return handfast_testing::not_exercised("no taskset");
    };
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said.lines().next().unwrap();
    if line.contains(" 1 / 1 ") {
        return handfast_testing::not_exercised("one processor");
    }
    assert!(line.contains("may use another CPU"), "{line}");
}

#[test]
fn a_call_that_takes_too_long_names_the_server_and_the_limit() {
    let directory = directory();
    let echo = Echo::start(&directory.0, "stopped");
    let pid = rustix::process::Pid::from_child(&echo.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let call = ["call", "stopped", "--timeout-ms", "40"];
    let output = handfast(&directory.0).args(call).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("\"stopped\"") && said.contains("40ms"),
        "{said}"
    );
}

#[test]
fn a_demo_whose_server_cannot_start_says_so_at_once() {
    let directory = directory();
    let file = directory.0.join("file");
    std::fs::write(&file, "").unwrap();
    let start = Instant::now();
    let output = handfast(&file).arg("demo").output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("is a file") && said.contains("the server of"),
        "{said}"
    );
    // One that is there and has not bound its name has five seconds.
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn what_is_ignored_of_the_environment_is_said() {
    let directory = directory();
    let ls = |name: &str, value: &str| {
        let output = handfast(&directory.0).arg("ls").env(name, value).output();
        let output = output.unwrap();
        assert!(output.status.success());
        said(&output)
    };
    for (name, good, bad) in [
        ("HANDFAST_STRATEGY", "spin-block:50", "spinblock"),
        ("HANDFAST_SPIN_CAP_US", "50", "50us"),
    ] {
        assert_eq!(ls(name, good), "");
        let said = ls(name, bad);
        assert!(said.contains(name) && said.contains(bad), "{said}");
    }
}
