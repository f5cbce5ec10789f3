//! loom: a block is lent, given back and written again; or the link ends while it is lent.

use super::{end, give_back, has_ended, returned};
use core::sync::atomic::Ordering;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use handfast_layout::link::Side;
use handfast_region::Memory;
use handfast_region::model::{Hook, Hooked, ModelMemory, OVERLAP, Operation, must_panic};
use loom::sync::Arc;

const SIDE: Side = Side::Connector;
/// The word that a message stands for: generation of the loan, once it has been sent.
const SENT: usize = 0;
const BLOCK: usize = 64;
const TIMES: u32 = 2;

/// The word of the loan, turned into Relaxed where it is stored, or loaded.
struct Weak {
    stores: bool,
    loads: bool,
}

impl Hook for Weak {
    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        match operation {
            Operation::Store(at, _) if self.stores && at == SIDE.returned(0) => Relaxed,
            Operation::Load(at) if self.loads && at == SIDE.returned(0) => Relaxed,
            _ => order,
        }
    }
}

/// One block, lent and written again as soon as it has come back.
fn lend(stores: bool, loads: bool) {
    loom::model(move || {
        let words = [SENT, SIDE.returned(0)];
        let memory = Box::new(ModelMemory::new(&words, &[BLOCK]));
        let memory = Arc::new(Hooked::new(memory, Weak { stores, loads }));
        let theirs = memory.clone();
        let borrower = loom::thread::spawn(move || {
            for generation in 1..=TIMES {
                while theirs.load(SENT, Acquire) != generation {
                    loom::thread::yield_now();
                }
                let mut bytes = [0; 8];
                theirs.copy_out(BLOCK, &mut bytes);
                assert_eq!(bytes, [generation as u8; 8]);
                give_back(&*theirs, SIDE, 0, generation);
            }
        });
        for generation in 1..=TIMES {
            while returned(&*memory, SIDE, 0) != generation - 1 {
                loom::thread::yield_now();
            }
            memory.copy_in(BLOCK, &[generation as u8; 8]);
            memory.store(SENT, generation, Release);
        }
        borrower.join().unwrap();
    });
}

#[test]
fn e16_a_block_is_written_again_once_its_borrower_has_done_with_it() {
    lend(false, false);
}

#[test]
fn e16_without_release_or_acquire_a_block_is_written_under_its_reader() {
    must_panic(OVERLAP, || lend(true, false));
    must_panic(OVERLAP, || lend(false, true));
}

/// The bytes of the block as a word, since both sides may be at it.
fn end_while_lent(without_fence: bool) {
    loom::model(move || {
        let mut memory = ModelMemory::new(&[BLOCK, SIDE.over()], &[]);
        memory.without_fence = without_fence;
        let memory = Arc::new(memory);
        let theirs = memory.clone();
        let lender = loom::thread::spawn(move || {
            end(&*theirs, SIDE);
            theirs.store(BLOCK, 2, Relaxed);
        });
        let copied = memory.load(BLOCK, Relaxed);
        assert!(copied == 0 || has_ended(&*memory, SIDE), "written under it");
        lender.join().unwrap();
    });
}

#[test]
fn e17_who_copies_what_was_written_after_the_end_sees_the_end() {
    end_while_lent(false);
}

#[test]
fn e17_without_the_fences_it_is_taken_for_the_loan() {
    must_panic("written under it", || end_while_lent(true));
}
