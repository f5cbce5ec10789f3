//! Waiting for an outcome wherever it comes: in the slot that was named for it, or along the paths
//! its reply right has gone since.

use crate::adopt::{adopt, adopt_rest};
use crate::announced;
use crate::elsewhere::HOPES;
use crate::error::{DomainError, Gone, Misuse, SendError};
use crate::giving_up::{self, Watch, given_up};
use crate::guest;
use crate::link::Link;
use crate::message::Whom;
use crate::message::{Message, ReplySink};
use crate::paths;
use crate::paths::Path;
use crate::process::Process;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use handfast_channel::reply::Slot;
use handfast_layout::link::{FAILED, Kind, REPLIES};
use handfast_proto::paths::{PATHS_MAX, Source};
use handfast_ring::Fault;
use handfast_wait::place::{Parked, Place, Sleep, Start};
use handfast_wait::{Ended, FIRST_PAUSED_LOOKS, Waiter};
use std::sync::Arc;

/// Where the outcome of a call, or of something like it, is to come.
pub(crate) struct Awaited {
    at: At,
    /// The slot's number on its link.
    pub(crate) index: u32,
    pub(crate) generation: u32,
    /// How often it may yet find an answer elsewhere that has not been moved there.
    hopes: Cell<u8>,
    trouble: u32,
    /// How often it has been moved.
    moves: u32,
    /// The process that was called is known to work on this thread's processor.
    pub(crate) shares: bool,
}

/// The control thread of the link through which the outcome is to come now.
enum At {
    /// Where the wait began.
    Start(Arc<Link>),
    /// The path that has led here.
    Path(Arc<Path>),
}

/// An outcome is moved more often only by peers that let it go round in circles: paths lead from set to set,
/// and a process grants no more of them.
const MOVES_MAX: u32 = PATHS_MAX as u32;

/// The content of an outcome that is there.
pub(crate) enum Outcome {
    /// So many bytes, and rights, are in the sink.
    Reply(usize),
    /// As `Reply`, and some of its rights are known later: [`Awaited::take_rest`]. For an answer that goes on.
    Piece,
    /// There will be none.
    Error(SendError),
    /// The outcome comes elsewhere, where this wait has gone on to.
    Moved,
}

impl Awaited {
    /// In slot `index` of the calls this process makes through `link`.
    pub(crate) const fn new(start: Arc<Link>, index: u32, generation: u32) -> Self {
        Self::starting_at(At::Start(start), index, generation)
    }

    /// As [`Self::new`], of one that has been moved to path `number`. `None` when that is over, or not its own.
    #[inline]
    pub(crate) fn moved(
        process: &Process,
        (start, index, generation): (&Link, u32, u32),
        number: u32,
    ) -> Option<Self> {
        let source = Source {
            link: start.serial,
            set: index / REPLIES,
        };
        let path = paths::path(process, number, source)?;
        let index = path.slot_of(index % REPLIES);
        let mut moved = Self::starting_at(At::Path(path), index, generation);
        moved.moves = 1;
        Some(moved)
    }

    const fn starting_at(at: At, index: u32, generation: u32) -> Self {
        Self {
            at,
            index,
            generation,
            hopes: Cell::new(HOPES),
            trouble: 0,
            moves: 0,
            shares: false,
        }
    }

