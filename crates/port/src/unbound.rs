//! Messages for ports that have ended: refused, so that no caller waits for their outcome and the rights that
//! came with them end.

use crate::adopt::adopt;
use crate::introduce::provide;
use crate::link::wake::{wake_caller, wake_producer};
use crate::link::{Link, incoming};
use crate::links;
use crate::message::{Message, Whom};
use crate::port::ports;
use crate::process::Process;
use crate::reply_slot::ReplySlot;
use core::sync::atomic::Ordering;
use handfast_channel::bell;
use handfast_channel::reply::Slot;
use handfast_layout::link::{Kind, LANES, REPLIES, SLOTS};
use handfast_ring::lane::Consumer;
use handfast_sys::clock;
use std::sync::Arc;

/// Takes and refuses what waits in a lane: calls end as [`Gone::Port`](crate::error::Gone::Port), rights
/// are dropped.
pub(crate) fn refuse_waiting(process: &Arc<Process>, link: &Arc<Link>, consumer: &mut Consumer) {
    let region = &link.region;
    let mut message = Message::new();
    for _ in 0..SLOTS {
        if !consumer.is_ready(region) {
            break;
        }
        let Ok((header, meta)) = consumer.peek(region) else {
            break;
        };
        if let Err(fault) = link.find_body(consumer, meta) {
            link.poison(fault);
            break;
        }
        if consumer.take_peeked(region, meta, &mut message).is_err() {
            break;
        }
        if header.units > 0 {
            let _ = adopt(process, link, &mut message, Whom::NoReceiver);
            message.clear();
        }
        match header.kind {
            Kind::Call if header.reply < REPLIES => {
                let slot = Slot::of(link.calls.other(), header.reply);
                if let Err(fault) = link.find_slot(header.reply) {
                    link.poison(fault);
                    break;
                }
                // As in `ReplySlot::refuse`.
                if !process.is_over() {
                    slot.answer(region, header.generation, Kind::DeadPort, 0, &[]);
                    wake_caller(link, slot);
                }
            }
            Kind::CONTROL => {
                if let Err(fault) =
                    provide::hear_said(link, process, (header, message.bytes()), None)
                {
                    link.poison(fault);
                    process.attention.raise();
                    break;
                }
            }
            Kind::PASSED => {
                let passed = ReplySlot::passed(link, header.reply, header.generation);
                if let Ok(Some(reply)) = passed {
                    reply.refuse(&[]);
                }
            }
            _ => {}
        }
    }
}

/// Control thread: refuses what has come for receivers without a port. Returns whether more may come.
pub(crate) fn refuse_unbound(process: &Arc<Process>) -> bool {
    // Relaxed: as in `ports::watch_unbound`.
    if process.unbound_until_ns.load(Ordering::Relaxed) <= clock::ticks_ns() {
        return false;
    }
    // No port is bound meanwhile.
    let _binding = ports::binding(process);
    for receiver in ports::unbound(process) {
        refuse_for(process, receiver);
    }
    true
}

/// Control thread: a peer has sent something to a receiver that does not look at it. Where the port there has ended long ago, it is refused.
pub(crate) fn rung(process: &Arc<Process>, link: &Arc<Link>, receiver: u32) {
    if !ports::is_unbound(process, receiver) {
        return;
    }
    // No port is bound meanwhile.
    let _binding = ports::binding(process);
    if ports::is_unbound(process, receiver) {
        refuse_lanes(link, process, receiver);
    }
}

/// Refuses messages that wait for a receiver without a port: a new port is empty. The caller holds the lock of the
/// bound ports.
pub(crate) fn refuse_for(process: &Arc<Process>, receiver: u32) {
    for link in links::live(process) {
        refuse_lanes(&link, process, receiver);
    }
}

fn refuse_lanes(link: &Arc<Link>, process: &Arc<Process>, receiver: u32) {
    if link.is_cut() {
        return;
    }
    bell::take_lanes(&link.region, link.calls.other(), receiver, |lane| {
        if !incoming::leads_to(link, lane, receiver) {
            return;
        }
        // As where a receiver hears of a lane first. One of another receiver is the peer's fault,
        // which that will find.
        let _ = link.incoming.own(lane, receiver);
    });
    for lane in 0..LANES {
        if link.incoming.owner(lane) != Some(receiver) {
            continue;
        }
        // No port is bound meanwhile, so no receiver takes the consumer.
        link.with_consumer(lane, |consumer| {
            refuse_waiting(process, link, consumer);
            if consumer.publish_head(&link.region) {
                wake_producer(link, consumer.place());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::tests::link;
    use crate::link_end;
    use handfast_layout::part::receiver_of;
    use handfast_region::Memory;
    use handfast_ring::lane::{Header, Place, Producer};

    #[test]
    fn a_call_to_a_port_that_ended_long_ago_is_refused_when_its_sender_rings_again() {
        let (process, link, _peer) = link();
        links::list(&process).push(Some(link.clone()));
        let receive = crate::anonymous().unwrap();
        let receiver = receiver_of(receive.port().id);
        drop(receive);
        // Long ago.
        process.unbound_until_ns.store(0, Ordering::Relaxed);
        let (side, lane, slot) = (link.calls.other(), 3, 5);
        let place = Place::of(side, lane);
        let header = Header {
            kind: Kind::Call,
            port: 1 << 31,
            reply: slot,
            generation: 1,
            units: 0,
            cpu: 0,
        };
        let mut producer = Producer::new(place);
        producer.post(&link.region, header, b"late").unwrap();
        (link.region).store(place.receiver(), receiver + 1, Ordering::Relaxed);
        (link.region).store(side.ready(receiver), 1 << lane, Ordering::Release);
        let slot = Slot::of(side, slot);
        assert!(!slot.is_answered(&link.region, 1));
        rung(&process, &link, receiver);
        assert!(slot.is_answered(&link.region, 1));
        link_end::end_link(&process, &link);
    }
}
