//! Domains that run as child processes, where there are no memory keys ([`Isolation::Process`](crate::Isolation::Process)).
//!
//! The child runs the program's own file again. Before `main` it finds that it was started as a domain, is told by a socket
//! where in that file the domain's functions lie, loads them as a domain of its own without protection, and serves that behind a
//! port; it never comes to `main`. Its parent calls that port. A function that does wrong ends the child, and the next one is
//! started by the policy of the domain.
//!
//! Ports are above this crate: the crate that has them says how a domain is served and reached ([`Ports`], [`at_start`]).

mod child;
mod report;

use crate::domain::Domain;
use crate::error::Status;
use crate::way;
use handfast_sys::OwnedFd;
use std::sync::OnceLock;

pub use crate::way::{Crossing, Lost, Way, are_possible};

/// How domains that are processes are reached.
pub trait Ports: Sync {
    /// Child: has the domain served behind a new port, for as long as this process lives. Returns a descriptor that leads there.
    fn serve(&self, domain: Domain) -> Option<OwnedFd>;

    /// Parent: the way to what `serve` has returned in the child with this process number.
    ///
    /// # Errors
    /// The step that failed.
    fn connect(&self, door: &OwnedFd, pid: u32) -> Result<Box<dyn Way>, &'static str>;
}

/// Makes domains of this program possible as processes, which `ports` reaches. To be called before `main`, by
/// [`at_start!`](crate::at_start). Does not return in a process that was started to run a domain.
pub fn at_start(ports: &'static dyn Ports) {
    if PORTS.set(ports).is_ok() {
        way::open(connect);
        child::live_if_child(ports);
    }
}

/// Calls a function before `main`: one of the program's initialisers (`.init_array`).
#[doc(hidden)]
#[macro_export]
macro_rules! at_start {
    ($function:path) => {
        const _: () = {
            extern "C" fn start() {
                $function()
            }
            // SAFETY: the section holds pointers to functions of this kind.
            #[used]
            #[unsafe(link_section = ".init_array")]
            static START: extern "C" fn() = start;
        };
    };
}

/// Whether a status says that the function has returned.
#[must_use]
pub const fn is_done(status: u64) -> bool {
    Status(status).code() == Status::DONE
}

static PORTS: OnceLock<&'static dyn Ports> = OnceLock::new();

fn connect(door: &OwnedFd, pid: u32) -> Result<Box<dyn Way>, &'static str> {
    let ports = PORTS.get().ok_or("the program has no ports")?;
    ports.connect(door, pid)
}