    /// The link through which it is to come now.
    #[inline(always)]
    pub(crate) fn link(&self) -> &Arc<Link> {
        match &self.at {
            At::Start(link) => link,
            At::Path(path) => &path.link,
        }
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> Slot {
        Slot::of(self.link().calls, self.index)
    }

    #[inline(always)]
    pub(crate) fn is_answered(&self) -> bool {
        self.slot()
            .is_answered(&self.link().region, self.generation)
    }

    /// Whether it is there, or there is new trouble on its link.
    #[inline(always)]
    fn is_due(&self) -> bool {
        // Acquire: pairs with the addition in `disturb`.
        let trouble = || self.link().trouble.load(Ordering::Acquire);
        self.is_answered() || trouble() != self.trouble
    }

    /// Goes on to where the outcome comes instead, as often as it has been moved. `false` when the
    /// path it was moved to is over, or not its own, or it has been moved too often.
    pub(crate) fn follow(&mut self, process: &Process) -> bool {
        while self.is_answered()
            && let Some(number) = self.slot().moved(&self.link().region)
        {
            let source = self.source();
            let Some(path) = paths::path(process, number, source) else {
                return false;
            };
            self.moves += 1;
            if self.moves > MOVES_MAX {
                return false;
            }
            self.index = path.slot_of(self.index % REPLIES);
            self.at = At::Path(path);
        }
        true
    }

    /// As [`Self::follow`]; whether it has gone on by that.
    pub(crate) fn goes_on(&mut self, process: &Process) -> bool {
        let moves = self.moves;
        self.follow(process) && self.moves > moves
    }

    fn source(&self) -> Source {
        Source {
            link: self.link().serial,
            set: self.index / REPLIES,
        }
    }

    /// The reason why no outcome comes any more, if so. An outcome that came before is still there.
    pub(crate) fn failure(&self) -> Option<SendError> {
        if let Some(failure) = self.link().end() {
            return Some(failure);
        }
        let is_over = matches!(&self.at, At::Path(path) if path.is_over());
        is_over.then_some(SendError::Gone(Gone::Reply))
    }

    /// Takes the outcome that is there.
    #[cold]
    pub(crate) fn take(
        &mut self,
        process: &Arc<Process>,
        sink: &mut impl ReplySink,
        whom: Whom<'_>,
    ) -> Result<Outcome, Fault> {
        let from = (self.link().serial, self.index);
        if !self.follow(process) {
            return Ok(Outcome::Error(SendError::Gone(Gone::Reply)));
        }
        if from != (self.link().serial, self.index) {
            return Ok(Outcome::Moved);
        }
        let meta = self.slot().take(&self.link().region, sink)?;
        if meta.units > 0 {
            let is_whole = adopt(process, self.link(), sink.parts(), whom)?;
            if !is_whole {
                return Ok(Outcome::Piece);
            }
            self.took();
        }
        let mut len_bytes = meta.len_bytes as usize;
        if meta.units > 0 {
            len_bytes = match sink.adopted(len_bytes) {
                Ok(len_bytes) => len_bytes,
                Err(exhausted) => return Ok(Outcome::Error(SendError::Exhausted(exhausted))),
            };
        }
        Ok(match meta.kind {
            Kind::Message => Outcome::Reply(len_bytes),
            Kind::Dropped => Outcome::Error(why_dropped(meta.cpu)),
            // The port that is dead is another than the one that was called.
            Kind::DeadPort | Kind::MOVED => Outcome::Error(SendError::Gone(Gone::Reply)),
        })
    }

    /// After [`Outcome::Piece`]: takes up the rights that are known by now. Whether all are.
    #[cold]
    pub(crate) fn take_rest(
        &self,
        process: &Arc<Process>,
        message: &mut Message,
        whom: Whom<'_>,
    ) -> Result<bool, Fault> {
        let is_whole = adopt_rest(process, self.link(), message, whom)?;
        if is_whole {
            self.took();
        }
        Ok(is_whole)
    }

    fn took(&self) {
        if self.index >= REPLIES {
            self.link().returns().took(self.index, self.generation);
        }
    }

    /// Looks for the outcome for a moment.
    #[inline]
    pub(crate) fn look(&self) {
        let (slot, region) = (self.slot(), self.link().region.view());
        for _ in 0..FIRST_PAUSED_LOOKS {
            if slot.is_answered(&region, self.generation) {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Takes the reply, if it is there and has no rights.
    #[inline]
    pub(crate) fn take_now(&self, sink: &mut impl ReplySink) -> Option<Result<usize, SendError>> {
        if !self.is_answered() {
            return None;
        }
        let meta = self.slot().take_plain(&self.link().region, sink)?;
        Some(Ok(meta.len_bytes as usize))
    }

    /// Waits for the outcome and takes it; or until `outer` says that the caller on whose behalf the call was
    /// made has given up.
    #[cold]
    pub(crate) fn wait(
        &mut self,
        process: &Arc<Process>,
        deadline_ns: Option<u64>,
        (sink, mut outer): (&mut impl ReplySink, Option<&mut Watch<'_>>),
        waiter: &mut Waiter,
    ) -> Result<usize, SendError> {
        let mut is_elsewhere = false;
        if guest::is_control() {
            return Err(SendError::Misuse(Misuse::ControlThread));
        }
        loop {
            if let Some(outer) = &mut outer
                && outer.is_over_at(self.link())
                && !self.is_answered()
            {
                return Err(given_up(deadline_ns));
            }
            // The known trouble belongs to the previous link: the next link may be over already, and reports it no more.
            let ended = if self.is_answered() || core::mem::take(&mut is_elsewhere) {
                Ended::Ready
            } else {
                waiter.wait(&mut Looking(self), deadline_ns, false).0
            };
            // Acquire: pairs with the addition in `disturb`. Before the looks at what it was.
            self.trouble = self.link().trouble.load(Ordering::Acquire);
            let failure = self.failure();
            if self.is_answered() {
                match self.take(process, sink, Whom::Caller) {
                    Ok(Outcome::Reply(len_bytes)) => return Ok(len_bytes),
                    Ok(Outcome::Error(error)) => return Err(error),
                    Ok(Outcome::Moved | Outcome::Piece) => {
                        is_elsewhere = true;
                        continue;
                    }
                    Err(fault) => {
                        let fault = self.link().poison(fault);
                        process.attention.raise();
                        return Err(SendError::Fault(fault));
                    }
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            if ended == Ended::TimedOut {
                return Err(SendError::TimedOut);
            }
        }
    }

    /// Tells the answering process until when the outcome is waited for.
    pub(crate) fn say_deadline(&self, deadline_ns: u64) {
        let region = &self.link().region;
        self.slot()
            .set_deadline(region, self.generation, deadline_ns);
    }

    /// Gives the outcome up: no thread waits for it any more.
    pub(crate) fn cancel(&self) {
        giving_up::give_up(self.link(), self.slot(), self.generation);
    }
}

/// The reason given by the CPU word of a dropped call.
#[cold]
pub(crate) fn why_dropped(word: u32) -> SendError {
    let code = (word ^ FAILED).try_into().ok();
    let error = code.and_then(DomainError::of_code);
    error.map_or(SendError::Gone(Gone::Reply), SendError::Domain)
}

/// The slot to wait at: a return slot, or a reply slot of a call that is followed.
struct Looking<'a>(&'a Awaited);

impl Place for Looking<'_> {
    #[inline]
    fn look(&mut self) -> bool {
        self.0.is_due()
    }

    fn shares_processor(&mut self) -> bool {
        self.0.shares
    }

    fn is_caller(&self) -> bool {
        true
    }

    fn park(&mut self, how: Sleep, deadline_ns: Option<u64>, start: Option<Start>) -> Parked {
        let awaited = self.0;
        let of = (awaited.link(), awaited.index, awaited.generation);
        let mut hopes = awaited.hopes.get();
        let look = || awaited.is_due();
        let parked = announced::sleep(of, (how, start), &mut hopes, look, || deadline_ns);
        awaited.hopes.set(hopes);
        parked
    }
}
