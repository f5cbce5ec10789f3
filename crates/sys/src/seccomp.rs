//! Filters of system calls, which a process puts on itself and never takes off again.

use crate::last_errno;
use rustix::io::Errno;

/// One instruction of a filter, in the form of the Linux man page bpf(4): code, jumps, constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// How many instructions to leave out when the comparison holds.
    pub jump_true: u8,
    /// And when it does not.
    pub jump_false: u8,
    /// Its constant.
    pub constant: u32,
}

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<Instruction>() >= align_of::<libc::sock_filter>());

/// The most instructions a filter has.
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Whether the kernel has filters that can end a process (Linux 4.14). `seccomp`.
#[must_use]
pub fn is_supported() -> bool {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: reads one word.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    result == 0
}

/// Puts a filter on all threads of this process, and on all processes they make, for good. `seccomp`. The process
/// must have given up new privileges before ([`no_new_privileges`]).
///
/// # Errors
/// `EINVAL` for a program the kernel refuses; `EACCES` with new privileges; `ESRCH` when another thread has a filter
/// that this one has not.
pub fn install(program: &[Instruction]) -> Result<(), Errno> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the program has so many instructions, of the kernel's layout; it is only read.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match result {
        0 => Ok(()),
        result if result > 0 => Err(Errno::SRCH),
        _ => Err(last_errno()),
    }
}

/// This process, and all it makes, never gets privileges by running a program. `prctl`.
///
/// # Errors
/// None that the kernel documents.
pub fn no_new_privileges() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}
