//! iceoryx2: its request-response pattern, with slices of bytes and static allocation, so that nothing is allocated after the start.
//!
//! A payload is copied once into a loan by who sends it; the server reads the request where it lies and copies it into the
//! response's loan (one copy fewer than the other systems: it does not keep the bytes to itself first).
//! `iceoryx2-busy` polls, as its examples of low latency do. `iceoryx2-event` sleeps as its documentation says: an event service
//! beside the data, one for the requests of all and one for the replies to each client, so that a reply wakes its client alone; each
//! side asks for data once more before it waits.
//! Nobody is told that a process died: some process has to look for dead nodes now and then. A client here looks after
//! [`LOOK_EVERY`] without a reply, and so does a server that is to watch.

use iceoryx2::active_request::ActiveRequest;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::{event, request_response};
use peer::{Adapter, Calls, Result, Seat};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    peer::run(&Adapter {
        version: || "iceoryx2 0.10.0".to_owned(),
        serve,
        client,
    })
}

/// How long somebody waits before it looks whether the other side's process is dead.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How many polls without an answer pass between two looks at the clock.
const POLLS: u32 = 4096;

type Ipc = ipc::Service;
/// The number beside a request is its client's.
type Echo = request_response::PortFactory<Ipc, [u8], u64, [u8], ()>;

/// A process's place among the others.
struct Place {
    node: Node<Ipc>,
    echo: Echo,
}

impl Place {
    fn new(seat: &Seat) -> Result<Self> {
        set_log_level(LogLevel::Fatal);
        let mut config = Config::default();
        // All that it makes carries the measurement's name, or is in its folder.
        config
            .global
            .set_root_path(&Path::new(seat.path("").as_bytes())?);
        config.global.prefix = FileName::new(format!("{}_", seat.address).as_bytes())?;
        // Its defaults are for few; a node is a process.
        let ports = seat.clients + 2;
        let node = NodeBuilder::new()
            .config(&config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create()?;
        let echo = node
            .service_builder(&"echo".try_into()?)
            .request_response::<[u8], [u8]>()
            .request_user_header::<u64>()
            .max_clients(ports)
            .max_nodes(ports)
            .max_servers(1)
            .max_active_requests_per_client(1)
            .max_loaned_requests(1)
            .max_response_buffer_size(1)
            .max_borrowed_responses_per_pending_response(1)
            .open_or_create()?;
        Ok(Self { node, echo })
    }

    fn event(&self, name: &str, seat: &Seat) -> Result<event::PortFactory<Ipc>> {
        let ports = seat.clients + 2;
        let builder = self.node.service_builder(&name.try_into()?).event();
        Ok(builder
            .max_nodes(ports)
            .max_notifiers(ports)
            .max_listeners(1)
            .open_or_create()?)
    }

    /// The event service that wakes one client, or the server.
    fn bell(&self, client: Option<usize>, seat: &Seat) -> Result<event::PortFactory<Ipc>> {
        let name = client.map_or_else(|| "requests".to_owned(), |index| format!("replies-{index}"));
        self.event(&name, seat)
    }

    /// Whether there was somebody dead.
    fn look(&self) -> bool {
        self.node.try_cleanup_dead_nodes().cleanups > 0
    }
}

/// Says now and then that it is time to look whether the others live.
struct Watch {
    polls: u32,
    last: Instant,
}

impl Watch {
    fn new() -> Self {
        Self {
            polls: 0,
            last: Instant::now(),
        }
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS) || self.last.elapsed() < LOOK_EVERY {
            return false;
        }
        self.last = Instant::now();
        true
    }
}

fn answer(request: &ActiveRequest<Ipc, [u8], u64, [u8], ()>) -> Result {
    let response = request.loan_slice_uninit(request.payload().len())?;
    response.write_from_slice(request.payload()).send()?;
    Ok(())
}

fn serve(seat: &Seat) -> Result {
    let place = Place::new(seat)?;
    let server = place.echo.server_builder();
    let server = server
        .initial_max_slice_len(seat.payload_bytes)
        .allocation_strategy(AllocationStrategy::Static)
        .create()?;
    let mut count = 0;
    if seat.is_busy() {
        seat.ready();
        let mut watch = Watch::new();
        loop {
            if let Some(request) = server.receive()? {
                answer(&request)?;
                count += 1;
                seat.served(count);
            } else if seat.watches && watch.is_due() && place.look() {
                seat.noticed();
            } else {
                std::hint::spin_loop();
            }
        }
    }
    let listener = place.bell(None, seat)?.listener_builder().create()?;
    let mut bells: Vec<Option<Notifier<Ipc>>> = (0..seat.clients).map(|_| None).collect();
    seat.ready();
    loop {
        while let Some(request) = server.receive()? {
            let client = usize::try_from(*request.user_header())?;
            answer(&request)?;
            let bell = bells.get_mut(client).ok_or("nobody's request")?;
            if bell.is_none() {
                *bell = Some(
                    place
                        .bell(Some(client), seat)?
                        .notifier_builder()
                        .create()?,
                );
            }
            if let Some(bell) = bell {
                bell.notify()?;
            }
            count += 1;
            seat.served(count);
        }
        if !seat.watches {
            listener.blocking_wait(|_| ())?;
        } else if listener.timed_wait(|_| (), LOOK_EVERY)? == 0 && place.look() {
            seat.noticed();
        }
    }
}

fn client(seat: &Seat) -> Result {
    let place = Place::new(seat)?;
    let bells: Option<(Listener<Ipc>, Notifier<Ipc>)> = if seat.is_busy() {
        None
    } else {
        let listener = place
            .bell(Some(seat.index), seat)?
            .listener_builder()
            .create()?;
        Some((
            listener,
            place.bell(None, seat)?.notifier_builder().create()?,
        ))
    };
    let client = place.echo.client_builder();
    let client = client
        .initial_max_slice_len(seat.payload_bytes)
        .allocation_strategy(AllocationStrategy::Static)
        .create()?;
    let mut request = vec![0x5a; seat.payload_bytes];
    let mut private = vec![0; seat.payload_bytes];
    let mut calls = Calls::new(seat)?;
    while let Some(number) = calls.next() {
        request[..8].copy_from_slice(&number.to_le_bytes());
        let mut loan = calls.check(client.loan_slice_uninit(request.len()))?;
        *loan.user_header_mut() = seat.index as u64;
        let pending = calls.check(loan.write_from_slice(&request).send())?;
        if let Some((_, server)) = &bells {
            calls.check(server.notify())?;
        }
        let mut watch = Watch::new();
        let reply = loop {
            if let Some(reply) = calls.check(pending.receive())? {
                break reply;
            }
            let is_due = match &bells {
                None => watch.is_due(),
                Some((listener, _)) => calls.check(listener.timed_wait(|_| (), LOOK_EVERY))? == 0,
            };
            if is_due {
                place.look();
                // Once it has answered it is not connected either.
                let is_gone = !pending.is_connected();
                if let Some(reply) = calls.check(pending.receive())? {
                    break reply;
                }
                if is_gone {
                    calls.check(Err("the server is gone"))?;
                }
            }
        };
        private.copy_from_slice(reply.payload());
        drop(reply);
        calls.done(&private)?;
    }
    calls.report()
}
