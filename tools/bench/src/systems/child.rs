//! The processes of a measurement: what a server and a client do between being started and being
//! stopped.

use super::{Caller, Producer, System};
use crate::control::{Control, Phase, Slot, Tally};
use crate::plan::{ChildSpec, Placement, Plan, Role, Task, doze};
use crate::process::adopt;
use crate::shared::{Piece, Shared};
use crate::work::Work;
use handfast_sys::{OwnedFd, clock, cpu};
use hdrhistogram::Histogram;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where one process of a measurement sits.
pub struct Seat {
    pub(crate) plan: Plan,
    /// Which client, or which server, this is.
    pub(crate) index: usize,
    /// The answer of [`Bundle::address`](super::Bundle::address), else a name unique to this
    /// measurement.
    pub(crate) address: String,
    /// The bundle's common descriptors, then this process's own.
    pub(crate) fds: Vec<OwnedFd>,
    control: &'static Control,
}

impl Seat {
    /// Clients may connect from now on.
    pub(crate) fn ready(&self) {
        self.control.add_server_ready();
    }

    /// The address of server `number`.
    pub(crate) fn server(&self, number: usize) -> String {
        match number {
            0 => self.address.clone(),
            number => format!("{}-{number}", self.address),
        }
    }

    /// Maps the first descriptor for the rest of the process's life.
    pub(crate) fn map(&self, len_bytes: usize) -> io::Result<&'static Shared> {
        let shared = Shared::open(&self.fds[0], len_bytes)?;
        Ok(Box::leak(Box::new(shared)))
    }

    /// Publishes what the server has done so far.
    #[inline]
    pub(crate) fn set_served(&self, messages: u64, busy_ns: u64) {
        let served = &self.control.header().served.0;
        // Relaxed: counters for the parent's statistics; they publish nothing else.
        served.messages.store(messages, Ordering::Relaxed);
        // Relaxed: as above.
        served.busy_ns.store(busy_ns, Ordering::Relaxed);
    }

    /// Where the server counts its steps to wait.
    pub(crate) fn server_tally(&self) -> &'static Tally {
        &self.control.header().tally.0
    }

    /// Where this client does.
    pub(crate) fn client_tally(&self) -> &'static Tally {
        &self.control.slot(self.index).tally
    }

    /// The server has noticed that a client died.
    pub(crate) fn set_noticed(&self) {
        self.control.set_noticed();
    }

    fn slot(&self) -> &Slot {
        self.control.slot(self.index)
    }

    /// Tells the parent that this client is connected and sleeps until the first phase.
    fn take_part(&self) {
        if self.plan.think_ns > 0 {
            // Pauses are to be as long as asked, not 50 us longer; without it they are all longer.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        self.slot().ready.store(1, Ordering::Release);
        self.control.sleep_while(Phase::Hold);
        let offset = clock::now_ns().cast_signed() - clock::ticks_ns().cast_signed();
        // Relaxed: read by the parent long after, for statistics.
        self.slot().clock_offset.store(offset, Ordering::Relaxed);
    }
}

/// Runs the child that `spec` describes.
pub(crate) fn run(spec: &str) -> io::Result<()> {
    let spec: ChildSpec = serde_json::from_str(spec)?;
    // The name that `top` shows.
    rustix::thread::set_name(c"handfast-bench")?;
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
    if parent != Some(spec.parent.cast_signed()) {
        // The parent ended before its death could be watched.
        return Ok(());
    }
    let system = super::find(&spec.system);
    match spec.role {
        Role::Hog(cpu) => hog(cpu),
        Role::Server(number) => {
            let seat = seat(spec, number)?;
            let result = system.ok_or(io::ErrorKind::NotFound)?.run_server(&seat);
            // Clients that end at the stop close their channels: not an error.
            result.or_else(|error| match seat.control.phase() {
                Phase::Stop => Ok(()),
                _ => Err(error),
            })
        }
        Role::Client(index) => {
            let seat = seat(spec, index)?;
            system.ok_or(io::ErrorKind::NotFound)?.run_client(&seat)
        }
    }
}

