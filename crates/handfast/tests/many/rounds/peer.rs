//! The process that is asked, over and over.

use super::counters;
use crate::common;
use handfast::{Memory, Right, SendRight};
use std::io::Read;

/// Does what it is told with what comes with it.
pub(crate) fn peer(name: &str) {
    let port = handfast::bind(name).unwrap();
    let arena = handfast::SharedArena::create(4096, 4).unwrap();
    common::say("ready");
    let mut kept: Vec<Right> = Vec::new();
    let mut held = Vec::new();
    let mut friend: Option<SendRight> = None;
    loop {
        let mut request = port.receive().unwrap();
        let text = String::from_utf8_lossy(request.bytes()).into_owned();
        let mut rights = request.take_rights();
        if !request.is_call() {
            if text == "hold" {
                kept.append(&mut rights);
            }
            continue;
        }
        let answer = match &*text {
            "friend" => {
                friend = rights.pop().map(send_right);
                String::new()
            }
            "counters" => counters(friend.as_ref().unwrap()),
            "keep" => {
                kept.append(&mut rights);
                String::new()
            }
            "drop" => {
                kept.clear();
                held.clear();
                String::new()
            }
            "echo" => {
                let _ = request.reply_with(b"", rights);
                continue;
            }
            "door" => {
                let badge = rights.len() as u64 + 5;
                request.reply_with(b"", [port.mint(badge).into()]).unwrap();
                continue;
            }
            "make" => {
                let made = handfast::anonymous().unwrap();
                let right = made.mint(1);
                kept.push(made.into());
                request.reply_with(b"", [right.into()]).unwrap();
                continue;
            }
            "memory" => {
                let memory = Memory::from_bytes(&[7; 5000]).unwrap();
                request.reply_with(b"", [Right::Memory(memory)]).unwrap();
                continue;
            }
            "lend" => {
                let mut block = arena.try_take(100).unwrap();
                block.fill(3);
                request.reply_with(b"", [Right::Block(block)]).unwrap();
                continue;
            }
            "look" => looked_at(rights),
            "call" => {
                let ends = rights
                    .into_iter()
                    .map(send_right)
                    .map(|right| format!("{:?}", right.call(b"inner").map(|_| ())));
                ends.collect::<Vec<_>>().join(" ")
            }
            "send" => {
                for right in rights.into_iter().map(send_right) {
                    right.send(b"sent").unwrap();
                }
                String::new()
            }
            "call kept" => {
                let ends = kept.iter().map(|right| match right {
                    Right::Send(right) => format!("{:?}", right.call(b"inner").map(|_| ())),
                    other => panic!("{other:?}"),
                });
                ends.collect::<Vec<_>>().join(" ")
            }
            "answer" => {
                for right in rights {
                    match right {
                        Right::Reply(right) => right.reply(b"by another").unwrap(),
                        other => panic!("{other:?}"),
                    }
                }
                String::new()
            }
            "hold" => {
                held.push(request);
                continue;
            }
            "go" => {
                for request in held.drain(..) {
                    let _ = request.reply(b"late");
                }
                String::new()
            }
            "turns" => {
                let (_, right) = request.split();
                let mut right = right;
                for turn in 0..3 {
                    let Some(now) = right.take() else { break };
                    match now.call(&[turn]) {
                        Ok(mut answer) => right = answer.take_reply_right(),
                        Err(_) => break,
                    }
                }
                if let Some(right) = right {
                    right.reply(b"last").unwrap();
                }
                continue;
            }
            "pass on" => {
                let to = send_right(rights.pop().unwrap());
                request.forward(&to, b"inner").unwrap();
                continue;
            }
            "inner" => "inner".to_owned(),
            "through" => {
                // On behalf of its caller.
                let to = send_right(rights.pop().unwrap());
                format!("{:?}", request.call_through(&to, b"hold it").map(|_| ()))
            }
            _ => unreachable!("{text}"),
        };
        // The caller may have given up.
        let _ = request.reply(answer.as_bytes());
    }
}

pub(crate) fn send_right(right: Right) -> SendRight {
    match right {
        Right::Send(right) => right,
        other => panic!("{other:?}"),
    }
}

fn looked_at(rights: Vec<Right>) -> String {
    let mut sum = 0u64;
    for right in rights {
        match right {
            Right::Memory(memory) => sum += memory.bytes().len() as u64,
            Right::Loan(loan) => sum += loan.to_vec().unwrap().len() as u64,
            Right::Descriptor(fd) => {
                let mut text = Vec::new();
                std::fs::File::from(fd).read_to_end(&mut text).unwrap();
                sum += text.len() as u64;
            }
            other => panic!("{other:?}"),
        }
    }
    sum.to_string()
}
