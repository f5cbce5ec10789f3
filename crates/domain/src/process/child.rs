//! The child's side: from its first instruction to its last.

use super::{Ports, report};
use crate::domain::Domain;
use crate::error::{LoadError, Status};
use crate::parent::plan::Plan;
use crate::parent::{MARKER, marker, message};
use handfast_sys::{AsFd, OwnedFd, child, process, socket};

/// If this process was started to run a domain, does that, and never returns.
pub(super) fn live_if_child(ports: &dyn Ports) {
    // Nor has a set-user-id program one: the process that starts it does not decide that `main` is not run.
    let Some(named) = process::variable(MARKER) else {
        return;
    };
    if marker().is_none_or(|own| *own != *named) {
        return;
    }
    // From here on `main` is out of the question: it could start a child, and that the next.
    // SAFETY: this process has one thread, before `main`, and what it was given is for its life as a child alone.
    if let Some(control) = unsafe { child::take_standard_input() } {
        // Not its children's.
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var(MARKER) };
        let _ = live(&control, ports);
    }
    child::exit(0);
}

/// Loads the domain, has it served, and waits for the parent to want no more of it. `None` when the parent is gone.
fn live(control: &OwnedFd, ports: &dyn Ports) -> Option<()> {
    let parent = socket::peer(control).ok()?;
    let parent = process::pidfd(parent.pid).ok();
    let say = |kind, status, door: Option<&OwnedFd>| {
        let door = door.map(|door| door.as_fd());
        socket::send(control, &message::of_status(kind, status), door.as_slice()).ok()
    };
    say(message::HERE, 0, None)?;
    let plan = Plan::read(|bytes| {
        let mut piece = vec![0; message::PLAN_BYTES];
        let (len_bytes, _) = socket::receive(control, &mut piece, 0).ok()?;
        bytes.extend_from_slice(piece.get(..len_bytes).filter(|piece| !piece.is_empty())?);
        Some(())
    });
    let Some((functions, options)) = plan else {
        return say(message::FAILED, 0, None);
    };
    // Without it the parent knows the signal and no address.
    let _ = report::install(control);
    let domain = match Domain::load(functions, options) {
        Ok(domain) => domain,
        Err(LoadError::Init(fault)) => {
            return say(message::FAILED, Status::of_fault(fault).0, None);
        }
        Err(_) => return say(message::FAILED, 0, None),
    };
    let Some(door) = ports.serve(domain) else {
        return say(message::FAILED, 0, None);
    };
    say(message::READY, 0, Some(&door))?;
    drop(door);
    // The socket's end is the parent's word, or its death; a child that it has forked may hold the socket still.
    match &parent {
        Some(parent) => child::wait_for_any(&[control, parent]),
        None => child::wait_for_any(&[control]),
    }
    None
}