fn seat(spec: ChildSpec, index: usize) -> io::Result<Seat> {
    // First: on the CPU of others at fixed priority it might never come to it.
    let is_server = matches!(spec.role, Role::Server(_));
    spec.plan.scheduling.enter(is_server)?;
    if let Placement::Pinned { server, client } = spec.plan.placement {
        let left = |number: usize| {
            let mut left = cpu::allowed();
            left.retain(|cpu| *cpu != server && *cpu != client);
            left.get(number).copied()
        };
        let own = match spec.role {
            Role::Server(0) => server,
            Role::Server(number) => left(number - 1).unwrap_or(server),
            Role::Client(_) | Role::Hog(_) => client,
        };
        let mut cpus = vec![own];
        if matches!(spec.role, Role::Client(_)) && !spec.plan.meets_strangers() {
            // The client's second thread is at work, too: it passes on what goes by the vine.
            cpus.extend(left(spec.plan.servers - 1));
        }
        cpu::pin(&cpus)?;
    }
    if let (Placement::OnePerCpu, Role::Client(number)) = (spec.plan.placement, spec.role) {
        cpu::pin(&[spec.plan.placement.client_cpu(number)])?;
    }
    clock::calibrate();
    let mut fds = spec.fds.iter().map(|fd| adopt(*fd));
    let control = fds.next().ok_or(io::ErrorKind::InvalidInput)??;
    let control = Control::open(&control, spec.plan.clients)?;
    Ok(Seat {
        // Mapped for the rest of the process's life.
        control: Box::leak(Box::new(control)),
        fds: fds.collect::<io::Result<_>>()?,
        plan: spec.plan,
        index,
        address: spec.address,
    })
}

/// Uses a CPU until killed.
fn hog(on: Option<u32>) -> ! {
    if let Some(on) = on {
        // Not pinned is still a hog.
        let _ = cpu::pin(&[on]);
    }
    loop {
        core::hint::spin_loop();
    }
}

/// The server of a system that answers calls.
pub(crate) fn serve<S: System>(system: &S, seat: &Seat) -> io::Result<()> {
    match seat.plan.task {
        Task::Echo | Task::Stream | Task::Return | Task::Pass(_) | Task::Move(_) => {
            system.serve(seat, |message| message.len())
        }
        Task::OneWay => {
            let mut last = 0;
            system.serve(seat, |message| {
                assert_eq!(message.len(), seat.plan.payload_bytes, "bytes that came");
                if let Some(number) = message.first_chunk() {
                    let number = u64::from_le_bytes(*number);
                    // Zero: not counted.
                    let expected = if number == 0 { 0 } else { last + 1 };
                    assert_eq!(number, expected, "the message after number {last}");
                    last = last.max(number);
                }
                0
            })
        }
        Task::Doze => system.serve(seat, |message| {
            doze(message);
            message.len()
        }),
        Task::Consume => system.serve(seat, |message| {
            let sum = checksum(message);
            message[..8].copy_from_slice(&sum.to_le_bytes());
            8
        }),
        Task::Service(law) | Task::PingPong(law) => {
            let mut work = Work::new(law);
            system.serve(seat, |message| {
                let spent = work.next_ns();
                seat.set_served(work.done, work.busy_ns);
                message[8..16].copy_from_slice(&spent.to_le_bytes());
                message.len()
            })
        }
    }
}

/// The client of a system that answers calls.
pub(crate) fn drive_calls<C: Caller>(caller: &mut C, seat: &Seat) -> io::Result<()> {
    let mut request = vec![0x5a; seat.plan.payload_bytes];
    let mut reply = vec![0; seat.plan.reply_bytes()];
    let pieces = request.len() / size_of::<Piece>();
    match seat.plan.task {
        Task::Echo | Task::Stream | Task::OneWay | Task::Pass(_) | Task::Move(_) | Task::Doze => {
            drive(seat, |counter| {
                if let Some(number) = request.first_chunk_mut() {
                    *number = counter.to_le_bytes();
                }
                let start = clock::ticks_ns();
                caller.call(&request, &mut reply)?;
                let end = clock::ticks_ns();
                if let Some(number) = reply.first_chunk() {
                    check(u64::from_le_bytes(*number), counter)?;
                }
                Ok(end - start)
            })
        }
        Task::Return => drive(seat, |counter| {
            let make = |index| piece(counter, index);
            let start = clock::ticks_ns();
            let sum = caller.call_returned(make, &mut request, &mut reply)?;
            let end = clock::ticks_ns();
            check(sum, expected_checksum(counter, pieces))?;
            Ok(end - start)
        }),
        Task::Service(_) => drive(seat, |counter| {
            beyond_work_ns(caller, counter, &mut request, &mut reply)
        }),
        Task::PingPong(law) => {
            let mut work = Work::other(law);
            drive(seat, |counter| {
                work.next_ns();
                // Relaxed: a counter for the parent's statistics.
                seat.slot().busy_ns.store(work.busy_ns, Ordering::Relaxed);
                beyond_work_ns(caller, counter, &mut request, &mut reply)
            })
        }
        Task::Consume => drive(seat, |counter| {
            let start = clock::ticks_ns();
            caller.call_made(|index| piece(counter, index), &mut request, &mut reply)?;
            let end = clock::ticks_ns();
            check(word(&reply, 0), expected_checksum(counter, pieces))?;
            Ok(end - start)
        }),
    }
}

