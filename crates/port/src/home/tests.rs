use super::*;
use crate::adopt::adopt_rest;
use crate::descriptors::tests::link_with;
use crate::message::Message;
use crate::port::exported;
use crate::{Node, ReceiveRight, links};
use core::sync::atomic::Ordering;
use handfast_layout::link::Side;
use handfast_layout::part::{Part, receiver_of};
use handfast_region::Memory;
use handfast_ring::lane::{Place, Producer, Sink};
use handfast_sys::OwnedFd;

/// Links whose peers have filled all their lanes to a port.
const LINKS: u8 = 56;
/// Rights in one answer.
const RIGHTS: u8 = 4;
/// Messages of each peer, and so many of them, the last ones, provide the replier with a right.
const MESSAGES: u64 = (LANES * SLOTS) as u64;
const PROVIDED: u64 = 2;

struct Crowd {
    node: Node,
    port: ReceiveRight,
    links: Vec<Arc<Link>>,
    /// By which the answer comes.
    replier: Arc<Link>,
    _peers: Vec<OwnedFd>,
}

impl Crowd {
    /// Each peer has a badge of its own.
    fn new() -> Self {
        let node = Node::builder().start().unwrap();
        let port = node.anonymous().unwrap();
        let process = &port.port().process;
        let linked = |incarnation| {
            let uid = handfast_sys::process::uid();
            let (link, peer) = link_with(process, uid, Side::Connector, [incarnation; 16]);
            links::list(process).push(Some(link.clone()));
            link.group.set(link.index, Some(&link));
            (link, peer)
        };
        let (replier, peer) = linked(u8::MAX);
        let (mut links, mut peers) = (Vec::new(), vec![peer]);
        for number in 0..LINKS {
            let (link, peer) = linked(number);
            fill(&link, &port, u64::from(number), replier.identity());
            links.push(link);
            peers.push(peer);
        }
        Self {
            node,
            port,
            links,
            replier,
            _peers: peers,
        }
    }

    /// An answer with rights that so many peers have provided under this number.
    fn answer(&self, number: u64) -> Message {
        let mut message = Message::of(b"");
        let units = message.units().unwrap();
        units.clear();
        for introducer in &self.links[..RIGHTS.into()] {
            let home = Part::Home {
                port: self.port.port().id,
                introducer: introducer.incarnation,
                pid: introducer.peer.pid,
                number,
            };
            let (of_part, count) = home.to_units();
            of_part[..count].iter().for_each(|unit| units.extend(unit));
        }
        message
    }

    /// Takes up the rights of an answer: in so many looks.
    fn adopt(&self, message: &mut Message, whom: Whom<'_>) -> u32 {
        let mut looks = 0;
        loop {
            let adopted = adopt_rest(&self.port.port().process, &self.replier, message, whom);
            looks += 1;
            match adopted {
                Ok(true) => return looks,
                Ok(false) => assert!(looks < 10, "it does not come to an end"),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }
}

/// Has the peer of a link fill all lanes to `port`.
fn fill(link: &Arc<Link>, port: &ReceiveRight, badge: u64, recipient: Name) {
    let (id, side) = (port.port().id, link.calls.other());
    let handle = exported::export(link, port.port(), Target::full(id, badge)).unwrap();
    let header = Header {
        kind: Kind::CONTROL,
        port: handle,
        reply: 0,
        generation: 0,
        units: 0,
        cpu: 0,
    };
    for lane in 0..LANES {
        let place = Place::of(side, lane);
        let mut producer = Producer::new(place);
        for slot in 0..SLOTS {
            let number = u64::from(lane * SLOTS + slot) + 1;
            let said = match number > MESSAGES - PROVIDED {
                true => LaneControl::Provide { number, recipient },
                // The first one that the port's end refuses cuts the link.
                false => LaneControl::Told { number },
            };
            producer.post(&link.region, header, &said.encode()).unwrap();
        }
        let receiver = receiver_of(id) + 1;
        link.region
            .store(place.receiver(), receiver, Ordering::Relaxed);
    }
    let all = u32::MAX >> (u32::BITS - LANES);
    link.region
        .store(side.ready(receiver_of(id)), all, Ordering::Release);
}

/// Each right had all lanes of all links looked at: an answer held its port up for 190 ms.
#[test]
fn rights_that_come_home_have_few_slots_looked_at_however_many_links_there_are() {
    let crowd = Crowd::new();
    let whom = Whom::Relay(&crowd.replier);
    let looks = crowd.adopt(&mut crowd.answer(0), whom);
    assert_eq!(
        looks, 2,
        "two lookups of a link's lanes at a time, and nobody provides them"
    );
    let mut message = crowd.answer(MESSAGES);
    let looks = crowd.adopt(&mut message, whom);
    assert_eq!(looks, 2);
    let rights = message.take_rights();
    let badges = rights.iter().map(|right| match right {
        Right::Own(own) => own.badge(),
        other => panic!("{other:?}"),
    });
    assert!(badges.eq(0..u64::from(RIGHTS)));
    // A caller has one look.
    let mut message = crowd.answer(MESSAGES - 1);
    assert_eq!(crowd.adopt(&mut message, Whom::Caller), 1);
    let is_own = |right: &Right| matches!(right, Right::Own(_));
    assert!(message.take_rights().iter().all(is_own));
    crowd.node.shutdown();
}
