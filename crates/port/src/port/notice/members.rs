//! The notices of ports that share a receiver.

use super::ask_no_senders;
use crate::port::notices::{MembersDue, Notice, Unheard};
use crate::port::ports;
use crate::process::Process;
use core::sync::atomic::Ordering;

/// Ports that are looked at in one look.
const AT_ONCE_MAX: usize = 64;

/// The next notice, and the number of its port. Ports that have ended meanwhile are passed over.
///
/// # Errors
/// As `Notices::take`, of the first port that has one.
#[cold]
pub(crate) fn take(
    due: &MembersDue,
    process: &Process,
    has_heard: impl Fn(u32) -> bool,
) -> Result<Option<(Notice, u32)>, Unheard> {
    let mut unheard = 0;
    // Some wait for messages of others: each once, and not too many.
    while unheard < AT_ONCE_MAX {
        let Some(id) = due.next() else {
            break;
        };
        let Some(port) = ports::by_id(process, id) else {
            continue;
        };
        let taken = port.notices.take(&has_heard);
        // Acquire: pairs with the Release of a thread that drops it, and then revokes its rights.
        if port.is_closing.load(Ordering::Acquire) {
            continue;
        }
        if let (Ok(Some(Notice::NoSenders)), Some(once)) = (&taken, &port.once) {
            // In a message of its last holder, perhaps.
            if !port.notices.end() {
                ask_no_senders(&port);
                continue;
            }
            ports::remove_member(&port);
            if once.is_used() {
                continue;
            }
            return Ok(Some((Notice::SendOnceUnused(once.badge), id)));
        }
        match taken {
            Ok(None) => continue,
            // There may be more.
            Ok(_) | Err(Unheard) => due.add(id),
        }
        if let Ok(Some(notice)) = taken {
            return Ok(Some((notice, id)));
        }
        unheard += 1;
    }
    match unheard {
        0 => Ok(None),
        _ => Err(Unheard),
    }
}

/// Whether there may be one that can be told now.
pub(crate) fn has_any(
    due: &MembersDue,
    process: &Process,
    has_heard: impl Fn(u32) -> bool,
) -> bool {
    let first: Vec<_> = due.first(AT_ONCE_MAX);
    first.iter().any(|id| {
        let port = ports::by_id(process, *id);
        port.is_none_or(|port| port.notices.has_any(&has_heard))
    })
}