/// One round trip, and its time beyond the work that the server says it did.
fn beyond_work_ns<C: Caller>(
    caller: &mut C,
    counter: u64,
    request: &mut [u8],
    reply: &mut [u8],
) -> io::Result<u64> {
    request[..8].copy_from_slice(&counter.to_le_bytes());
    let start = clock::ticks_ns();
    caller.call(request, reply)?;
    let end = clock::ticks_ns();
    check(word(reply, 0), counter)?;
    Ok((end - start).saturating_sub(word(reply, 1)))
}

/// The content of a stream's message beside its number.
const FILLING: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// The client of a stream.
pub(crate) fn drive_stream<P: Producer>(producer: &mut P, seat: &Seat) -> io::Result<()> {
    seat.take_part();
    let mut counter: u64 = 0;
    while seat.control.phase() != Phase::Stop {
        for _ in 0..256 {
            counter += 1;
            producer.send([counter, FILLING, FILLING])?;
        }
    }
    report(&histogram()?)
}

/// Calls in a closed loop as the phases say. `call` makes one round trip and returns what to
/// record.
#[inline(always)]
fn drive(seat: &Seat, mut call: impl FnMut(u64) -> io::Result<u64>) -> io::Result<()> {
    let mut latencies = histogram()?;
    seat.take_part();
    let slot = seat.slot();
    let calls_max = seat.plan.calls_max();
    let mut calls = 0;
    loop {
        match seat.control.phase() {
            asleep @ Phase::Warm if calls_max.is_some() => {
                seat.control.sleep_while(asleep);
                continue;
            }
            asleep @ Phase::Measure if calls_max == Some(calls) => {
                seat.control.sleep_while(asleep);
                continue;
            }
            Phase::Warm | Phase::Measure => {}
            asleep @ (Phase::Hold | Phase::Idle) => {
                seat.control.sleep_while(asleep);
                continue;
            }
            Phase::Stop => break,
        }
        if seat.plan.think_ns > 0 {
            std::thread::sleep(Duration::from_nanos(seat.plan.think_ns));
        }
        // Relaxed stores: each is read by the parent for statistics and publishes nothing.
        slot.open_since.store(clock::ticks_ns(), Ordering::Relaxed);
        calls += 1;
        let taken = call(calls).inspect_err(|_| slot.set_failed())?;
        slot.open_since.store(0, Ordering::Relaxed);
        slot.calls.store(calls, Ordering::Relaxed);
        if seat.control.phase() == Phase::Measure {
            latencies.saturating_record(taken);
        }
    }
    report(&latencies)
}

/// 1 ns to 100 s at three digits.
pub fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(io::Error::other)
}

/// The values recorded, each with its count.
pub(crate) fn counted(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    latencies
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect()
}

/// Writes what was recorded to standard output.
fn report(latencies: &Histogram<u64>) -> io::Result<()> {
    io::stdout().write_all(&serde_json::to_vec(&counted(latencies))?)
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes[index * 8..][..8]
        .try_into()
        .map_or(0, u64::from_le_bytes)
}

fn check(found: u64, expected: u64) -> io::Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "reply {found:#x} instead of {expected:#x}"
    )))
}

/// Piece number `index` of the payload of call `counter`.
#[inline]
fn piece(counter: u64, index: usize) -> Piece {
    [counter.wrapping_add(index as u64); 8]
}

/// The sum of the words of a payload.
#[inline]
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .fold(0, |sum, bytes| sum.wrapping_add(u64::from_le_bytes(*bytes)))
}

fn expected_checksum(counter: u64, pieces: usize) -> u64 {
    let (pieces, words) = (pieces as u64, 8);
    let indices = pieces * pieces.saturating_sub(1) / 2;
    counter
        .wrapping_mul(pieces)
        .wrapping_add(indices)
        .wrapping_mul(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_made_payload_is_as_expected() {
        for (counter, pieces) in [(1, 1), (77, 64), (u64::MAX, 1024)] {
            let bytes: Vec<u8> = (0..pieces)
                .flat_map(|index| piece(counter, index))
                .flat_map(u64::to_le_bytes)
                .collect();
            assert_eq!(checksum(&bytes), expected_checksum(counter, pieces));
        }
    }
}
