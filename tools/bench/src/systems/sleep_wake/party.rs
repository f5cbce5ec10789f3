//! The protocols' steps, with the paper's names and in its order, whatever memory and kernel they are taken on.

use crate::control::Tally;
use handfast_ring::queue::Message;
use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bss,
    Bsw,
    Bswy,
    Bsls,
}

/// Queues with flags and semaphores, and a processor.
pub(super) trait Memory {
    /// A queue, with the flag and the semaphore of its owner.
    type End;

    /// Whether there was room.
    fn try_enqueue(&self, to: &Self::End, message: &Message) -> io::Result<bool>;

    fn dequeue(&self, own: &Self::End) -> io::Result<Option<Message>>;

    fn looks_empty(&self, own: &Self::End) -> bool;

    /// Sets the `awake` flag and returns its old value: with `true` the paper's `tas`.
    fn set_awake(&self, of: &Self::End, is_awake: bool) -> bool;

    fn down(&self, own: &Self::End) -> io::Result<()>;

    fn up(&self, to: &Self::End) -> io::Result<()>;

    /// The paper's `busy_wait`.
    fn busy_wait(&self);

    /// The server's `yield` in `bswy`, also where there are other CPUs.
    fn let_run(&self);

    /// The paper's `poll_queue`.
    fn poll_queue(&self, own: &Self::End);

    /// For a queue without room.
    fn sleep_long(&self);
}

/// One process's way of sending and receiving. The functions have the paper's names and order of steps.
pub(super) struct Party<M> {
    pub(super) kind: Kind,
    pub(super) memory: M,
    pub(super) max_spin: u32,
    pub(super) tally: &'static Tally,
}

impl<M: Memory> Party<M> {
    #[inline]
    pub(super) fn send(
        &self,
        server: &M::End,
        own: &M::End,
        message: &Message,
    ) -> io::Result<Message> {
        self.enqueue(server, message)?;
        if self.kind == Kind::Bss {
            return self.spin(own);
        }
        let woke = self.wake(server)?;
        if woke && self.kind == Kind::Bswy {
            self.memory.busy_wait();
        }
        if self.kind == Kind::Bsls {
            self.limited_spin(own);
        }
        self.wait(own, self.kind != Kind::Bsw)
    }

    #[inline]
    pub(super) fn receive(&self, own: &M::End) -> io::Result<Message> {
        match self.kind {
            Kind::Bss => return self.spin(own),
            Kind::Bsw => {}
            Kind::Bswy => {
                if let Some(message) = self.memory.dequeue(own)? {
                    return Ok(message);
                }
                self.memory.let_run();
            }
            Kind::Bsls => self.limited_spin(own),
        }
        self.wait(own, false)
    }

    #[inline]
    pub(super) fn reply(&self, client: &M::End, message: &Message) -> io::Result<()> {
        self.enqueue(client, message)?;
        if self.kind != Kind::Bss {
            self.wake(client)?;
        }
        Ok(())
    }

    #[inline]
    fn enqueue(&self, to: &M::End, message: &Message) -> io::Result<()> {
        while !self.memory.try_enqueue(to, message)? {
            match self.kind {
                Kind::Bss => self.memory.busy_wait(),
                _ => self.memory.sleep_long(),
            }
        }
        Ok(())
    }

    /// Dequeues, however long that takes.
    fn spin(&self, own: &M::End) -> io::Result<Message> {
        loop {
            if let Some(message) = self.memory.dequeue(own)? {
                return Ok(message);
            }
            self.memory.busy_wait();
        }
    }

    /// Polls the queue while it looks empty, `MAX_SPIN` times.
    fn limited_spin(&self, own: &M::End) {
        let mut spins = 0;
        while self.memory.looks_empty(own) && spins < self.max_spin {
            spins += 1;
            self.tally.polls.add(1);
            self.memory.poll_queue(own);
        }
    }

    /// Dequeues; asleep while the queue is empty.
    fn wait(&self, own: &M::End, hands_off: bool) -> io::Result<Message> {
        loop {
            if let Some(message) = self.memory.dequeue(own)? {
                return Ok(message);
            }
            if hands_off {
                self.memory.busy_wait();
            }
            self.memory.set_awake(own, false);
            if let Some(message) = self.memory.dequeue(own)? {
                if self.memory.set_awake(own, true) {
                    // Somebody has seen us asleep: takes back that wake-up.
                    self.memory.down(own)?;
                }
                return Ok(message);
            }
            self.tally.sleeps.add(1);
            self.memory.down(own)?;
            self.memory.set_awake(own, true);
        }
    }

    /// Wakes the owner of a queue if it sleeps, or is about to. Whether it did.
    fn wake(&self, to: &M::End) -> io::Result<bool> {
        if self.memory.set_awake(to, true) {
            return Ok(false);
        }
        self.memory.up(to)?;
        Ok(true)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
