//! loom: tasks that wait. The state shared with a sleeping thread, and the state of their own: a ringing thread goes through
//! a socket to the control thread, and the control thread looks for the waker in a list (E15).
//!
//! The steps around the lists are written out here as `handfast-port` takes them; words, bells, slots and
//! takers are the real ones. The thread that rings is the control thread as well: a socket lies between the two, which
//! orders them.

mod giving_up;
mod receiving;

use handfast_region::model::{Hook, Hooked, ModelMemory, Operation};
use loom::sync::{Arc, Condvar, Mutex};

/// A task of an executor: whether it was woken.
#[derive(Default)]
struct Task(Mutex<bool>, Condvar);

impl Task {
    fn wake(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn sleep(&self) {
        let mut woken = self.0.lock().unwrap();
        while !*woken {
            woken = self.1.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// The step that one of the sides leaves out.
#[derive(Clone, Copy, PartialEq)]
struct Fences(bool);

impl Hook for Fences {
    fn leaves_out(&self, operation: Operation) -> bool {
        operation == Operation::Fence && !self.0
    }
}

/// A side's view of a memory, with its fences or without.
fn side(memory: &Arc<ModelMemory>, fences: bool) -> Hooked<Arc<ModelMemory>, Fences> {
    Hooked::new(memory.clone(), Fences(fences))
}
