//! Processors without memory keys do not know their instructions: none is run for domains that are processes.

use crate::common::{self, PATIENCE};
use handfast::domain::{CallContext, Domain, DomainOptions, Isolation, Port, Sender, Table};

fn echo((): &(), call: &mut CallContext<'_>) {
    let (request, reply) = call.both();
    let len_bytes = request.len().min(reply.len());
    reply[..len_bytes].copy_from_slice(&request[..len_bytes]);
    call.set_reply_len(len_bytes);
}

/// Makes calls of every kind, each once before and once after it lets its parent see every step.
pub(crate) fn stepped() {
    let table = Table::new(|_| ()).entry(echo);
    let options = DomainOptions::new().isolation(Isolation::Process);
    // SAFETY: the function lends nothing, and touches nothing outside of the domain.
    let domain = unsafe { Domain::new(&table, options) }.unwrap();
    let limited = handfast::anonymous().unwrap();
    let limited = Port::with_limit(limited, &domain, 0, 1, PATIENCE).unwrap();
    let right = limited.connect().unwrap();
    let calls = || {
        let mut reply = [0; 8];
        assert_eq!(domain.call(0, [3; 8]), Ok([3; 8]));
        assert_eq!(domain.call_timeout(0, [3; 8], PATIENCE), Ok([3; 8]));
        let deadline_ns = handfast_sys::clock::deadline_ns(PATIENCE);
        let nobody = Sender::of(0, 0, false);
        let called = domain.call_message(0, nobody, b"1", &mut reply);
        assert_eq!(called, Ok(1));
        let called = domain.call_message_timeout(0, nobody, b"12", &mut reply, deadline_ns);
        assert_eq!((called, &reply[..2]), (Ok(2), &b"12"[..]));
        assert_eq!(&*right.call(b"123").unwrap(), b"123");
    };
    calls();
    // First: the parent may wait for no thread that it does not trace.
    // SAFETY: the parent has made this process.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_TRACEME) }, 0);
    // SAFETY: asks for this thread's own number.
    common::say(&unsafe { libc::gettid() }.to_string());
    raise(libc::SIGSTOP);
    calls();
    raise(libc::SIGUSR1);
}

fn raise(signal: i32) {
    // SAFETY: takes an integer.
    unsafe { libc::raise(signal) };
}

/// Waits until the thread stops; by which signal.
fn stop_of(thread: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a thread that this one traces.
    let got = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert_eq!(got, thread);
    assert!(libc::WIFSTOPPED(status), "{status:#x}");
    libc::WSTOPSIG(status)
}

#[test]
fn a_call_into_a_domain_that_is_a_process_runs_no_instruction_of_memory_keys() {
    /// RDPKRU and WRPKRU, but for the bit that tells them apart.
    const OF_KEYS: u32 = 0xee_010f;
    const MASK: u32 = 0xfe_ffff;
    let mut child = common::start("stepped", &[]);
    let thread = child.line().parse().unwrap();
    assert_eq!(stop_of(thread), libc::SIGSTOP);
    let mut steps = 0u64;
    let found = loop {
        // SAFETY: the thread is stopped, and this one traces it.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0) };
        match stop_of(thread) {
            libc::SIGTRAP => steps += 1,
            libc::SIGUSR1 => break None,
            other => panic!("signal {other}"),
        }
        // SAFETY: all-zero bytes are valid registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the thread is stopped; the registers are valid for a write.
        unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &raw mut registers) };
        let at = registers.rip;
        // SAFETY: as above; reads a word of its code.
        let code = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, thread, at, 0) };
        if code as u32 & MASK == OF_KEYS {
            break Some(at);
        }
    };
    // Nobody else could wait for its end.
    // SAFETY: the thread is stopped.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, 0, 0) };
    child.kill();
    assert_eq!(found, None, "after {steps} steps");
    assert!(steps > 1000, "{steps}");
}
