//! Return slots this process names itself, one link's: places for answers other than replies to its own calls
//! there. And the sleepers in return slots.

use super::{Link, introductions};
use crate::rank;
use crate::users::Charge;
use handfast_channel::reply::Slot;
use handfast_layout::lane_control::ClaimAnswer;
use handfast_layout::link::{OWN_SET, PARTY_SENDER, REPLIES, passed_word, slot_of};
use handfast_proto::rights::Handle;
use handfast_proto::users::Quota;
use handfast_ring::{Fault, Rule};
use handfast_sys::sync::MutexGuard;
use std::sync::Arc;

/// Slots in which answers to claims are awaited that were made on the word of processes of one other user, and of all other
/// users: a peer that is told of rights that do not exist waits in vain for each, and needs slots for what else it does.
const CLAIMS_OF_USER_MAX: usize = 16;
const CLAIMS_OF_OTHERS_MAX: usize = REPLIES as usize / 4;
/// Slots in which answers to calls of one other user are awaited that were passed on; and beyond that number in all, of one that has
/// more than a few.
const CALLS_OF_USER_MAX: usize = REPLIES as usize * 3 / 4;
const FEW: usize = REPLIES as usize / 32;

/// The state of a link's own set of return slots, and the wait words in which threads sleep.
#[derive(Default)]
pub(crate) struct Returns {
    /// The slots that have been in use.
    used: Vec<Used>,
    /// The free slots.
    free: Vec<u32>,
    /// The slots whose answers are not awaited: free once the answer has come.
    forsaken: Vec<u32>,
    /// A thread sleeps there, or is about to.
    asleep: Vec<usize>,
    /// For each return slot whose answers had rights, the last one that was taken.
    taken: Vec<(u32, u32)>,
}

/// The last use of a slot.
struct Used {
    generation: u32,
    is_awaited: bool,
    /// The use of it for another user than this process's, until the slot is free.
    of: Option<For>,
}

/// A use of a slot for another user than this process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Something is claimed on the user's word.
    Claim(u32),
    /// A call of the user's was passed on.
    Call(u32),
}

impl Returns {
    /// Takes a free slot: its number, and its generation there. Forsaken slots are looked at when there is no other,
    /// so each is looked at about once for each use.
    pub(crate) fn take(&mut self, is_answered: impl Fn(u32, u32) -> bool) -> Option<(u32, u32)> {
        if self.free.is_empty() && self.used.len() == REPLIES as usize {
            self.free_answered(is_answered);
        }
        self.take_free(None)
    }

    /// As [`Self::take`], for another user; `None` where too many of the user's are not answered.
    pub(crate) fn take_for(
        &mut self,
        whom: For,
        is_answered: impl Fn(u32, u32) -> bool,
    ) -> Option<(u32, u32)> {
        self.free_answered(is_answered);
        let used = || self.used.iter().filter_map(|used| used.of);
        let of_user = used().filter(|of| *of == whom).count();
        let has_too_many = match whom {
            For::Claim(_) => {
                let claims = used().filter(|of| matches!(of, For::Claim(_)));
                of_user >= CLAIMS_OF_USER_MAX || claims.count() >= CLAIMS_OF_OTHERS_MAX
            }
            For::Call(_) => {
                let in_use = self.used.len() - self.free.len();
                of_user >= CALLS_OF_USER_MAX || of_user >= FEW && in_use >= CALLS_OF_USER_MAX
            }
        };
        match has_too_many {
            true => None,
            false => self.take_free(Some(whom)),
        }
    }

    /// Frees the forsaken slots whose answers have come.
    fn free_answered(&mut self, is_answered: impl Fn(u32, u32) -> bool) {
        let Self {
            used,
            free,
            forsaken,
            ..
        } = self;
        let has_come = |place: &mut u32| {
            let used = &mut used[*place as usize];
            let has_come = is_answered(slot_of(OWN_SET, *place), used.generation);
            if has_come {
                used.of = None;
            }
            has_come
        };
        free.extend(forsaken.extract_if(.., has_come));
    }

