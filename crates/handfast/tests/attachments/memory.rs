//! Memory that travels in messages: not copied, and not to be changed by anybody.

use crate::common::{self, content};
use handfast::error::MemoryError;
use handfast::{Memory, Right};
use rustix::fd::{AsFd, OwnedFd};

/// Answers memory with memory: every byte one more.
pub(crate) fn server(name: &str) {
    let port = handfast::bind(name).unwrap();
    common::say("ready");
    loop {
        let mut request = port.receive().unwrap();
        let answers = memories(request.take_rights()).into_iter().map(|memory| {
            if request.bytes() == b"same" {
                return memory.into();
            }
            if request.bytes() == b"in place" {
                let mut own = memory.into_mut().unwrap();
                own.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                return own.seal().unwrap().into();
            }
            let mut answer = Memory::create(memory.len()).unwrap();
            for (to, from) in answer.iter_mut().zip(memory.bytes()) {
                *to = from.wrapping_add(1);
            }
            answer.seal().unwrap().into()
        });
        let answers: Vec<Right> = answers.collect();
        request.reply_with(b"", answers).unwrap();
    }
}

fn memories(rights: Vec<Right>) -> Vec<Memory> {
    let memories = rights.into_iter().map(|right| match right {
        Right::Memory(memory) => memory,
        other => panic!("{other:?}"),
    });
    memories.collect()
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn memory_goes_by_copy_and_by_move_and_neither_party_sees_what_the_other_writes() {
    let _alone = common::alone();
    let name = common::name("written");
    let mut server = common::start("server of memory", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for (key, len_bytes) in (0..).zip([1, 4096, 65_537, 3 << 20]) {
        let first = content(len_bytes, key);
        let mut sheet = Memory::create(len_bytes).unwrap();
        sheet.copy_from_slice(&first);
        // Twice: the second snapshot is of other memory.
        for round in 0..2 {
            let before = sheet.to_vec();
            let snapshot = sheet.snapshot().unwrap();
            let call = right.with([snapshot.into()]).try_call(b"in place").unwrap();
            // The receiver may be at work on it.
            sheet
                .iter_mut()
                .step_by(4096)
                .for_each(|byte| *byte ^= 0x55);
            let after = sheet.to_vec();
            let back = memories(call.wait().unwrap().take_rights());
            let expected = before.iter().map(|byte| byte.wrapping_add(1));
            assert!(back[0].iter().copied().eq(expected), "{len_bytes}, {round}");
            assert!(*sheet == *after, "{len_bytes}, {round}");
        }
        let last = sheet.to_vec();
        let sealed = sheet.seal().unwrap();
        let mut reply = right.with([sealed.into()]).call(b"same").unwrap();
        let back = memories(reply.take_rights()).pop().unwrap();
        assert!(*back == *last);
    }
    server.kill();
}

#[test]
fn memory_comes_as_it_was_sealed_whatever_its_length() {
    let _alone = common::alone();
    let name = common::name("memory");
    let mut server = common::start("server of memory", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    for (key, len_bytes) in (0..).zip([1, 100, 4096, 65_537, 3 << 20]) {
        let sent = content(len_bytes, key);
        let memory = Memory::from_bytes(&sent).unwrap();
        assert_eq!(memory.bytes(), sent);
        let mut reply = right.with([memory.into()]).call(b"more").unwrap();
        let back = memories(reply.take_rights());
        let expected = sent.iter().map(|byte| byte.wrapping_add(1));
        assert!(back[0].bytes().iter().copied().eq(expected));
    }
    // Four at once, in their order; and what was received can be sent on.
    let four = (1..5).map(|len_bytes| Memory::from_bytes(&content(len_bytes, 9)).unwrap().into());
    let mut reply = right.with(four).call(b"same").unwrap();
    let back = memories(reply.take_rights());
    for (len_bytes, memory) in (1..5).zip(&back) {
        assert_eq!(memory.bytes(), content(len_bytes, 9));
    }
    // It outlives its maker and the link.
    let mut reply = right
        .with(back.into_iter().map(Right::from))
        .call(b"more")
        .unwrap();
    server.kill();
    drop(right);
    let last = memories(reply.take_rights());
    drop(reply);
    assert_eq!(last[3].len(), 4);
    assert_eq!(last[3][0], content(4, 9)[0].wrapping_add(1));
}

#[test]
fn memory_that_has_been_dropped_leaves_neither_descriptors_nor_mappings() {
    let _alone = common::alone();
    if common::ran_in_own_process(
        memory_that_has_been_dropped_leaves_neither_descriptors_nor_mappings,
    ) {
        return;
    }
    let name = common::name("memory-leaves");
    let mut server = common::start("server of memory", &[&name]);
    server.expect("ready");
    let right = handfast::connect(&name).unwrap();
    let call = || {
        let memory = Memory::from_bytes(&[1; 10_000]).unwrap();
        let mut reply = right.with([memory.into()]).call(b"more").unwrap();
        assert_eq!(memories(reply.take_rights())[0].bytes(), [2; 10_000]);
    };
    call();
    let holdings = || {
        (
            common::holdings(std::process::id()),
            common::holdings(server.pid()),
        )
    };
    let before = holdings();
    (0..500).for_each(|_| call());
    assert!(common::within_patience(|| holdings() <= before));
    server.kill();
}

#[test]
fn nobody_can_change_memory_once_it_is_sealed() {
    use rustix::io::Errno;
    let _alone = common::alone();
    let memory = Memory::from_bytes(&[5; 8192]).unwrap();
    let fd = copy(&memory);
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 1 << 20), Err(Errno::PERM));
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, 4096), Err(Errno::PERM));
    // Not by opening it anew, either.
    let again = common::open(&common::path(&fd));
    assert!(rustix::io::pwrite(&again, b"x", 0).is_err());
    assert_eq!(memory.bytes(), [5; 8192]);
}

#[test]
fn files_from_elsewhere_are_taken_if_nobody_can_change_them() {
    use handfast_sys::memory::{create_sealed, create_whole, seal};
    let _alone = common::alone();
    let fd = create_whole("elsewhere", 5000).unwrap();
    rustix::io::pwrite(&fd, b"text", 4096).unwrap();
    let not = Memory::from_descriptor(copy(&fd));
    assert_eq!(not.unwrap_err(), MemoryError::NotSealed);
    seal(&fd).unwrap();
    let memory = Memory::from_descriptor(fd).unwrap();
    assert_eq!((memory.len(), &memory[4096..4100]), (5000, &b"text"[..]));
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let others = [create_sealed("sized", 4096).unwrap(), pipe];
    for other in others {
        let not = Memory::from_descriptor(other);
        assert_eq!(not.unwrap_err(), MemoryError::NotSealed);
    }
}

#[test]
fn memory_that_cannot_be_had_is_refused_by_what_is_missing() {
    let _alone = common::alone();
    assert_eq!(Memory::create(0).unwrap_err(), MemoryError::Empty);
    for len_bytes in [usize::MAX, 1 << 62] {
        let refused = Memory::create(len_bytes).unwrap_err();
        let what = refused.to_string();
        assert!(matches!(refused, MemoryError::Exhausted(_)), "{what}");
        assert!(what.starts_with("out of memory; ask for less"), "{what}");
    }
}
