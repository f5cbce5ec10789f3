//! Rights to ports of third processes: the client gives server 0 a right to a port of server 1's. For
//! introductions of strangers there are many such pairs, each for one call.

use super::handfast::Handfast;
use crate::plan::{Passed, Plan};
use crate::systems::child::Seat;
use ::handfast::{Message, Right, SendRight};
use std::io;
use std::time::{Duration, Instant};

/// How long strangers may take to get their link.
const PATIENCE: Duration = Duration::from_secs(5);

/// The exporter for recipient `number`.
const fn exporter(plan: &Plan, number: usize) -> usize {
    number + plan.servers / 2
}

/// A server's side.
pub(super) fn serve(
    system: &Handfast,
    seat: &Seat,
    passed: Passed,
    mut handler: impl FnMut(&mut [u8]) -> usize,
) -> io::Result<()> {
    if seat.index >= exporter(&seat.plan, 0) {
        return super::System::serve(system, seat, handler);
    }
    let linked = match passed {
        Passed::Third { vine: false, .. } => {
            Some(system.port_of(seat, exporter(&seat.plan, seat.index))?)
        }
        _ => None,
    };
    let is_called = matches!(
        passed,
        Passed::Strangers | Passed::Third { called: true, .. }
    );
    let port = system.bind(seat)?;
    seat.ready();
    let (mut kept, mut direct) = (None, 0);
    let mut answer = vec![0; seat.plan.reply_bytes()];
    let mut request = port.receive().map_err(io::Error::other)?;
    loop {
        let mut message = request.take_message();
        let Some(Right::Send(right)) = taken(&mut message, 1)?.pop() else {
            return Err(io::Error::other("not a right to call through"));
        };
        // Without room to ask the exporter for it, it comes by the vine: how many do is told.
        let is_direct = linked.as_ref().is_some_and(|to| right.peer() == to.peer());
        direct += u64::from(is_direct);
        seat.set_served(direct, 0);
        let introducer = request.peer().pid;
        if matches!(passed, Passed::Third { vine: true, .. }) && right.peer().pid != introducer {
            return Err(io::Error::other("the right does not go by the vine"));
        }
        let mut len = handler(&mut message);
        if passed == Passed::Strangers {
            meet(&right, introducer)?;
        }
        if is_called {
            let answered = right.call_into(&message[..len], &mut answer);
            len = answered.map_err(io::Error::other)?;
            message[..len].copy_from_slice(&answer[..len]);
        }
        kept.get_or_insert(right);
        request = port
            .reply_and_receive(request, &message[..len])
            .map_err(io::Error::other)?;
    }
}

/// Waits until `right` no longer goes through the introducer.
fn meet(right: &SendRight, introducer: u32) -> io::Result<()> {
    let start = Instant::now();
    while right.peer().pid == introducer {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other("strangers do not get a link"));
        }
        // No sleep: it takes longer than what is measured.
        std::thread::yield_now();
    }
    Ok(())
}

/// The client's links: each recipient's port, and its exporter's, the first pair last.
pub(super) fn pairs(system: &Handfast, seat: &Seat) -> io::Result<Vec<(SendRight, SendRight)>> {
    let recipients = (0..exporter(&seat.plan, 0)).rev();
    let pair = |number| {
        let to = system.port_of(seat, number)?;
        Ok((to, system.port_of(seat, exporter(&seat.plan, number))?))
    };
    recipients.map(pair).collect()
}

/// The rights of a message, which are as many as they should be.
pub(super) fn taken(message: &mut Message, count: usize) -> io::Result<Vec<Right>> {
    let rights = message.take_rights();
    if rights.len() == count {
        return Ok(rights);
    }
    let came = rights.len();
    Err(io::Error::other(format!(
        "{came} rights came instead of {count}"
    )))
}