    fn take_free(&mut self, of: Option<For>) -> Option<(u32, u32)> {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None if self.used.len() < REPLIES as usize => {
                self.used.push(Used {
                    generation: 0,
                    is_awaited: false,
                    of: None,
                });
                self.used.len() - 1
            }
            None => return None,
        };
        let used = &mut self.used[place];
        // Zero is what an unused slot's generation word holds.
        let generation = used.generation.wrapping_add(1).max(1);
        *used = Used {
            generation,
            is_awaited: true,
            of,
        };
        Some((slot_of(OWN_SET, place as u32), generation))
    }

    /// The slot has had its answer, or will have none.
    pub(crate) fn free(&mut self, index: u32) {
        let place = index % REPLIES;
        if let Some(used) = self.used.get_mut(place as usize) {
            (used.is_awaited, used.of) = (false, None);
            self.free.push(place);
        }
    }

    /// The answer is awaited no more, and brings nothing but bytes.
    pub(crate) fn forsake(&mut self, index: u32) {
        let place = index % REPLIES;
        if let Some(used) = self.used.get_mut(place as usize) {
            used.is_awaited = false;
            self.forsaken.push(place);
        }
    }

    /// The own slots in which answers are awaited, and their generations.
    pub(crate) fn in_use(&self) -> Vec<(u32, u32)> {
        let awaited = self
            .used
            .iter()
            .zip(0..)
            .filter(|(used, _)| used.is_awaited);
        awaited
            .map(|(used, place)| (slot_of(OWN_SET, place), used.generation))
            .collect()
    }

    /// Whether own slots have ever been in use.
    pub(crate) const fn is_used(&self) -> bool {
        !self.used.is_empty()
    }

    /// The rights in the answer there have been taken up.
    pub(crate) fn took(&mut self, index: u32, generation: u32) {
        match self.taken.iter_mut().find(|taken| taken.0 == index) {
            Some(taken) => taken.1 = generation,
            None => self.taken.push((index, generation)),
        }
    }

    pub(crate) fn has_taken(&self, index: u32, generation: u32) -> bool {
        self.taken.contains(&(index, generation))
    }

    pub(crate) fn sleeps(&mut self, at: usize) {
        self.asleep.push(at);
    }

    pub(crate) fn wakes(&mut self, at: usize) {
        if let Some(place) = self.asleep.iter().position(|word| *word == at) {
            self.asleep.swap_remove(place);
        }
    }

    pub(crate) fn sleepers(&self) -> Vec<usize> {
        self.asleep.clone()
    }
}

/// A return slot this process names, on its link with the process that answers there.
pub(crate) struct Own {
    pub(crate) link: Arc<Link>,
    pub(crate) index: u32,
    pub(crate) generation: u32,
    /// Of another user's call, until its answer has come or is awaited no more.
    _call: Option<Charge>,
}

impl Own {
    pub(crate) fn take(link: &Arc<Link>) -> Option<Self> {
        Self::take_for(link, None)
    }

    /// As [`Self::take`], for another user than this process's, if so.
    pub(crate) fn take_for(link: &Arc<Link>, whom: Option<For>) -> Option<Self> {
        Self::take_unused(link, whom).or_else(|| {
            introductions::hear_claims(link);
            Self::take_unused(link, whom)
        })
    }

    fn take_unused(link: &Arc<Link>, whom: Option<For>) -> Option<Self> {
        let users = link.users();
        let call = match whom {
            Some(For::Call(user)) => Some(users.charge(user, Quota::Calls, 1).ok()?),
            _ => None,
        };
        let is_answered =
            |index, generation| Slot::of(link.calls, index).is_answered(&link.region, generation);
        let mut returns = link.returns();
        let (index, generation) = match whom {
            None => returns.take(is_answered),
            Some(whom) => returns.take_for(whom, is_answered),
        }?;
        drop(returns);
        if link.region.makes_pages() {
            Slot::of(link.calls, index).make(&link.region);
        }
        Some(Self {
            link: link.clone(),
            index,
            generation,
            _call: call,
        })
    }

    /// The word that names it to the peer.
    pub(crate) const fn word(&self) -> u32 {
        passed_word(PARTY_SENDER, self.index % REPLIES)
    }

