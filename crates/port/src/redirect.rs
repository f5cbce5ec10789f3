//! Senders follow a port that has moved (`moving`, `handfast_proto::moves`): the keeper gets a direct right at
//! its new home and, in one step for all threads, says in each lane to the old home that nothing more comes
//! there.

use crate::introduce::claim_moved;
use crate::link::Link;
use crate::process::Process;
use crate::send::SendRight;
use core::sync::atomic::Ordering;
use handfast_layout::bell::RECEIVERS;
use handfast_layout::introduction::{SAID_BYTES, Said};
use handfast_layout::link::{Kind, LANES};
use handfast_layout::part::receiver_of;
use handfast_proto::rights::{Handle, Use};
use handfast_ring::lane::Header;
use handfast_ring::{Fault, Rule};
use handfast_sys::cpu;
use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, Weak};

/// What has become of rights of a link, by the names that they have there.
pub(crate) type Redirects = HashMap<Handle, Redirect>;

pub(crate) enum Redirect {
    /// It stays where it is: a tail's, behind which others keep their order.
    Stays,
    To(Arc<Moved>),
}

/// Where the port of a right is now.
pub(crate) struct Moved {
    exporter: [u8; 20],
    port: u32,
    number: u64,
    /// Set once nothing more goes the old way.
    direct: OnceLock<SendRight>,
}

/// A switch that has found no room.
pub(crate) struct Later {
    link: Weak<Link>,
    name: Handle,
}

/// What came of an attempt to switch.
#[derive(PartialEq, Eq)]
enum Switched {
    Done,
    /// There was no room for what is to be said.
    Full,
}

impl Link {
    pub(crate) fn redirects(&self) -> MutexGuard<'_, Redirects> {
        self.redirects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A right of this process that stays where it is.
    pub(crate) fn stays(&self, name: Handle) {
        self.redirects().insert(name, Redirect::Stays);
        // Relaxed: as in `drop_moved`.
        self.has_redirects.store(true, Ordering::Relaxed);
    }

    /// What a right of this process has become since its port moved.
    pub(crate) fn direct(&self, name: Handle) -> Option<Arc<Moved>> {
        match self.redirects().get(&name)? {
            Redirect::To(moved) if moved.direct.get().is_some() => Some(moved.clone()),
            _ => None,
        }
    }

    /// A right with this name has come. The name of one that is another now is given back at once.
    #[cold]
    pub(crate) fn arrived_moved(&self, process: &Process, name: Handle) {
        // Held until it is known to be one: the last of the others may be dropped meanwhile.
        let redirects = self.redirects();
        let is_direct = match redirects.get(&name) {
            Some(Redirect::To(moved)) => moved.direct.get().is_some(),
            _ => false,
        };
        if is_direct && self.imports().moved(name, &[]) {
            process.give_back_in(GIVE_BACK_NS);
        }
    }

    /// Rights with these names were dropped or given back: nothing is kept for those that nobody has any more.
    pub(crate) fn drop_moved(&self, names: impl Iterator<Item = Handle>) {
        // Relaxed: set by the keeper, before rights with other names are there.
        if !self.has_redirects.load(Ordering::Relaxed) {
            return;
        }
        let mut redirects = self.redirects();
        let is_over = |name: &Handle| self.imports().port_of(*name).is_none();
        let over: Vec<_> = names
            .filter(is_over)
            .filter_map(|name| redirects.remove(&name))
            .collect();
        drop(redirects);
        // Outside of the lock: a right of another link may be the last one there.
        drop(over);
    }
}

impl Moved {
    pub(crate) fn direct(&self) -> Option<&SendRight> {
        self.direct.get()
    }
}

impl Process {
    /// Keeper: the port of the right with this name has moved to another process.
    pub(crate) fn hear_moved(
        self: &Arc<Self>,
        link: &Arc<Link>,
        name: Handle,
        rest: &[u8],
    ) -> Result<(), Fault> {
        let (rule, offset) = (Rule::Introduction, 0);
        let fault = Fault { rule, offset };
        let (port, rest) = rest.split_first_chunk::<4>().ok_or(fault)?;
        let (number, exporter) = rest.split_first_chunk::<8>().ok_or(fault)?;
        let exporter: [u8; 20] = exporter.try_into().map_err(|_| fault)?;
        let (port, number) = (u32::from_le_bytes(*port), u64::from_le_bytes(*number));
        if receiver_of(port) >= RECEIVERS {
            return Err(fault);
        }
        // It may have been given back meanwhile. To this process itself there is no direct way.
        let is_held = link.imports().port_of(name).is_some();
        if !is_held || exporter[..16] == self.incarnation || link.is_with(exporter) {
            return Ok(());
        }
        {
            let mut redirects = link.redirects();
            if redirects.contains_key(&name) {
                return Ok(());
            }
            let moved = Moved {
                exporter,
                port,
                number,
                direct: OnceLock::new(),
            };
            redirects.insert(name, Redirect::To(Arc::new(moved)));
            // Relaxed: as in `drop_moved`.
            link.has_redirects.store(true, Ordering::Relaxed);
        }
        match self.find_link(|with| with.is_with(exporter)) {
            Some(with) => self.redirect((link, name), &with),
            None => self.seek(link, exporter, name),
        }
        Ok(())
    }

