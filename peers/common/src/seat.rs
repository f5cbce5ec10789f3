//! What one process of a measurement is told.

use crate::Result;
use crate::control::Control;
use handfast_sys::{OwnedFd, clock, cpu};
use serde::Deserialize;
use std::os::fd::FromRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

/// Where one process of a measurement sits.
pub struct Seat {
    /// The name of what is measured, such as `zeromq-busy`.
    pub system: String,
    /// Whether this process is the server.
    pub is_server: bool,
    /// Which client this is.
    pub index: usize,
    /// How many clients there are.
    pub clients: usize,
    /// Bytes of a request, and of its reply.
    pub payload_bytes: usize,
    /// Whether the client makes each payload where it is sent from, and the server reads all of it and answers with the sum of
    /// its words, as eight bytes; else the server sends the bytes back.
    pub consumes: bool,
    /// Whether the server is to tell [`Seat::noticed`] when a client dies.
    pub watches: bool,
    /// How long a client rests between calls.
    pub(crate) think_ns: u64,
    /// A name that no other measurement has.
    pub address: String,
    /// For socket files and the like.
    pub dir: PathBuf,
    pub(crate) control: &'static Control,
}

/// The part of `ChildSpec` (`tools/bench/src/plan.rs`) that concerns an adapter.
#[derive(Deserialize)]
struct Spec {
    role: Role,
    parent: u32,
    system: String,
    plan: Plan,
    fds: Vec<i32>,
    address: String,
    dir: PathBuf,
}

#[derive(Deserialize)]
struct Plan {
    task: serde_json::Value,
    payload_bytes: usize,
    clients: usize,
    placement: Placement,
    think_ns: u64,
    watches: bool,
}

#[derive(Deserialize)]
enum Role {
    Server(usize),
    Client(usize),
}

#[derive(Deserialize)]
enum Placement {
    Free,
    Pinned { server: u32, client: u32 },
}

impl Seat {
    /// Reads the task, pins this process, maps the page.
    pub(crate) fn take(spec: &str) -> Result<Self> {
        let spec: Spec = serde_json::from_str(spec)?;
        let parent = rustix::process::getppid().map(|parent| parent.as_raw_pid());
        if parent != Some(spec.parent.cast_signed()) {
            return Err("the lab has ended".into());
        }
        let (is_server, index) = match spec.role {
            Role::Server(index) => (true, index),
            Role::Client(index) => (false, index),
        };
        if let Placement::Pinned { server, client } = spec.plan.placement {
            cpu::pin(&[if is_server { server } else { client }])?;
        }
        clock::calibrate();
        let fd = *spec.fds.first().ok_or("no page")?;
        // SAFETY: the lab passed this open descriptor to us alone; it is taken once.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let control = Control::open(&fd, spec.plan.clients)?;
        Ok(Self {
            system: spec.system,
            is_server,
            index,
            clients: spec.plan.clients,
            payload_bytes: spec.plan.payload_bytes,
            consumes: spec.plan.task == "Consume",
            watches: spec.plan.watches,
            think_ns: spec.plan.think_ns,
            address: spec.address,
            dir: spec.dir,
            // Mapped for the rest of the process's life.
            control: Box::leak(Box::new(control)),
        })
    }

    /// Whether this is the variant that polls.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.system.ends_with("-busy")
    }

    /// A file of this measurement.
    #[must_use]
    pub fn path(&self, ending: &str) -> String {
        self.dir
            .join(format!("{}{ending}", self.address))
            .display()
            .to_string()
    }

    /// Clients may connect from now on.
    pub fn ready(&self) {
        self.control.add_server_ready();
    }

    /// The server has served `messages` so far.
    #[inline]
    pub fn served(&self, messages: u64) {
        self.counter()(messages);
    }

    /// As [`Seat::served`], for who may outlive the seat.
    #[inline]
    pub fn counter(&self) -> impl Fn(u64) + Send + Sync + Clone + 'static {
        let served = &self.control.header().served.0.messages;
        move |messages| served.store(messages, Relaxed)
    }

    /// The server has noticed just now that a client died. The first time counts.
    pub fn noticed(&self) {
        self.notice()();
    }

    /// As [`Seat::noticed`], for another thread.
    pub fn notice(&self) -> impl Fn() + Send + Sync + Clone + 'static {
        let control = self.control;
        move || control.set_noticed()
    }
}
