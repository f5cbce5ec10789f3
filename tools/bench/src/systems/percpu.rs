//! Servers of several threads: one on every CPU, a plain pool at one port, and the limit of the former, a hand-written
//! futex pair on every CPU.

use super::handfast::{DEFAULT, HandfastCaller};
use super::lanes::{Lane, Lanes};
use super::pair::{FUTEX, PairCaller};
use super::waiters::{SpinThenSleep, Waiter};
use super::{Bundle, Named, Runnable, System, Waits};
use crate::plan::{Plan, Task, doze};
use crate::shared::Shared;
use crate::systems::child::{self, Seat};
use crate::work::Work;
use handfast_sys::cpu;
use std::cell::RefCell;
use std::io;

/// A thread's work on a request before it sends it back.
fn handle(task: Task, message: &mut [u8]) -> usize {
    thread_local! {
        static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
    }
    match task {
        Task::Service(law) => {
            let spent =
                WORK.with_borrow_mut(|work| work.get_or_insert_with(|| Work::new(law)).next_ns());
            message[8..16].copy_from_slice(&spent.to_le_bytes());
        }
        Task::Doze => doze(message),
        _ => {}
    }
    message.len()
}

/// `handfast-percpu`: a port that is served on every CPU.
pub(crate) struct PerCpu;
/// `handfast-pool`: as many threads as there are CPUs receive at one port.
pub(crate) struct Pool;
/// `futex-percpu`: for each client a thread on its CPU, and nothing shared between them.
pub(crate) struct Pairs;

impl Named for PerCpu {
    fn name(&self) -> &'static str {
        "handfast-percpu"
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }
}

impl Named for Pool {
    fn name(&self) -> &'static str {
        "handfast-pool"
    }

    fn waits(&self) -> Waits {
        Waits::Adapts
    }
}

impl Named for Pairs {
    fn name(&self) -> &'static str {
        "futex-percpu"
    }

    fn waits(&self) -> Waits {
        Waits::Blocks
    }

    fn prepare(&self, plan: &Plan) -> io::Result<Bundle> {
        let (fd, _) = Shared::create("handfast-bench-lanes", Lanes::len_bytes(plan))?;
        Ok(Bundle {
            common: vec![fd],
            ..Bundle::default()
        })
    }
}

impl Runnable for PerCpu {
    fn named(&self) -> &dyn Named {
        self
    }

    fn run_server(&self, seat: &Seat) -> io::Result<()> {
        let task = seat.plan.task;
        let port = DEFAULT.bind(seat)?;
        let served = port.serve_per_cpu(move |worker, mut request| {
            let mut message = request.take_message();
            let len = handle(task, &mut message);
            // The client may have ended meanwhile.
            let _ = worker.reply(request, &message[..len]);
        });
        let _served = served.map_err(io::Error::other)?;
        seat.ready();
        loop {
            std::thread::park();
        }
    }

    fn run_client(&self, seat: &Seat) -> io::Result<()> {
        child::drive_calls(&mut DEFAULT.connect(seat)?, seat)
    }
}

impl Runnable for Pool {
    fn named(&self) -> &dyn Named {
        self
    }

    fn run_server(&self, seat: &Seat) -> io::Result<()> {
        let task = seat.plan.task;
        let port = DEFAULT.bind(seat)?;
        seat.ready();
        let serve = || -> io::Result<()> {
            let mut request = port.receive().map_err(io::Error::other)?;
            loop {
                let mut message = request.take_message();
                let len = handle(task, &mut message);
                let next = port.reply_and_receive(request, &message[..len]);
                request = next.map_err(io::Error::other)?;
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..cpu::available() {
                scope.spawn(serve);
            }
            serve()
        })
    }

    fn run_client(&self, seat: &Seat) -> io::Result<()> {
        let mut caller: HandfastCaller = DEFAULT.connect(seat)?;
        child::drive_calls(&mut caller, seat)
    }
}

impl Runnable for Pairs {
    fn named(&self) -> &dyn Named {
        self
    }

    fn run_server(&self, seat: &Seat) -> io::Result<()> {
        std::thread::scope(|scope| {
            for index in 0..seat.plan.clients {
                scope.spawn(move || -> io::Result<()> {
                    cpu::pin(&[seat.plan.placement.client_cpu(index)])?;
                    serve_pair(&Lanes::map(seat)?.lane(index), seat)
                });
            }
            seat.ready();
            Ok(())
        })
    }

    fn run_client(&self, seat: &Seat) -> io::Result<()> {
        let mut caller: PairCaller<SpinThenSleep> = FUTEX.connect(seat)?;
        caller.sleeps_alone();
        child::drive_calls(&mut caller, seat)
    }
}

fn serve_pair(lane: &Lane, seat: &Seat) -> io::Result<()> {
    let mut waiter = SpinThenSleep::new(seat, &[])?;
    let mut private = vec![0; seat.plan.payload_bytes];
    for next in 1.. {
        while !lane.request.has(next) {
            waiter.pass(lane.server_bed, || lane.request.has(next))?;
        }
        lane.request.get(&mut private);
        let len = handle(seat.plan.task, &mut private);
        lane.reply.put(&private[..len]);
        lane.reply.publish(next);
        waiter.wake(lane.client_bed)?;
    }
    Ok(())
}