    /// There is a link with the new home: what is sent by a right goes there from now on, or soon.
    pub(crate) fn redirect(self: &Arc<Self>, (link, name): (&Arc<Link>, Handle), with: &Arc<Link>) {
        if self.switch((link, name), with) == Switched::Full {
            let link = Arc::downgrade(link);
            self.switches().push(Later { link, name });
            self.give_back_in(GIVE_BACK_NS);
        }
    }

    fn switches(&self) -> MutexGuard<'_, Vec<Later>> {
        self.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeper: once more for those that found no room. Returns whether there are some left.
    pub(crate) fn switch_again(self: &Arc<Self>) -> bool {
        let later = core::mem::take(&mut *self.switches());
        for Later { link, name } in later {
            let Some(link) = link.upgrade().filter(|link| !link.is_down()) else {
                continue;
            };
            let exporter = match link.redirects().get(&name) {
                Some(Redirect::To(moved)) => moved.exporter,
                _ => continue,
            };
            if let Some(with) = self.find_link(|with| with.is_with(exporter)) {
                self.redirect((&link, name), &with);
            }
        }
        !self.switches().is_empty()
    }

    fn switch(self: &Arc<Self>, (link, name): (&Arc<Link>, Handle), with: &Arc<Link>) -> Switched {
        let moved = match link.redirects().get(&name) {
            Some(Redirect::To(moved)) if moved.direct.get().is_none() => moved.clone(),
            _ => return Switched::Done,
        };
        let Some(old_port) = link.imports().port_of(name) else {
            return Switched::Done;
        };
        let receiver = receiver_of(old_port);
        // One at a time: two switches that lock each other's lanes would wait for ever.
        let _one = self
            .switching
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // So that there is one.
        if link.map.lane(receiver).is_none() {
            return Switched::Full;
        }
        let lanes = link.map.hold(receiver);
        let mut held: Vec<_> = lanes
            .iter()
            .map(|lane| link.lanes[*lane as usize].lock())
            .collect();
        let region = &link.region;
        let has_room = held
            .iter_mut()
            .all(|lane| lane.producer.has_room(region, SAID_BYTES).unwrap_or(false));
        if !has_room {
            return Switched::Full;
        }
        let number = (&**link, moved.number);
        let Some(direct) = claim_moved(self, with, moved.port, number) else {
            return Switched::Full;
        };
        let said = Said::Mark {
            lanes: held.len() as u32,
            number: moved.number,
        };
        let header = Header {
            kind: Kind::CONTROL,
            port: name,
            reply: 0,
            generation: 0,
            units: 0,
            cpu: cpu::recent(),
        };
        for outgoing in &mut held {
            if outgoing
                .producer
                .post(region, header, &said.to_bytes())
                .is_err()
            {
                // There was room: the peer says something else now, and is cut.
                let (rule, offset) = (Rule::HeadDistance, 0);
                link.poison(Fault { rule, offset });
                self.attention.raise();
                return Switched::Done;
            }
        }
        let new_port = direct.port();
        let _ = moved.direct.set(direct);
        // Release: whoever sees it finds the direct right. Before the lanes are free again, as the count: who
        // has locked one after that sees that something has changed.
        link.has_moved.store(true, Ordering::Release);
        link.trouble.fetch_add(1, Ordering::AcqRel);
        drop(held);
        for lane in lanes.iter() {
            link.ring(*lane, receiver);
        }
        drop(lanes);
        link.disturb();
        link.move_deaths(old_port, (with, new_port));
        // Messages to other ports there may have it in them, too. After the count: who posts one after this look
        // finds what the right has become.
        let uses: Vec<_> = (0..LANES)
            .map(|lane| Use {
                lane,
                tail: link.lanes[lane as usize].lock().producer.position(),
            })
            .collect();
        if link.imports().moved(name, &uses) {
            self.give_back_in(GIVE_BACK_NS);
        }
        Switched::Done
    }
}

/// How soon a switch that found no room is tried again, and what was moved is given back.
const GIVE_BACK_NS: u64 = 2_000_000;