    /// Takes an answer that is one handle, or that there is no such right, if it has come. Takes up nothing: an answer for the
    /// library comes without rights, and locks may be held.
    pub(crate) fn take_handle(&self) -> Option<Result<Option<Handle>, Fault>> {
        let slot = Slot::of(self.link.calls, self.index);
        let is_answered = slot.is_answered(&self.link.region, self.generation);
        is_answered.then(|| match slot.take_word(&self.link.region)? {
            Some(bytes) => match ClaimAnswer::parse(bytes) {
                Some(ClaimAnswer { handle }) => Ok(Some(handle)),
                None => Err(Rule::Introduction.broken()),
            },
            None => Ok(None),
        })
    }

    /// Gives the slot up without looking at its answer, which holds only bytes.
    pub(crate) fn forsake(self) {
        self.link.returns().forsake(self.index);
    }

    /// Nothing comes there any more.
    pub(crate) fn free(self) {
        self.link.returns().free(self.index);
    }
}

impl Link {
    pub(crate) fn returns(&self) -> MutexGuard<'_, Returns, rank::Returns> {
        self.parts.returns.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forsaken_slot_is_taken_again_once_its_answer_has_come() {
        let mut returns = Returns::default();
        let mut take = |has_come: &[u32], forsakes: bool| {
            let taken = returns.take(|index, _| has_come.contains(&index));
            let (index, generation) = taken?;
            if forsakes {
                returns.forsake(index);
            }
            Some((index, generation))
        };
        let all: Vec<_> = (0..REPLIES).map(|_| take(&[], true).unwrap()).collect();
        assert_eq!(take(&[], false), None, "none has been answered");
        let third = all[3].0;
        assert_eq!(take(&[third], false), Some((third, 2)));
        assert_eq!(take(&[third], false), None, "its answer is awaited");
        assert_eq!(returns.in_use(), [(third, 2)]);
        returns.free(third);
        assert_eq!(returns.take(|_, _| false), Some((third, 3)));
    }

    /// One user's claims took all 256 slots, and calls of others were not passed on any more.
    #[test]
    fn claims_on_the_word_of_other_users_leave_slots_to_others() {
        let mut returns = Returns::default();
        let nothing = |_, _| false;
        for user in 0..10 {
            let claims = (0..100).filter(|_| returns.take_for(For::Claim(user), nothing).is_some());
            let left = CLAIMS_OF_OTHERS_MAX.saturating_sub(user as usize * CLAIMS_OF_USER_MAX);
            assert_eq!(claims.count(), left.min(CLAIMS_OF_USER_MAX), "{user}");
        }
        // Given up, they count until they are answered.
        let of_first = slot_of(OWN_SET, 3);
        returns.forsake(of_first);
        assert_eq!(returns.take_for(For::Claim(11), nothing), None);
        let is_answered = |index, generation| (index, generation) == (of_first, 1);
        assert_eq!(
            returns.take_for(For::Claim(11), is_answered),
            Some((of_first, 2))
        );
        assert_eq!(returns.take_for(For::Claim(12), nothing), None);
        returns.free(of_first);
        assert_eq!(
            returns.take_for(For::Claim(12), nothing),
            Some((of_first, 3))
        );
        let others = (0..).take_while(|_| returns.take(nothing).is_some());
        assert_eq!(others.count(), REPLIES as usize - CLAIMS_OF_OTHERS_MAX);
    }

    /// Calls of one user that were passed on, and not answered, took all slots: calls of others were not passed on any more.
    #[test]
    fn calls_of_other_users_leave_slots_to_others() {
        let mut returns = Returns::default();
        let nothing = |_, _| false;
        let mut taken = |user, count: usize| {
            let calls = (0..count).filter(|_| returns.take_for(For::Call(user), nothing).is_some());
            calls.count()
        };
        assert_eq!(taken(1, 300), CALLS_OF_USER_MAX);
        assert_eq!(taken(2, 300), FEW);
        assert_eq!(taken(3, 1), 1);
        let own = (0..).take_while(|_| returns.take(nothing).is_some());
        assert_eq!(own.count(), REPLIES as usize - CALLS_OF_USER_MAX - FEW - 1);
    }
}
