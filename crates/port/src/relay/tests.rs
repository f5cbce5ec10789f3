use super::*;
use crate::configuration::Configuration;
use crate::descriptors::tests::{link, link_with};
use crate::reply_slot::{NO_KEY, ReplySlot};
use crate::{guest, lifecycle, links};
use handfast_layout::lane_control::ClaimAnswer;
use handfast_layout::link::{Kind, Side};
use handfast_layout::part::{IS_HANDLE, Part, ThirdForm};
use handfast_ring::lane::{Sink, Unit};
use handfast_sys::OwnedFd;

/// A call through three processes once did not end: the thread that had written the slot's former answer took the
/// announcement for the next one, whose writer rang nobody (`kills::chains`, beside other work, once in thousands of
/// calls after a kill).
#[test]
fn an_announcement_that_a_former_waker_takes_is_made_again() {
    let (process, link, _peer) = link();
    let own = Own::take(&link).unwrap();
    let wait = Slot::of(link.calls, own.index).wait();
    let awaited = Awaited::new(link.clone(), own.index, own.generation);
    let mut relay = Relay::forsaken(awaited, own);
    for _ in 0..2 {
        let taken = word::fence_then_taken(&link.region, wait);
        assert_eq!(taken, Some(word::DESCRIPTOR));
        assert!(matches!(relay.look(&process), Seen::Nothing));
    }
    relay.end(Err(None));
}

/// The slot of a call, and its generation.
const CALL: (u32, u32) = (5, 1);
/// Rights in the answer to that.
const RIGHTS: u32 = 4;

/// A node between the process that answers a call and the one that has made it.
struct Between {
    process: Arc<Process>,
    replier: Arc<Link>,
    caller: Arc<Link>,
    _peers: [OwnedFd; 2],
}

impl Between {
    fn new() -> Self {
        let process = lifecycle::start(Configuration::new()).ok().unwrap();
        let linked = |incarnation| {
            let uid = handfast_sys::process::uid();
            let (link, peer) = link_with(&process, uid, Side::Connector, [incarnation; 16]);
            links::list(&process).push(Some(link.clone()));
            (link, peer)
        };
        let ((replier, one), (caller, two)) = (linked(1), linked(2));
        Self {
            process,
            replier,
            caller,
            _peers: [one, two],
        }
    }

    /// The rights of the replier's answer: to ports of the caller.
    fn units(&self) -> Vec<Unit> {
        let third = |number: u32| Part::Third {
            vine: (IS_HANDLE | number, 0x100),
            port: 0x200,
            exporter: self.caller.incarnation,
            number: number.into(),
            pid: self.caller.peer.pid,
            form: ThirdForm::Plain,
        };
        let parts = (0..RIGHTS).map(|number| third(number + 1).to_units());
        parts
            .flat_map(|(units, count)| units[..count].to_vec())
            .collect()
    }

    /// A call of the caller's that was passed on to the replier, whose answer has been here for so long that all its rights are claimed.
    fn relay(&self) -> Relay {
        let slot = ReplySlot {
            link: self.caller.clone(),
            index: CALL.0,
            generation: CALL.1,
            key: NO_KEY,
            receiver: NO_KEY,
            party: None,
            passed_to: NO_KEY,
            held: None,
        };
        let own = Own::take(&self.replier).unwrap();
        let mut relay = Relay::new(own, ReplyRight::new(slot));
        let mut message = Message::of(b"");
        let units = message.units().unwrap();
        units.clear();
        self.units().iter().for_each(|unit| units.extend(unit));
        relay.came = Some(Came::Piece(message, 0));
        relay
    }

    /// The kind of the outcome that the caller has got.
    fn outcome(&self) -> Option<Kind> {
        let slot = Slot::of(self.caller.calls.other(), CALL.0);
        let mut message = Message::new();
        let is_answered = slot.is_answered(&self.caller.region, CALL.1);
        is_answered.then(|| slot.take(&self.caller.region, &mut message).unwrap().kind)
    }

    /// Has the control thread, which this one is, look at a relay. The relay, if it is still to be passed on.
    fn look(&self, relay: Relay) -> Option<Relay> {
        let mut relay = relay;
        match relay.seen(&self.process) {
            Some(answer) => {
                relay.end(answer);
                None
            }
            None => Some(relay),
        }
    }
}

/// The control thread waited for the word of a caller, 0.1 s for each right: newcomers waited for 394 ms for their handshake.
#[test]
fn the_control_thread_waits_for_no_home_of_a_right_that_it_passes_on() {
    let looks = || {
        guest::becomes_control();
        for says in [true, false] {
            let between = Between::new();
            let mut relay = (between.look(between.relay())).expect("no home has said a name");
            assert_eq!(between.outcome(), None);
            let caller = &between.caller;
            let claims = caller.returns().in_use();
            assert_eq!(claims.len(), RIGHTS as usize);
            for (place, (index, generation)) in claims.into_iter().enumerate().filter(|_| says) {
                let handle = IS_HANDLE | place as u32;
                let answer = (generation, Kind::Message, 0);
                let bytes = ClaimAnswer { handle }.encode();
                Slot::of(caller.calls, index).answer_described(
                    &caller.region,
                    answer,
                    (&bytes[..], &[]),
                );
            }
            if !says && let Some(Came::Whole(_, since_ns)) = &mut relay.came {
                *since_ns = 0;
            }
            assert!(between.look(relay).is_none());
            let expected = if says { Kind::Message } else { Kind::Dropped };
            assert_eq!(between.outcome(), Some(expected));
            lifecycle::shutdown(&between.process);
        }
    };
    std::thread::spawn(looks).join().unwrap();
}
