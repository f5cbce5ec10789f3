//! A sandbox without memory files: a typed error, and nothing else.

use crate::common;
use handfast::error::{BindError, ConnectError};

/// From here on `memfd_create` does not exist for this thread and those it starts.
fn forbid_memory_files() {
    let instruction = |code: u32, yes, no, k| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k,
    };
    let (load, equal, verdict) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    // The first word of what a filter sees is the call's number.
    let mut filter = [
        instruction(load, 0, 0, 0),
        instruction(equal, 0, 1, libc::SYS_memfd_create as u32),
        instruction(verdict, 0, 0, refused),
        instruction(verdict, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes no pointers.
    let locked = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `program` and the filter it points to outlive the call, which copies them.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!((locked, filtered), (0, 0));
}

pub(crate) fn boxed(name: &str) {
    forbid_memory_files();
    for _ in 0..2 {
        let error = handfast::connect(name).map(|_| ()).unwrap_err();
        let ConnectError::NoMemoryFiles(os) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(
            (os.call, os.errno),
            ("memfd_create", handfast_sys::Errno::NOSYS.into())
        );
        assert!(error.to_string().contains("memfd_create"), "{error}");
        let error = handfast::bind(&format!("{name}-own"))
            .map(|_| ())
            .unwrap_err();
        assert!(
            matches!(&error, BindError::NoMemoryFiles(os) if os.call == "memfd_create"),
            "{error:?}"
        );
    }
    let path = common::directory().join(format!("{name}-own"));
    assert!(!path.exists(), "a name without a server");
    common::say("refused");
}

#[test]
fn a_sandbox_without_memory_files_is_told_which_call_it_lacks() {
    let name = common::name("boxed");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let mut client = common::start("boxed", &[&name]);
    client.expect("refused");
    client.finish();
    // The server has lost nothing by it.
    let right = handfast::connect(&name).unwrap();
    assert_eq!(
        &*right.call_timeout(b"there?", common::PATIENCE).unwrap(),
        b"there?"
    );
}

/// The region of a link is its server's.
#[test]
fn a_client_whose_filter_comes_late_needs_no_memory_file() {
    if common::ran_in_own_process(a_client_whose_filter_comes_late_needs_no_memory_file) {
        return;
    }
    let name = common::name("late");
    let server = common::start("echo", &[&name]);
    server.expect("ready");
    let other = common::name("late-other");
    let _port = handfast::bind(&other).unwrap();
    let outcome = std::thread::spawn(move || {
        forbid_memory_files();
        let right = handfast::connect(&name).unwrap();
        right
            .call_timeout(b"there?", common::PATIENCE)
            .unwrap()
            .to_vec()
    });
    assert_eq!(outcome.join().unwrap(), b"there?");
}
