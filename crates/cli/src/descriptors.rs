//! How many descriptors a process may have: it may raise that itself, up to what its user is allowed.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Has this process, and processes that it starts, have as many as its user may. Says how many.
pub fn raise() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // As many as there are will do.
    let _ = setrlimit(Resource::Nofile, limit);
    handfast_sys::process::descriptor_limit()
}
