//! A node of a simulated run serves: answers calls, passes them on, and moves its ports.

use super::Scene;
use super::home::{CONNECTS_BESIDE, Home, PATIENCE, Wish, bytes, pause_of, words};
use crate::error::{ReceiveError, ReplyError, RightError};
use crate::receive_right::ReceiveRight;
use crate::request::Request;
use crate::right::Right;
use core::sync::atomic::Ordering;
use core::time::Duration;
use handfast_sys::clock;
use handfast_sys::simulation::{pause, random};
use std::sync::Arc;

impl Home {
    /// Receives from a port in a thread of its own.
    pub(super) fn serve(self: &Arc<Self>, scene: &Arc<Scene>, port: ReceiveRight, number: u32) {
        let (home, of) = (self.clone(), scene.clone());
        scene.spawn(self.number, move || home.serve_here(&of, port, number));
    }

    fn serve_here(self: &Arc<Self>, scene: &Arc<Scene>, mut port: ReceiveRight, number: u32) {
        let mut idle = 0;
        while !scene.is_over.load(Ordering::Relaxed) {
            match port.receive_timeout(pause_of(idle)) {
                Ok(request) => {
                    idle = 0;
                    self.answer(scene, request, number);
                }
                Err(ReceiveError::TimedOut) => idle += 1,
                Err(_) if scene.may_fail(number) => return,
                Err(error) => panic!("HANDFAST_SEED={}: {error}", scene.seed),
            }
            if scene.is_lively && random(24) == 0 {
                match self.move_away(scene, port, number) {
                    Some(same) => port = same,
                    None => return,
                }
            }
        }
    }

    pub(super) fn answer(self: &Arc<Self>, scene: &Arc<Scene>, mut request: Request, number: u32) {
        let Some((wish, about, of)) = words(request.bytes()) else {
            return;
        };
        if random(8) == 0 {
            clock::sleep(Duration::from_micros(random(200)));
        }
        scene.tell(
            self.number,
            format_args!(
                "{number} has {wish} about {about} of {}",
                request.peer().pid & 0xff
            ),
        );
        let mut rights = request.take_rights();
        let right = rights.pop();
        let said = bytes(0, number, of);
        match (wish, right) {
            (wish, Some(right)) if Wish::Keep.is(wish) => {
                self.keep(about, right);
                let _ = request.reply(&said);
            }
            (wish, Some(Right::Send(to))) if Wish::Pass.is(wish) => {
                let said = bytes(Wish::Name as u8, about, of);
                let passed = request.forward_timeout(&to, &said, PATIENCE);
                let failed = passed.as_ref().err().map(|not| not.error);
                scene.tell(self.number, format_args!("{number} passes on: {failed:?}"));
                if let Err(not) = passed {
                    let _ = scene.expect(self, (Wish::Pass, about, None), Err::<(), _>(not.error));
                }
            }
            (wish, right) if Wish::Pass.is(wish) => {
                let is_good = matches!(right, Some(Right::Own(_))) || scene.may_fail(about);
                assert!(
                    is_good,
                    "HANDFAST_SEED={}: {right:?} to {about}",
                    scene.seed
                );
                let _ = request.reply(&bytes(0, about, of));
            }
            (wish, Some(Right::Receive(port))) if Wish::Take.is(wish) => {
                scene.arrives(about);
                self.serve(scene, port, about);
            }
            (wish, None) if Wish::Give.is(wish) => {
                let gift = self.any(scene, CONNECTS_BESIDE);
                let named = gift.as_ref().map_or(number, |(port, _)| *port);
                let rights = gift.map(|(_, right)| Right::from(right));
                // Before that: the caller may go on before this thread does.
                scene.depends.lock().unwrap().insert(of, None);
                scene.tell(self.number, format_args!("{number} gives {named}"));
                let given = request.reply_with(&bytes(0, named, of), rights);
                match given.err().map(|returned| returned.error) {
                    // By another process, whose answer has the right, too.
                    None => drop(scene.depends.lock().unwrap().insert(of, Some(named))),
                    Some(ReplyError::Right(error)) => assert!(
                        error == RightError::Unsettled || scene.may_fail(named),
                        "HANDFAST_SEED={}: gift of {named}: {error:?}",
                        scene.seed
                    ),
                    Some(_) => {}
                }
            }
            (wish, Some(Right::Memory(memory))) if Wish::Name.is(wish) => {
                assert_eq!(
                    memory.bytes(),
                    of.to_le_bytes(),
                    "HANDFAST_SEED={}",
                    scene.seed
                );
                let _ = request.reply(&said);
            }
            (wish, Some(Right::Reply(reply))) if Wish::Answer.is(wish) => {
                let _ = reply.reply(&bytes(0, about, of));
            }
            (wish, None) if Wish::Name.is(wish) && request.is_call() && random(4) == 0 => {
                self.have_answered(scene, request, (number, of));
            }
            _ => {
                let _ = request.reply(&said);
            }
        }
        pause();
    }

    /// Has another port answer.
    fn have_answered(&self, scene: &Scene, request: Request, (number, of): (u32, u32)) {
        let (_, Some(reply)) = request.split() else {
            return;
        };
        let said = bytes(0, number, of);
        let Some((by, to)) = self.any(scene, CONNECTS_BESIDE) else {
            let _ = reply.reply(&said);
            return;
        };
        scene.depends.lock().unwrap().insert(of, Some(by));
        let asked = bytes(Wish::Answer as u8, number, of);
        let sent = to
            .with([Right::Reply(reply)])
            .send_timeout(&asked, PATIENCE);
        if let Err(returned) = sent {
            let _ = scene.expect(self, (Wish::Answer, by, None), Err::<(), _>(returned.error));
            for right in returned.rights {
                if let Right::Reply(reply) = right {
                    let _ = reply.reply(&said);
                }
            }
        }
    }

    /// Moves the port to wherever one of the rights leads, or drops it. It comes back if it cannot move.
    fn move_away(
        self: &Arc<Self>,
        scene: &Scene,
        port: ReceiveRight,
        number: u32,
    ) -> Option<ReceiveRight> {
        if random(6) == 0 {
            scene.ends(number);
            scene.tell(self.number, format_args!("drops {number}"));
            return None;
        }
        // To an earlier one: ports that lie in each other's queues are nobody's (`docs/limits.md`).
        let Some((to, right)) = self
            .any(scene, CONNECTS_BESIDE)
            .filter(|(to, _)| *to < number)
        else {
            return Some(port);
        };
        scene.moves(number, to);
        let said = bytes(Wish::Take as u8, number, 0);
        let sent = right.with([port.into()]).send_timeout(&said, PATIENCE);
        let failed = sent.as_ref().err().map(|returned| returned.error);
        scene.tell(
            self.number,
            format_args!("moves {number} with {to}: {failed:?}"),
        );
        let Err(returned) = sent else { return None };
        let _ = scene.expect(
            self,
            (Wish::Take, to, Some(number)),
            Err::<(), _>(returned.error),
        );
        let mut back = returned.rights.into_iter();
        let Some(Right::Receive(port)) = back.next() else {
            panic!("HANDFAST_SEED={}: a port is lost", scene.seed);
        };
        scene.arrives(number);
        Some(port)
    }
}
