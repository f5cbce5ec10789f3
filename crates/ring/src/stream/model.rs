//! loom: three bytes through a ring of two; a writer that turns from the kernel to the ring, and ends; a reader that leaves.

use super::*;
use core::sync::atomic::Ordering;
use handfast_region::model::{Hook, Hooked, ModelMemory, OVERLAP, Operation, must_panic};
use loom::sync::Arc;

/// Its two bytes are areas of their own.
const AT: Place = Place {
    words: 0,
    bytes: 1024,
    len_bytes: 2,
};
/// Bytes that the kernel has taken before.
const FROM: u64 = 5;

/// Stores and loads of a word, turned into Relaxed.
#[derive(Clone, Copy, Default)]
struct Weak {
    word: Option<usize>,
    stores: bool,
    loads: bool,
    without_fence: bool,
}

impl Hook for Weak {
    fn leaves_out(&self, operation: Operation) -> bool {
        self.without_fence && matches!(operation, Operation::Fence)
    }

    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        match operation {
            Operation::Store(at, _) if self.stores && self.word == Some(at) => Relaxed,
            Operation::Load(at) if self.loads && self.word == Some(at) => Relaxed,
            _ => order,
        }
    }
}

/// Exchanges made Relaxed: of the state, into this one.
type WeakExchange = fn(usize, u32, u32) -> bool;
const STRONG: WeakExchange = |_, _, _| false;

fn memory(weak: Weak, exchange: WeakExchange) -> Arc<Hooked<Box<ModelMemory>, Weak>> {
    let words = [
        direction::TAIL,
        direction::STATE,
        direction::FROM,
        direction::FROM + 4,
        direction::HEAD,
    ];
    let mut memory = Box::new(ModelMemory::new(&words, &[1024, 1025]));
    memory.relaxed_exchange = exchange;
    Arc::new(Hooked::new(memory, weak))
}

/// Three bytes through a ring of two.
fn three_bytes(weak: Weak) {
    loom::model(move || {
        let memory = memory(weak, STRONG);
        let theirs = memory.clone();
        let writing = loom::thread::spawn(move || {
            let mut writer = Writer::new(AT);
            for byte in [1, 2, 3] {
                while writer.put(&*theirs, &[byte]).unwrap() == 0 {
                    loom::thread::yield_now();
                }
            }
        });
        let mut reader = Reader::new(AT);
        for expected in [1, 2, 3] {
            while reader.look(&*memory).unwrap() == 0 {
                loom::thread::yield_now();
            }
            let mut byte = [0];
            assert_eq!(reader.peek(&*memory, &mut byte), 1);
            reader.taken(&*memory, 1);
            assert_eq!(byte, [expected]);
        }
        writing.join().unwrap();
    });
}

/// A writer turns to the ring, puts a byte there and ends, which a reader looks at once.
fn from_begin_to_end(weak: Weak, exchange: WeakExchange) {
    loom::model(move || {
        let memory = memory(weak, exchange);
        let theirs = memory.clone();
        let writing = loom::thread::spawn(move || {
            let mut writer = Writer::new(AT);
            writer.begin(&*theirs, FROM).unwrap();
            assert_eq!(writer.put(&*theirs, &[1]), Ok(1));
            writer.end(&*theirs).unwrap();
        });
        let seen = Reader::new(AT).seen(&*memory).unwrap();
        assert!(
            seen.state == State::Kernel || seen.from == FROM,
            "where it turned"
        );
        assert!(
            seen.state != State::Ended || seen.unread == 1,
            "bytes after the end"
        );
        writing.join().unwrap();
    });
}

