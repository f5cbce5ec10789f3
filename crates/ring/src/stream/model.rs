//! loom: three bytes through a ring of two; and a writer that turns from the kernel to the ring, and ends.

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
}

impl Hook for Weak {
    fn order(&self, operation: Operation, order: Ordering) -> Ordering {
        match operation {
            Operation::Store(at, _) if self.stores && self.word == Some(at) => Relaxed,
            Operation::Load(at) if self.loads && self.word == Some(at) => Relaxed,
            _ => order,
        }
    }
}

fn memory(weak: Weak) -> Arc<Hooked<Box<ModelMemory>, Weak>> {
    let words = [
        direction::TAIL,
        direction::STATE,
        direction::FROM,
        direction::FROM + 4,
        direction::HEAD,
    ];
    let memory = Box::new(ModelMemory::new(&words, &[1024, 1025]));
    Arc::new(Hooked::new(memory, weak))
}

/// Three bytes through a ring of two.
fn three_bytes(weak: Weak) {
    loom::model(move || {
        let memory = memory(weak);
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
fn from_begin_to_end(weak: Weak, look: fn(&mut Reader, &Hooked<Box<ModelMemory>, Weak>)) {
    loom::model(move || {
        let memory = memory(weak);
        let theirs = memory.clone();
        let writing = loom::thread::spawn(move || {
            let mut writer = Writer::new(AT);
            writer.begin(&*theirs, FROM);
            assert_eq!(writer.put(&*theirs, &[1]), Ok(1));
            writer.end(&*theirs);
        });
        look(&mut Reader::new(AT), &memory);
        writing.join().unwrap();
    });
}

fn where_it_turned(reader: &mut Reader, memory: &Hooked<Box<ModelMemory>, Weak>) {
    if let Some(from) = reader.begun(memory).unwrap() {
        assert_eq!(from, FROM, "where it turned");
    }
}

fn what_came_before_the_end(reader: &mut Reader, memory: &Hooked<Box<ModelMemory>, Weak>) {
    if reader.has_ended(memory) {
        assert_eq!(reader.look(memory), Ok(1), "bytes after the end");
    }
}

fn weak(word: usize, stores: bool, loads: bool) -> Weak {
    Weak {
        word: Some(word),
        stores,
        loads,
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

#[test]
fn e26_where_a_writer_turned_and_all_that_it_wrote_are_seen() {
    from_begin_to_end(Weak::default(), where_it_turned);
    from_begin_to_end(Weak::default(), what_came_before_the_end);
}

#[test]
fn e26_without_release_or_acquire_the_place_is_not_there_or_bytes_come_after_the_end() {
    for (stores, loads) in [(true, false), (false, true)] {
        let weak = weak(direction::STATE, stores, loads);
        must_panic("where it turned", || {
            from_begin_to_end(weak, where_it_turned);
        });
        must_panic("bytes after the end", || {
            from_begin_to_end(weak, what_came_before_the_end);
        });
    }
}