/// A reader takes a byte of two and leaves; the writer looks once whether it has.
fn left(weak: Weak, exchange: WeakExchange) {
    loom::model(move || {
        let memory = memory(weak, exchange);
        let mut writer = Writer::new(AT);
        writer.begin(&*memory, FROM).unwrap();
        assert_eq!(writer.put(&*memory, &[1, 2]), Ok(2));
        let theirs = memory.clone();
        let reading = loom::thread::spawn(move || {
            let mut reader = Reader::new(AT);
            assert_eq!(reader.look(&*theirs), Ok(2));
            reader.taken(&*theirs, 1);
            reader.leave(&*theirs).unwrap();
        });
        if writer.state(&*memory) == Ok(State::Left) {
            assert_eq!(writer.unread(&*memory), Ok(1), "taken and given again");
        }
        reading.join().unwrap();
    });
}

/// A writer puts a byte and looks whether the reader has left; the reader leaves and looks whether there is a byte.
fn left_or_unread(fences: (bool, bool)) {
    loom::model(move || {
        let weak = Weak {
            without_fence: !fences.0,
            ..Weak::default()
        };
        let memory = memory(weak, STRONG);
        let mut writer = Writer::new(AT);
        writer.begin(&*memory, FROM).unwrap();
        let theirs = memory.clone();
        let reading = loom::thread::spawn(move || {
            let seen = Reader::new(AT).leave(&*theirs).unwrap();
            seen.unread == 1
        });
        writer.put(&*memory, &[1]).unwrap();
        if fences.1 {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
        let knows_writer = writer.state(&*memory) == Ok(State::Left);
        assert!(knows_writer | reading.join().unwrap(), "nobody knows");
    });
}

fn weak(word: usize, stores: bool, loads: bool) -> Weak {
    Weak {
        word: Some(word),
        stores,
        loads,
        without_fence: false,
    }
}

#[test]
fn e24_e25_bytes_are_whole_and_in_order() {
    three_bytes(Weak::default());
}

#[test]
fn e24_without_release_or_acquire_bytes_are_read_before_they_are_there() {
    must_panic(OVERLAP, || three_bytes(weak(direction::TAIL, true, false)));
    must_panic(OVERLAP, || three_bytes(weak(direction::TAIL, false, true)));
}

#[test]
fn e25_without_release_or_acquire_bytes_are_overwritten_while_they_are_read() {
    must_panic(OVERLAP, || three_bytes(weak(direction::HEAD, true, false)));
    must_panic(OVERLAP, || three_bytes(weak(direction::HEAD, false, true)));
}

const STATE: usize = AT.words + direction::STATE;

#[test]
fn e26_where_a_writer_turned_and_all_that_it_wrote_are_seen() {
    from_begin_to_end(Weak::default(), STRONG);
}

#[test]
fn e26_without_release_or_acquire_the_place_is_not_there_or_bytes_come_after_the_end() {
    let weak_loads = weak(direction::STATE, false, true);
    must_panic("where it turned", || from_begin_to_end(weak_loads, STRONG));
    must_panic("where it turned", || {
        from_begin_to_end(Weak::default(), |at, _, to| {
            at == STATE && to == State::Ring as u32
        });
    });
    must_panic("bytes after the end", || {
        from_begin_to_end(Weak::default(), |at, _, to| {
            at == STATE && to == State::Ended as u32
        });
    });
}

#[test]
fn e27_a_writer_knows_what_a_reader_that_left_has_taken() {
    left(Weak::default(), STRONG);
}

#[test]
fn e27_without_release_or_acquire_bytes_are_given_twice() {
    must_panic("taken and given again", || {
        left(weak(direction::STATE, false, true), STRONG)
    });
    must_panic("taken and given again", || {
        left(Weak::default(), |at, _, to| {
            at == STATE && to == State::Left as u32
        });
    });
}

#[test]
fn e28_one_of_the_two_knows_of_bytes_that_a_reader_has_left() {
    left_or_unread((true, true));
}

#[test]
fn e28_without_either_fence_nobody_may_know_of_them() {
    must_panic("nobody knows", || left_or_unread((false, true)));
    must_panic("nobody knows", || left_or_unread((true, false)));
}
